"""Memory that XNNPACK, LiteRT's default delegate, keeps for each op until the interpreter closes.

A convolution reads its input through a table with a pointer for each tap of each output element. The table covers one
image and serves a whole batch. The formulas follow XNNPACK's operators in LiteRT 2.3 with 64-bit pointers
(``src/operators/convolution-nhwc.c``, ``resize-bilinear-nhwc.c``) and equal traced allocations.
"""

from __future__ import annotations

import math
from typing import Final

from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import Graph, Op

__all__ = ["MOST_JOINED", "is_delegated", "packed_bytes", "table_bytes", "takes"]

_POINTER: Final = 8
_MOST_TAPS: Final = 25
"""Largest depthwise kernel, in taps. XNNPACK computes larger ones as grouped convolutions."""

_TILE: Final = 16
"""Output channels of one tile with AVX-512. Packing rounds channels up to tiles, and floats above 16 to two tiles."""

_WORD: Final = 4
"""Bytes of a float, a bias, or a scale."""

_TYPES: Final = frozenset({"float32", "int8", "uint8"})
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
    read, made = (graph.tensors[one[-1]].dtype for one in (op.inputs, op.outputs))
    if read not in _TYPES or made not in _TYPES or (read != made and op.type not in {"QUANTIZE", "DEQUANTIZE"}):
        return False
    counted = len(op.inputs) <= MOST_JOINED and len(op.outputs) <= _MOST_OUTPUTS
    return counted and op.type in (_FLOATS if read == "float32" else _INTEGERS)


def is_delegated(graph: Graph, op: Op) -> bool:
    """Return whether XNNPACK computes an op that multiplies by constant weights."""
    if op.type not in _PRODUCTS or op.positions != (0,) or not _weights(op):
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
    if op.type == "RESIZE_BILINEAR":
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


def packed_bytes(graph: Graph, op: Op) -> int:
    """Return the bytes of an op's packed weights; 0 if it has none."""
    if not is_delegated(graph, op):
        return 0
    weights, floats = _weights(op), graph.tensors[op.inputs[0]].dtype == "float32" and not op.attributes.get("hybrid")
    taps = weights[1] * weights[2] if op.type == "DEPTHWISE_CONV_2D" else 0
    if taps > _MOST_TAPS:
        return weights[-1] * _TILE * (_WORD if floats else 2 * _WORD) * (taps + 1)
    channels = weights[-1] if taps else weights[0]
    tile = 2 * _TILE if floats and not taps and channels > _TILE else _TILE
    filled = -(-channels // tile) * tile
    products = taps or math.prod(weights[1:])
    return filled * ((products + 1) * _WORD if floats else products + 2 * _WORD)


def _weights(op: Op) -> tuple[int, ...]:
    """Return the shape of an op's constant weights; () if the graph computes them."""
    stated = op.attributes.get(f"{CONSTANT_SHAPE}1")
    return tuple(int(size) for size in stated) if isinstance(stated, tuple) else ()
