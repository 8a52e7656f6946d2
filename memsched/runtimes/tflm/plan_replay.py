"""Replays a model in an arena at given offsets, with the name of a value's byte in each byte.

Beside the arena stands what each tensor would hold in bytes of its own. An operator may read only bytes in which both
agree; copies (WHILE's, IF's, a view's onto itself) move whatever is there. So a plan is sound where nothing is read
that was overwritten: whatever the order, the bodies and the iterations. While an operator runs, its output may meet its
inputs only where the target says that its kernel bears it.

A WHILE is executed as often as its integers say. Where these are not known, one iteration stands for all: before it,
every byte that the loop writes is lost but for what the loop carries. The bodies of an IF are executed from the same
state; afterwards only what they agree on is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from memsched.base.errors import InternalError
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph
from memsched.formats.tflite.own_tensors import own_tensors
from memsched.runtimes.tflm.arena_bytes import GARBAGE, ArenaBytes, Run, cut, joined, merged, replaced
from memsched.runtimes.tflm.plan import Scratch, needs_memory, tensor_bytes
from memsched.runtimes.tflm.plan_permissions import PlanPermissions
from memsched.runtimes.tflm.replay_integers import ReplayIntegers
from memsched.targets.model import Target

__all__ = ["replay", "scratch_places"]

_MOST_STEPS = 300_000
"""Operators executed in one loop, above which one iteration stands for all."""

_WITH_BODIES = frozenset({"CALL_ONCE", "IF", "WHILE"})
_Key = tuple[int, int]
_Range = tuple[int, int]


def replay(
    model: FileModel, target: Target, offsets: Mapping[_Key, int], scratch: Scratch, places: Sequence[int], size: int
) -> None:
    """Check that every operator of ``model`` reads what was meant.

    Args:
        target: Says which tensors may share bytes while an operator runs.
        offsets: Per (subgraph, tensor) with memory of its own there, where it lies in the arena.
        scratch: Per (subgraph, operator) what its kernel requests.
        places: Where these lie, in the order of operators that are executed.
        size: Of the arena in bytes.

    Raises:
        InternalError: It does not; the message names two tensors that lie over each other.
    """
    _Replay(model, target, offsets, scratch, places, size).main()


class _Replay:
    def __init__(
        self,
        model: FileModel,
        target: Target,
        offsets: Mapping[_Key, int],
        scratch: Scratch,
        places: Sequence[int],
        size: int,
    ) -> None:
        self._model = model
        self._offsets = offsets
        self._permissions = PlanPermissions(model, target)
        self._integers = ReplayIntegers(model)
        self._apart = [frozenset(own_tensors(graph).values()) for graph in model.subgraphs]
        self._inputs = frozenset((0, tensor) for tensor in model.subgraphs[0].inputs)
        self._arena = ArenaBytes(size)
        self._meant: dict[_Key, list[Run]] = {}
        self._owners: list[_Key | None] = [None]
        self._constants: dict[_Key, int] = {}
        self._scratch = {
            key: [(low, low + size) for low, size in zip(found, scratch[key], strict=True)]
            for key, found in scratch_places(model, scratch, places).items()
        }

    def main(self) -> None:
        """Execute the main graph."""
        graph = self._model.subgraphs[0]
        inputs = [(0, tensor) for tensor in dict.fromkeys(graph.inputs) if self._planned((0, tensor))]
        for one, other in itertools.combinations(inputs, 2):
            if _meet([self._range(one)], [self._range(other)]):
                self._refuse(one, other)
        for key in inputs:
            self._make(key)
        self._run(0)
        for tensor in graph.outputs:
            self._read((0, tensor))

    # Tensors and their bytes.

    def _planned(self, key: _Key) -> bool:
        return key[1] >= 0 and needs_memory(self._model.subgraphs[key[0]], key[1])

    def _size(self, key: _Key) -> int:
        return tensor_bytes(self._model.subgraphs[key[0]].tensors[key[1]])

    def _range(self, key: _Key) -> _Range:
        return self._offsets[key], self._offsets[key] + self._size(key)

    def _value(self, owner: _Key | None) -> int:
        self._owners.append(owner)
        return len(self._owners) - 1

    def _make(self, key: _Key) -> None:
        """Fill a tensor with a new value, made by an operator or given by the caller."""
        if self._planned(key):
            runs = [(0, self._size(key), self._value(key), 0)]
            self._meant[key] = runs
            self._arena.write(self._offsets[key], runs)

    def _content(self, key: _Key) -> list[Run]:
        """Return what a tensor should hold; garbage where nothing filled it yet."""
        if self._planned(key):
            return self._meant.get(key) or [(0, self._size(key), GARBAGE, 0)]
        if key not in self._constants:
            self._constants[key] = self._value(key)
        return [(0, self._size(key), self._constants[key], 0)] if self._size(key) else []

    def _holds(self, key: _Key) -> list[Run]:
        """Return what the bytes of a tensor do hold."""
        return self._arena.read(*self._range(key)) if self._planned(key) else self._content(key)

    def _read(self, key: _Key, parts: Sequence[_Range] | None = None) -> None:
        """Check that a tensor, or ranges of its bytes, hold what they should."""
        if not self._planned(key):
            return
        start, meant = self._offsets[key], self._content(key)
        for low, high in [(0, self._size(key))] if parts is None else parts:
            wanted, found = joined(cut(meant, low, high)), self._arena.read(start + low, start + high)
            if wanted != found or any(run[2] == GARBAGE for run in wanted):
                self._explain(key, start + low, wanted, found)

    def _explain(self, key: _Key, start: int, wanted: Sequence[Run], found: Sequence[Run]) -> None:
        """Say whose bytes lie where a tensor's should."""
        for low, high, value, begin in found:
            same = joined(cut(wanted, low, high)) == [(0, high - low, value, begin)] and value != GARBAGE
            if not same:
                self._refuse(key, self._holder(key, start + low, value, begin), start + low)
        problem = f"{_name(self._model, key)} is read before anything is written to it"
        raise InternalError(problem, code="read-before-made")

    def _holder(self, key: _Key, place: int, value: int, begin: int) -> _Key | None:
        """Return a tensor that should hold at an address what is there: who wrote it, if that lies there."""
        holders = [
            other
            for other, low in self._offsets.items()
            if other != key
            and low <= place < low + self._size(other)
            and [run[2:] for run in cut(self._content(other), place - low, place - low + 1)] == [(value, begin)]
        ]
        return self._owners[value] if self._owners[value] in holders else next(iter(holders), None)

    def _refuse(self, one: _Key, other: _Key | None, place: int | None = None) -> None:
        if other is None or not self._planned(other):
            names, at = [_name(self._model, one), "what other operators write"], place or 0
        else:
            names = [_name(self._model, key) for key in sorted((one, other))]
            at = max(self._offsets[one], self._offsets[other])
        raise InternalError(
            f"the memory plan lays {names[0]} and {names[1]} over each other at {at} while both are needed",
            code="overlap",
        )

    def _copy(self, source: _Key, result: _Key) -> None:
        """Copy a tensor as memcpy does: onto itself, or elsewhere."""
        if not self._planned(result):
            return
        if self._planned(source) and self._offsets[source] == self._offsets[result]:
            self._meant[result] = self._content(source)
            return
        if self._planned(source) and _meet([self._range(source)], [self._range(result)]):
            self._refuse(source, result)
        self._meant[result] = self._content(source)
        self._arena.write(self._offsets[result], self._holds(source))

    # Operators.

    def _run(self, index: int) -> None:
        graph = self._model.subgraphs[index]
        for number, operator in enumerate(graph.operators):
            if operator.type == "WHILE":
                self._loop(index, operator)
            elif operator.type in {"IF", "CALL_ONCE"}:
                self._choose(index, operator)
            else:
                self._execute(index, number, operator)

    def _execute(self, index: int, number: int, operator: FileOperator) -> None:
        outputs = [(index, tensor) for tensor in dict.fromkeys(operator.outputs) if self._planned((index, tensor))]
        if number in self._apart[index]:
            # Whoever compiled such an operator laid out what it reads, makes and works in.
            for key in outputs:
                self._make(key)
            return
        reads = self._reads(index, operator)
        self._check_scratch((index, number), reads, outputs)
        for one, other in itertools.combinations(outputs, 2):
            if _meet([self._range(one)], [self._range(other)]):
                self._refuse(one, other)
        self._integers.execute(index, operator)
        if outputs and operator.outputs[0] == outputs[0][1] and self._moved(index, operator, outputs[0], reads):
            return
        for key, parts in reads.items():
            self._read(key, parts)
            self._check_meetings(index, operator, key, parts, outputs)
        for key in outputs:
            self._make(key)

    def _reads(self, index: int, operator: FileOperator) -> dict[_Key, list[_Range] | None]:
        """Return the tensors that an operator reads, and the ranges of their bytes; None for all."""
        found: dict[_Key, list[_Range] | None] = {}
        for tensor in operator.inputs:
            if self._planned((index, tensor)):
                found[index, tensor] = None
        source = (index, operator.inputs[0]) if operator.inputs else (index, -1)
        if operator.type == "SLICE" and operator.inputs.count(source[1]) == 1 and source in found:
            begin = self._integers.get((index, operator.inputs[1]))
            tensors = self._model.subgraphs[index].tensors
            found[source] = self._rectangle(source, begin, tensors[operator.outputs[0]].shape, clamp=False)
        return found

    def _rectangle(
        self, key: _Key, begin: Sequence[int] | None, size: Sequence[int], *, clamp: bool
    ) -> list[_Range] | None:
        """Return the bytes of a part of a tensor; None where it is not known which part that is."""
        shape = self._model.subgraphs[key[0]].tensors[key[1]].shape
        if begin is None or not len(begin) == len(size) == len(shape):
            return None
        if clamp:
            begin = [max(0, min(low, whole - part)) for low, part, whole in zip(begin, size, shape, strict=True)]
        if any(low < 0 or low + part > whole for low, part, whole in zip(begin, size, shape, strict=True)):
            return None
        return _ranges(shape, begin, size, self._size(key) // max(1, math.prod(shape)))

    def _check_scratch(self, key: _Key, reads: Mapping[_Key, list[_Range] | None], outputs: Sequence[_Key]) -> None:
        laid = self._scratch.get(key, [])
        for number, one in enumerate(laid):
            for other in (*reads, *outputs):
                if _meet([one], [self._range(other)]):
                    self._refuse(other, None, max(one[0], self._offsets[other]))
            if _meet([one], laid[number + 1 :]):
                raise InternalError(f"two scratch buffers lie over each other at {one[0]}", code="overlap")
            self._arena.write(one[0], [(0, one[1] - one[0], GARBAGE, 0)])

    def _check_meetings(
        self, index: int, operator: FileOperator, key: _Key, parts: Sequence[_Range] | None, outputs: Sequence[_Key]
    ) -> None:
        """What is read may be overwritten by the operator that reads it only where its kernel bears that."""
        start = self._offsets[key]
        read = [self._range(key)] if parts is None else [(start + low, start + high) for low, high in parts]
        for output in outputs:
            if not _meet(read, [self._range(output)]):
                continue
            distance = start - self._offsets[output]
            roots = {run[2] for run in self._content(key)}
            given = any(self._owners[value] in self._inputs for value in roots)
            if output[1] != operator.outputs[0] or not self._permissions.overwrites(
                index, operator, key[1], distance, given=given
            ):
                self._refuse(key, output)

    def _moved(
        self, index: int, operator: FileOperator, output: _Key, reads: Mapping[_Key, list[_Range] | None]
    ) -> bool:
        """Follow an operator that copies what it reads, byte by byte; False for all others."""
        if operator.type == "DYNAMIC_UPDATE_SLICE":
            return self._update(index, operator, output)
        if operator.type == "CONCATENATION" and self._permissions.joins(index, operator):
            return self._join(index, operator, output, reads)
        source = (index, operator.inputs[0]) if operator.inputs else output
        begin = self._permissions.view_begin(index, operator) if source in reads else None
        if begin is None:
            return False
        shown = begin, begin + self._size(output)
        self._meant[output] = cut(self._content(source), *shown)
        if self._offsets[output] != self._offsets[source] + begin:
            # The same bytes in two places: either may be written over the other.
            self._read(source, [shown])
            self._check_meetings(index, operator, source, [shown], [output])
            self._arena.write(self._offsets[output], self._meant[output])
        for key in reads:
            if key != source:
                self._read(key)
                self._check_meetings(index, operator, key, None, [output])
        return True

    def _update(self, index: int, operator: FileOperator, output: _Key) -> bool:
        """Follow a DYNAMIC_UPDATE_SLICE: all of its first input is copied but for a part, which the second becomes."""
        operand, update, begin = ((index, tensor) for tensor in operator.inputs)
        shape = self._model.subgraphs[index].tensors[update[1]].shape
        known = self._integers.get(begin)
        # Of equal sizes, the first input is not looked at.
        whole = self._size(update) == self._size(output)
        parts = [(0, self._size(output))] if whole else self._rectangle(output, known, shape, clamp=True)
        if parts is None or operator.inputs.count(operand[1]) > 1:
            return False
        low = self._offsets[output]
        if self._planned(operand) and self._offsets[operand] == low and self._size(operand) == self._size(output):
            given = any(self._owners[run[2]] in self._inputs for run in self._content(operand))
            if not self._permissions.overwrites(index, operator, operand[1], 0, given=given):
                self._refuse(operand, output)
            content, written = self._content(operand), [(low + first, low + last) for first, last in parts]
        else:
            written = [self._range(output)]
            if self._planned(operand) and _meet([self._range(operand)], written):
                self._refuse(operand, output)
            content = self._content(operand)
        for key in (update, begin):
            if self._planned(key) and _meet([self._range(key)], written):
                self._refuse(key, output)
            self._read(key)
        if written == [self._range(output)]:
            self._arena.write(low, self._holds(operand))
        value = self._value(output)
        for first, last in parts:
            new = [(0, last - first, value, first)]
            content = replaced(content, first, new)
            self._arena.write(low + first, new)
        self._meant[output] = content
        return True

    def _join(
        self, index: int, operator: FileOperator, output: _Key, reads: Mapping[_Key, list[_Range] | None]
    ) -> bool:
        """Follow a concatenation: one input after the other is copied to its place, or lies there already."""
        low = self._offsets[output]
        content: list[Run] = []
        for tensor, start in self._permissions.starts(index, operator):
            key = (index, tensor)
            size = self._size(key)
            if key not in reads or self._offsets[key] != low + start:
                if key in reads and _meet([self._range(key)], [(low + start, low + start + size)]):
                    self._refuse(key, output)
                self._read(key)
                self._arena.write(low + start, self._holds(key))
            content += [(start + one, start + end, value, begin) for one, end, value, begin in self._content(key)]
        self._meant[output] = joined(content)
        return True

    # Operators with bodies.

    def _graphs(self, operator: FileOperator) -> list[tuple[int, FileSubgraph]]:
        return [(body, self._model.subgraphs[body]) for body in operator.bodies]

    def _copies(self, sources: Iterable[_Key], results: Iterable[_Key]) -> None:
        for source, result in zip(sources, results, strict=False):
            values = self._integers.get(source)
            self._copy(source, result)
            self._integers.set(result, values)

    def _loop(self, index: int, operator: FileOperator) -> None:
        (condition, tested), (body, graph) = self._graphs(operator)
        given, results = [(index, one) for one in operator.inputs], [(index, one) for one in operator.outputs]
        tests, uses = [(condition, one) for one in tested.inputs], [(body, one) for one in graph.inputs]
        made = [(body, one) for one in graph.outputs]
        self._copies(given, tests)
        self._copies(given, results)
        before = [self._holds(key) for key in results]
        decision = self._decide(condition, tested)
        if any(self._holds(key) != runs for key, runs in zip(results, before, strict=True)):
            problem = f"the memory plan lets the condition of {operator.type} overwrite what it carries"
            raise InternalError(problem, code="overlap")
        # Older releases copy to the outputs only now: the inputs must still be there.
        self._copies(given, uses)
        self._copies(given, results)
        most = _MOST_STEPS // max(1, len(graph.operators) + len(tested.operators))
        runs, meant = list(self._arena.runs), dict(self._meant)
        while decision is not None and most:
            if not decision:
                return
            most -= 1
            self._copies(results, uses)
            self._run(body)
            self._copies(made, results)
            self._copies(results, tests)
            decision = self._decide(condition, tested)
        self._arena.runs, self._meant = runs, meant
        self._inductive(index, operator)

    def _decide(self, condition: int, graph: FileSubgraph) -> bool | None:
        self._run(condition)
        result = (condition, graph.outputs[0])
        self._read(result)
        values = self._integers.get(result)
        return bool(values[0]) if values else None

    def _inductive(self, index: int, operator: FileOperator) -> None:
        """Let one iteration stand for any number of them."""
        (condition, tested), (body, graph) = self._graphs(operator)
        results = [(index, one) for one in operator.outputs]
        kept = {key for key, one, other in zip(results, graph.inputs, graph.outputs, strict=False) if one == other}
        for key in results:
            self._read(key)
        outer, self._arena.written = self._arena.written, []
        lost: list[_Range] = []
        for _ in range(2):
            self._lose(lost, results, kept)
            self._copies(results, [(body, one) for one in graph.inputs])
            self._run(body)
            self._copies([(body, one) for one in graph.outputs], results)
            self._copies(results, [(condition, one) for one in tested.inputs])
            self._decide(condition, tested)
            for key in results:
                self._read(key)
            lost = list(dict.fromkeys(self._arena.written))
        self._arena.written = None if outer is None else [*outer, *lost]
        self._lose(lost, results, kept)

    def _lose(self, lost: Sequence[_Range], results: Sequence[_Key], kept: set[_Key]) -> None:
        """Forget what a loop writes; what it carries is there, ``kept`` as it was and all else new."""
        for low, high in lost:
            self._arena.write(low, [(0, high - low, GARBAGE, 0)])
        for key in results:
            if key not in kept:
                self._integers.set(key, None)
                self._make(key)
            elif self._planned(key):
                self._arena.write(self._offsets[key], self._content(key))

    def _choose(self, index: int, operator: FileOperator) -> None:
        runs, states = self._arena.runs, []
        results = [(index, one) for one in operator.outputs]
        if operator.type == "IF":
            self._read((index, operator.inputs[0]))
        for body, graph in dict(self._graphs(operator)).items():
            self._arena.runs = list(runs)
            self._copies([(index, one) for one in operator.inputs[1:]], [(body, one) for one in graph.inputs])
            self._run(body)
            self._copies([(body, one) for one in graph.outputs], results)
            for key in results:
                self._read(key)
            states.append(self._arena.runs)
        if operator.type == "CALL_ONCE":
            # It runs only the first time that the model is executed.
            states.append(runs)
        for state in states[1:]:
            states[0] = merged(states[0], state)
        self._arena.runs = states[0]
        for key in results:
            self._integers.set(key, None)
            self._make(key)


def scratch_places(model: FileModel, scratch: Scratch, places: Sequence[int]) -> dict[_Key, list[int]]:
    """Return per (subgraph, operator) that is executed where its scratch buffers lie; ``places`` has all in a row."""
    reached = [False] * len(model.subgraphs)
    pending = [0]
    while pending:
        index = pending.pop()
        if not reached[index]:
            reached[index] = True
            for operator in model.subgraphs[index].operators:
                pending += operator.bodies if operator.type in _WITH_BODIES else ()
    asked = [key for key in sorted(scratch) if reached[key[0]] for _ in scratch[key]]
    found: dict[_Key, list[int]] = {}
    for key, low in zip(asked, places, strict=True):
        found.setdefault(key, []).append(low)
    return found


def _meet(some: Sequence[_Range], others: Sequence[_Range]) -> bool:
    return any(low < end and start < high for low, high in some for start, end in others)


def _ranges(shape: Sequence[int], begin: Sequence[int], size: Sequence[int], width: int) -> list[_Range]:
    """Return the bytes of a part of a row-major tensor, as few ranges as can be."""
    axis = len(shape)
    while axis and size[axis - 1] == shape[axis - 1]:
        axis -= 1
    if not axis:
        return [(0, math.prod(shape) * width)]
    row = math.prod(shape[axis:]) * width
    strides = [math.prod(shape[place + 1 : axis]) * row for place in range(axis)]
    length = size[axis - 1] * row
    places = itertools.product(*(range(low, low + count) for low, count in zip(begin, size[: axis - 1], strict=False)))
    last = begin[axis - 1] * strides[axis - 1]
    starts = (sum(at * stride for at, stride in zip(place, strides, strict=False)) + last for place in places)
    return [(start, start + length) for start in starts]


def _name(model: FileModel, key: _Key) -> str:
    return f"tensor {key[1]} '{model.subgraphs[key[0]].tensors[key[1]].name}' of subgraph {key[0]}"
