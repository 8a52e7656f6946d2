"""Which tensors a memory plan may lay over each other, and when they may be needed at once there.

Tensors that hold the same values may, whatever reads them: views of each other, and what WHILE and IF copy. An operator
may write over an input that it reads for the last time where the target says that its kernel permits it. A PAD may
begin before its input and end over it. The output that a loop puts together piece by piece may lie over the input that
it takes pieces of, where no byte is read after it was overwritten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph
from memsched.runtimes.arena_facts import ALIGNMENT, round_up
from memsched.runtimes.tflm.lifetimes import Key, Lifetimes, Visit
from memsched.runtimes.tflm.loops import LoopAccess, LoopAccesses
from memsched.runtimes.tflm.plan import distinct_bodies, needs_memory, tensor_bytes
from memsched.targets.model import InPlaceRule, Target

__all__ = ["ByteSharing", "Join", "beside_constants", "byte_sharing", "carried"]

_ALWAYS = (-1, LARGEST)
_MOST_COMPARED = 1 << 26
"""Bytes that are compared in the search for a place for an output over its loop's input."""


class Join(FrozenValue, frozen=True):
    """``second`` lies ``distance`` bytes behind ``first``."""

    first: Key
    second: Key
    distance: int


class Overlay(FrozenValue, frozen=True):
    """A loop's output over its input: the joins of each must have been made before this one."""

    joins: tuple[Join, ...]
    join: Join
    windows: tuple[tuple[Key, Key], ...]
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class ByteSharing:
    """What may share bytes.

    Attributes:
        loops: Joins of what WHILE and IF copy.
        overlays: Outputs of loops over their inputs.
        views: Joins of views with what they show.
        in_place: Joins of outputs with the inputs that they overwrite.
        pads: Joins of inputs with the outputs of PAD that end over them.
        roots: Per view the tensor whose values it holds, and the byte there at which it begins.
        inner: Tensors that may begin at any of their elements, as they lie inside others.
        windows: Per pair of tensors and distance the times [first, last] at which both may be needed at once.
    """

    loops: list[Join] = field(default_factory=list)
    overlays: list[Overlay] = field(default_factory=list)
    views: list[Join] = field(default_factory=list)
    in_place: list[Join] = field(default_factory=list)
    pads: list[Join] = field(default_factory=list)
    roots: dict[Key, tuple[Key, int]] = field(default_factory=dict)
    inner: set[Key] = field(default_factory=set)
    windows: dict[tuple[Key, Key, int], list[tuple[int, int]]] = field(default_factory=dict)

    def root(self, key: Key) -> tuple[Key, int]:
        """Return the tensor whose values ``key`` holds, and from which byte on."""
        return self.roots.get(key, (key, 0))

    def permit(self, first: Key, second: Key, distance: int, window: tuple[int, int]) -> None:
        """Let two tensors at this distance be needed at once during ``window``."""
        self.windows.setdefault((first, second, distance), []).append(window)

    def permitted(self, first: Key, second: Key, distance: int) -> list[tuple[int, int]]:
        """Return when two tensors at this distance may be needed at once."""
        one, other = self.root(first), self.root(second)
        if one[0] == other[0] and other[1] - one[1] == distance:
            return [_ALWAYS]
        return self.windows.get((first, second, distance), []) + self.windows.get((second, first, -distance), [])


def byte_sharing(model: FileModel, target: Target, lives: Lifetimes, accesses: LoopAccesses) -> ByteSharing:
    """Return what of ``model`` may share bytes with the kernels of ``target``; a dead first value dies in ``lives``."""
    finder = _Finder(model, target, lives, accesses)
    for index, graph in enumerate(model.subgraphs):
        for number, operator in enumerate(graph.operators):
            if (index, number) in lives.times:
                finder.look_at(index, graph, number, operator)
    # Where a loop's output may lie depends on what is a view of what.
    finder.overlay_loops()
    return finder.found


class _Finder:
    def __init__(self, model: FileModel, target: Target, lives: Lifetimes, accesses: LoopAccesses) -> None:
        self.found = ByteSharing()
        self._model = model
        self._target = target
        self._lives = lives
        self._accesses = accesses
        self._views = {(name, rule.input) for rule in target.views for name in rule.ops}
        self._parts = {(name, rule.kind, rule.input) for rule in target.part_views for name in rule.ops}
        self._rules: dict[str, list[InPlaceRule]] = {}
        for rule in target.in_place:
            for name in rule.ops:
                self._rules.setdefault(name, []).append(rule)
        self._loops: list[tuple[int, int, FileOperator]] = []

    def look_at(self, index: int, graph: FileSubgraph, number: int, operator: FileOperator) -> None:
        if operator.type == "WHILE":
            if len(self._lives.times[index, number]) == 1 and len(operator.bodies) == 2:
                self._loops.append((index, number, operator))
                for position in range(len(operator.inputs)):
                    self._carry(index, number, operator, position)
            return
        if operator.type == "IF":
            self._choose(index, number, operator)
            return
        if not operator.outputs or operator.outputs[0] < 0 or operator.bodies:
            return
        output = (index, operator.outputs[0])
        if not self._planned(output):
            return
        self._view(index, graph, operator, output)
        self._overwrite(index, graph, number, operator, output)

    def _planned(self, key: Key) -> bool:
        return key[1] >= 0 and needs_memory(self._model.subgraphs[key[0]], key[1])

    def _size(self, key: Key) -> int:
        return tensor_bytes(self._model.subgraphs[key[0]].tensors[key[1]])

    def _overwritable(self, key: Key) -> bool:
        root = self.found.root(key)[0]
        return self._target.overwrite_inputs or root[0] != 0 or root[1] not in self._model.subgraphs[0].inputs

    # What WHILE and IF copy.

    def _carry(self, index: int, number: int, operator: FileOperator, position: int) -> None:
        """Lay what WHILE copies at a position together: all of it, or as much as holds only one value at a time."""
        begin = self._lives.times[index, number][0]
        visits = self._lives.visits[index, number][0]
        result, given, tested, used, made = carried(self._model, index, operator, position)
        if not self._planned(result):
            return
        kept = used == made
        windows = {
            used: (visits[1].begin, visits[1].begin),
            tested: (visits[0].begin, visits[0].end),
            made: (visits[1].end, visits[1].end),
            given: (begin, visits[1].begin),
        }
        fits = [key for key in windows if self._planned(key) and self._size(key) == self._size(result)]
        ends = not self._needed_after(given, visits[1].begin)
        if given in fits and not kept and not (ends and self._overwritable(given)):
            fits.remove(given)
        for key in fits:
            self.found.permit(result, key, 0, _ALWAYS if kept else windows[key])
            self.found.loops.append(Join(result, key, 0))
        if given in fits:
            for key in (tested, used):
                if key in fits:
                    self.found.permit(given, key, 0, _ALWAYS if kept else windows[key])

    def _needed_after(self, key: Key, time: int) -> bool:
        return any(last > time for _, last in self._lives.spans.get(key, ()))

    def _choose(self, index: int, number: int, operator: FileOperator) -> None:
        """Lay what IF copies together: an input with the bodies', their outputs with its own."""
        for visits in self._lives.visits[index, number]:
            for body, visit in zip(distinct_bodies(operator), visits, strict=True):
                graph = self._model.subgraphs[body]
                pairs = zip(operator.inputs[1:], graph.inputs, strict=False)
                self._copies(((index, one), (body, other)) for one, other in pairs)
                pairs = zip(operator.outputs, graph.outputs, strict=False)
                self._copies(((index, one), (body, other)) for one, other in pairs)
                self._permit_copies(index, operator, graph, body, visit)

    def _copies(self, pairs: Iterator[tuple[Key, Key]]) -> None:
        for one, other in pairs:
            if self._planned(one) and self._planned(other) and self._size(one) == self._size(other):
                if not self._overwritable(one):
                    continue
                self.found.loops.append(Join(one, other, 0))

    def _permit_copies(self, index: int, operator: FileOperator, graph: FileSubgraph, body: int, visit: Visit) -> None:
        for one, other in zip(operator.inputs[1:], graph.inputs, strict=False):
            # Both hold the same: what would overwrite the body's lies over the operator's, too.
            self.found.permit((index, one), (body, other), 0, (visit.begin, visit.end))
        for one, other in zip(operator.outputs, graph.outputs, strict=False):
            self.found.permit((index, one), (body, other), 0, (visit.end, visit.end))

    # Views and operators in place.

    def _view(self, index: int, graph: FileSubgraph, operator: FileOperator, output: Key) -> None:
        for position, number in enumerate(operator.inputs):
            source = (index, number)
            if not self._planned(source):
                continue
            begin = self._begin(graph, operator, position, source, output)
            if begin is not None and output not in self.found.roots:
                root, offset = self.found.root(source)
                self.found.roots[output] = (root, offset + begin)
                self.found.views.append(Join(source, output, begin))
        self._join_pieces(index, graph, operator, output)

    def _begin(
        self, graph: FileSubgraph, operator: FileOperator, position: int, source: Key, output: Key
    ) -> int | None:
        """Return the byte of an input at which the output begins, as a view of it; None where it is none."""
        if (operator.type, position) in self._views:
            return 0 if self._size(source) == self._size(output) else None
        if (operator.type, "slice", position) not in self._parts:
            return None
        whole, part = graph.tensors[source[1]], graph.tensors[output[1]]
        begin = _row_begin(operator, whole.shape, part.shape)
        if begin is None or whole.dtype != part.dtype:
            return None
        self.found.inner.add(output)
        return begin * self._size(source) // math.prod(whole.shape)

    def _join_pieces(self, index: int, graph: FileSubgraph, operator: FileOperator, output: Key) -> None:
        if not self._joins(graph, operator, output) or beside_constants(graph, operator) is not None:
            return
        pieces = [(index, number) for number in operator.inputs]
        tensors = [graph.tensors[number] for number in operator.inputs]
        start = 0
        for piece, tensor in zip(pieces, tensors, strict=True):
            root, offset = self.found.root(piece)
            whole = offset == 0 and self._size(root) == self._size(piece)
            if self._planned(piece) and whole and root != output and pieces.count(piece) == 1:
                self._hang(root, output, start)
                self.found.inner.update((piece, root))
                self.found.views.append(Join(output, piece, start))
            start += tensor_bytes(tensor)

    def _joins(self, graph: FileSubgraph, operator: FileOperator, output: Key) -> bool:
        """Return whether an operator copies its inputs one behind the other, each in one piece."""
        shape, axis = graph.tensors[output[1]].shape, operator.attributes.get("axis", 0)
        if (operator.type, "concatenation", 0) not in self._parts or any(number < 0 for number in operator.inputs):
            return False
        if not isinstance(axis, int) or operator.attributes.get("fused_activation_function", "NONE") != "NONE":
            return False
        if not -len(shape) <= axis < len(shape) or any(size != 1 for size in shape[: axis % len(shape)]):
            return False
        return all(graph.tensors[number].dtype == graph.tensors[output[1]].dtype for number in operator.inputs)

    def _hang(self, root: Key, output: Key, start: int) -> None:
        """Say that a value, with all its views, is a part of another one."""
        moved = [(key, begin) for key, (one, begin) in self.found.roots.items() if one == root]
        self.found.roots[root] = (output, start)
        for key, begin in moved:
            self.found.roots[key] = (output, start + begin)

    def _overwrite(self, index: int, graph: FileSubgraph, number: int, operator: FileOperator, output: Key) -> None:
        times = self._lives.times[index, number]
        for position, tensor in enumerate(operator.inputs):
            key = (index, tensor)
            spans = self._lives.spans.get(key, ())
            dies = all(any(last == time for _, last in spans) for time in times)
            if not self._planned(key) or not self._overwritable(key) or not dies:
                continue
            if any(self._bears(rule, graph, position, operator) for rule in self._rules.get(operator.type, ())):
                for time in times:
                    self.found.permit(key, output, 0, (time, time))
                self.found.in_place.append(Join(key, output, 0))
            elif (
                position == 0 and operator.type in self._target.pads_over_inputs and operator.inputs.count(tensor) == 1
            ):
                ahead = _pads_ahead(operator, graph, output)
                if ahead is None:
                    continue
                self._lay_under(output, key, round_up(ahead), times)
            elif (begin := self._begin_between(graph, operator, output)) is not None:
                self.found.inner.add(key)
                self._lay_under(output, key, begin, times)

    def _lay_under(self, output: Key, key: Key, distance: int, times: Iterable[int]) -> None:
        """Let an operator that pads write its output over its input."""
        for time in times:
            self.found.permit(output, key, distance, (time, time))
        self.found.pads.append(Join(output, key, distance))

    def _begin_between(self, graph: FileSubgraph, operator: FileOperator, output: Key) -> int | None:
        """Return the byte at which the one input that is no constant goes in a concatenation; None for all others."""
        tensor = beside_constants(graph, operator)
        if tensor is None or not self._joins(graph, operator, output):
            return None
        sizes = [tensor_bytes(graph.tensors[number]) for number in operator.inputs]
        return sum(sizes[: operator.inputs.index(tensor)])

    def _bears(self, rule: InPlaceRule, graph: FileSubgraph, position: int, operator: FileOperator) -> bool:
        before, after = graph.tensors[operator.inputs[position]], graph.tensors[operator.outputs[0]]
        if rule.inputs is not None and position not in rule.inputs:
            return False
        if tensor_bytes(before) != tensor_bytes(after) or math.prod(before.shape) != math.prod(after.shape):
            return False
        if rule.match != "bytes" and before.shape != after.shape:
            return False
        if operator.inputs.count(operator.inputs[position]) > 1 and not rule.elementwise:
            return False
        readers = sum(operator.inputs[position] in reader.inputs for reader in graph.operators)
        return tensor_bytes(after) > rule.above_bytes and not (rule.sole_reader and readers > 1)

    # A loop's output over its input.

    def overlay_loops(self) -> None:
        for index, number, operator in self._loops:
            for written in range(len(operator.inputs)):
                for read in range(len(operator.inputs)):
                    access = self._access(index, number, operator, read, written)
                    if access is not None:
                        self._overlay(index, number, operator, read, written, access)

    def _access(self, index: int, number: int, operator: FileOperator, read: int, written: int) -> LoopAccess | None:
        body = self._model.subgraphs[operator.bodies[1]]
        kept = body.inputs[read] == body.outputs[read]
        if read == written or not kept or not self._made_of_pieces(body, written):
            return None
        if not all(self._planned((index, operator.inputs[one])) for one in (read, written)):
            return None
        return self._accesses.of(index, number, read, written)

    @staticmethod
    def _made_of_pieces(body: FileSubgraph, written: int) -> bool:
        return any(op.type == "DYNAMIC_UPDATE_SLICE" and op.inputs[0] == body.inputs[written] for op in body.operators)

    def _overlay(
        self, index: int, number: int, operator: FileOperator, read: int, written: int, access: LoopAccess
    ) -> None:
        first = (index, operator.inputs[written])
        visits = self._lives.visits[index, number][0]
        source, begin = self.found.root((index, operator.inputs[read]))
        # What nothing reads shows by its own spans no more that its bytes are taken.
        beyond = (index, operator.inputs[read]), (index, operator.outputs[read])
        if not self._overwritable(source) or any(self._needed_after(key, visits[1].end) for key in beyond):
            return
        root, offset = self.found.root(first)
        distances: Iterable[int] = ()
        if root == source:
            distances = [offset - begin]
        elif access.covers and not self._needed_after(first, visits[1].begin):
            # What it holds at first is never read: it is needed while it is made, and no longer.
            for span in self._lives.spans.get(first, ()):
                span[1] = span[0]
            distances = _by_size(access)
        distance = next((one for one in distances if one % ALIGNMENT == 0 and access.permits(one)), None)
        if distance is None:
            return
        members = [carried(self._model, index, operator, position) for position in (read, written)]
        joins = tuple(join for keys in members for join in self.found.loops if join.first == keys[0])
        if any(len([join for join in joins if join.first == keys[0]]) != len(set(keys[1:])) for keys in members):
            return
        during = (self._lives.times[index, number][0], visits[1].end)
        pairs = tuple((one, other) for one in dict.fromkeys(members[0]) for other in dict.fromkeys(members[1]))
        join = Join(members[0][0], members[1][0], distance)
        self.found.overlays.append(Overlay(joins, join, pairs, during))


def beside_constants(graph: FileSubgraph, operator: FileOperator) -> int | None:
    """Return the one input of an operator that needs memory, where all others are constants; None where it has none."""
    needed = [number for number in operator.inputs if number >= 0 and needs_memory(graph, number)]
    return needed[0] if len(needed) == 1 and len(operator.inputs) > 1 else None


def carried(model: FileModel, index: int, operator: FileOperator, position: int) -> tuple[Key, ...]:
    """Return all that a WHILE in subgraph ``index`` copies at a position, its own output first."""
    condition, body = (model.subgraphs[one] for one in operator.bodies)
    return (
        (index, operator.outputs[position]),
        (index, operator.inputs[position]),
        (operator.bodies[0], condition.inputs[position]),
        (operator.bodies[1], body.inputs[position]),
        (operator.bodies[1], body.outputs[position]),
    )


def _by_size(access: LoopAccess) -> Iterator[int]:
    """Yield distances of a loop's output from its input, those first that take the fewest bytes together."""
    import numpy as np

    read, written = len(access.last_read), len(access.first_written)
    most = max(1, _MOST_COMPARED // max(1, min(read, written)))
    places = np.arange(-(written // ALIGNMENT) * ALIGNMENT, read, ALIGNMENT)
    together = np.maximum(read, places + written) - np.minimum(0, places)
    yield from places[np.lexsort((np.abs(places), together))][:most].tolist()


def _row_begin(operator: FileOperator, whole: Sequence[int], part: Sequence[int]) -> int | None:
    """Return the element at which a SLICE of whole rows begins; None where it is none."""
    begin = operator.attributes.get("begin")
    steps = operator.attributes.get("steps", ())
    if not isinstance(begin, tuple) or not isinstance(steps, tuple) or any(step != 1 for step in steps):
        return None
    masks = ("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    if any(operator.attributes.get(mask) for mask in masks) or not len(begin) == len(whole) == len(part):
        return None
    axis = next((place for place, size in enumerate(whole) if size != 1), 0)
    if list(whole[:axis]) != list(part[:axis]) or list(whole[axis + 1 :]) != list(part[axis + 1 :]):
        return None
    start = begin[axis]
    if not isinstance(start, int) or not 0 <= start <= whole[axis] - part[axis]:
        return None
    return start * math.prod(whole[axis + 1 :])


def _pads_ahead(operator: FileOperator, graph: FileSubgraph, output: Key) -> int | None:
    """Return how many bytes of padding a PAD writes before the last of its input; None where that is not known."""
    source, padded = graph.tensors[operator.inputs[0]], graph.tensors[output[1]]
    flat = operator.attributes.get("paddings")
    if not isinstance(flat, tuple) or len(flat) != 2 * len(source.shape) or source.dtype != padded.dtype:
        return None
    last = 0
    for axis, (size, whole) in enumerate(zip(source.shape, padded.shape, strict=True)):
        front, back = flat[2 * axis], flat[2 * axis + 1]
        if not isinstance(front, int) or front < 0 or front + size + int(back) != whole:
            return None
        last = last * whole + front + size - 1
    width = tensor_bytes(source) // max(1, math.prod(source.shape))
    return (last + 1) * width - tensor_bytes(source)
