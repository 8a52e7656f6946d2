"""Memory that XNNPACK, LiteRT's default delegate, keeps for each op until the interpreter closes.

A convolution reads its input through a table with a pointer for each tap of each output element. The table covers one
image and serves a whole batch. The formulas follow XNNPACK's operators in LiteRT 2.3 with 64-bit pointers
(``src/operators/convolution-nhwc.c``, ``resize-bilinear-nhwc.c``) and equal traced allocations. Packed weights depend
on the processor, whose kernels compute tiles of output channels (``src/configs/gemm-config.c``).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from memsched.base.processor import processor_flags
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import Graph, Op
from memsched.lowering.prices import Avoidable

__all__ = ["MOST_JOINED", "avoidable", "is_delegated", "packed_bytes", "table_bytes", "takes"]

_POINTER: Final = 8
_MOST_TAPS: Final = 25
"""Largest depthwise kernel, in taps. XNNPACK computes larger ones as grouped convolutions."""

_CACHE_LINE: Final = 64
"""XNNPACK rounds each allocation up to this many bytes."""

_WORD: Final = 4
"""Bytes of a float, a bias, or a scale."""


class _Tiles(NamedTuple):
    """Numbers to which packing rounds up channels.

    Attributes:
        floats: Output channels of a product of floats. Convolutions with more channels and taps take two tiles at once.
        integers: Output channels of a product of integers.
        inputs: Input channels of a product of integers, for each tap.
        depthwise: Channels of a depthwise convolution, of floats and of integers.
    """

    floats: int
    integers: int
    inputs: int
    depthwise: tuple[int, int]


_AVX2: Final = _Tiles(8, 8, 8, (16, 16))
_AVX512: Final = _Tiles(16, 16, 8, (16, 32))
_AMX: Final = _Tiles(16, 64, 4, (16, 32))
"""Only for int8: the kernels for uint8 are those of AVX-512."""

_WORDS: Final = {"float32": 1, "int8": 2, "uint8": 1}
"""Words of each output channel: a bias, and of int8 a scale."""

_TYPES: Final = frozenset(_WORDS)
_ACTIVATIONS: Final = frozenset({"NONE", "RELU", "RELU6", "RELU_N1_TO_1"})
_CONVOLUTIONS: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})
_PRODUCTS: Final = frozenset({*_CONVOLUTIONS, "FULLY_CONNECTED"})


_FLOATS: Final = frozenset(
    {
        "ABS",
        "ADD",
        "AVERAGE_POOL_2D",
        "BATCH_MATMUL",
        "CEIL",
        "CONCATENATION",
        "COS",
        "DEPTH_TO_SPACE",
        "DIV",
        "ELU",
        "EXP",
        "FLOOR",
        "GELU",
        "HARD_SWISH",
        "LEAKY_RELU",
        "LOG",
        "LOGISTIC",
        "MAXIMUM",
        "MAX_POOL_2D",
        "MEAN",
        "MINIMUM",
        "MUL",
        "NEG",
        "PAD",
        "PRELU",
        "QUANTIZE",
        "REDUCE_MAX",
        "REDUCE_MIN",
        "RELU",
        "RELU6",
        "RELU_N1_TO_1",
        "RESHAPE",
        "RESIZE_BILINEAR",
        "ROUND",
        "RSQRT",
        "SIN",
        "SLICE",
        "SOFTMAX",
        "SPACE_TO_DEPTH",
        "SPLIT",
        "SQRT",
        "SQUARE",
        "SQUARED_DIFFERENCE",
        "STRIDED_SLICE",
        "SUB",
        "SUM",
        "TANH",
        "TRANSPOSE",
        "TRANSPOSE_CONV",
    }
)
"""Float ops that XNNPACK accepts, in addition to `_PRODUCTS`."""

_INTEGERS: Final = frozenset(
    {
        "ADD",
        "CONCATENATION",
        "DEPTH_TO_SPACE",
        "DEQUANTIZE",
        "ELU",
        "LEAKY_RELU",
        "LOGISTIC",
        "MAX_POOL_2D",
        "MEAN",
        "MUL",
        "PAD",
        "QUANTIZE",
        "RESHAPE",
        "RESIZE_BILINEAR",
        "SLICE",
        "SPLIT",
        "STRIDED_SLICE",
        "SUB",
        "TANH",
        "TRANSPOSE",
        "TRANSPOSE_CONV",
    }
)
"""Quantized ops that XNNPACK accepts, in addition to `_PRODUCTS`."""

MOST_JOINED: Final = 5
"""Largest number of inputs of a concatenation that XNNPACK accepts."""

_MOST_OUTPUTS: Final = 4


def takes(graph: Graph, op: Op) -> bool:
    """Return whether XNNPACK computes an op instead of LiteRT's built-in kernel."""
    if op.type in _PRODUCTS:
        return is_delegated(graph, op)
    if not op.inputs or not op.outputs or not op.effects.pure:
        return False
    if op.type == "RESIZE_BILINEAR" and "constant_made" in op.attributes:
        return False
    read, made = (graph.tensors[one[-1]].dtype for one in (op.inputs, op.outputs))
    if read not in _TYPES or made not in _TYPES or (read != made and op.type not in {"QUANTIZE", "DEQUANTIZE"}):
        return False
    counted = len(op.inputs) <= MOST_JOINED and len(op.outputs) <= _MOST_OUTPUTS
    return counted and op.type in (_FLOATS if read == "float32" else _INTEGERS)


def is_delegated(graph: Graph, op: Op) -> bool:
    """Return whether XNNPACK computes an op that multiplies by constant weights; the file must hold all constants."""
    if op.type not in _PRODUCTS or op.positions != (0,) or not _weights(op) or "constant_made" in op.attributes:
        return False
    read, made = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    activation = op.attributes.get("fused_activation_function", "NONE")
    return read.dtype in _TYPES and made.dtype == read.dtype and bool(made.shape) and activation in _ACTIVATIONS


def table_bytes(graph: Graph, op: Op) -> int:
    """Return the bytes of an op's table of pointers; 0 if it has none."""
    made = graph.tensors[op.outputs[0]].shape if op.outputs else None
    if made is None or len(made) != 4:
        return 0
    _, rows, columns, _ = made
    if op.type == "RESIZE_BILINEAR" and takes(graph, op):
        # Four corners, and the two weights that interpolate between them.
        weight = _WORD if graph.tensors[op.inputs[0]].dtype == "float32" else _WORD // 2
        return (4 * _POINTER + 2 * weight) * rows * columns
    if op.type not in _CONVOLUTIONS or not is_delegated(graph, op):
        return 0
    height, width = _weights(op)[1:3]
    strides = op.attributes.get("strides", (1, 1))
    if op.type == "CONV_2D" or height * width > _MOST_TAPS:
        is_product = height * width == 1 and strides == (1, 1)
        return 0 if is_product else _POINTER * height * width * rows * columns
    step = strides[1] if isinstance(strides, tuple) else 1
    return _POINTER * rows * (height * width + (columns - 1) * min(int(step), width) * height)


def avoidable(graph: Graph, op: Op) -> Avoidable | None:
    """Return what XNNPACK need not keep for an op; None if nothing.

    For want of a depthwise kernel with so many taps, it multiplies a whole tile of channels, of which all but one are
    zero.
    """
    if op.type == "RESIZE_BILINEAR":
        place = 1
    elif op.type == "DEPTHWISE_CONV_2D" and is_delegated(graph, op) and math.prod(_weights(op)[1:3]) > _MOST_TAPS:
        place = 2
        if f"{CONSTANT_SHAPE}{place}" not in op.attributes:
            return None
    else:
        return None
    saved = table_bytes(graph, op) + packed_bytes(graph, op)
    return Avoidable(saved, place) if saved else None


def packed_bytes(graph: Graph, op: Op) -> int:
    """Return the bytes of an op's weights as the processor at hand has them packed; 0 if it has none."""
    if not is_delegated(graph, op):
        return 0
    weights, read = _weights(op), graph.tensors[op.inputs[0]].dtype
    dtype = "int8" if op.attributes.get("hybrid") else read
    taps = math.prod(weights[1:3]) if len(weights) == 4 else 1
    if op.type != "DEPTHWISE_CONV_2D":
        return _up(_product_bytes(weights[0], taps, weights[-1], dtype), _CACHE_LINE)
    if taps > _MOST_TAPS:
        return _up(weights[-1] * _product_bytes(1, taps, 1, dtype), _CACHE_LINE)
    floats = dtype == "float32"
    filled = _up(weights[-1], _tiles(processor_flags(), dtype).depthwise[not floats])
    return _up(filled * (taps * (_WORD if floats else 1) + _WORD * _WORDS[dtype]), _CACHE_LINE)


def _product_bytes(channels: int, taps: int, read: int, dtype: str) -> int:
    """Return the bytes of the packed weights of one group.

    Args:
        channels: Output channels.
        read: Input channels.
        dtype: Type of the weights.
    """
    tiles = _tiles(processor_flags(), dtype)
    if dtype == "float32":
        tile = 2 * tiles.floats if taps > 1 and channels > tiles.floats else tiles.floats
        values = taps * read * _WORD
    else:
        tile, values = tiles.integers, taps * _up(read, tiles.inputs)
    return _up(channels, tile) * (values + _WORD * _WORDS[dtype])


def _tiles(flags: frozenset[str], dtype: str) -> _Tiles:
    """Return the tiles of a processor with these features; without any, those of AVX-512."""
    if flags & {"avx2", "sse2"} and not flags >= {"avx512f", "avx512bw", "avx512dq", "avx512vl"}:
        return _AVX2
    return _AMX if dtype == "int8" and flags >= {"amx_int8", "avx512_vnni", "gfni"} else _AVX512


def _up(count: int, step: int) -> int:
    return -(-count // step) * step


def _weights(op: Op) -> tuple[int, ...]:
    """Return the shape of an op's constant weights; () if the graph computes them."""
    stated = op.attributes.get(f"{CONSTANT_SHAPE}1")
    return tuple(int(size) for size in stated) if isinstance(stated, tuple) else ()
