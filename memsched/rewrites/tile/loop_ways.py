"""Which of several ways of computing layers in loops are worth keeping: those that no other one equals or beats."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph
from memsched.lowering.prices import NOTHING_KEPT, Prices
from memsched.rewrites.tile.local import GroupCost
from memsched.rewrites.tile.loop import LoopGroup
from memsched.rewrites.tile.loop_cost import LoopCost

__all__ = [
    "AXES",
    "LONGEST",
    "MOST_TILES",
    "RANK",
    "LoopWay",
    "as_way",
    "bare",
    "even_lengths",
    "near_loops",
    "pareto",
    "take_up",
    "tile_sizes",
    "tiles_for_nothing",
    "tiles_of",
    "ways_to",
]

RANK: Final = 4
AXES: Final = tuple(range(1, RANK - 1))
"""Rows and columns of an image, which has `RANK` axes."""

LONGEST: Final = 40
"""Ops in a loop: with more of them, halos cost too much work."""

MOST_TILES: Final = 400
"""Per loop: beyond that, each tile takes more time than the little memory it saves is worth."""

_LENGTHS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)

_MACS_OF_A_TILE: Final = 20_000
"""Work of a graph for each tile of a loop that is to cost nothing: a body's ops took as long as 1,000 on a desktop."""


class LoopWay(FrozenValue, frozen=True):
    """Loops up to a place between ops.

    Attributes:
        added: Ops that they add.
        work: Extra multiply-accumulates.
        loops: In the order of execution.
        flat: Largest footprint of ops in no loop, bytes.
        top: Where loops right before the place end at most, without the bytes that tiles take, if they begin where the
            last one does; None where there is none.
    """

    added: int
    work: int
    loops: tuple[LoopCost, ...]
    flat: int
    top: int | None

    def on(self, largest: int) -> LoopWay:
        """Return this way with ops in no loop; ``largest`` is their largest footprint, bytes."""
        return LoopWay(self.added, self.work, self.loops, max(self.flat, largest), None)

    def then(self, one: LoopCost, level: int) -> LoopWay | None:
        """Return this way with one more loop; None where that needs more than ``level`` bytes wherever tiles lie.

        After another loop, the input is that one's output, which lies where its padded input begins. The padding before
        it takes bytes below all of these loops, but for what their tiles no longer need; or the padded copy lies
        elsewhere.
        """
        top = one.alone
        if self.top is None:
            peak = one.behind
        elif one.copying <= level:
            # It leaves more room for those that follow.
            peak = max(one.peak, one.copying)
        else:
            top = max(self.top + one.ahead, top)
            peak = max(one.peak, top)
        if peak > level:
            return None
        return LoopWay(self.added + one.added, self.work + one.extra_macs, (*self.loops, one), self.flat, top)

    @property
    def peak(self) -> int:
        """The largest footprint, with the best places for the tiles of loops in a row."""
        # Per number of loops what they need at least, where the next one does not lie in a row with them.
        least = [self.flat]
        for end in range(1, len(self.loops) + 1):
            needed = math.inf
            for begin in reversed(range(end)):
                one, follows = self.loops[begin], self._follows(begin)
                apart = max(one.peak, one.copying) if follows else one.behind
                needed = min(needed, max(least[begin], apart, _peak_of(self.loops[begin:end])))
                if not follows:
                    break
            least.append(int(needed))
        return least[-1]

    def _follows(self, number: int) -> bool:
        """Return whether a loop comes right after another one."""
        return number > 0 and self.loops[number - 1].group.ops[-1] + 1 == self.loops[number].group.ops[0]


def _peak_of(chain: Sequence[LoopCost]) -> int:
    """Return the largest footprint of loops of which each reads what the one before has made, in its place."""
    peak = below = 0
    for one in reversed(chain):
        peak = max(peak, one.lifted(below))
        below += one.ahead
    return peak


def take_up(costs: list[LoopCost], one: LoopCost) -> None:
    """Take up a way of one interval, unless another one equals or beats it in all respects; drop those that it beats.

    Args:
        costs: The others, by rising peaks.
    """
    if not any(_beats(other, one) for other in costs):
        costs[:] = [other for other in costs if not _beats(one, other)]
        bisect.insort(costs, one, key=lambda cost: (cost.peak, cost.extra_macs, cost.added))


def _beats(one: LoopCost, other: LoopCost) -> bool:
    return one.peak <= other.peak and one.extra_macs <= other.extra_macs and one.added <= other.added


def ways_to(
    level: int, footprints: Sequence[int], curves: Iterable[Sequence[LoopCost]], most: int, *, anyway: bool = False
) -> list[LoopWay]:
    """Return the loops that bring all steps to ``level`` bytes: those that add least, and that cost least work.

    Args:
        footprints: Of the steps in no loop.
        curves: Per interval its ways, by rising peaks.
        most: Extra multiply-accumulates permitted.
        anyway: All steps but those that no known loop brings there.
    """
    count = len(footprints)
    ways: list[list[LoopWay]] = [[] for _ in range(count + 1)]
    ways[0] = [LoopWay(0, 0, (), 0, None)]
    by_first: dict[int, list[LoopCost]] = {}
    for curve in curves:
        for one in _worth_looking_at(curve, level):
            by_first.setdefault(one.group.ops[0], []).append(one)
    covered = {op for loops in by_first.values() for one in loops for op in one.group.ops} if anyway else set()
    # Between places where loops begin or end there is one way on: step by step.
    places = sorted({0, count, *by_first, *(one.group.ops[-1] + 1 for loops in by_first.values() for one in loops)})
    for place, after in itertools.pairwise(places):
        begun, kinds = by_first.get(place, ()), [ways[place]]
        if any(one.behind > level for one in begun):
            # Such a loop may fit right behind another one, and behind no op by itself.
            kinds = [[way for way in ways[place] if (way.top is None) is apart] for apart in (True, False)]
        here = [way for kind in kinds for way in pareto(kind)]
        steps = footprints[place:after]
        if all(step <= level or (anyway and at not in covered) for at, step in enumerate(steps, place)):
            ways[after] += [way.on(max(steps)) for way in here]
        for one in begun:
            ways[one.group.ops[-1] + 1] += [
                longer
                for way in here
                if way.work + one.extra_macs <= most and (longer := way.then(one, level)) is not None
            ]
    return pareto(ways[count])


def pareto(ways: Sequence[LoopWay]) -> list[LoopWay]:
    """Return the ways that add least or cost least work; of those that end in a loop, by the room that it has, too."""
    if len(ways) < 2:
        return list(ways)
    found: list[LoopWay] = []
    # Of the ways that add no more: by rising work, the room that one with no more work has; both rise.
    works: list[int] = []
    rooms: list[float] = []
    ranked = [(way.added, way.work, -_room(way), place) for place, way in enumerate(ways)]
    ranked.sort()
    for _, work, less, place in ranked:
        at = bisect.bisect_right(works, work)
        if at and rooms[at - 1] >= -less:
            continue
        found.append(ways[place])
        # Those behind are beaten where they have no more room.
        end = next((later for later in range(at, len(works)) if rooms[later] > -less), len(works))
        works[at:end], rooms[at:end] = [work], [-less]
    return found


def _worth_looking_at(costs: Sequence[LoopCost], level: int) -> Sequence[LoopCost]:
    """Return the ways of one interval with which no step exceeds ``level``, without those that are of no use there."""
    fitting = costs[: bisect.bisect_right(costs, level, key=lambda one: one.peak)]
    if len(fitting) < 2:
        return fitting
    ranked = [
        (one.extra_macs, one.added, one.alone, one.ahead, place, one.behind > level, one.copying > level)
        for place, one in enumerate(fitting)
    ]
    ranked.sort()
    # By rising work: what came before costs no more of it.
    found: list[LoopCost] = []
    served: list[tuple[int, int, int, bool, bool]] = []
    for _, added, alone, ahead, place, behind, copying in ranked:
        if not any(
            less <= added and end <= alone and padding <= ahead and far <= behind and copied <= copying
            for less, end, padding, far, copied in served
        ):
            served.append((added, alone, ahead, behind, copying))
            found.append(fitting[place])
    return found


def _room(way: LoopWay) -> float:
    return math.inf if way.top is None else -way.top


def even_lengths(length: int) -> list[int]:
    """Return per number of tiles along an axis the least length with which so many cover it, ascending."""
    return sorted({-(-length // count) for count in range(1, length + 1)})


def tiles_of(group: LoopGroup, shape: Sequence[int]) -> int:
    """Return how many tiles cover an output of a shape."""
    return math.prod(-(-shape[axis] // size) for axis, size in zip(group.axes, group.sizes, strict=True))


def tiles_for_nothing(graph: Graph) -> int:
    """Return how many tiles a loop may have whose ops are to take no time beside all the work of ``graph``."""
    return sum(op.macs for op in graph.ops) // _MACS_OF_A_TILE


def tile_sizes(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield a ladder of tile sizes for an image, each with at least two tiles."""
    for height in (n for n in _LENGTHS if n < rows or n == 1):
        for parts in (1, 2, 3, 4, 6):
            if math.ceil(rows / height) * parts <= MOST_TILES and (height < rows or parts > 1):
                yield height, -(-columns // parts)


def near_loops(graph: Graph, group: LoopGroup) -> Iterator[LoopGroup]:
    """Yield the loops whose tiles, or whose ends, are one larger or smaller than those of ``group``."""
    shape = graph.shape_made(group.ops[-1])
    limits = [shape[axis] for axis in group.axes if axis < len(shape)]
    for place, limit in enumerate(limits):
        for size in sorted({group.sizes[place] - 1, group.sizes[place] + 1}):
            if 0 < size <= limit:
                yield replace(group, sizes=(*group.sizes[:place], size, *group.sizes[place + 1 :]))
        count = -(-limit // group.sizes[place])
        for other in {count - 1, count + 1}:
            if 0 < other <= limit:
                yield replace(group, sizes=(*group.sizes[:place], -(-limit // other), *group.sizes[place + 1 :]))
    first, last = group.ops[0], group.ops[-1]
    for begin, end in ((first - 1, last), (first + 1, last), (first, last - 1), (first, last + 1)):
        if 0 <= begin < end < len(graph.ops) and end - begin < LONGEST:
            again = graph.shape_made(end)
            if len(again) == len(shape):
                sizes = tuple(min(size, again[axis]) for size, axis in zip(group.sizes, group.axes, strict=True))
                yield LoopGroup(tuple(range(begin, end + 1)), group.axes, sizes)


def as_way(one: LoopCost, prices: Prices | None) -> GroupCost:
    """Return what a loop costs at most, whatever is before it, as one of the ways of computing an interval."""
    after_loop = max(one.peak, one.copying) if one.ahead else one.peak
    kept = NOTHING_KEPT if prices is None else prices.of_slice * one.added
    return GroupCost(one.group, max(after_loop, one.behind), one.extra_macs, kept)


def bare(group: LoopGroup) -> LoopGroup:
    """Return a loop without what is decided when it is judged."""
    return replace(group, lead=0, pads_inside=False)
