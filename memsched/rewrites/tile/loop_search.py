"""Which groups to compute in loops, and in what tiles: the least memory that is needed in all, under a limit of work.

What counts is the bytes of the largest step, and what the runtime keeps throughout for each op that a loop adds. Every
interval between places where little is live is judged in every tile of a ladder; then, for each size that the largest
step might have, a dynamic program over the order picks the intervals that bring all steps below it and keep least.
Around what is best, borders and tiles are moved until nothing gets better. Then every interval is judged, wherever it
begins and ends, in every tile that could better the best; where that finds nothing, no such loops need less.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.loop import Loop
from memsched.graph.model import Graph
from memsched.lowering.prices import Prices
from memsched.ops.rules import Refusal
from memsched.rewrites.tile.local import GroupCost, Intervals
from memsched.rewrites.tile.loop import LoopGroup, plan_loop
from memsched.rewrites.tile.loop_cost import (
    ADDED,
    LoopCost,
    added_ops,
    after_step,
    aligned,
    body_tensors,
    joined_bytes,
    joins_rows,
    rows_ahead,
)
from memsched.rewrites.tile.loop_ways import (
    AXES,
    LONGEST,
    MOST_TILES,
    RANK,
    LoopWay,
    as_way,
    bare,
    even_lengths,
    near_loops,
    take_up,
    tile_sizes,
    tiles_for_nothing,
    tiles_of,
    ways_to,
)
from memsched.search.pace import MachinePace
from memsched.targets.model import Target

__all__ = ["LoopPoint", "LoopSearch"]

_COSTS_PER_FORM = 700
"""Ways of intervals that are looked through for one level in as much time."""

_LEVELS_UNDERWAY = 48
"""Sizes of the largest step for which loops are chosen while the search goes on."""

_STEPS_AT_ONCE = 8
"""Steps that intervals are looked for around at a time."""

_LOWEST_LEVEL = 0.25
"""Share of the best point's peak below which no level is looked at."""

_LEAST_OF_USE = 0.5
"""Share of that peak down to which loops are of use together with other ways."""


class LoopPoint(FrozenValue, frozen=True):
    """Loops with what the graph then needs.

    Attributes:
        peak: Largest footprint, bytes.
        required: What the runtime then requires.
    """

    peak: int
    required: int
    extra_macs: int
    groups: tuple[LoopGroup, ...]


class LoopSearch:
    """A search for loops in ``graph``, which is in order of execution and not lowered.

    Args:
        prices: What the runtime keeps for every op; None for nothing.
        most_macs: Extra multiply-accumulates permitted.
        known: Loops that are looked at first.
        exact: Only cuts that give the same bits.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        dialect: Dialect,
        *,
        prices: Prices | None,
        most_macs: int,
        known: Sequence[LoopGroup] = (),
        exact: bool = False,
    ) -> None:
        self._graph, self._dialect = graph, dialect
        self._intervals = Intervals(graph, target, dialect, exact=exact)
        self._prices, self._most = prices, most_macs
        self._most_tiles = math.inf if most_macs else tiles_for_nothing(graph)
        self._unrolled = dialect.loop is not None and dialect.loop.unrolled
        self._alignment = target.alignment_bytes
        self._in_place = any("MINIMUM" in rule.ops for rule in target.in_place)
        self._pads_over = dialect.pad_type in target.pads_over_inputs
        self._joined = dialect.loop is not None and dialect.loop.joined
        self._footprints = self._intervals.footprints
        self._known: dict[LoopGroup, LoopCost | None] = {}
        self._curves: dict[tuple[int, int], list[LoopCost]] = {}
        self._whole: set[tuple[int, int]] = set()
        self._refused: dict[LoopGroup, str] = {}
        self._dropped: set[LoopGroup] = set()
        self._least_peaks: dict[tuple[int, int], float] = {}
        self._proposed = itertools.chain(map(bare, known), self._proposals())
        self._work = 0
        self.judged = 0
        self.exhausted = False

    @property
    def effort(self) -> float:
        """The work done so far, about as much as an idle machine does in so many seconds."""
        return self._work / MachinePace.LOOPS

    def refusals(self) -> Iterator[tuple[int, str]]:
        """Yield the ops that no known loop holds, with a reason: their own, or that of a group that begins there."""
        held = {op for curve in self._curves.values() for one in curve for op in one.group.ops}
        groups = {group.ops[0]: group for group in reversed(self._refused)}
        for op in range(len(self._footprints)):
            alone = None if op in held else self._refusal(op)
            if alone is not None:
                yield op, alone
            elif op not in held and op in groups:
                yield op, f"{len(groups[op].ops)} layers from here: {self._refused[groups[op]]}"

    def _refusal(self, op: int) -> str | None:
        """Return why no loop can hold an op; None where there is no such reason."""
        shape = self._graph.shape_made(op)
        known, readers = self._intervals.geometries, self._intervals.readers
        if not isinstance(known[op], Refusal) and len(shape) != RANK:
            return f"what it makes has {len(shape)} axes: loops cut images, which have {RANK}"
        found = plan_loop(self._graph, LoopGroup((op,), AXES, (1, 1)), self._dialect, known, readers)
        return found.reason if isinstance(found, Refusal) else None

    def blocks(self) -> dict[LoopGroup, int]:
        """Return the loops of the best point, each with the bytes of what it reads, what it makes and its tiles."""
        best = min(self.points(_LEVELS_UNDERWAY), key=lambda point: point.required)
        found: dict[LoopGroup, int] = {}
        for group in best.groups:
            cost = self._known.get(bare(group))
            if cost is not None:
                found[bare(group)] = cost.peak - self._intervals.interval(group.ops[0], group.ops[-1]).base
        return found

    def drop(self, groups: Sequence[LoopGroup]) -> None:
        """Forget groups that cannot be written."""
        self._dropped.update(groups)
        for group in groups:
            pair = group.ops[0], group.ops[-1]
            self._curves[pair] = [one for one in self._curves.get(pair, ()) if one.group not in self._dropped]

    def go_on(self, most: float, stop: Callable[[], bool]) -> bool:
        """Search on until nothing is left or so much more work is done; return whether nothing is left.

        Args:
            most: Work, as in ``effort``.
            stop: Asked often; True ends the search.
        """
        limit = self.effort + most
        for group in self._proposed:
            if group is not None:
                self._judge(group)
            if self.effort >= limit or stop():
                return False
        self.exhausted = True
        return True

    # What is tried -------------------------------------------------------------------------------------------------

    def _proposals(self) -> Iterator[LoopGroup | None]:
        about: int | None = None
        while self._footprints:
            points = self.points(_LEVELS_UNDERWAY, about)
            best = min(points, key=lambda point: (point.required, point.extra_macs))
            groups = list(self._hot_groups(best))
            if not groups:
                used = dict.fromkeys((*best.groups, *(group for point in points for group in point.groups)))
                groups = [
                    near for group in used for near in near_loops(self._graph, bare(group)) if near not in self._known
                ]
            judged = self.judged
            yield from dict.fromkeys(groups) if groups else self._all_that_help(best)
            found = bool(groups) or self.judged > judged
            if not found and about is not None:
                return
            # Before the search ends, levels between those that are looked at underway are.
            about = None if found else best.peak

    def _hot_groups(self, best: LoopPoint) -> Iterator[LoopGroup]:
        """Yield the ways of computing intervals that hold a step as large as the best point's largest.

        Where all of those were tried, those that hold a step which no known loop brings to a lower level.
        """
        for steps in (self._largest_steps(best), *self._missing_steps(best)):
            pairs = [pair for pair in self._intervals_around(best, steps) if pair not in self._whole]
            for pair in pairs:
                self._whole.add(pair)
                yield from self._ladder(*pair)
            if pairs:
                return

    def _all_that_help(self, best: LoopPoint) -> Iterator[LoopGroup | None]:
        """Yield every loop not yet judged that could be part of a point that requires less than the best one.

        It holds a step that is too large, and needs less than the best point's largest step. Of the tiles that are as
        many along each axis the smallest are looked at: the others repeat more, and hold more.
        """
        pairs: dict[tuple[int, int], None] = {}
        for op in (op for op, size in enumerate(self._footprints) if size >= best.peak):
            before = len(pairs)
            for first, last in self._intervals_with(op):
                # Work is done, of which the caller may have had enough.
                yield None
                if self._intervals.loop_floor(first, last) < best.peak and self._least_of(first, last) < best.peak:
                    pairs[first, last] = None
            if len(pairs) == before and not any(first <= op <= last for first, last in pairs):
                # What nothing lowers stays.
                return
        for first, last in pairs:
            shape = self._graph.shape_made(last)
            heights, widths = (even_lengths(shape[axis]) for axis in AXES)
            for width in widths:
                for height in heights:
                    group = LoopGroup(tuple(range(first, last + 1)), AXES, (height, width))
                    if tiles_of(group, shape) > MOST_TILES:
                        continue
                    if group not in self._known:
                        yield group
                    cost = self._known.get(group)
                    if cost is None or cost.peak >= best.peak:
                        break

    def _intervals_with(self, op: int) -> Iterator[tuple[int, int]]:
        """Yield the intervals that hold an op and none that ends them."""
        ends = [isinstance(self._intervals.geometries[other], Refusal) for other in range(len(self._footprints))]
        for first in range(op, max(-1, op - LONGEST), -1):
            if ends[first]:
                return
            for last in range(op, min(first + LONGEST, len(ends))):
                if ends[last]:
                    break
                yield first, last

    def _least_of(self, first: int, last: int) -> float:
        """Return bytes that a loop over an interval needs whatever its tiles; infinite where there is none."""
        if (first, last) not in self._least_peaks:
            self._least_peaks[first, last] = self._found_least_of(first, last)
        return self._least_peaks[first, last]

    def _found_least_of(self, first: int, last: int) -> float:
        shape = self._graph.shape_made(last)
        if len(shape) != RANK:
            return math.inf
        self.judged += 2
        ops = tuple(range(first, last + 1))
        found = math.inf
        ones, rows = (self._forms(LoopGroup(ops, AXES, sizes)) for sizes in ((1, 1), (1, shape[AXES[1]])))
        for one, row in zip(ones, rows, strict=False):
            # Tiles of whole rows may need less padding ahead; both have at least the bytes of an element inside.
            found = min(found, one.peak, row.peak - row.inner + one.inner)
        return found

    def _largest_steps(self, best: LoopPoint) -> list[int]:
        inside = {op for group in best.groups for op in group.ops}
        hot = [op for op, size in enumerate(self._footprints) if size >= best.peak and op not in inside]
        for group in best.groups:
            cost = self._known.get(bare(group))
            if cost is not None and cost.peak >= best.peak:
                hot += [group.ops[0], group.ops[-1]]
        return hot

    def _missing_steps(self, best: LoopPoint) -> Iterator[list[int]]:
        """Yield per lower level the steps above it that no known loop brings there within the limit of work."""
        lowest = best.peak * _LOWEST_LEVEL
        for level in sorted({best.peak - 1, *(size for size in self._footprints if lowest < size < best.peak)})[::-1]:
            covered = {
                op
                for curve in self._curves.values()
                for one in curve
                if one.peak <= level and one.extra_macs <= self._most
                for op in one.group.ops
            }
            yield [op for op, size in enumerate(self._footprints) if size > level and op not in covered]

    @functools.cached_property
    def _boundaries(self) -> list[int]:
        residues, count = self._intervals.residues, len(self._footprints)
        low = [0, count]
        for place in range(1, count):
            before, here, after = residues[place - 1 : place + 2]
            if here <= before and here <= after:
                low.append(place)
        for op in range(count):
            if isinstance(self._intervals.geometries[op], Refusal):
                low += [op, op + 1]
        return sorted(set(low))

    def _intervals_around(self, best: LoopPoint, steps: Sequence[int]) -> list[tuple[int, int]]:
        """Return the intervals between boundaries that hold one of a few steps and could need less than the best."""
        boundaries = self._boundaries
        found: dict[tuple[int, int], None] = {}
        for op in steps[:_STEPS_AT_ONCE]:
            at = bisect.bisect_right(boundaries, op)
            for first in boundaries[:at]:
                for end in boundaries[at:]:
                    if end - first <= LONGEST and self._intervals.loop_floor(first, end - 1) < best.peak:
                        found[first, end - 1] = None
        return sorted(found, key=lambda pair: (pair[1] - pair[0], pair))

    def _ladder(self, first: int, last: int) -> Iterator[LoopGroup]:
        shape = self._graph.shape_made(last)
        ops = range(first, last + 1)
        if len(shape) != RANK or any(isinstance(self._intervals.geometries[op], Refusal) for op in ops):
            return
        rows, columns = (shape[axis] for axis in AXES)
        probe = LoopGroup(tuple(ops), AXES, (1, columns))
        if self._judge(probe) is None:
            return
        for sizes in tile_sizes(rows, columns):
            yield replace(probe, sizes=sizes)

    # What it costs -------------------------------------------------------------------------------------------------

    def _judge(self, group: LoopGroup) -> LoopCost | None:
        """Return what the form of a loop that needs least costs; all forms are taken up."""
        plain = bare(group)
        if plain not in self._known:
            self.judged += 1
            forms = [one for one in self._forms(plain) if one.group not in self._dropped]
            self._known[plain] = min(forms, key=lambda one: one.peak, default=None)
            shape = self._graph.shape_made(group.ops[-1])
            for one in forms if forms and tiles_of(plain, shape) <= self._most_tiles else ():
                take_up(self._curves.setdefault((group.ops[0], group.ops[-1]), []), one)
        return self._known[plain]

    def _forms(self, group: LoopGroup) -> list[LoopCost]:
        """Return what a loop costs with its padding before it, and in its body where it has any."""
        self._work += 1
        loop = plan_loop(self._graph, group, self._dialect, self._intervals.geometries, self._intervals.readers)
        if isinstance(loop, Refusal):
            self._refused[group] = loop.reason
            return []
        found = [self._cost(group, loop)]
        if any(map(any, loop.pads)):
            self._work += 1
            found.append(self._cost(replace(group, pads_inside=True), loop.padded_inside()))
        return found

    def _cost(self, group: LoopGroup, loop: Loop) -> LoopCost:
        given = sum(self._graph.ops[op].macs for op in group.ops)
        interval = self._intervals.interval(group.ops[0], group.ops[-1])
        element = {tensor: self._element(tensor, group.axes) for tensor in loop.parts}
        rows = [length + sum(pads) for length, pads in zip(loop.lengths[loop.input], loop.pads, strict=True)]
        padded_row = math.ceil(element[loop.input] * math.prod(rows[1:]))
        row = math.ceil(element[loop.output] * math.prod(loop.lengths[loop.output][1:]))
        padded, made = padded_row * rows[0], row * loop.lengths[loop.output][0]
        lead = rows_ahead(loop, row, padded_row, self._alignment if self._joined else None)
        together, apart = padded + lead * padded_row, self._up(padded) + self._up(made)
        size, dies = self._graph.tensors[loop.input].size, self._dies(loop.input, group.ops[-1])
        copied = any(map(any, loop.pads))
        outer = (self._graph.tensors[loop.input].shape or ())[: loop.axes[0]]

        def over_input(begin: int) -> bool:
            aligned_rows = (begin - size - loop.pads[0][1] * padded_row) % self._alignment == 0
            return self._pads_over or (self._joined and aligned_rows and joins_rows(loop, outer, begin - size))

        tensors = self._body_tensors(loop, element)
        inner = max(map(sum, tensors))
        read, aside = (
            sum(self._up(self._graph.tensors[tensor].size) for tensor in ends)
            for ends in (loop.side_inputs, (*loop.side_inputs, *loop.side_outputs))
        )

        def most(begin: int, block: int) -> int:
            # What is read again after the loop, or is the caller's, lies beside its padded copy.
            beside = 0 if dies or not (copied or begin > size) else self._up(size)
            looping = beside + aside + block + inner + ADDED.counters * self._alignment
            # Where it may not lie over the input, the copy lies beside it while it is made.
            copying = read + self._up(size) + self._up(begin) if begin > size and not over_input(begin) else 0
            return max(looping, copying)

        # An op for each tile makes it beside what later ones read.
        over = made <= together < apart and not self._unrolled and not loop.windowed(loop.input)
        # Of several images each would need rows ahead of its own, and as many bytes as its part of the output.
        over = over and (math.prod(outer) == 1 or (not lead and made == padded))
        over = over and most(together, self._up(together)) <= most(padded, apart)
        begin, block = (together, self._up(together)) if over else (padded, apart)
        # What is padded behind the last element may lie over nothing as well as over the input.
        right = math.ceil(element[loop.input] * sum(after for _, after in loop.pads[1:]))
        behind = loop.pads[0][1] * padded_row + right
        peak = interval.base + most(begin, block)
        added = added_ops(loop, unrolled=self._unrolled, most_joined=self._dialect.most_joined)
        cost = LoopCost(
            replace(group, lead=lead if over else 0),
            peak=peak,
            added=0 if self._prices is None else added,
            extra_macs=loop.macs - given,
            tensors=tensors,
            inner=inner,
            ahead=self._up(max(0, begin - behind - size)) if over_input(begin) else 0,
            copying=interval.base + read + self._up(size) + self._up(begin),
            behind=peak,
        )
        before = self._footprints[group.ops[0] - 1] if group.ops[0] else 0
        return after_step(cost, before, before - interval.base - read - self._up(size)) if before else cost

    def _body_tensors(self, loop: Loop, element: Mapping[int, float]) -> tuple[tuple[int, ...], ...]:
        """Return the bytes of what a loop's tiles need at once, for each step of a tile."""
        rules = {"in_place": self._in_place, "pads_over": self._pads_over}
        width = {tensor: math.ceil(self._element(tensor, range(RANK))) for tensor in loop.parts}
        tensors = body_tensors(loop, element, width, alignment=self._alignment, **rules)
        joined = ((joined_bytes(loop, element[loop.output], self._alignment),),) if self._unrolled else ()
        return tensors + joined

    def _up(self, size: int) -> int:
        return aligned(size, self._alignment)

    def _dies(self, tensor: int, last: int) -> bool:
        return tensor not in self._graph.outputs and all(op <= last for op in self._intervals.readers[tensor])

    def _element(self, tensor: int, axes: Sequence[int]) -> float:
        value = self._graph.tensors[tensor]
        shape = value.shape or ()
        return value.size / max(1, math.prod(shape[axis] for axis in axes))

    # What is chosen ------------------------------------------------------------------------------------------------

    def points(self, most: int | None = None, near: int | None = None) -> tuple[LoopPoint, ...]:
        """Return points with rising work and falling requirements.

        Args:
            most: Sizes of the largest step that are looked at, far apart; None for all.
            near: About which all of them are, as far as the next that are looked at otherwise.
        """
        base = max(self._footprints, default=0)
        found = [LoopPoint(base, self._required(base, 0), 0, ())]
        sizes = {*self._footprints, *(one.peak for curve in self._curves.values() for one in curve)}
        levels = sorted(size for size in sizes if size < base)
        if most is not None and len(levels) > most:
            apart, at = len(levels) // (most - 1) + 1, bisect.bisect(levels, near or 0)
            far = [levels[at * (len(levels) - 1) // (most - 1)] for at in range(most)]
            levels = far if near is None else levels[max(0, at - apart) : at + apart]
        for level in levels:
            found.extend(self._point(way) for way in self._ways(level))
        result: list[LoopPoint] = []
        for point in sorted(found, key=lambda point: (point.extra_macs, point.required)):
            if not result or point.required < result[-1].required:
                result.append(point)
        return tuple(result)

    def of_use(self) -> list[GroupCost]:
        """Return what loops cost that bring steps below the best point's peak, where others stay above it."""
        most = min(self.points(_LEVELS_UNDERWAY), key=lambda point: point.required).peak
        sizes = {*self._footprints, *(one.peak for curve in self._curves.values() for one in curve)}
        levels = sorted(size for size in sizes if _LEAST_OF_USE * most <= size <= most)
        apart = max(1, len(levels) // _LEVELS_UNDERWAY)
        found: dict[LoopGroup, LoopCost] = {}
        for level in levels[::-apart]:
            for way in self._ways(level, anyway=True):
                found.update((one.group, one) for one in way.loops)
        return [as_way(one, self._prices) for one in found.values()]

    def _ways(self, level: int, *, anyway: bool = False) -> list[LoopWay]:
        """Return the loops that bring all steps to ``level`` bytes; see `ways_to`."""
        self._work += sum(map(len, self._curves.values())) // _COSTS_PER_FORM
        return ways_to(level, self._footprints, self._curves.values(), self._most, anyway=anyway)

    def _point(self, way: LoopWay) -> LoopPoint:
        peak, groups = way.peak, tuple(one.group for one in way.loops)
        return LoopPoint(peak, self._required(peak, way.added), way.work, groups)

    def _required(self, peak: int, added: int) -> int:
        return peak if self._prices is None else self._prices.required(peak, self._prices.of_slice * added)
