"""What TensorFlow Lite Micro's reference kernels refuse: operators, element types, axes, numbers of inputs, scales.

All of it was tried in the package tflite-micro (October 2026) with models of one operator. A combination that was not
tried is unknown, and nothing is said about it; a kernel that runs need not compute what was meant. Optimised kernels
and other releases may take more or less.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from memsched.base.frozen import FrozenValue
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph, FileTensor
from memsched.formats.tflite.quantization import quantization_of
from memsched.runtimes.arena_facts import OperatorRefusal
from memsched.runtimes.tflm.kernels import operator_tensor
from memsched.runtimes.tflm.resolver import BUILTIN
from memsched.runtimes.tflm.sources import Sources

__all__ = ["AXES", "KERNELS", "KernelTrial", "new_refusals", "refusals"]

_ABSENT = "none"
_ELEMENTS = ("bool", "float16", "float32", "int16", "int32", "int64", "int8", "uint8")


class KernelTrial(FrozenValue, frozen=True):
    """What was tried of an operator.

    Attributes:
        inputs: Positions of the inputs whose element types were varied.
        tried: Their types, then that of the first output; "none" for an input that is left out.
        taken: Those of ``tried`` that it runs with.
    """

    inputs: tuple[int, ...]
    tried: frozenset[tuple[str, ...]]
    taken: frozenset[tuple[str, ...]]


# Data and output of one type, then the weights' with each of them.
_LAYERS = {"float32": ("float32",), "int16": ("int8",), "int8": ("int4", "int8")}
_BIASES = {"CONV_2D": ("float32", "int32", "int64", _ABSENT), "DEPTHWISE_CONV_2D": ("float32", "int32", "int64")}
_BIASES["FULLY_CONNECTED"] = _BIASES["CONV_2D"]
_NO_SUCH_BIAS = {("CONV_2D", "int16", "float32")}
_TRANSPOSED = {"float32": ("float32",), "int16": ("int16", "int8"), "int8": ("int8",)}
_MULTIPLIED = ("float32", "int16", "int8")
_WEIGHTED = frozenset({*_BIASES, "SVDF", "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM"})

_OF_ONE_TYPE = """
    ABS:float32,int16,int8 ADD:float32,int16,int32,int8 ADD_N:float32,int8 ARG_MAX:float32,int8 ARG_MIN:float32,int8
    AVERAGE_POOL_2D:float32,int16,int8 BATCH_TO_SPACE_ND:float32,int8
    BROADCAST_TO:bool,float16,float32,int16,int32,int64,int8,uint8 CEIL:float32
    CONCATENATION:bool,float32,int16,int32,int64,int8 COS:float32 CUMSUM:float32,int8 DEPTH_TO_SPACE:float32,int8
    DIV:float32,int32,int8 DYNAMIC_UPDATE_SLICE:float32,int16,int32,int8 ELU:float32,int8
    EQUAL:bool,float32,int32,int64,int8 EXP:float32 EXPAND_DIMS:float32,int16,int8 FLOOR:float32 FLOOR_DIV:float32
    FLOOR_MOD:float32 GATHER:float32,int8 GATHER_ND:float32,int8 GREATER:float32,int16,int32,int64,int8
    GREATER_EQUAL:float32,int32,int64,int8 HARD_SWISH:float32,int8 L2_NORMALIZATION:float32,int8 L2_POOL_2D:float32
    LEAKY_RELU:float32,int16,int8 LESS:float32,int32,int64,int8 LESS_EQUAL:float32,int32,int64,int8 LOG:float32
    LOGICAL_AND:bool,float16,float32,int16,int32,int64,int8,uint8 LOGICAL_NOT:bool
    LOGICAL_OR:bool,float16,float32,int16,int32,int64,int8,uint8 LOGISTIC:float32,int16,int8 LOG_SOFTMAX:float32
    MAXIMUM:float32,int16,int32,int64,int8 MAX_POOL_2D:float32,int16,int8 MEAN:float32,int16,int8
    MIRROR_PAD:float32,int8 MINIMUM:float32,int16,int32,int64,int8 MUL:float32,int16,int32,int8 NEG:float32
    NOT_EQUAL:bool,float32,int32,int64,int8 PACK:float32,int16,int32,int64,int8 PAD:float32,int16,int32,int8
    PADV2:float32,int16,int32,int8 PRELU:float32,int8 REDUCE_ALL:bool REDUCE_MAX:float32,int8 REDUCE_MIN:float32,int8
    RELU:float32,int16,int8 RELU6:float32,int16,int8 RESHAPE:bool,float16,float32,int16,int32,int64,int8,uint8
    RESIZE_BILINEAR:float32,int8 RESIZE_NEAREST_NEIGHBOR:float32,int16,int8
    REVERSE_V2:bool,float32,int16,int32,int64,int8,uint8 ROUND:float32 RSQRT:float32,int16,int8 SIN:float32
    SLICE:bool,float32,int16,int32,int8 SOFTMAX:float32,int16,int8 SPACE_TO_BATCH_ND:float32,int8
    SPACE_TO_DEPTH:float32,int8 SPLIT:float32,int16,int32,int8 SPLIT_V:float32,int16,int32,int8 SQRT:float32
    SQUARE:float32 SQUARED_DIFFERENCE:float32,int16,int32,int8
    SQUEEZE:bool,float16,float32,int16,int32,int64,int8,uint8 STRIDED_SLICE:bool,float32,int16,int32,int8
    SUB:float32,int16,int32,int8 SUM:float32,int16,int8 TANH:float32,int16,int8 TRANSPOSE:float32,int16,int8
    UNPACK:float32,int16,int32,int8 ZEROS_LIKE:float32,int32,int64,int8
"""
"""Element types of inputs and outputs; comparisons make bool, ARG_MAX and ARG_MIN int32."""

_COMPARED = frozenset({"EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"})
_OF_TWO = """
    ADD ADD_N CONCATENATION DIV DYNAMIC_UPDATE_SLICE EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL
    LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL NOT_EQUAL PACK PADV2 PRELU SQUARED_DIFFERENCE SUB
"""

_VARIED = {"PADV2": (0, 2), "SPLIT": (1,)}
"""Positions of the inputs whose types are looked at, where they are not the first."""

_CONVERTED = {
    "CAST": " ".join(f"{one}:bool,float32,int16,int32,int8" for one in ("bool", "float32", "int16", "int32", "int8")),
    "QUANTIZE": "float32:int16,int8 int16:int16,int32,int8 int32:int16,int8 int8:int16,int32,int8,uint8 uint8:int8",
    "DEQUANTIZE": "int16:float32 int8:float32 uint8:float32",
}
"""Types that are made, of which type."""


_MOST_AXES = """
    BROADCAST_TO:5 CONCATENATION:6 DYNAMIC_UPDATE_SLICE:6 L2_NORMALIZATION:4 PAD:5 PADV2:5 REVERSE_V2:6 SLICE:5
    STRIDED_SLICE:4 TRANSPOSE:5
"""

AXES: Mapping[str, tuple[int, int, tuple[str, ...]]] = {
    **{kind: (1, int(most), ()) for kind, most in (entry.split(":") for entry in _MOST_AXES.split())},
    "BATCH_MATMUL": (2, 5, ()),
    "PRELU": (1, 4, ("float32",)),
}
"""The least and the most axes of tensors, and the element types for which that holds; () for all.

Others were tried with one to seven axes, or eight, and take them; without any they are not looked at. Broadcasts are
no different.
"""


def _kernels() -> dict[str, KernelTrial]:
    found = {kind: _layer(kind) for kind in _BIASES} | _with_weights()
    found["BATCH_MATMUL"] = KernelTrial(
        (0, 1),
        frozenset((one, other, one) for one in (*_MULTIPLIED, "uint8") for other in (*_MULTIPLIED, "int4", "uint8")),
        frozenset((one, one, one) for one in _MULTIPLIED),
    )
    chosen = [frozenset(("bool", one, one, one) for one in some) for some in (_ELEMENTS, _MULTIPLIED)]
    found["SELECT_V2"] = KernelTrial((0, 1, 2), *chosen)
    of_two = set(_OF_TWO.split())
    pairs = frozenset(itertools.product(_ELEMENTS, _ELEMENTS))
    for kind, text in _CONVERTED.items():
        rows = (row.split(":") for row in text.split())
        found[kind] = KernelTrial((0,), pairs, frozenset((row[0], made) for row in rows for made in row[1].split(",")))
    for entry in _OF_ONE_TYPE.split():
        kind, types = entry.split(":")
        count = 2 if kind in of_two else 1
        made = "bool" if kind in _COMPARED else "int32" if kind in {"ARG_MAX", "ARG_MIN"} else None
        rows_of = [frozenset((one,) * count + (made or one,) for one in some) for some in (_ELEMENTS, types.split(","))]
        found[kind] = KernelTrial(_VARIED.get(kind, tuple(range(count))), *rows_of)
    return found


def _layer(kind: str) -> KernelTrial:
    weights = ("float32", "int16", "int4", "int8", "uint8")
    tried = itertools.product((*_LAYERS, "uint8"), weights, _BIASES[kind])
    rows = frozenset((data, weight, bias, data) for data, weight, bias in tried)
    taken = (row for row in rows if row[1] in _LAYERS.get(row[0], ()) and (kind, row[0], row[2]) not in _NO_SUCH_BIAS)
    return KernelTrial((0, 1, 2), rows, frozenset(taken))


def _with_weights() -> dict[str, KernelTrial]:
    """Return layers with further inputs: data, weights, further weights, bias, states."""
    weights, biases = ("float32", "int16", "int4", "int8", "uint8"), ("float32", "int32", "int64", _ABSENT)
    turned = frozenset(
        (one, *rest, one) for one in (*_TRANSPOSED, "uint8") for rest in itertools.product(weights, biases)
    )
    types, widths = ("float32", "int16", "int8"), ("float32", "int16", "int8")
    filtered = itertools.product(types, ("float32", "int8"), widths, ("float32", "int32", _ABSENT), widths)
    kept = itertools.product(types, ("float32", "int8"), ("float32", "int32", "int64"), widths)
    svdf, lstm = frozenset((*row, row[0]) for row in filtered), frozenset((*row, row[0]) for row in kept)
    return {
        "SVDF": KernelTrial(
            (0, 1, 2, 3, 4),
            svdf,
            frozenset(
                {
                    # Of 16-bit weights in time it writes a 16-bit state, whatever room that has.
                    *(
                        ("int8", "int8", one, "int32", two, "int8")
                        for one, two in (("int8", "int8"), ("int8", "int16"), ("int16", "int16"))
                    ),
                    ("float32",) * 6,
                }
            ),
        ),
        "TRANSPOSE_CONV": KernelTrial(
            (2, 1, 3), turned, frozenset(row for row in turned if row[1] in _TRANSPOSED.get(row[0], ()))
        ),
        # It runs with 8-bit weights for data in floating point, but see `_lstm_reason`.
        "UNIDIRECTIONAL_SEQUENCE_LSTM": KernelTrial(
            (0, 2, 13, 19),
            lstm,
            frozenset(row for row in lstm if row[3] != "int8" and (row[1] == "int8" or row[0] == row[1] == "float32")),
        ),
    }


KERNELS: Mapping[str, KernelTrial] = _kernels()
"""Operators with what was tried of them; of all others nothing was."""


def refusals(model: FileModel) -> tuple[OperatorRefusal, ...]:
    """Return the operators of all subgraphs that TensorFlow Lite Micro is known to refuse, with the reasons."""
    found = []
    for index, graph in enumerate(model.subgraphs):
        for number, op in enumerate(graph.operators):
            reason = _reason(model, graph, op)
            if reason is not None:
                output = operator_tensor(graph, op, 0, output=True)
                found.append(OperatorRefusal(index, number, op.type, "" if output is None else output.name, reason))
    return tuple(found)


def new_refusals(given: FileModel, written: FileModel) -> tuple[OperatorRefusal, ...]:
    """Return the refusals of ``written`` for reasons for which no operator of that type is refused in ``given``."""
    before = {(one.type, one.reason) for one in refusals(given)}
    return tuple(one for one in refusals(written) if (one.type, one.reason) not in before)


def _reason(model: FileModel, graph: FileSubgraph, op: FileOperator) -> str | None:
    if op.type.startswith("CUSTOM:"):
        return None  # A firmware may bring it.
    if op.type not in BUILTIN:
        return "it has no kernel for that"
    if op.type == "CONCATENATION" and len(op.inputs) > Sources.MOST_JOINED:
        return f"it joins {Sources.MOST_JOINED} inputs at most, not {len(op.inputs)}"
    found = _types_reason(graph, op) or _axes_reason(graph, op)
    rule = _OWN_REASONS.get(op.type)
    return found or (None if rule is None else rule(model, graph, op))


def _types_reason(graph: FileSubgraph, op: FileOperator) -> str | None:
    kernel = KERNELS.get(op.type)
    if kernel is None:
        return None
    tensors = [operator_tensor(graph, op, position) for position in kernel.inputs]
    types = (*map(_type, tensors), _type(operator_tensor(graph, op, 0, output=True)))
    if types not in kernel.tried or types in kernel.taken:
        return None
    if op.type in _WEIGHTED and types[1] != types[0] == "float32":
        return f"its kernel takes no {types[0]} data with {types[1]} weights (a hybrid model)"
    if op.type in _WEIGHTED and len(kernel.inputs) == 3:
        return f"its kernel takes no {types[0]} data with {types[1]} weights and {_bias(types[2])}"
    if len(set(types)) == 1:
        return f"its kernel takes no {types[0]}"
    *read, made = types
    return f"its kernel does not make {made} of {', '.join(read)}"


def _axes_reason(graph: FileSubgraph, op: FileOperator) -> str | None:
    """A kernel has room for so many axes of what it reads and makes."""
    if op.type not in AXES:
        return None
    least, most, types = AXES[op.type]
    found = [operator_tensor(graph, op, 0), operator_tensor(graph, op, 0, output=True)]
    tensors = [tensor for tensor in found if tensor is not None]
    if not tensors or (types and tensors[0].dtype not in types):
        return None
    axes = max(len(tensor.shape) for tensor in tensors)
    if axes > most:
        return f"its kernel takes {most} axes at most, not {axes}"
    return f"its kernel takes {least} axes at least, not {axes}" if 0 < axes < least else None


def _bias(dtype: str) -> str:
    return "no bias" if dtype == _ABSENT else f"a bias of {dtype}"


def _type(tensor: FileTensor | None) -> str:
    return _ABSENT if tensor is None else tensor.dtype


def _softmax_reason(model: FileModel, graph: FileSubgraph, op: FileOperator) -> str | None:
    data, beta = operator_tensor(graph, op, 0), op.attributes.get("beta", 0.0)
    if data is None or data.dtype != "int8" or not isinstance(beta, (int, float)):
        return None
    scales, _ = quantization_of(model, data)
    if len(scales) != 1 or beta * scales[0] * 2**Sources.SOFTMAX_BITS > 1:
        return None
    return f"the scale of its input, {scales[0]:.3g}, is too small: with it, it ends the program"


def _strided_slice_reason(_: FileModel, __: FileSubgraph, op: FileOperator) -> str | None:
    return "its kernel adds no axes (new_axis_mask)" if op.attributes.get("new_axis_mask") else None


def _lstm_reason(_: FileModel, graph: FileSubgraph, op: FileOperator) -> str | None:
    data, weights = operator_tensor(graph, op, 0), operator_tensor(graph, op, 2)
    if _type(data) != "float32" or _type(weights) != "int8":
        return None
    return "its kernel reads int8 weights as if they were float32 (a hybrid model): what it computes is wrong"


_OWN_REASONS: Mapping[str, Callable[[FileModel, FileSubgraph, FileOperator], str | None]] = {
    "SOFTMAX": _softmax_reason,
    "STRIDED_SLICE": _strided_slice_reason,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm_reason,
}
