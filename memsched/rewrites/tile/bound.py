"""What a graph needs at least, whichever groups of consecutive layers are computed in pieces or loops, in any order.

What holds whatever is cut, and however: all inputs lie in memory before the first op, all outputs behind the last. An
op that stays whole has its inputs and outputs at once. A tensor that crosses a border between groups, or between a
group and whole ops, is whole at one moment, beside its pieces where joining them copies. An op that runs n times has a
run with an n-th of what it reads and makes, and each run more is an op more, for which some runtimes keep bytes. Along
an axis that an op reads whole it reads all of what the group has before it. A loop carries all it reads
(`loop_floor`), and adds ops of its own. A dynamic program over the order finds the groups that need
least by these alone, with any amount of extra work. Halos, and what lies in memory beside, only add to that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence

from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.lowering.prices import Kept, Prices
from memsched.ops.rules import Geometry, Refusal
from memsched.rewrites.tile.loop_floor import LoopFloor, LoopFloors
from memsched.rewrites.tile.op_needs import MOST_OPS, UNKNOWN, WHOLE, OpNeeds, OpsNeeds
from memsched.targets.model import Target

__all__ = ["MOST_RUNS", "least_in_pieces"]

MOST_RUNS = 400
"""Runs of an op in one group that pieces and loops are limited to."""

_EXACT = 4_096
"""Where more than the largest step counts, ranges of its size are halved until they are this part of it."""

_OPS_OF_LOOP = 6
"""Ops that each form of a loop adds at least."""


def least_in_pieces(
    graph: Graph,
    target: Target,
    dialect: Dialect,
    geometries: Mapping[int, Geometry | Refusal],
    prices: Prices | None = None,
) -> int:
    """Return bytes that no pieces or loops of ``graph``, made once, go below, whatever their order and extra work.

    Args:
        graph: Not lowered, its ops in an order of execution; groups are consecutive in it.
        geometries: Per op what `describe` gives.
        prices: What the runtime keeps for every op; None: the largest step is all that counts.
    """
    return _Floor(graph, target, dialect, geometries, prices).least()


class _Floor:
    def __init__(
        self,
        graph: Graph,
        target: Target,
        dialect: Dialect,
        geometries: Mapping[int, Geometry | Refusal],
        prices: Prices | None,
    ) -> None:
        self._graph, self._prices = graph, prices
        needs = OpsNeeds(graph, target, dialect, geometries, prices)
        self._joined = needs.kept(dialect.concat_type)
        self._ops = needs.find()
        self._cuts = range(len(needs.axes))
        self._readers, self._size = needs.readers, needs.size
        self._borders = self._crossing()
        read = [tensor for tensor in graph.inputs if self._readers[tensor]]
        self._ends = max(needs.together(read), needs.together(graph.outputs))
        self._worst = max((one.whole for one in self._ops), default=0)
        self._looped = dialect.loop is not None
        self._loop = _OPS_OF_LOOP * min(self._joined, needs.kept(dialect.slice_type))
        self._loops: list[list[LoopFloor]] = [[]] * len(graph.ops)
        if self._looped and len(graph.ops) <= MOST_OPS:
            floors = LoopFloors(
                graph,
                target,
                dialect,
                geometries,
                needs.readers,
                prices=prices,
                size=needs.size,
                together=needs.together,
                sharing=needs.sharing,
                other=self._loop,
                most=self._worst,
            )
            self._loops = [floors.ending(op) for op in range(len(graph.ops))]

    def least(self) -> int:
        """Return the bound."""
        if self._prices is None:
            return max(self._ends, self._least_level(self._worst))
        return self._least_required(self._prices, max(self._ends, 1), max(self._ends, self._worst, 1))

    def _least_required(self, prices: Prices, lowest: int, highest: int) -> int:
        """Return the least that is required in all where the largest step has a size from ``lowest`` to ``highest``.

        In a range of sizes no less than its lowest is needed, and no less is kept than at its highest.
        """

        def bounded(low: int, high: int) -> Iterator[tuple[int, int, int]]:
            cost = self._least_kept(high)
            if cost is not None:
                yield prices.required(low, Kept(cost)), low, high

        waiting = list(bounded(lowest, highest))
        while waiting:
            least, low, high = heapq.heappop(waiting)
            if high - low <= low // _EXACT:
                return least
            middle = (low + high) // 2
            for part in (*bounded(low, middle), *bounded(middle + 1, high)):
                heapq.heappush(waiting, part)
        return lowest

    def _crossing(self) -> list[int]:
        """Return per place between ops the largest tensor that is made before it and read behind it."""
        graph = self._graph
        largest = [0] * (len(graph.ops) + 1)
        ends: list[list[int]] = [[] for _ in range(len(graph.ops) + 1)]
        for number, op in enumerate(graph.ops):
            for tensor in op.outputs:
                last = max(self._readers[tensor], default=number)
                if last > number:
                    ends[number + 1].append(tensor)
        live: dict[int, int] = {}
        for place in range(1, len(graph.ops) + 1):
            for tensor in ends[place]:
                live[tensor] = max(self._readers[tensor])
            live = {tensor: last for tensor, last in live.items() if last >= place}
            largest[place] = max((self._size(tensor) for tensor in live), default=0)
        return largest

    def _least_level(self, worst: int) -> int:
        """Return the least size of the largest step that some groups might bring all steps to."""
        low, high = 0, worst
        while low < high:
            middle = (low + high) // 2
            if self._least_kept(middle) is None:
                low = middle + 1
            else:
                high = middle
        return high

    def _least_kept(self, level: int) -> int | None:
        """Return what is kept at least for ops of groups with which no step exceeds ``level``; None for no groups."""
        kept = self._kept_along(level) if len(self._ops) <= MOST_OPS else self._kept_anyhow(level)
        return None if math.isinf(kept) else int(kept)

    def _kept_anyhow(self, level: int) -> float:
        """Return the same, infinite for no groups, where ops of a group may each be cut along other axes."""
        at_border: float = 0
        in_pieces = in_loop = math.inf
        for number, op in enumerate(self._ops):
            (run, kept), runs = op.cut[0], op.runs
            if run <= level and runs <= level * MOST_RUNS:
                more = (math.ceil(runs / level) - 1) * kept if runs > level else 0
                in_pieces = min(in_pieces, at_border + self._joined) + more
                in_loop = min(in_loop, at_border + self._loop) if self._looped else math.inf
            else:
                in_pieces = in_loop = math.inf
            whole = at_border if op.whole <= level else math.inf
            joined = in_pieces if op.joined[0] <= level else math.inf
            at_border = min(whole, joined, in_loop) if self._borders[number + 1] <= level else math.inf
        return at_border

    def _kept_along(self, level: int) -> float:
        """Return the same where groups are cut along some axes."""
        at_border: float = 0
        borders: list[float] = [at_border]
        # Per choice of axes where the last op made a part of its output, and where each piece makes all of it.
        cut = whole = [math.inf] * len(self._cuts)
        turned = math.inf
        for number, op in enumerate(self._ops):
            begun = at_border + self._joined
            more = _kept_more(op, level)
            least = min(more, default=math.inf)
            before = [self._before(op, axes, cut, whole, turned) for axes in self._cuts]
            all_of = before if not op.chained else whole if op.follows else [min(whole, default=0)] * len(whole)
            turned = min(begun, turned) + least
            cut = [
                min(begun, one) + cost if needed <= level else one + cost
                for one, needed, cost in zip(before, op.begun, more, strict=True)
            ]
            whole = [min(begun, one) for one in all_of] if op.runs <= level else [math.inf] * len(cut)
            joined = min((one for one, needed in zip(cut, op.joined, strict=True) if needed <= level), default=math.inf)
            looped = [borders[one.first] + one.kept for one in self._loops[number] if one.level <= level]
            whole_op = at_border if op.whole <= level else math.inf
            at_border = min(joined, whole_op, *looped) if self._borders[number + 1] <= level else math.inf
            borders.append(at_border)
        return at_border

    @staticmethod
    def _before(op: OpNeeds, axes: int, cut: Sequence[float], whole: Sequence[float], turned: float) -> float:
        """Return what is kept for a group before an op that goes on with it, and is cut along a choice of axes there.

        Args:
            turned: Where it is cut along any.
        """
        if not op.chained:
            return turned if op.mixed else min(cut[axes], whole[axes])
        source = op.sources[axes]
        if source == WHOLE:
            return whole[axes] if op.follows else min(whole)
        return turned if source == UNKNOWN else cut[source]


def _kept_more(op: OpNeeds, level: int) -> list[float]:
    """Return per choice of axes what is kept for the runs of an op in pieces beyond the first."""
    if op.runs > level * MOST_RUNS:
        return [math.inf] * len(op.cut)
    further = max(1, math.ceil(op.runs / level)) - 1 if level else 0
    return [further * kept if run <= level else math.inf for run, kept in op.cut]
