"""A memory plan for TensorFlow Lite Micro, from a file alone: which tensors lie together, and where."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from memsched.base.frozen import FrozenValue
from memsched.formats.tflite.model import FileModel
from memsched.graph.packing import Block, BlockPart, Packing
from memsched.runtimes.arena_facts import ALIGNMENT, round_up
from memsched.runtimes.tflm.joins import ByteSharing, Join, Overlay, byte_sharing
from memsched.runtimes.tflm.lifetimes import Key, Lifetimes, lifetimes
from memsched.runtimes.tflm.loops import LoopAccesses
from memsched.runtimes.tflm.plan import BufferRequest, Scratch, must_stay_online, predict, tensor_bytes, wanted_buffers
from memsched.search.limits import Limits
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.solve.allocate.portfolio import pack
from memsched.targets.model import Target

__all__ = ["best_offsets", "offsets_below"]

_MOST_CHOSEN = 5
"""Up to so many paddings, all subsets are tried."""

_MOST_LEFT_OUT = 16
"""Where there are more paddings, up to so many are left out, one at a time."""

_NEAR = 100
"""With so many paddings, a head less than one part in this many above its bound is good enough."""

_LIMITS = Limits(None, rounds=0, effort=0.25)
"""Limits of the search for one plan: whoever plans a file again finds the same one."""

_NEARLY_ENOUGH = 0.05
"""Work of that search after which a head near the bound of all plans ends it: before, the last bytes cost nothing."""

_MOST_LONGER = 3
"""Ways to lay tensors over each other for which addresses are searched longer where the head may yet fall."""

_LEVELS = (1.0, 1.05, 0.9)
"""Multiples of the least head beyond which joins are made where not all are."""


def best_offsets(model: FileModel, target: Target, scratch: Scratch, run: Run) -> dict[Key, int]:
    """Return the plan with which TFLM needs the smallest head, simulated: it lays scratch buffers around the plan.

    Room for an operator's scratch buffers is kept in one piece: whatever order the runtime lays them in, they fit.
    The runtime's own offsets are a plan, too, so that none is worse than that.

    Args:
        run: What the work counts in; it limits nothing.
    """
    return _PlanSearch(model, target, scratch, run).offsets()


def offsets_below(model: FileModel, target: Target, scratch: Scratch, run: Run, head: int) -> dict[Key, int] | None:
    """Return what `best_offsets` does; None where it is clear beforehand that no plan needs less than ``head``."""
    search = _PlanSearch(model, target, scratch, run)
    return None if search.floor >= head else search.offsets()


class _PlanSearch:
    """The search for the plan of one file.

    Attributes:
        floor: Bytes that no plan goes below.
    """

    def __init__(self, model: FileModel, target: Target, scratch: Scratch, run: Run) -> None:
        self._model, self._target, self._scratch, self._run = model, target, scratch, run
        self._accesses = LoopAccesses(model)
        self._lives = lifetimes(model)
        self._sharing = byte_sharing(model, target, self._lives, self._accesses)
        self._wanted = wanted_buffers(model, scratch)
        self.floor = _least(self._wanted, self._lives, self._sharing)
        run.spend(self._accesses.work)

    def offsets(self) -> dict[Key, int]:
        """Return the best plan that is found."""
        model, lives, sharing = self._model, self._lives, self._sharing
        least = _LeastHead(model, self._scratch, self._wanted, self.floor, self._run.apart(_LIMITS))
        least.take(predict(model, self._scratch, own=True).offsets, 0)
        _try_plans(model, lives, sharing, least)
        # What may share bytes need not: joins that save little may keep others from being made, and what they make
        # rigid from fitting.
        rules = _sharing_nothing(self._target)
        if rules != self._target:
            for few in _few_joins(model, lives, sharing, least):
                _try_plans(model, lives, few, least)
            if not least.enough():
                lives = lifetimes(model)
                _try_plans(model, lives, byte_sharing(model, rules, lives, self._accesses), least)
        least.pack_longer()
        return least.offsets


def _few_joins(model: FileModel, lives: Lifetimes, sharing: ByteSharing, least: _LeastHead) -> Iterator[ByteSharing]:
    """Yield ``sharing`` with the joins alone of what is needed at once while more than a level would be in use."""
    groups = _LaidTensors(model, lives, sharing, least.online)
    groups.join_loops()
    overlays = [one for one in sharing.overlays if groups.joined(one.join)]
    loose = replace(sharing, overlays=overlays, views=[], in_place=[], pads=[])
    times, sums = _sums(least.wanted, lives, loose)
    for factor in _LEVELS:
        if least.enough():
            return
        full = list(itertools.accumulate((size > factor * least.floor for size in sums), initial=0))

        def counts(join: Join, full: Sequence[int] = full) -> bool:
            return any(
                full[bisect_right(times, last)] > full[max(0, bisect_right(times, first) - 1)]
                for first, last in _both(lives.spans.get(join.first, ()), lives.spans.get(join.second, ()))
            )

        kinds = (sharing.views, sharing.in_place, sharing.pads)
        views, in_place, pads = ([join for join in joins if counts(join)] for joins in kinds)
        yield replace(sharing, views=views, in_place=in_place, pads=pads)


def _both(first: Iterable[Sequence[int]], second: Iterable[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield the times [first, last] at which two tensors are both needed."""
    for (begin, end), (low, high) in itertools.product(first, second):
        if max(begin, low) <= min(end, high):
            yield max(begin, low), min(end, high)


def _sharing_nothing(target: Target) -> Target:
    return msgspec.structs.replace(
        target, views=(), part_views=(), in_place=(), pads_over_inputs=(), overwrite_inputs=False
    )


def _try_plans(model: FileModel, lives: Lifetimes, sharing: ByteSharing, least: _LeastHead) -> None:
    """Pack what may share bytes, with each choice of paddings."""
    tried: list[object] = []
    for pads in _choices(sharing.pads):
        groups = _LaidTensors(model, lives, sharing, least.online)
        groups.join_all(pads)
        if groups.places not in tried:
            tried.append(dict(groups.places))
            for merged in (True, False) if _several(least.scratch) else (True,):
                least.pack(_blocks(least.wanted, lives, groups, sharing.inner, merged=merged))
            if least.enough() or (len(sharing.pads) > _MOST_CHOSEN and least.near_its_bound()):
                break


class _LeastHead:
    """The plan with the smallest head so far; of equal ones the first.

    Attributes:
        scratch: What kernels request.
        wanted: What the planner is asked for.
        floor: Bytes that no plan goes below.
        online: Tensors that no plan names.
        offsets: The plan.
    """

    def __init__(
        self, model: FileModel, scratch: Scratch, wanted: Sequence[BufferRequest], floor: int, run: Run
    ) -> None:
        self._model = model
        self._run = run
        self.scratch = scratch
        self.wanted, self.floor = wanted, floor
        self.online = must_stay_online(model)
        # What is never executed may lie anywhere, so it lies at the bottom.
        never = [(one.subgraph, one.tensor) for one in self.wanted if one.tensor >= 0 and one.last < 0]
        self._never = {key: 0 for key in never if key not in self.online}
        self._head: int | None = None
        self._bound = 0
        self._unproven: list[tuple[int, int, _LaidBlocks]] = []
        self.offsets: dict[Key, int] = {}

    @property
    def room(self) -> int | None:
        """Bytes that a better plan takes at most; None for any number."""
        if self._head is None:
            return None
        whole = round_up(self._head)
        return whole - ALIGNMENT if self._head == whole else whole

    def near_its_bound(self) -> bool:
        """Return whether other addresses could make little of it."""
        return self._near(self._bound)

    def enough(self) -> bool:
        """Return whether to end: no plan is better, or none is much better, or all the work is done."""
        if self._run.over() or (self.room is not None and self.room < self.floor):
            return True
        return self._run.meter.done - self._run.done_before >= _NEARLY_ENOUGH and self._near(self.floor)

    def _near(self, bound: int) -> bool:
        return self._head is not None and _NEAR * (self._head - bound) < self._head

    def pack(self, laid: _LaidBlocks) -> None:
        """Take the plan that a short search finds, where it is better; a longer one may follow."""
        self._run.spend(len(self.wanted) * MachinePace.BLOCK_SECONDS)
        found = laid.packed(self.room, self._run)
        if found is not None:
            offsets, packing = found
            self.take(offsets, packing.lower_bound)
            if packing.status != "optimal":
                self._unproven.append((packing.height, packing.lower_bound, laid))

    def pack_longer(self) -> None:
        """Search longer where the short search came nearest."""
        for _, bound, laid in sorted(self._unproven, key=lambda one: one[:2])[:_MOST_LONGER]:
            if self.enough():
                return
            better = self._head is None or bound < self._head
            found = laid.packed(self.room, self._run, longer=True) if better else None
            if found is not None:
                self.take(found[0], bound)

    def take(self, offsets: Mapping[Key, int], bound: int) -> None:
        """Take a plan where it is better.

        Args:
            bound: Bytes that it takes at least, wherever its blocks lie.
        """
        named = {key: offset for key, offset in offsets.items() if key not in self.online} | self._never
        head = predict(self._model, self.scratch, plan=named).head
        if self._head is None or _rank(head) < _rank(self._head):
            self._head, self._bound, self.offsets = head, bound, named


def _rank(head: int) -> tuple[int, bool]:
    # Behind a head that ends between multiples of the alignment, TFLM's tail is a few bytes larger than elsewhere.
    return round_up(head), head % ALIGNMENT != 0


def _least(wanted: Sequence[BufferRequest], lives: Lifetimes, sharing: ByteSharing) -> int:
    """Return bytes that no plan goes below: at each time, of tensors that may share bytes, the largest counts."""
    return max(_sums(wanted, lives, sharing)[1], default=0)


def _sums(
    wanted: Sequence[BufferRequest], lives: Lifetimes, sharing: ByteSharing
) -> tuple[Sequence[int], Sequence[int]]:
    """Return times, ascending, and the bytes in use from each on: of tensors that may share bytes, the largest."""
    parents: dict[Key, Key] = {}

    def together(key: Key) -> Key:
        while key in parents:
            key = parents[key]
        return key

    overlays = [overlay.join for overlay in sharing.overlays]
    for join in (*sharing.loops, *overlays, *sharing.views, *sharing.in_place, *sharing.pads):
        one, other = together(join.first), together(join.second)
        if one != other:
            parents[other] = one
    events: dict[int, list[tuple[Key, int, bool]]] = {}
    for number, request in enumerate(wanted):
        key = (request.subgraph, request.tensor) if request.tensor >= 0 else (-1, number)
        # What begins inside another tensor may share its last bytes, which TFLM adds, with what follows.
        size = request.size - (ALIGNMENT - 1 if key in sharing.inner else 0)
        for first, last in _spans(request, lives) if request.last >= 0 else ():
            events.setdefault(first, []).append((together(key), size, True))
            events.setdefault(last + 1, []).append((together(key), size, False))
    live: dict[Key, list[int]] = {}
    total = 0
    times, sums = sorted(events), []
    for time in times:
        for key, size, begins in events[time]:
            sizes = live.setdefault(key, [])
            before = max(sizes, default=0)
            (sizes.append if begins else sizes.remove)(size)
            total += max(sizes, default=0) - before
        sums.append(total)
    return times, sums


def _choices(pads: Sequence[Join]) -> Iterator[tuple[Join, ...]]:
    """Yield which paddings lie over what they pad: each such chain is rigid, and a shorter one may fit better."""
    if len(pads) <= _MOST_CHOSEN:
        for count in range(len(pads), -1, -1):
            yield from itertools.combinations(pads, count)
        return
    yield tuple(pads)
    yield from (tuple(one for one in pads if one != left) for left in pads[:_MOST_LEFT_OUT])
    yield ()


def _several(scratch: Scratch) -> bool:
    return any(len(sizes) > 1 for sizes in scratch.values())


class _Place(FrozenValue, frozen=True):
    """A tensor lies so many bytes behind the group's first one."""

    head: Key
    distance: int


class _LaidTensors:
    """Tensors at fixed distances from each other, grown join by join; none that would destroy a value is made."""

    def __init__(self, model: FileModel, lives: Lifetimes, sharing: ByteSharing, online: set[Key]) -> None:
        self._model = model
        self._lives = lives
        self._sharing = sharing
        self._online = online
        self.places: dict[Key, _Place] = {}
        self._members: dict[Key, list[Key]] = {}
        self._windows: dict[tuple[Key, Key, int], tuple[int, int]] = {}

    def place(self, key: Key) -> _Place:
        """Return where a tensor lies; by default in a group of its own."""
        return self.places.get(key) or _Place(key, 0)

    def join_all(self, pads: Sequence[Join]) -> None:
        """Make all joins that are possible, those that save most first; of the paddings only ``pads``."""
        self.join_loops()
        self._join(self._sharing.views)
        self._join(self._sharing.in_place)
        self._join(pads)

    def join_loops(self) -> None:
        """Make the joins of what loops copy, and lay outputs over inputs."""
        self._join(self._sharing.loops)
        for overlay in self._sharing.overlays:
            self._overlay(overlay)

    def joined(self, join: Join) -> bool:
        """Return whether two tensors lie as a join says."""
        first, second = self.place(join.first), self.place(join.second)
        return first.head == second.head and second.distance - first.distance == join.distance

    def _join(self, joins: Iterable[Join]) -> None:
        for join in joins:
            if join.first not in self._online and join.second not in self._online:
                self._merge(join)

    def _overlay(self, overlay: Overlay) -> None:
        """Lay a loop's output over its input where each is one block already: then the loop copies nothing."""
        if any(self.place(one.first) != self.place(one.second) for one in overlay.joins):
            return
        before = dict(self._windows)
        for one, other in overlay.windows:
            self._windows[one, other, overlay.join.distance] = overlay.span
        if not self._merge(overlay.join):
            self._windows = before

    def _merge(self, join: Join) -> bool:
        first, second = self.place(join.first), self.place(join.second)
        moved = first.distance + join.distance - second.distance
        if first.head == second.head:
            return moved == 0
        one, other = (self._members.get(place.head, [place.head]) for place in (first, second))
        if not self._aligned(one, other, moved) or self._meet(one, other, moved):
            return False
        for key in other:
            self.places[key] = _Place(first.head, self.place(key).distance + moved)
        self.places[first.head] = _Place(first.head, 0)
        self._members[first.head] = [*one, *other]
        self._members.pop(second.head, None)
        return True

    def _aligned(self, one: Sequence[Key], other: Sequence[Key], moved: int) -> bool:
        """Return whether all tensors that lie inside no other can begin at multiples of the alignment."""
        begins = {self.place(key).distance % ALIGNMENT for key in one if key not in self._sharing.inner}
        begins |= {(self.place(key).distance + moved) % ALIGNMENT for key in other if key not in self._sharing.inner}
        return len(begins) <= 1

    def _meet(self, one: Sequence[Key], other: Sequence[Key], moved: int) -> bool:
        """Return whether two groups would lie over each other while both are needed."""
        laid = [(key, self.place(key).distance + moved, self._lives.spans.get(key, ())) for key in other]
        for first in one:
            spans, low = self._lives.spans.get(first, ()), self.place(first).distance
            high = low + self._size(first)
            for second, begin, needed in laid:
                if not spans or not needed or spans[-1][1] < needed[0][0] or needed[-1][1] < spans[0][0]:
                    continue
                if begin < high and low < begin + self._size(second) and self._clash(first, second, begin - low):
                    return True
        return False

    def _size(self, key: Key) -> int:
        return tensor_bytes(self._model.subgraphs[key[0]].tensors[key[1]])

    def _clash(self, first: Key, second: Key, distance: int) -> bool:
        windows = list(self._sharing.permitted(first, second, distance))
        both = ((first, second, distance), (second, first, -distance))
        windows += [self._windows[key] for key in both if key in self._windows]
        for begin, end in self._lives.spans[first]:
            for low, high in self._lives.spans[second]:
                if not _within(max(begin, low), min(end, high), windows):
                    return True
        return False


def _within(first: int, last: int, windows: Sequence[tuple[int, int]]) -> bool:
    """Return whether all times [first, last] lie in windows."""
    for begin, end in sorted(windows):
        if first > last:
            break
        if begin <= first <= end:
            first = end + 1
    return first > last


class _LaidBlocks(FrozenValue, frozen=True):
    """All that is to be laid out, groups in one piece, with room for scratch buffers.

    Attributes:
        parts: Per block what lies in it, with its distance from the block's first tensor.
        lows: Per block the distance at which it begins.
    """

    parts: tuple[Sequence[tuple[int, BufferRequest]], ...]
    lows: tuple[int, ...]
    blocks: tuple[Block, ...]

    def packed(self, room: int | None, run: Run, *, longer: bool = False) -> tuple[dict[Key, int], Packing] | None:
        """Return offsets for all tensors; None where they cannot all lie within ``room``: nothing is searched then."""
        packing = pack(self.blocks, run, capacity=room, longer=longer)
        if packing.status == "infeasible":
            return None
        offsets = {
            (one.subgraph, one.tensor): offset + distance - low
            for held, low, offset in zip(self.parts, self.lows, packing.offsets, strict=True)
            for distance, one in held
            if one.tensor >= 0
        }
        return offsets, packing


def _blocks(
    wanted: Sequence[BufferRequest], lives: Lifetimes, groups: _LaidTensors, inner: set[Key], *, merged: bool
) -> _LaidBlocks:
    parts: dict[object, list[tuple[int, BufferRequest]]] = {}
    for number, one in enumerate(wanted):
        if one.last < 0:
            continue
        if one.tensor < 0:
            held = parts.setdefault(("scratch", one.subgraph, one.operator, 0 if merged else number), [])
            held.append((sum(other.size for _, other in held), one))
        else:
            place = groups.place((one.subgraph, one.tensor))
            parts.setdefault(place.head, []).append((place.distance, one))
    lows = tuple(_low(held, inner) for held in parts.values())
    blocks = tuple(_block(held, low, lives) for held, low in zip(parts.values(), lows, strict=True))
    return _LaidBlocks(tuple(parts.values()), lows, blocks)


def _low(held: Sequence[tuple[int, BufferRequest]], inner: set[Key]) -> int:
    """Return the distance at which a block begins so that all that must be aligned is aligned."""
    low = min(distance for distance, _ in held)
    aligned = [distance for distance, one in held if one.tensor < 0 or (one.subgraph, one.tensor) not in inner]
    return low - (low - aligned[0]) % ALIGNMENT if aligned else low


def _block(held: Sequence[tuple[int, BufferRequest]], low: int, lives: Lifetimes) -> Block:
    parts = tuple(
        BlockPart(begin, end + 1, distance - low, distance - low + one.size)
        for distance, one in held
        for begin, end in _spans(one, lives)
    )
    return Block(round_up(max(part.high for part in parts)), parts, ALIGNMENT)


def _spans(one: BufferRequest, lives: Lifetimes) -> Iterable[Sequence[int]]:
    if one.tensor >= 0:
        return lives.spans.get((one.subgraph, one.tensor)) or [(0, 0)]
    return [(time, time) for time in lives.times[one.subgraph, one.operator]]
