"""What TensorFlow Lite Micro asks its memory planner for, and the plan that a file may bring instead.

Sources: ``tensorflow/lite/micro/micro_allocation_info.cc`` and ``micro_allocator.cc``. Time runs through the operators
in file order; operators of a body are numbered inline, when the operator that executes it is met. Tensors that no
executed operator refers to keep the lifetime -1 and are still allocated. Metadata ``OfflineMemoryAllocation``
holds little-endian 32-bit integers [version, subgraphs, n, offset 0 .. offset n-1], one offset per tensor of all
subgraphs in order, -1 for "plan it yourself". TFLM checks n and nothing else.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST_INT32
from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph, FileTensor
from memsched.formats.tflite.schema import element_types
from memsched.runtimes.arena_facts import round_up
from memsched.runtimes.tflm.planner import TflmRequest, greedy_offsets, head_bytes
from memsched.runtimes.tflm.sources import Sources

__all__ = [
    "BufferRequest",
    "Prediction",
    "Scratch",
    "distinct_bodies",
    "encode_plan",
    "executed_subgraphs",
    "given_plan",
    "inline_bodies",
    "kernel_scratch",
    "must_stay_online",
    "needs_memory",
    "predict",
    "tensor_bytes",
    "wanted_buffers",
]

Scratch = Mapping[tuple[int, int], Sequence[int]]
"""Per (subgraph, operator) the bytes of the scratch buffers that its kernel requests."""

_INLINE = frozenset({"CALL_ONCE", "IF", "WHILE"})

_MOST_VISITS = 200_000
_DEEPEST = 100
"""Bounds on the operators met and on bodies inside bodies: a small file can ask for any number of them."""


def tensor_bytes(tensor: FileTensor) -> int:
    """Return the bytes that TFLM counts for a tensor: 4-bit types a byte per element, handles 4; 0 for strings."""
    return math.prod(tensor.shape) * _widths().get(tensor.dtype, 0)


@cache
def _widths() -> Mapping[str, int]:
    return {name: max(1, bits // 8) for name, bits in element_types().values()} | {"resource": 4}


def needs_memory(graph: FileSubgraph, number: int) -> bool:
    """Return whether a tensor of a subgraph lies in the planned part of the arena, wherever it is used."""
    tensor = graph.tensors[number]
    if tensor.dtype == "resource" and any(op.type == "VAR_HANDLE" and number in op.outputs for op in graph.operators):
        # var_handle.cc: its kernel keeps the handle, and says so before anything is planned.
        return False
    return not tensor.has_data and not tensor.variable and tensor_bytes(tensor) > 0


def inline_bodies(operator: FileOperator) -> tuple[int, ...]:
    """Return the subgraphs that TFLM plans inside an operator, in its order."""
    return operator.bodies if operator.type in _INLINE else ()


def distinct_bodies(operator: FileOperator) -> tuple[int, ...]:
    """Return the subgraphs that an operator can execute, in its order; each once, though IF may name one twice."""
    return tuple(dict.fromkeys(inline_bodies(operator)))


def executed_subgraphs(model: FileModel) -> list[bool]:
    """Return per subgraph whether an execution of the main one can reach it in TFLM."""
    reached = [False] * len(model.subgraphs)
    pending = [0]
    while pending:
        index = pending.pop()
        if not reached[index]:
            reached[index] = True
            pending.extend(body for op in model.subgraphs[index].operators for body in inline_bodies(op))
    return reached


def kernel_scratch(model: FileModel, kernels: str = "") -> Scratch:
    """Return what the kernels of all operators request: those that a target names, by default the reference kernels."""
    from memsched.runtimes.tflm.kernels import scratch_requests

    found = {
        (index, number): scratch_requests(model, index, number, kernels)
        for index, subgraph in enumerate(model.subgraphs)
        for number in range(len(subgraph.operators))
    }
    return {key: sizes for key, sizes in found.items() if sizes}


class BufferRequest(FrozenValue, frozen=True):
    """A buffer that TFLM asks its planner for, in the order in which it asks.

    Attributes:
        subgraph: Where it is used.
        tensor: Index in the subgraph; -1 for a scratch buffer.
        operator: Of a scratch buffer; -1 for a tensor.
        size: Bytes, rounded up to 16.
        first: The first time that needs it; -1 where no operator that is executed refers to it.
        last: The last time that does, included.
    """

    subgraph: int
    tensor: int
    operator: int
    size: int
    first: int
    last: int


def wanted_buffers(model: FileModel, scratch: Scratch) -> tuple[BufferRequest, ...]:
    """Return the buffers that TFLM plans for ``model``: tensors of all subgraphs in order, then scratch buffers.

    Raises:
        ModelError: Bodies are executed inside each other so often that no microcontroller could run it.
    """
    times = _Times(model)
    times.mark(0)
    wanted = []
    for index, subgraph in enumerate(model.subgraphs):
        for number, tensor in enumerate(subgraph.tensors):
            if needs_memory(subgraph, number):
                first, last = times.of.get((index, number), (-1, -1))
                wanted.append(BufferRequest(index, number, -1, round_up(tensor_bytes(tensor)), first, last))
    for (index, number), sizes in sorted(scratch.items()):
        # Of an operator that is never met, TFLM plans a size that it never set: nothing can be said of it.
        span = times.of_operator.get((index, number))
        if span is not None:
            wanted += [BufferRequest(index, -1, number, round_up(size), *span) for size in sizes]
    return tuple(wanted)


class _Times:
    """Lifetimes as ``AllocationInfoBuilder::MarkAllocationLifetimes`` finds them."""

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._now = 0
        self.of: dict[tuple[int, int], tuple[int, int]] = {}
        self.of_operator: dict[tuple[int, int], tuple[int, int]] = {}

    def mark(self, index: int, depth: int = 0) -> None:
        """Run through a subgraph from the current time on; ``depth`` bodies are around it."""
        subgraph = self._model.subgraphs[index]
        if depth > _DEEPEST or self._now > _MOST_VISITS:
            problem = "its operators execute subgraphs inside each other too often for TensorFlow Lite Micro"
            raise ModelError(problem, code="nested-too-deep")
        self._use(index, subgraph.inputs, created=True)
        for number, operator in enumerate(subgraph.operators):
            self._now += 1
            begin = self._now
            self._use(index, operator.outputs, created=True)
            for body in inline_bodies(operator):
                self._now += 1
                self.mark(body, depth + 1)
            self._use(index, operator.inputs, created=False)
            self._use(index, operator.outputs, created=False)
            key = (index, number)
            self.of_operator[key] = (self.of_operator.get(key, (begin, begin))[0], self._now)
        self._use(index, subgraph.outputs, created=True)

    def _use(self, index: int, tensors: Sequence[int], *, created: bool) -> None:
        """Extend lifetimes to now; a tensor that is read but never created lives from -1 on."""
        for tensor in tensors:
            if tensor >= 0:
                first = self.of.get((index, tensor), (-1, -1))[0]
                self.of[index, tensor] = (self._now if first < 0 and created else first, self._now)


def given_plan(model: FileModel) -> tuple[int, ...] | None:
    """Return the offsets that the file brings for the tensors of all subgraphs; None where it brings none.

    Raises:
        ModelError: TFLM would refuse the file's plan, or read past its end.
    """
    # Of several, TFLM takes the last.
    buffer = next((index for name, index in reversed(model.metadata) if name == OFFLINE_PLAN), None)
    if buffer is None:
        return None
    data = model.contents(buffer)
    count = sum(len(subgraph.tensors) for subgraph in model.subgraphs)
    stated = struct.unpack_from("<I", data, 8)[0] if len(data) >= 12 else None
    if stated != count or len(data) < 12 + 4 * count:
        raise ModelError(
            f"its metadata '{OFFLINE_PLAN}' does not hold an offset for each of its {count} tensors: "
            "TensorFlow Lite Micro cannot load it",
            code="bad-memory-plan",
        )
    return struct.unpack_from(f"<{count}i", data, 12)


def encode_plan(model: FileModel, offsets: Mapping[tuple[int, int], int]) -> bytes:
    """Return the metadata that states ``offsets``, per (subgraph, tensor); all others are left to the runtime.

    Raises:
        ModelError: An offset does not fit into 32 bits.
    """
    if max(offsets.values(), default=0) > LARGEST_INT32:
        raise ModelError("its tensors need more than 2 GB, which no memory plan can address", code="too-large")
    listed = [
        offsets.get((index, number), Sources.ONLINE)
        for index, subgraph in enumerate(model.subgraphs)
        for number in range(len(subgraph.tensors))
    ]
    return struct.pack(f"<3I{len(listed)}i", 1, len(model.subgraphs), len(listed), *listed)


def must_stay_online(model: FileModel) -> set[tuple[int, int]]:
    """Return the tensors that no plan may name because of a defect of TFLM.

    Whether a variable with index i of any subgraph gets memory, ``AllocateVariables`` looks up at place i of the whole
    list of offsets: an offset there leaves the variable a null pointer.
    """
    places = [key for key, _ in _all_tensors(model)]
    return {
        places[number]
        for subgraph in model.subgraphs
        for number, tensor in enumerate(subgraph.tensors)
        if tensor.variable
    }


def _all_tensors(model: FileModel) -> Iterator[tuple[tuple[int, int], FileTensor]]:
    for index, subgraph in enumerate(model.subgraphs):
        for number, tensor in enumerate(subgraph.tensors):
            yield (index, number), tensor


class Prediction(FrozenValue, frozen=True):
    """Where TFLM lays what it plans.

    Attributes:
        head: Bytes of the arena's planned part (its "head").
        offsets: Per (subgraph, tensor) that has memory of its own there, its offset.
        scratch: Per scratch buffer, in the order of operators, its offset.
    """

    head: int
    offsets: Mapping[tuple[int, int], int]
    scratch: tuple[int, ...]


def predict(
    model: FileModel, scratch: Scratch, *, plan: Mapping[tuple[int, int], int] | None = None, own: bool = False
) -> Prediction:
    """Return what TFLM makes of ``model``.

    Args:
        scratch: What kernels request; see `kernel_scratch`.
        plan: Offsets that replace those that the file brings, per (subgraph, tensor).
        own: Leave everything to the runtime, whatever the file brings.

    Raises:
        ModelError: TFLM would refuse the plan that the file brings, or could not execute the file.
    """
    if plan is None and not own:
        given = given_plan(model)
        if given is not None:
            named = zip(_all_tensors(model), given, strict=True)
            plan = {key: offset for (key, _), offset in named if offset != Sources.ONLINE}
    wanted = wanted_buffers(model, scratch)
    requests = [TflmRequest(one.size, one.first, one.last) for one in wanted]
    if plan:
        requests = [
            request if one.tensor < 0 else replace(request, offset=plan.get((one.subgraph, one.tensor)))
            for one, request in zip(wanted, requests, strict=True)
        ]
    found = greedy_offsets(requests)
    placed = list(zip(wanted, found, strict=True))
    return Prediction(
        head_bytes(requests, found),
        {(one.subgraph, one.tensor): offset for one, offset in placed if one.tensor >= 0},
        tuple(offset for one, offset in placed if one.tensor < 0),
    )
