"""What a WHILE with a counter does in each iteration, found by executing its integers: where it reads and writes.

Only small integer tensors that follow from constants are computed: counters, rows of tables, conditions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from memsched.base.frozen import FrozenValue
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph, FileTensor
from memsched.ops.table import families
from memsched.search.pace import MachinePace

__all__ = ["LoopAccess", "LoopAccesses"]

_MOST_ITERATIONS = 10_000
_MOST_STEPS = 500_000
_MOST_ELEMENTS = 64

_TYPES = {"int32": "<i4", "int64": "<i8"}

_Values = dict[int, Any]
"""Per tensor of a subgraph its values as a NumPy array, where they are known."""


class LoopAccess(FrozenValue, frozen=True):
    """Which bytes of two tensors that a loop carries it touches when.

    Attributes:
        last_read: Per byte of the first the last iteration that reads it; -1 where none does.
        first_written: Per byte of the second the first iteration that writes it; the number of iterations where none
            does.
        iterations: Their number.
    """

    last_read: Any
    first_written: Any
    iterations: int

    @property
    def covers(self) -> bool:
        """Return whether every byte of the second is written."""
        return bool((self.first_written < self.iterations).all())

    def permits(self, distance: int) -> bool:
        """Return whether the second may lie so many bytes behind the first: none is read after it was overwritten."""
        low, high = max(0, distance), min(len(self.last_read), distance + len(self.first_written))
        if low >= high:
            return True
        return bool((self.last_read[low:high] <= self.first_written[low - distance : high - distance]).all())


class LoopAccesses:
    """What the loops of a model do to the tensors that they carry; each is executed once.

    Attributes:
        work: What that took, as `Limits.effort`.
    """

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._executed: dict[tuple[int, int], list[Mapping[int, Any]] | None] = {}
        self._known: dict[tuple[int, int, int, int], LoopAccess | None] = {}
        self.work = 0.0

    def of(self, subgraph: int, operator: int, read: int, written: int) -> LoopAccess | None:
        """Return what a WHILE does to two of the tensors that it carries; None where that is not known.

        The one at position ``read`` must be handed through unchanged and read by nothing but SLICE with a begin that is
        known; the one at position ``written`` must be read by one DYNAMIC_UPDATE_SLICE alone, which makes its next
        value and comes after these.
        """
        key = subgraph, operator, read, written
        if key not in self._known:
            self._known[key] = self._access(*key)
        return self._known[key]

    def _iterations(self, subgraph: int, operator: int) -> list[Mapping[int, Any]] | None:
        key = subgraph, operator
        if key not in self._executed:
            loop = self._model.subgraphs[subgraph].operators[operator]
            found = self._executed[key] = _iterations(self._model, subgraph, loop)
            steps = sum(len(self._model.subgraphs[index].operators) for index in loop.bodies)
            self.work += len(found or ()) * steps * MachinePace.LOOP_STEP_SECONDS
        return self._executed[key]

    def _access(self, subgraph: int, operator: int, read: int, written: int) -> LoopAccess | None:
        import numpy as np

        loop = self._model.subgraphs[subgraph].operators[operator]
        condition, body = (self._model.subgraphs[index] for index in loop.bodies)
        source, target = body.inputs[read], body.inputs[written]
        if body.outputs[read] != source or any(_readers(condition, condition.inputs[one]) for one in (read, written)):
            return None
        slices, updates = _readers(body, source), _readers(body, target)
        if len(updates) != 1 or not _is_update(body, updates[0], target, body.outputs[written]):
            return None
        if not all(_is_slice(body.operators[one], source) and one < updates[0] for one in slices):
            return None
        iterations = self._iterations(subgraph, operator)
        if iterations is None:
            return None
        last = _grid(body.tensors[source], -1)
        first = _grid(body.tensors[target], len(iterations))
        for number, known in enumerate(iterations):
            for one in slices:
                op = body.operators[one]
                place = _place(known.get(op.inputs[1]), body.tensors[source], body.tensors[op.outputs[0]], clamp=False)
                if place is None:
                    return None
                last[place] = number
            op = body.operators[updates[0]]
            place = _place(known.get(op.inputs[2]), body.tensors[target], body.tensors[op.inputs[1]], clamp=True)
            if place is None:
                return None
            first[place] = np.minimum(first[place], number)
        return LoopAccess(last.reshape(-1), first.reshape(-1), len(iterations))


def _readers(graph: FileSubgraph, tensor: int) -> list[int]:
    return [number for number, op in enumerate(graph.operators) if tensor in op.inputs]


def _is_slice(op: FileOperator, source: int) -> bool:
    return op.type == "SLICE" and op.inputs[0] == source and op.inputs.count(source) == 1


def _is_update(graph: FileSubgraph, number: int, operand: int, result: int) -> bool:
    op = graph.operators[number]
    return (
        op.type == "DYNAMIC_UPDATE_SLICE"
        and op.outputs == (result,)
        and op.inputs[0] == operand
        and op.inputs.count(operand) == 1
        and result not in graph.inputs
        and graph.outputs.count(result) == 1
        and operand not in graph.outputs
        and not _readers(graph, result)
    )


def _grid(tensor: FileTensor, value: int) -> Any:
    """Return an array of the tensor's shape with an axis for the bytes of an element."""
    import numpy as np

    width = tensor.size // max(1, math.prod(tensor.shape))
    return np.full((*tensor.shape, width), value, np.int32)


def _place(begin: Any, whole: FileTensor, part: FileTensor, *, clamp: bool) -> tuple[slice, ...] | None:
    """Return which part of ``whole`` lies at ``begin``; None where that is not known, or outside."""
    if begin is None or len(begin) != len(whole.shape) or len(part.shape) != len(whole.shape):
        return None
    found = []
    for low, size, all_of in zip((int(one) for one in begin), part.shape, whole.shape, strict=True):
        start = max(0, min(low, all_of - size)) if clamp else low
        if not 0 <= start <= all_of - size:
            return None
        found.append(slice(start, start + size))
    return tuple(found)


def _iterations(model: FileModel, subgraph: int, loop: FileOperator) -> list[Mapping[int, Any]] | None:
    """Return per iteration what is known of the body's tensors; None where their number is not known."""
    condition, body = (model.subgraphs[index] for index in loop.bodies)
    fixed = [_constants(model, graph) for graph in (condition, body)]
    given = _constants(model, model.subgraphs[subgraph])
    carried = [given.get(tensor) for tensor in loop.inputs]
    found: list[Mapping[int, Any]] = []
    most = min(_MOST_ITERATIONS, _MOST_STEPS // max(1, len(condition.operators) + len(body.operators)))
    while True:
        decided = _run(condition, fixed[0], carried).get(condition.outputs[0])
        if decided is None:
            return None
        if not decided.reshape(-1)[0]:
            return found
        if len(found) == most:
            return None
        known = _run(body, fixed[1], carried)
        found.append(known)
        carried = [known.get(tensor) for tensor in body.outputs]


def _constants(model: FileModel, graph: FileSubgraph) -> _Values:
    import numpy as np

    found = {}
    for number, tensor in enumerate(graph.tensors):
        data = model.contents(tensor.buffer) if tensor.has_data and tensor.dtype in _TYPES else b""
        if data and len(data) == tensor.size:
            found[number] = np.frombuffer(data, _TYPES[tensor.dtype]).reshape(tensor.shape)
    return found


def _run(graph: FileSubgraph, fixed: _Values, given: Sequence[Any]) -> _Values:
    """Return what is known of a subgraph's tensors where its inputs are ``given``, None for those that are unknown."""
    values = dict(fixed)
    values.update({tensor: value for tensor, value in zip(graph.inputs, given, strict=True) if value is not None})
    for op in graph.operators:
        if len(op.outputs) != 1 or graph.tensors[op.outputs[0]].dtype not in {*_TYPES, "bool"}:
            continue
        result = graph.tensors[op.outputs[0]]
        read = [values.get(tensor) for tensor in op.inputs]
        if math.prod(result.shape) <= _MOST_ELEMENTS and all(one is not None for one in read):
            made = _value(op, read, result)
            if made is not None:
                values[op.outputs[0]] = made
    return values


def _value(op: FileOperator, read: list[Any], result: FileTensor) -> Any:
    import numpy as np

    if op.type == "SLICE":
        begin = [int(one) for one in read[1]]
        if len(begin) != read[0].ndim:
            return None
        taken = read[0][tuple(slice(max(0, low), low + size) for low, size in zip(begin, result.shape, strict=False))]
        return taken if taken.shape == result.shape else None
    if op.type in families("view"):
        return read[0].reshape(result.shape) if read[0].size == math.prod(result.shape) else None
    rule = {"ADD": np.add, "SUB": np.subtract, "LESS": np.less, "LESS_EQUAL": np.less_equal}.get(op.type)
    if rule is None or len(read) != 2 or op.attributes.get("fused_activation_function", "NONE") != "NONE":
        return None
    made = rule(*read)
    return made if made.shape == result.shape else None
