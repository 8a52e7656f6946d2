"""What TensorFlow Lite Micro keeps in an arena beside the planned tensors, as an estimate: its own data structures.

The persistent part grows from the arena's end: each allocation is aligned, and nothing is given back. This follows
the allocations of MicroInterpreter::AllocateTensors one by one (tensorflow/lite/micro/micro_interpreter.cc,
micro_allocator.cc and each kernel's Init and Prepare), with sizes of structures on 64 and 32 bit. Sizes of kernels'
data were read in the kernels' headers. The results are those of builds of August 2026 to the byte, on 64 and 32 bit,
but for the options of FULLY_CONNECTED, which are larger since; and those of the package tflite-micro of October 2026.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from memsched.base.frozen import FrozenValue
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph
from memsched.graph.model import Graph, Op
from memsched.lowering.prices import Kept
from memsched.runtimes.arena_facts import ALIGNMENT, round_up
from memsched.runtimes.firmware import Estimate
from memsched.runtimes.tflm.kernel_sets import kernel_set
from memsched.runtimes.tflm.kernels import DETECTION_POSTPROCESS, custom_integers, operator_tensor, scratch_requests
from memsched.runtimes.tflm.looked_at import looked_at_by
from memsched.runtimes.tflm.plan import needs_memory
from memsched.runtimes.tflm.quantization import QuantizationCounts, quantization_counts
from memsched.runtimes.tflm.resource_variables import assigned_bytes, variables
from memsched.runtimes.tflm.signal_kernels import SIGNAL_KERNELS, signal_data
from memsched.runtimes.tflm.sources import Sources

__all__ = [
    "assumptions",
    "estimates",
    "kept_by",
    "kept_by_kind",
    "least_by_kind",
    "least_in_wheel",
    "least_kept",
    "tail_in_wheel",
    "unknown_kernels",
]

_ASSUMPTIONS = (
    "TensorFlow Lite Micro of October 2026, {}; no compression or profiler",
    "one MicroInterpreter with the default planner in an arena that begins and ends at multiples of 16",
)


class _Widths(FrozenValue, frozen=True):
    """Sizes in bytes that depend on the pointer's: objects of the interpreter, in the order of their allocation."""

    pointer: int
    interpreter: tuple[int, ...]
    eval_tensor: int
    node: int
    tensor: int
    quantization: int
    request: int
    record: int
    variables: int
    variable: int


# SingleArenaBufferAllocator, GreedyMemoryPlanner, MicroAllocator, MicroBuiltinDataAllocator; then TfLiteEvalTensor,
# NodeAndRegistration, TfLiteTensor, TfLiteAffineQuantization, ScratchBufferRequest, AllocationInfo,
# MicroResourceVariables and the record of one of them.
_WIDTHS = {
    64: _Widths(8, (72, 72, 72, 16), 24, 64, 64, 24, 16, 32, 16, 40),
    32: _Widths(4, (36, 44, 36, 8), 12, 32, 40, 12, 12, 24, 12, 20),
}

_TWO_ARENAS = {64: (32, 56), 32: (16, 32)}
"""PersistentArenaBufferAllocator and NonPersistentArenaBufferAllocator, in place of SingleArenaBufferAllocator."""

_OPTIONS: Mapping[str, int] = {
    "ADD": 8, "ARG_MAX": 4, "ARG_MIN": 4, "AVERAGE_POOL_2D": 40, "BATCH_MATMUL": 3, "CALL_ONCE": 4, "CAST": 8,
    "CONCATENATION": 8, "CONV_2D": 28, "CUMSUM": 2, "DEPTHWISE_CONV_2D": 28, "DEPTH_TO_SPACE": 4, "DIV": 4,
    "GATHER": 8, "IF": 8, "L2_NORMALIZATION": 4, "L2_POOL_2D": 40, "LEAKY_RELU": 4,
    "MAX_POOL_2D": 40, "MEAN": 1, "MIRROR_PAD": 4, "MUL": 4, "PACK": 8, "REDUCE_ALL": 1, "REDUCE_MAX": 1,
    "REDUCE_MIN": 1, "RESHAPE": 36, "RESIZE_BILINEAR": 2, "RESIZE_NEAREST_NEIGHBOR": 2, "SHAPE": 4, "SOFTMAX": 4,
    "SPACE_TO_DEPTH": 4, "SPLIT": 4, "SPLIT_V": 4, "SQUEEZE": 36, "STRIDED_SLICE": 24, "SUB": 8, "SUM": 1, "SVDF": 12,
    "TRANSPOSE_CONV": 20, "UNIDIRECTIONAL_SEQUENCE_LSTM": 16, "UNPACK": 8, "WHILE": 8,
}  # fmt: skip
"""Bytes of the parsed options that each operator keeps (builtin_op_data.h); others keep none."""

_OPTIONS_WITH_POINTERS: Mapping[str, tuple[int, int]] = {"FULLY_CONNECTED": (32, 24), "VAR_HANDLE": (16, 8)}
"""The same on 64 and on 32 bit where that differs."""

_DATA: Mapping[str, tuple[int, int]] = {
    **{kind: (size, size) for kind, size in {
        "ABS": 28, "ADD": 60, "AVERAGE_POOL_2D": 32, "CALL_ONCE": 8, "DEQUANTIZE": 32, "DIV": 28,
        "ELU": 256, "EMBEDDING_LOOKUP": 28, "EQUAL": 32, "GREATER": 32,
        "GREATER_EQUAL": 32, "HARD_SWISH": 20, "IF": 8, "L2_NORMALIZATION": 4, "LEAKY_RELU": 24,
        "LESS": 32, "LESS_EQUAL": 32, "LOGISTIC": 16, "MAX_POOL_2D": 32, "MEAN": 44, "MIRROR_PAD": 20, "MUL": 36,
        "NOT_EQUAL": 32, "PAD": 56, "PADV2": 56, "PRELU": 28, "QUANTIZE": 32, "REDUCE_ALL": 44, "REDUCE_MAX": 44,
        "REDUCE_MIN": 44, "RELU": 28, "RELU6": 8, "RSQRT": 28, "SELECT_V2": 1, "SPACE_TO_BATCH_ND": 4,
        "SQUARED_DIFFERENCE": 112, "STRIDED_SLICE": 84, "SUB": 52, "SUM": 44, "SVDF": 36,
        "TANH": 16, "UNIDIRECTIONAL_SEQUENCE_LSTM": 688, "VAR_HANDLE": 4, "WHILE": 8,
        "CUSTOM:CIRCULAR_BUFFER": 8, DETECTION_POSTPROCESS: 112,
    }.items()},
    "BATCH_MATMUL": (32, 16),
    "CONCATENATION": (40, 24),
    "CONV_2D": (72, 56),
    "DEPTHWISE_CONV_2D": (72, 56),
    "FULLY_CONNECTED": (64, 48),
    "SOFTMAX": (80, 56),
    "TRANSPOSE_CONV": (80, 72),
}  # fmt: skip
"""Bytes of each kernel's own data on 64 and 32 bit; the second is smaller where it holds pointers."""

_NAMES_WITHOUT_DATA = """
    ARG_MAX ARG_MIN BATCH_TO_SPACE_ND BROADCAST_ARGS BROADCAST_TO CAST CEIL COS EXP EXPAND_DIMS FILL FLOOR FLOOR_DIV
    FLOOR_MOD LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR MAXIMUM MINIMUM NEG PACK RESHAPE RESIZE_BILINEAR
    RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND SHAPE SIN SLICE SPLIT SPLIT_V SQRT SQUARE SQUEEZE TRANSPOSE UNPACK
    ZEROS_LIKE ADD_N CUMSUM DYNAMIC_UPDATE_SLICE LOG_SOFTMAX ASSIGN_VARIABLE READ_VARIABLE DEPTH_TO_SPACE GATHER
    GATHER_ND L2_POOL_2D SPACE_TO_DEPTH
"""
_WITHOUT_DATA = frozenset(_NAMES_WITHOUT_DATA.split())

_COMPRESSION: Mapping[str, int] = {
    "ASSIGN_VARIABLE": 4, "CONCATENATION": 40, "CONV_2D": 8, "DEPTHWISE_CONV_2D": 8, "FULLY_CONNECTED": 8,
    "TRANSPOSE_CONV": 8,
}  # fmt: skip
"""Bytes that kernels' own data has more in that package, which is built with compression."""

_CONSTANTS = {"PAD": 1, "PADV2": 2, "SLICE": 2}
"""Constants of the operators that rewrites add."""

_CHANNELS_LAST = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"})
"""Operators that keep a multiplier and a shift for every channel, the last axis of their output."""

_COPIED_SHAPES = {"DEPTH_TO_SPACE": 20, "GATHER": 4, "GATHER_ND": 4, "L2_POOL_2D": 20, "SPACE_TO_DEPTH": 20}
"""Operators that keep a copy of their output's shape, with the bytes of the smallest."""


class _ArenaTail:
    """The bytes used at an arena's end.

    Attributes:
        beside: The most that was needed at once at its other end.
        most: The most that was needed at once at both.
    """

    def __init__(self) -> None:
        self.used = self.beside = self.most = 0

    def take(self, size: int, alignment: int = ALIGNMENT) -> None:
        """Allocate: the new begin of the tail is rounded down."""
        self.used = -(-(self.used + size) // alignment) * alignment

    def hold(self, size: int) -> None:
        """Note what is needed at the arena's other end for a moment."""
        self.beside, self.most = max(self.beside, size), max(self.most, round_up(self.used) + size)


def assumptions(kernels: str = "") -> tuple[str, ...]:
    """Return what must hold for the estimates with the kernels that a target names."""
    return tuple(one.format(kernel_set(kernels).words) for one in _ASSUMPTIONS)


def estimates(model: FileModel, kernels: str = "") -> dict[int, Estimate]:
    """Return estimates for pointers of 64 and of 32 bits, with the kernels that a target names.

    While it plans, TFLM holds the requests that one more kernel might make, an offset per subgraph, a record per tensor
    and request and one per planned buffer; inputs and outputs get their persistent part only afterwards. While a kernel
    prepares, it holds these requests and the tensors that the kernel looks at. Measured as the smallest arenas that
    work.
    """
    counts = quantization_counts(model)
    asked = _requests(model, kernels)
    found = {}
    for bits, widths in _WIDTHS.items():
        room = _planning_room(model, widths, sum(asked))
        tail = _until_planning(model, bits, counts, asked, kernels, room)
        before = round_up(tail.used)
        _inputs_and_outputs(tail, model, widths, counts[0])
        apart = _until_planning(model, bits, counts, asked, kernels, room, allocators=_TWO_ARENAS[bits])
        _inputs_and_outputs(apart, model, widths, counts[0])
        planning = max(room + before, tail.most)
        found[bits] = Estimate(tail.used, max(0, planning - tail.used), apart.used, max(room, apart.beside))
    return found


def least_in_wheel(model: FileModel, head: int) -> int:
    """Return the bytes of the smallest arena in which the package tflite-micro runs a model.

    Args:
        head: Bytes of its planned part.
    """
    asked = _requests(model, "")
    room = _planning_room(model, _WIDTHS[64], sum(asked))
    before = _until_planning(model, 64, quantization_counts(model), asked, "", room, recorded=True)
    planning = round_up(before.used) + room
    return max(planning, round_up(before.most), round_up(head) + round_up(tail_in_wheel(model)))


def _planning_room(model: FileModel, widths: _Widths, requests: int) -> int:
    """Return what planning takes for a moment: what it knows of tensors, then the planner's own records."""
    tensors = [(graph, number) for graph in model.subgraphs for number in range(len(graph.tensors))]
    planned = sum(needs_memory(graph, number) for graph, number in tensors) + requests
    known = widths.request * (Sources.REQUESTS_OF_ONE_KERNEL + requests) + widths.pointer * len(model.subgraphs)
    return round_up(known + widths.record * (len(tensors) + requests)) + round_up(Sources.PLANNED_BUFFER * planned)


def tail_in_wheel(model: FileModel) -> int:
    """Return the bytes that stay in an arena of the package tflite-micro: a firmware's on 64 bit, and its records."""
    counts = quantization_counts(model)
    tail = _until_planning(model, 64, counts, _requests(model, ""), "", 0, recorded=True)
    _inputs_and_outputs(tail, model, _WIDTHS[64], counts[0])
    return tail.used


def _until_planning(
    model: FileModel,
    bits: int,
    counts: Sequence[QuantizationCounts],
    asked: Sequence[int],
    kernels: str,
    room: int,
    *,
    recorded: bool = False,
    allocators: tuple[int, ...] = (),
) -> _ArenaTail:
    widths, built = _WIDTHS[bits], kernel_set(kernels)
    tail = _ArenaTail()
    if recorded:
        tail.take(Sources.RECORDER, widths.pointer)
    for size in (*(allocators or widths.interpreter[:1]), *widths.interpreter[1:]):
        tail.take(size, widths.pointer)
    named = len(variables(model))
    for size in (widths.variables, widths.variable * named) if named else ():
        tail.take(size)
    # A pointer to its compressed tensors is in each subgraph's record there.
    record = 2 * widths.pointer + (Sources.POINTER if recorded else 0)
    tail.take(record * len(model.subgraphs), widths.pointer)
    for subgraph in model.subgraphs:
        tail.take(widths.eval_tensor * len(subgraph.tensors), widths.pointer)
    for subgraph in model.subgraphs:
        tail.take(widths.node * len(subgraph.operators), widths.pointer)
    # Options of all operators come first, then what kernels keep when they are made, then what they prepare.
    for subgraph in model.subgraphs:
        for operator in subgraph.operators:
            _options(tail, operator, bits)
    for subgraph in model.subgraphs:
        for operator in subgraph.operators:
            _init(tail, operator, bits, _COMPRESSION.get(operator.type, 0) if recorded else 0, built.data)
            _init_signal(tail, model, subgraph, operator, bits)
    _prepare_all(tail, model, bits, counts, kernels, room, asked)
    for size in assigned_bytes(model):
        tail.take(size)
    tail.take(widths.pointer * sum(asked), widths.pointer)
    for tensor in (tensor for subgraph in model.subgraphs for tensor in subgraph.tensors if tensor.variable):
        tail.take(tensor.size)
    return tail


def _prepare_all(
    tail: _ArenaTail,
    model: FileModel,
    bits: int,
    counts: Sequence[QuantizationCounts],
    kernels: str,
    room: int,
    asked: Sequence[int],
) -> None:
    widths, built = _WIDTHS[bits], kernel_set(kernels)
    requests, asks = Sources.REQUESTS_OF_ONE_KERNEL, iter(asked)
    for subgraph, of_subgraph in zip(model.subgraphs, counts, strict=True):
        for operator in subgraph.operators:
            _prepare(tail, subgraph, operator, of_subgraph, bits)
            for size in built.kept(model, subgraph, operator) or ():
                tail.take(size)
            looked_at, known = looked_at_by(subgraph, operator), widths.request * requests
            # No tensor has more zero points than its longest axis: mostly planning takes more anyway.
            longest = [max((1, *subgraph.tensors[tensor].shape)) for tensor in looked_at]
            if known + sum(_temporary(widths, 1, count) for count in longest) > room:
                tail.hold(known + sum(_temporary(widths, *of_subgraph[tensor]) for tensor in looked_at))
            requests += next(asks)


def _temporary(widths: _Widths, scales: int, zero_points: int) -> int:
    """Return the bytes of a tensor that a kernel looks at while it prepares."""
    if not (scales and zero_points):
        return widths.tensor
    return widths.tensor + widths.quantization + -(-(4 + 4 * zero_points) // widths.pointer) * widths.pointer


def _requests(model: FileModel, kernels: str) -> list[int]:
    """Return how many scratch buffers each operator requests, of all subgraphs one after the other."""
    numbered = ((graph, op) for graph, subgraph in enumerate(model.subgraphs) for op in range(len(subgraph.operators)))
    return [len(scratch_requests(model, graph, op, kernels)) for graph, op in numbered]


def unknown_kernels(model: FileModel, kernels: str = "") -> tuple[str, ...]:
    """Return the operators whose kernels' own data is not known and so missing in estimates, sorted."""
    built = kernel_set(kernels)
    kinds = {operator.type for subgraph in model.subgraphs for operator in subgraph.operators}
    found = kinds - _DATA.keys() - _WITHOUT_DATA - SIGNAL_KERNELS
    return tuple(
        sorted(found | {op.type for graph in model.subgraphs for op in graph.operators if built.unknown(graph, op)})
    )


def least_kept(graph: FileSubgraph, bits: int) -> tuple[int, ...]:
    """Return per operator of ``graph`` the bytes that any model with it keeps: for itself and for what it makes."""
    widths, found = _WIDTHS[bits], []
    for operator in graph.operators:
        tail = _ArenaTail()
        _options(tail, operator, bits)
        _init(tail, operator, bits)
        _prepare(tail, graph, operator, defaultdict(lambda: (0, 0)), bits)
        found.append(tail.used + widths.node + widths.eval_tensor * len(operator.outputs))
    return tuple(found)


def kept_by(graph: Graph, op: Op, *, bits: int) -> Kept:
    """Return what an op of ``graph`` adds to the arena's end and to what planning takes, but for alignment."""
    shape = graph.tensors[op.outputs[0]].shape if op.outputs else None
    return kept_by_kind(op.type, len(op.outputs), bits, channels=shape[-1] if shape else None)


def kept_by_kind(kind: str, outputs: int, bits: int, channels: int | None = None) -> Kept:
    """Return what an operator adds; see `kept_by`.

    Args:
        channels: The length of the last axis of what it makes; None where that is not known, or there is none.
    """
    widths = _WIDTHS[bits]
    tensors = outputs + _CONSTANTS.get(kind, 0)
    tail = _ArenaTail()
    tail.take(widths.node + widths.eval_tensor * tensors + _OPTIONS.get(kind, 0), 4)
    data = _DATA.get(kind)
    tail.take(data[0 if bits == 64 else 1] if data is not None else 0)
    if kind in _CHANNELS_LAST and channels is not None:
        tail.take(4 * channels)
        tail.take(4 * channels)
    tail.take(_COPIED_SHAPES.get(kind, 0))
    return Kept(tail.used, widths.record * tensors + Sources.PLANNED_BUFFER * outputs)


def least_by_kind(kind: str, tensors: int, *, bits: int) -> int:
    """Return what an operator that brings so many tensors adds at least, before anything is rounded up."""
    widths = _WIDTHS[bits]
    return widths.node + widths.eval_tensor * tensors + _OPTIONS.get(kind, 0) + min(_DATA.get(kind, (0, 0)))


def _options(tail: _ArenaTail, operator: FileOperator, bits: int) -> None:
    pointers = _OPTIONS_WITH_POINTERS.get(operator.type)
    if pointers is not None:
        tail.take(pointers[0 if bits == 64 else 1], bits // 8)
        return
    size = _OPTIONS.get(operator.type, 0)
    if size:
        tail.take(size, 4 if size % 4 == 0 else 1)


def _init(
    tail: _ArenaTail,
    operator: FileOperator,
    bits: int,
    more: int = 0,
    others: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> None:
    known = others.get(operator.type) or _DATA.get(operator.type)
    if known is not None or more:
        tail.take((known or (0, 0))[0 if bits == 64 else 1] + more)


def _init_signal(tail: _ArenaTail, model: FileModel, graph: FileSubgraph, operator: FileOperator, bits: int) -> None:
    if operator.type in SIGNAL_KERNELS:
        data = operator_tensor(graph, operator, 0)
        shape = () if data is None else data.shape
        for size in signal_data(operator.type, custom_integers(model, operator), shape, bits):
            tail.take(size)


def _prepare(
    tail: _ArenaTail, graph: FileSubgraph, operator: FileOperator, counts: Mapping[int, tuple[int, int]], bits: int
) -> None:
    rule = _PREPARED.get(operator.type)
    sizes = rule(graph, operator, bits) if rule is not None else ()
    if operator.type == "FULLY_CONNECTED" and len(operator.inputs) > 1:
        # fully_connected_common.cc: a multiplier and a shift per channel where the weights are quantized by channel.
        data, (scales, _) = operator_tensor(graph, operator, 0), counts[operator.inputs[1]]
        sizes = (4 * scales,) * 2 if scales > 1 and data is not None and data.dtype != "float32" else ()
    for size in sizes:
        tail.take(size)


def _per_channel(axis: int) -> Callable[[FileSubgraph, FileOperator, int], tuple[int, ...]]:
    def sizes(graph: FileSubgraph, operator: FileOperator, _: int) -> tuple[int, ...]:
        # conv_common.cc, depthwise_conv_common.cc, transpose_conv.cc: a multiplier and a shift per channel.
        weights = operator_tensor(graph, operator, 1)
        return () if weights is None or len(weights.shape) != 4 else (4 * weights.shape[axis],) * 2

    return sizes


def _softmax(graph: FileSubgraph, operator: FileOperator, _: int) -> tuple[int, ...]:
    # softmax_common.cc
    data = operator_tensor(graph, operator, 0)
    return (Sources.SOFTMAX_TABLE,) * 2 if data is not None and data.dtype == "int16" else ()


def _only_quantized(size: int) -> Callable[[FileSubgraph, FileOperator, int], tuple[int, ...]]:
    def sizes(graph: FileSubgraph, operator: FileOperator, _: int) -> tuple[int, ...]:
        # add_n.cc, cumsum.cc
        data = operator_tensor(graph, operator, 0)
        return (size,) if data is not None and data.dtype == "int8" else ()

    return sizes


def _batch_matmul(graph: FileSubgraph, operator: FileOperator, bits: int) -> tuple[int, ...]:
    # batch_matmul.cc: the output's shape; parameters where quantized; a copy of each input that is to be transposed.
    left, right = operator_tensor(graph, operator, 0), operator_tensor(graph, operator, 1)
    if left is None or right is None:
        return ()
    sizes = [28] if left.dtype in {"int8", "int16"} else []
    transposed = [left] if operator.attributes.get("adj_x") else []
    transposed += [] if operator.attributes.get("adj_y") else [right]
    for tensor in transposed:
        sizes += [_WIDTHS[bits].eval_tensor, _shape_bytes(tensor.shape), tensor.size]
    return (*sizes, _shape_bytes(max(left.shape, right.shape, key=len)))


def _shape_bytes(shape: Sequence[int]) -> int:
    """Return the bytes of a TfLiteIntArray of as many elements."""
    return 4 + 4 * len(shape)


def _copied_shape(graph: FileSubgraph, operator: FileOperator, _: int) -> tuple[int, ...]:
    # kernel_util.cc: CreateWritableTensorDimsWithCopy.
    return tuple(_shape_bytes(graph.tensors[tensor].shape) for tensor in operator.outputs[:1])


_PREPARED: Mapping[str, Callable[[FileSubgraph, FileOperator, int], tuple[int, ...]]] = {
    "ADD_N": _only_quantized(40),
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": _per_channel(0),
    "CUMSUM": _only_quantized(36),
    "DEPTHWISE_CONV_2D": _per_channel(3),
    "SOFTMAX": _softmax,
    "TRANSPOSE_CONV": _per_channel(0),
    **dict.fromkeys(_COPIED_SHAPES, _copied_shape),
}


def _inputs_and_outputs(tail: _ArenaTail, model: FileModel, widths: _Widths, counts: QuantizationCounts) -> None:
    """The main graph's inputs and outputs get a full tensor each, with their quantization."""
    for tensors in (model.subgraphs[0].inputs, model.subgraphs[0].outputs):
        tail.take(widths.pointer * len(tensors))
        for tensor in tensors:
            tail.take(widths.tensor, widths.pointer)
            scales, zero_points = counts[tensor]
            if scales and zero_points:
                tail.take(widths.quantization, widths.pointer)
                tail.take(4 + 4 * zero_points, 4)
