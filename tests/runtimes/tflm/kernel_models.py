"""Models of one operator each, for trying what the kernels of TensorFlow Lite Micro take."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options, pack, unpack

__all__ = ["CASES", "Case", "in_a_row", "model", "of_axes", "strided"]

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
        make: Returns the file for the types, where the operator needs another form; ``inputs`` and all else are unused.
    """

    inputs: Sequence[Shape]
    outputs: Sequence[Shape]
    options: tuple[str, dict[str, Any]] | None = None
    constants: Sequence[Sequence[int]] = ()
    first: bool = False
    scale: float = _SCALE
    low: bool = False
    wide: bool = False
    make: Callable[[Sequence[str]], bytes] | None = None


def model(kind: str, case: Case, types: Sequence[str]) -> bytes:
    """Return the file of one operator with tensors of these types."""
    if case.make is not None:
        return case.make(types)
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


def _mirrored(types: Sequence[str]) -> bytes:
    tensors = [
        _tensor("in0", (1, 4), types[0], _SCALE),
        T("pads", (2, 2), "INT32", int32s(0, 0, 1, 1)),
        _tensor("out0", (1, 6), types[1], _SCALE),
    ]
    tensors[-1].data = None
    return build(Sub(tensors, [O("MIRROR_PAD", [0, 1], [2], options("MirrorPadOptions", mode=0))], [], [2]))


def _padded(types: Sequence[str]) -> bytes:
    tensors = [
        _tensor("in0", (1, 4), types[0], _SCALE),
        T("pads", (2, 2), "INT32", int32s(0, 0, 1, 1)),
        _tensor("value", (), types[1], _SCALE),
        _tensor("out0", (1, 6), types[2], _SCALE),
    ]
    tensors[-1].data = None
    return build(Sub(tensors, [O("PADV2", [0, 1, 2], [3], options("PadV2Options"))], [], [3]))


def _transposed(types: Sequence[str]) -> bytes:
    """Return a TRANSPOSE_CONV with types of its data, weights, bias and output."""
    data, weights, bias, made = types
    tensors = [
        T("shape", (4,), "INT32", int32s(1, 8, 8, 2)),
        _tensor("weights", (2, 2, 2, 2), weights, _SCALE),
        _tensor("data", _IMAGE, data, _SCALE),
        _tensor("out0", (1, 8, 8, 2), made, _SCALE),
    ]
    tensors[-1].data = None
    reads = [0, 1, 2, -1]
    if bias != "none":
        reads[3] = 4
        tensors.append(_tensor("bias", (2,), bias, _SCALE))
        tensors[-1].scales = (_SCALE * _SCALE,)
    table = options("TransposeConvOptions", strideH=2, strideW=2)
    return build(Sub(tensors, [O("TRANSPOSE_CONV", reads, [3], table)], [], [3]))


def _filtered(types: Sequence[str]) -> bytes:
    """Return an SVDF with types of its data, features, times, bias, state and output."""
    shapes = ((1, 4), (4, 4), (4, 3), (2,), (1, 12), (1, 2))
    tensors = [
        _tensor(f"t{number}", shape, "int32" if kind == "none" else kind, _SCALE)
        for number, (shape, kind) in enumerate(zip(shapes, types, strict=True))
    ]
    tensors[3].scales = (_SCALE * _SCALE,)
    tensors[4].data, tensors[4].variable = None, True
    tensors[5].data = None
    reads = [0, 1, 2, -1 if types[3] == "none" else 3, 4]
    table = options("SVDFOptions", rank=2, fusedActivationFunction=1)
    return build(Sub(tensors, [O("SVDF", reads, [5], table)], [], [5]))


def _lstm(types: Sequence[str]) -> bytes:
    """Return an LSTM of two steps with types of its data, weights, biases, states of cells and output."""
    data, weights, biases, cells, made = types
    tensors = [_tensor("x", (1, 2, 4), data, _SCALE)]
    reads = [0]
    for position in range(1, 20):
        if position in {9, 10, 11, 16, 17}:
            reads.append(-1)
            continue
        reads.append(len(tensors))
        if position >= 18:
            kind = cells if position == 19 else made
            scale = 1 / 2048 if kind == "int16" and position == 19 else _SCALE
            tensors.append(_tensor(f"s{position}", (1, 4), kind, scale))
            tensors[-1].data, tensors[-1].variable = None, True
        elif position >= 12:
            tensors.append(_tensor(f"b{position}", (4,), biases, _SCALE))
            tensors[-1].scales = (_SCALE * _SCALE,) if biases != "float32" else ()
        else:
            tensors.append(_tensor(f"w{position}", (4, 4), weights, _SCALE))
    out = _tensor("y", (1, 2, 4), made, _SCALE)
    out.data = None
    tensors.append(out)
    table = options("UnidirectionalSequenceLSTMOptions", fusedActivationFunction=4, cellClip=10.0)
    reads += [-1] * 4
    return build(
        Sub(tensors, [O("UNIDIRECTIONAL_SEQUENCE_LSTM", reads, [len(tensors) - 1], table)], [], [len(tensors) - 1])
    )


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
    "ADD_N": Case([(1, 4)] * 2, [(1, 4)], ("AddNOptions", {})),
    "BATCH_MATMUL": Case([(2, 4), (4, 3)], [(2, 3)], ("BatchMatMulOptions", {})),
    "CUMSUM": Case([(2, 4)], [(2, 4)], ("CumsumOptions", {}), [[1]]),
    "DYNAMIC_UPDATE_SLICE": Case([(2, 4), (1, 4)], [(2, 4)], ("DynamicUpdateSliceOptions", {}), [[1, 0]]),
    "GATHER_ND": Case([(4, 2)], [(2,)], ("GatherNdOptions", {}), [[1]]),
    "L2_POOL_2D": Case([_IMAGE], [(1, 2, 2, 2)], _POOL),
    "MIRROR_PAD": Case([], [], make=_mirrored),
    "PADV2": Case([], [], make=_padded),
    "REDUCE_ALL": Case([_IMAGE], [(1, 2)], ("ReducerOptions", {}), [[1, 2]]),
    "REVERSE_V2": Case([(1, 4)], [(1, 4)], ("ReverseV2Options", {}), [[1]]),
    "SELECT_V2": Case([(1, 4)] * 3, [(1, 4)], ("SelectV2Options", {})),
    "SVDF": Case([], [], make=_filtered),
    "TRANSPOSE_CONV": Case([], [], make=_transposed),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Case([], [], make=_lstm),
}


def of_axes(kind: str, axes: int, dtype: str) -> bytes:
    """Return the file of one operator on tensors of so many axes, two long each, of which each is 1."""
    shape, every = (2,) * axes, _tensor("", (2,) * axes, dtype, _SCALE).data
    further: list[T] = []
    made, table = shape, None
    last = axes - 1
    match kind:
        case "BATCH_MATMUL":
            further, table = [_tensor("z", shape, dtype, _SCALE)], options("BatchMatMulOptions")
        case "BROADCAST_TO":
            further, table = [_vector(shape)], options("BroadcastToOptions")
            shape, every = (1, *shape[1:]), (every or b"")[: len(every or b"") // 2]
        case "CONCATENATION":
            further, made = [_tensor("z", shape, dtype, _SCALE)], (*shape[:-1], 4)
            table = options("ConcatenationOptions", axis=last)
        case "DYNAMIC_UPDATE_SLICE":
            further = [_tensor("z", (1,) * axes, dtype, _SCALE), _vector((1,) * axes)]
            table = options("DynamicUpdateSliceOptions")
        case "L2_NORMALIZATION":
            table = options("L2NormOptions")
        case "PAD" | "PADV2":
            made, further = (4,) * axes, [T("pads", (axes, 2), "INT32", int32s(*(1,) * 2 * axes))]
            table = options("PadOptions" if kind == "PAD" else "PadV2Options")
            further += [_tensor("value", (), dtype, _SCALE)] if kind == "PADV2" else []
        case "PRELU":
            further = [_tensor("z", shape, dtype, _SCALE)]
        case "REVERSE_V2":
            further, table = [_vector((last,))], options("ReverseV2Options")
        case "SLICE":
            further, made = [_vector((0,) * axes), _vector((1,) * axes)], (1,) * axes
            table = options("SliceOptions")
        case "STRIDED_SLICE":
            further, made = [_vector((0,) * axes), _vector((1,) * axes), _vector((1,) * axes)], (1,) * axes
            table = options("StridedSliceOptions")
        case "TRANSPOSE":
            further, table = [_vector(range(axes)[::-1])], options("TransposeOptions")
    return _one(kind, [T("x", shape, dtype.upper(), every, scales=_scales(dtype)), *further], made, dtype, table)


def strided(**masks: int) -> bytes:
    """Return the file of a STRIDED_SLICE of a 2 x 2 matrix with such options; with a new axis it makes one more."""
    axes = 3 if masks.get("newAxisMask") else 2
    made = (1, 2, 2)[-axes:]
    given = [_tensor("x", (2, 2), "float32", _SCALE), _vector((0,) * axes), _vector((2,) * axes), _vector((1,) * axes)]
    return _one(
        "STRIDED_SLICE",
        given,
        (1, *made[1:]) if axes == 3 else made,
        "float32",
        options("StridedSliceOptions", **masks),
    )


def in_a_row(*files: bytes) -> bytes:
    """Return the file of the operators of models of one graph each, one behind the other; they share nothing."""
    whole, *others = map(unpack, files)
    graph = whole.subgraphs[0]
    for other in others:
        first, code = len(graph.tensors), len(whole.operatorCodes)
        for tensor in other.subgraphs[0].tensors:
            tensor.buffer += len(whole.buffers) if tensor.buffer else 0
        for operator in other.subgraphs[0].operators:
            operator.opcodeIndex += code
            operator.inputs = [one + first if one >= 0 else one for one in operator.inputs]
            operator.outputs = [one + first for one in operator.outputs]
        whole.buffers += other.buffers
        whole.operatorCodes += other.operatorCodes
        graph.tensors += other.subgraphs[0].tensors
        graph.operators += other.subgraphs[0].operators
        graph.inputs = [*graph.inputs, *(one + first for one in other.subgraphs[0].inputs)]
        graph.outputs = [*graph.outputs, *(one + first for one in other.subgraphs[0].outputs)]
    return pack(whole)


def _vector(values: Sequence[int]) -> T:
    return T("vector", (len(values),), "INT32", int32s(*values))


def _scales(dtype: str) -> tuple[float, ...]:
    return (_SCALE,) if dtype in _QUANTISED else ()


def _one(kind: str, given: Sequence[T], made: Shape, dtype: str, table: Any) -> bytes:
    tensors = [*given, T("y", made, dtype.upper(), scales=_scales(dtype))]
    return build(Sub(tensors, [O(kind, range(len(given)), [len(given)], table)], [], [len(given)]))
