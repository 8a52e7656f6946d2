"""Judges the memory plan in a written file by the file alone, sharing no code with whoever made the plan.

Two tensors may lie in the same bytes at the same time only if those bytes hold the same values by the target's rules
for views (a RESHAPE, whole rows, a concatenation of what already lies in its output), or if one is written by an
operator over an input that is read there for the last time, where the target permits that in-place write. TensorFlow
Lite Micro itself checks none of this: an overlap gives silently wrong outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memsched.errors import InternalError
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph, FileTensor, parse
from memsched.runtimes.tflm.limits import new_refusals
from memsched.runtimes.tflm.plan import Scratch, given_plan, needs_memory, predict, tensor_bytes
from memsched.targets.model import InPlaceRule, Target

__all__ = ["check_plan"]

_ALIGNMENT = 16
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Extent:
    """Bytes [low, high) of the arena, needed during times [first, last]; ``key`` is None for a scratch buffer."""

    key: _Key | None
    low: int
    high: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _RootRange:
    """Bytes [start, start + size) of a tensor hold those from ``begin`` on of ``root``."""

    start: int
    size: int
    root: _Key
    begin: int


def check_plan(data: bytes, target: Target, scratch: Scratch, given: FileModel | None = None) -> int:
    """Return the head of the arena in bytes that TFLM needs with the plan in ``data``.

    Args:
        data: A TFLite file with metadata ``OfflineMemoryAllocation``.
        target: Says which tensors may share bytes.
        scratch: Per (subgraph, operator) what its kernel requests.
        given: The model before anything of it was rewritten, if it was.

    Raises:
        InternalError: The plan is missing or wrong: its length, an offset, a variable, or tensors that overlap; or it
            is for an operator that TensorFlow Lite Micro refuses, as it does none of ``given``.
    """
    model = parse(data)
    added = () if given is None else new_refusals(given, model)
    if added:
        raise InternalError(f"the plan is for {added[0].type} '{added[0].name}', which is refused: {added[0].reason}")
    plan = given_plan(model)
    if plan is None:
        raise InternalError("the written file holds no memory plan")
    keys = [(index, number) for index, one in enumerate(model.subgraphs) for number in range(len(one.tensors))]
    planned = {key: offset for key, offset in zip(keys, plan, strict=True) if offset != -1}
    trace = _Trace(model)
    trace.run(0)
    _check_variables(model, keys, planned)
    placed = predict(model, scratch)
    extents = _extents(model, trace, placed.offsets)
    scratch_extents = _scratch_extents(trace, scratch, placed.scratch)
    contents = _Contents(model, target, placed.offsets)
    _check_offsets(model, planned, contents)
    judge = _OverlapRules(model, target, trace, contents)
    for one, other in _meetings([*extents, *scratch_extents]):
        judge.check(one, other)
    return max((_up(extent.high) for extent in (*extents, *scratch_extents)), default=0)


def _up(size: int) -> int:
    return (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


def _name(model: FileModel, key: _Key) -> str:
    return f"tensor {key[1]} '{model.subgraphs[key[0]].tensors[key[1]].name}' of subgraph {key[0]}"


class _Trace:
    """One execution of the main graph, bodies once each in the order in which TFLM numbers them."""

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._time = 0
        self._written: dict[_Key, int] = {}
        self._touched: dict[_Key, int] = {}
        self.spans: dict[_Key, list[int]] = {}
        """Per (subgraph, operator) the times of its visits' begins and ends."""

    def run(self, index: int) -> None:
        """Execute a subgraph from now on."""
        subgraph = self._model.subgraphs[index]
        for tensor in subgraph.inputs:
            self._write(index, tensor)
        for number, operator in enumerate(subgraph.operators):
            self._time += 1
            self.spans.setdefault((index, number), []).append(self._time)
            for tensor in operator.outputs:
                self._write(index, tensor)
            if operator.type in {"IF", "WHILE", "CALL_ONCE"}:
                for body in operator.bodies:
                    self._time += 1
                    self.run(body)
            for tensor in (*operator.inputs, *operator.outputs):
                self._touched[index, tensor] = self._time
            self.spans[index, number].append(self._time)
        for tensor in subgraph.outputs:
            self._write(index, tensor)

    def _write(self, index: int, tensor: int) -> None:
        self._written.setdefault((index, tensor), self._time)
        self._touched[index, tensor] = self._time

    def life(self, key: _Key) -> tuple[int, int]:
        """Return the first and the last time that needs a tensor; (-1, -1) where nothing does."""
        return self._written.get(key, -1), self._touched.get(key, -1)


def _check_variables(model: FileModel, keys: list[_Key], planned: Mapping[_Key, int]) -> None:
    """A planned variable loses its state, and TFLM looks at an entry of another tensor too."""
    for index, subgraph in enumerate(model.subgraphs):
        for number, tensor in enumerate(subgraph.tensors):
            if not tensor.variable:
                continue
            if (index, number) in planned:
                raise InternalError(f"the memory plan gives an offset to the variable {_name(model, (index, number))}")
            if keys[number] in planned:
                raise InternalError(
                    f"the memory plan gives an offset to {_name(model, keys[number])}: TensorFlow Lite Micro "
                    f"would leave the variable {_name(model, (index, number))} without memory"
                )


def _check_offsets(model: FileModel, planned: Mapping[_Key, int], contents: _Contents) -> None:
    for key, offset in planned.items():
        tensor = model.subgraphs[key[0]].tensors[key[1]]
        if not needs_memory(tensor):
            continue
        width = max(1, tensor_bytes(tensor) // max(1, math.prod(tensor.shape)))
        # What lies inside another tensor begins at one of its elements.
        alignment = width if contents.inside_another(key) else _ALIGNMENT
        if offset < 0 or offset % alignment:
            raise InternalError(f"the memory plan lays {_name(model, key)} at {offset}, no multiple of {alignment}")


def _extents(model: FileModel, trace: _Trace, offsets: Mapping[_Key, int]) -> list[_Extent]:
    found = []
    for index, subgraph in enumerate(model.subgraphs):
        for number, tensor in enumerate(subgraph.tensors):
            if needs_memory(tensor):
                key = (index, number)
                low = offsets[key]
                found.append(_Extent(key, low, low + tensor_bytes(tensor), *trace.life(key)))
    return found


def _scratch_extents(trace: _Trace, scratch: Scratch, offsets: tuple[int, ...]) -> list[_Extent]:
    sizes = [(key, size) for key in sorted(scratch) if key in trace.spans for size in scratch[key]]
    return [
        _Extent(None, low, low + size, trace.spans[key][0], trace.spans[key][-1])
        for (key, size), low in zip(sizes, offsets, strict=True)
    ]


def _meetings(extents: list[_Extent]) -> Iterator[tuple[_Extent, _Extent]]:
    """Yield the pairs that share a byte at some time; what is never executed meets nothing."""
    active: list[_Extent] = []
    for extent in sorted((one for one in extents if one.last >= 0), key=lambda one: (one.first, one.last)):
        active = [other for other in active if other.last >= extent.first]
        for other in active:
            if other.low < extent.high and extent.low < other.high:
                yield other, extent
        active.append(extent)


class _Contents:
    """What the bytes of each tensor hold, by the views that the target permits and the addresses make true."""

    def __init__(self, model: FileModel, target: Target, offsets: Mapping[_Key, int]) -> None:
        self._model = model
        self._offsets = offsets
        self._views = {(name, rule.input) for rule in target.views for name in rule.ops}
        self._parts = {(name, rule.kind, rule.input) for rule in target.part_views for name in rule.ops}
        self._pieces: dict[_Key, list[_RootRange]] = {}
        self._inside: set[_Key] = set()
        for index, subgraph in enumerate(model.subgraphs):
            for operator in subgraph.operators:
                self._derive(index, subgraph, operator)

    def pieces(self, key: _Key) -> list[_RootRange]:
        """Return what a tensor's bytes hold, in order; by default its own."""
        size = tensor_bytes(self._model.subgraphs[key[0]].tensors[key[1]])
        return self._pieces.get(key) or [_RootRange(0, size, key, 0)]

    def inside_another(self, key: _Key) -> bool:
        """Return whether a tensor may lie inside another one, at any of its elements."""
        return key in self._inside

    def same(self, one: _Extent, other: _Extent) -> bool:
        """Return whether two tensors hold the same values in all bytes that both lie in."""
        if one.key is None or other.key is None:
            return False
        return self._at(one, one.key, other) == self._at(other, other.key, one)

    def _at(self, one: _Extent, key: _Key, other: _Extent) -> list[tuple[int, int, _Key, int]]:
        """Return what the common bytes hold, as maximal runs of one root."""
        low, high = max(one.low, other.low), min(one.high, other.high)
        runs: list[tuple[int, int, _Key, int]] = []
        for piece in self.pieces(key):
            begin, end = max(low, one.low + piece.start), min(high, one.low + piece.start + piece.size)
            if begin >= end:
                continue
            source = piece.begin + begin - one.low - piece.start
            if runs and runs[-1][2] == piece.root and runs[-1][3] + runs[-1][1] - runs[-1][0] == source:
                runs[-1] = (runs[-1][0], end, piece.root, runs[-1][3])
            else:
                runs.append((begin, end, piece.root, source))
        return runs

    def _derive(self, index: int, subgraph: FileSubgraph, operator: FileOperator) -> None:
        if not operator.outputs or operator.outputs[0] < 0:
            return
        output = subgraph.tensors[operator.outputs[0]]
        key = (index, operator.outputs[0])
        for position, number in enumerate(operator.inputs):
            if number < 0 or not needs_memory(subgraph.tensors[number]) or not needs_memory(output):
                continue
            source = subgraph.tensors[number]
            if (operator.type, position) in self._views and tensor_bytes(source) == tensor_bytes(output):
                self._pieces[key] = self.pieces((index, number))
            elif (operator.type, "slice", position) in self._parts:
                start = _first_row(operator, source, output)
                if start is not None:
                    self._pieces[key] = _cut(self.pieces((index, number)), start, tensor_bytes(output))
                    self._inside.add(key)
        if (operator.type, "concatenation", 0) in self._parts:
            self._join(index, subgraph, operator, key)

    def _join(self, index: int, subgraph: FileSubgraph, operator: FileOperator, key: _Key) -> None:
        """A concatenation holds what its inputs do, if the rows of each stay together and are not computed with."""
        output, axis = subgraph.tensors[key[1]], operator.attributes.get("axis", 0)
        if not isinstance(axis, int) or operator.attributes.get("fused_activation_function", "NONE") != "NONE":
            return
        if not -len(output.shape) <= axis < len(output.shape):
            return
        parts = [(number, subgraph.tensors[number]) for number in operator.inputs]
        fits = sum(tensor_bytes(part) for _, part in parts) == tensor_bytes(output)
        rows = all(size == 1 for size in output.shape[: axis % len(output.shape)])
        if not rows or not fits or any(number < 0 or part.dtype != output.dtype for number, part in parts):
            return
        joined: list[_RootRange] = []
        start = 0
        for number, part in parts:
            inner = (
                self.pieces((index, number)) if needs_memory(part) else [_RootRange(0, tensor_bytes(part), key, start)]
            )
            joined += [_RootRange(start + piece.start, piece.size, piece.root, piece.begin) for piece in inner]
            start += tensor_bytes(part)
            self._inside.add((index, number))
        self._pieces[key] = joined


def _first_row(operator: FileOperator, source: FileTensor, output: FileTensor) -> int | None:
    """Return the byte of ``source`` at which ``output``, whole rows of it, begins; None where it is none."""
    begin, steps = operator.attributes.get("begin"), operator.attributes.get("steps", ())
    if not isinstance(begin, tuple) or not isinstance(steps, tuple) or any(step != 1 for step in steps):
        return None
    masks = ("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    if any(operator.attributes.get(mask) for mask in masks):
        return None
    if len(begin) != len(source.shape) or len(output.shape) != len(source.shape) or output.dtype != source.dtype:
        return None
    axis = next((place for place, size in enumerate(source.shape) if size != 1), 0)
    if any(size != output.shape[place] for place, size in enumerate(source.shape) if place != axis):
        return None
    start = begin[axis]
    if not isinstance(start, int) or not 0 <= start <= source.shape[axis] - output.shape[axis]:
        return None
    return start * (tensor_bytes(source) // source.shape[axis])


def _cut(pieces: list[_RootRange], start: int, size: int) -> list[_RootRange]:
    """Return what bytes [start, start + size) of a tensor hold, counted from their own begin."""
    result = []
    for piece in pieces:
        begin, end = max(start, piece.start), min(start + size, piece.start + piece.size)
        if begin < end:
            result.append(_RootRange(begin - start, end - begin, piece.root, piece.begin + begin - piece.start))
    return result


class _OverlapRules:
    """Says whether two tensors may meet in the same bytes."""

    def __init__(self, model: FileModel, target: Target, trace: _Trace, contents: _Contents) -> None:
        self._model = model
        self._contents = contents
        self._overwrite_inputs = target.overwrite_inputs
        self._rules: dict[str, list[InPlaceRule]] = {}
        for rule in target.in_place:
            for name in rule.ops:
                self._rules.setdefault(name, []).append(rule)
        self._writer = {
            (index, tensor): (index, number)
            for index, subgraph in enumerate(model.subgraphs)
            for number, operator in enumerate(subgraph.operators)
            for tensor in operator.outputs
        }
        self._spans = trace.spans

    def check(self, one: _Extent, other: _Extent) -> None:
        """Raise InternalError unless the two may share the bytes and times that they share."""
        if self._contents.same(one, other) or self._overwrites(one, other) or self._overwrites(other, one):
            return
        names = [_name(self._model, extent.key) if extent.key else "a scratch buffer" for extent in (one, other)]
        raise InternalError(
            f"the memory plan lays {names[0]} and {names[1]} over each other at "
            f"{max(one.low, other.low)} while both are needed"
        )

    def _overwrites(self, old: _Extent, new: _Extent) -> bool:
        """Whether ``new`` is written in place over ``old`` where both are one tensor's bytes."""
        if old.key is None or new.key is None or new.key not in self._writer:
            return False
        index, number = self._writer[new.key]
        operator = self._model.subgraphs[index].operators[number]
        spans = self._spans.get((index, number), [])
        # Only the operator's own inputs, in its only visit, read there for the last time.
        if old.key[0] != index or spans[:1] != spans[-1:] or old.last != new.first or spans[:1] != [new.first]:
            return False
        if (old.low, old.high) != (new.low, new.high) or new.key[1] != operator.outputs[0] or operator.bodies:
            return False
        if not self._overwrite_inputs and self._shows_an_input(old.key):
            return False
        positions = [position for position, tensor in enumerate(operator.inputs) if tensor == old.key[1]]
        return any(
            self._permits(rule, position, positions, operator, old.key, new.key)
            for rule in self._rules.get(operator.type, ())
            for position in positions
        )

    def _permits(
        self, rule: InPlaceRule, position: int, positions: list[int], operator: FileOperator, old: _Key, new: _Key
    ) -> bool:
        tensors = self._model.subgraphs[old[0]].tensors
        before, after = tensors[old[1]], tensors[new[1]]
        if rule.inputs is not None and position not in rule.inputs:
            return False
        if (len(positions) > 1 or self._seen_twice(operator, old)) and not rule.elementwise:
            return False
        if math.prod(before.shape) != math.prod(after.shape) or (rule.match == "shape" and before.shape != after.shape):
            return False
        if rule.sole_reader and sum(old[1] in reader.inputs for reader in self._model.subgraphs[old[0]].operators) > 1:
            return False
        return tensor_bytes(after) > rule.above_bytes

    def _seen_twice(self, operator: FileOperator, old: _Key) -> bool:
        """Whether another input of the operator shows the same values, as a view."""
        roots = {piece.root for piece in self._contents.pieces(old)}
        others = [(old[0], tensor) for tensor in operator.inputs if tensor >= 0 and tensor != old[1]]
        return any(piece.root in roots for other in others for piece in self._contents.pieces(other))

    def _shows_an_input(self, key: _Key) -> bool:
        roots = {piece.root for piece in self._contents.pieces(key)}
        return any(root[1] in self._model.subgraphs[root[0]].inputs for root in roots)
