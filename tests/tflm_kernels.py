"""Models of one operator each, for trying what the kernels of TensorFlow Lite Micro take."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

__all__ = ["CASES", "Case", "model"]

_CODES = {"bool": "?", "float16": "e", "float32": "f", "int16": "h", "int32": "i", "int64": "q", "int8": "b"}
_CODES |= {"uint8": "B"}
_QUANTISED = {"int4", "int8", "uint8", "int16"}
_SCALE = 1 / 128
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """An operator with tensors whose element types are varied.

    Attributes:
        inputs: Shapes of the first inputs, which are varied.
        outputs: Shapes of the outputs, the first of which is varied; the others are of its type.
        options: The options table's name and fields.
        constants: Further inputs, int32: values, or None for one that is absent.
        first: The constants come before the varied inputs.
        scale: Of the output, where it is quantised; a kernel may ask for a certain one.
        low: The output's zero point is the least value, and its scale for 16 bits 1 / 32768.
        wide: The latter alone.
    """

    inputs: Sequence[Shape]
    outputs: Sequence[Shape]
    options: tuple[str, dict[str, Any]] | None = None
    constants: Sequence[Sequence[int]] = ()
    first: bool = False
    scale: float = _SCALE
    low: bool = False
    wide: bool = False


def model(kind: str, case: Case, types: Sequence[str]) -> bytes:
    """Return the file of one operator with tensors of these types."""
    # Biases are scaled by the product of the other two, and one scale for all else means that no kernel rescales.
    tensors: list[T] = []
    given: list[int] = []
    for number, (shape, dtype) in enumerate(zip(case.inputs, types[:-1], strict=True)):
        if dtype == "none":
            given.append(-1)
            continue
        given.append(len(tensors))
        tensors.append(_tensor(f"in{number}", shape, dtype, _SCALE))
        if number == 2:
            tensors[-1].scales = (_SCALE * _SCALE,)
    fixed = []
    for number, values in enumerate(case.constants):
        fixed.append(len(tensors))
        shape = () if kind in {"SPLIT", "SPLIT_V"} and number == len(case.constants) - 1 else (len(values),)
        tensors.append(T(f"constant{number}", shape, "INT32", int32s(*values)))
    made = []
    for number, shape in enumerate(case.outputs):
        made.append(len(tensors))
        scale = 1 / 32768 if (case.low or case.wide) and types[-1] == "int16" else case.scale
        tensors.append(_tensor(f"out{number}", shape, types[-1], scale, low=case.low))
        tensors[-1].data = None
    read = [*fixed, *given] if case.first else [*given, *fixed]
    if kind in {"QUANTIZE", "DEQUANTIZE"}:
        for tensor in tensors:
            tensor.scales = tensor.scales or ((_SCALE,) if tensor.dtype == "INT32" else ())
    table = None if case.options is None else options(case.options[0], **case.options[1])
    return build(Sub(tensors, [O(kind, read, made, table)], [], made))


def _tensor(name: str, shape: Shape, dtype: str, scale: float, *, low: bool = False) -> T:
    count = math.prod(shape)
    whole = "" if dtype == "int4" else f"<{count}{_CODES[dtype]}"
    data = struct.pack(whole, *([1] * count)) if whole else b"\x11" * ((count + 1) // 2)
    zero = {"uint8": 0 if low else 128, "int8": -128 if low else 0}.get(dtype, 0)
    scales = (scale,) if dtype in _QUANTISED else ()
    return T(name, shape, dtype.upper(), data, scales=scales, zero_point=zero)


_IMAGE = (1, 4, 4, 2)
_POOL = ("Pool2DOptions", {"padding": 1, "strideH": 2, "strideW": 2, "filterHeight": 2, "filterWidth": 2})
_BINARY = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "MAXIMUM": "MaximumMinimum"}
_BINARY |= {"MINIMUM": "MaximumMinimum", "SQUARED_DIFFERENCE": "SquaredDifference"}
_BINARY |= {"FLOOR_DIV": "FloorDiv", "FLOOR_MOD": "FloorMod", "LOGICAL_AND": "LogicalAnd", "LOGICAL_OR": "LogicalOr"}
_COMPARED = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
_UNARY = {"ABS": "Abs", "CEIL": None, "COS": "Cos", "ELU": None, "EXP": "Exp", "FLOOR": None, "HARD_SWISH": "HardSwish"}
_UNARY |= {"LEAKY_RELU": "LeakyRelu", "LOG": None, "LOGICAL_NOT": "LogicalNot", "NEG": "Neg", "RELU": None}
_UNARY |= {"RELU6": None, "ROUND": None, "RSQRT": None, "SIN": None, "SQRT": None, "SQUARE": "Square"}
_UNARY |= {"ZEROS_LIKE": "ZerosLike", "QUANTIZE": "Quantize", "DEQUANTIZE": "Dequantize", "CAST": "Cast"}
_COMPARE_NAMES = {kind: "".join(word.title() for word in kind.split("_")) for kind in _COMPARED}


def _named(name: str | None) -> tuple[str, dict[str, Any]] | None:
    return None if name is None else (f"{name}Options", {"alpha": 0.5} if name == "LeakyRelu" else {})


_RESIZE = {"RESIZE_BILINEAR": "ResizeBilinearOptions", "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions"}
_REDUCED = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")

CASES: dict[str, Case] = {
    "CONV_2D": Case(
        [_IMAGE, (2, 1, 1, 2), (2,)],
        [_IMAGE],
        ("Conv2DOptions", {"padding": 1, "strideH": 1, "strideW": 1}),
    ),
    "DEPTHWISE_CONV_2D": Case(
        [_IMAGE, (1, 1, 1, 2), (2,)],
        [_IMAGE],
        ("DepthwiseConv2DOptions", {"padding": 1, "strideH": 1, "strideW": 1, "depthMultiplier": 1}),
    ),
    "FULLY_CONNECTED": Case([(1, 4), (2, 4), (2,)], [(1, 2)], ("FullyConnectedOptions", {})),
    **{kind: Case([_IMAGE], [(1, 2, 2, 2)], _POOL) for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D")},
    **{kind: Case([(1, 4)] * 2, [(1, 4)], _named(name)) for kind, name in _BINARY.items()},
    **{kind: Case([(1, 4)] * 2, [(1, 4)], _named(name)) for kind, name in _COMPARE_NAMES.items()},
    **{kind: Case([(1, 4)], [(1, 4)], _named(name)) for kind, name in _UNARY.items()},
    "PRELU": Case([_IMAGE, (1, 1, 2)], [_IMAGE]),
    "LOGISTIC": Case([(1, 4)], [(1, 4)], scale=1 / 256, low=True),
    "TANH": Case([(1, 4)], [(1, 4)], wide=True),
    "SOFTMAX": Case([(1, 4)], [(1, 4)], ("SoftmaxOptions", {"beta": 1.0}), scale=1 / 256, low=True),
    "LOG_SOFTMAX": Case([(1, 4)], [(1, 4)], ("LogSoftmaxOptions", {}), scale=16 / 256),
    "L2_NORMALIZATION": Case([(1, 4)], [(1, 4)], ("L2NormOptions", {})),
    "CONCATENATION": Case([(1, 4)] * 2, [(1, 8)], ("ConcatenationOptions", {"axis": 1})),
    "PACK": Case([(1, 4)] * 2, [(2, 1, 4)], ("PackOptions", {"axis": 0, "valuesCount": 2})),
    "UNPACK": Case([(2, 4)], [(4,)] * 2, ("UnpackOptions", {"axis": 0, "num": 2})),
    "SPLIT": Case([(1, 4)], [(1, 2)] * 2, ("SplitOptions", {"numSplits": 2}), [[1]], first=True),
    "SPLIT_V": Case([(1, 4)], [(1, 2)] * 2, ("SplitVOptions", {"numSplits": 2}), [[2, 2], [1]]),
    "RESHAPE": Case([(1, 4)], [(4, 1)], ("ReshapeOptions", {"newShape": [4, 1]}), [[4, 1]]),
    "SQUEEZE": Case([(1, 4)], [(4,)], ("SqueezeOptions", {"squeezeDims": [0]})),
    "EXPAND_DIMS": Case([(1, 4)], [(1, 1, 4)], ("ExpandDimsOptions", {}), [[0]]),
    "TRANSPOSE": Case([(2, 4)], [(4, 2)], ("TransposeOptions", {}), [[1, 0]]),
    "SLICE": Case([(1, 4)], [(1, 2)], ("SliceOptions", {}), [[0, 1], [1, 2]]),
    "STRIDED_SLICE": Case([(1, 4)], [(1, 2)], ("StridedSliceOptions", {}), [[0, 1], [1, 3], [1, 1]]),
    "PAD": Case([(1, 4)], [(1, 6)], ("PadOptions", {}), [[0, 0, 1, 1]]),
    "GATHER": Case([(4, 2)], [(2, 2)], ("GatherOptions", {}), [[0, 1]]),
    "BROADCAST_TO": Case([(1, 4)], [(2, 4)], ("BroadcastToOptions", {}), [[2, 4]]),
    "BATCH_TO_SPACE_ND": Case([(4, 1, 1, 2)], [(1, 2, 2, 2)], None, [[2, 2], [0, 0, 0, 0]]),
    "SPACE_TO_BATCH_ND": Case([(1, 2, 2, 2)], [(4, 1, 1, 2)], None, [[2, 2], [0, 0, 0, 0]]),
    "SPACE_TO_DEPTH": Case([(1, 2, 2, 1)], [(1, 1, 1, 4)], ("SpaceToDepthOptions", {"blockSize": 2})),
    "DEPTH_TO_SPACE": Case([(1, 1, 1, 4)], [(1, 2, 2, 1)], ("DepthToSpaceOptions", {"blockSize": 2})),
    **{kind: Case([_IMAGE], [(1, 8, 8, 2)], (table, {}), [[8, 8]]) for kind, table in _RESIZE.items()},
    **{kind: Case([_IMAGE], [(1, 2)], ("ReducerOptions", {}), [[1, 2]]) for kind in _REDUCED},
    "ARG_MAX": Case([(1, 4)], [(1,)], ("ArgMaxOptions", {"outputType": 2}), [[1]]),
    "ARG_MIN": Case([(1, 4)], [(1,)], ("ArgMinOptions", {"outputType": 2}), [[1]]),
}
