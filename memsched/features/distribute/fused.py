"""Blocks of ops without a synchronisation inside: halos are computed twice so that no device waits for them.

A dynamic program over the order of execution cuts it into runs; what a run costs is what its slowest device takes for
the run's transfers and all of its ops. While costs are compared, earlier ops count as synchronised one by one: that
devices hold more because they computed it twice shows only when the whole plan is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memsched.features.distribute.exchange import Boxes, LinkLoads, PlanRanges, exchange, hull_of, joined, slab
from memsched.features.distribute.plan import Blocks, leaves
from memsched.features.distribute.population import Population, cost_of, needs_of, units_of
from memsched.features.distribute.space import Space
from memsched.graph.distribution import Share
from memsched.targets.cluster import Cluster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Booleans = NDArray[np.bool_]

__all__ = ["best_blocks"]


def best_blocks(
    space: Space,
    shares: Sequence[Share],
    cluster: Cluster,
    *,
    longest: int,
    stop: Callable[[], bool] | None = None,
) -> Blocks | None:
    """Return the runs of ops that together cost least with these shares; None if the search was stopped.

    Args:
        longest: Most ops in a run.
    """
    runs = _FusionCosts(space, shares, cluster)
    count = len(shares)
    best = [0.0] + [float("inf")] * count
    begin = [0] * (count + 1)
    for start in range(count):
        if stop is not None and stop():
            return None
        costs = runs.costs(start, min(count, start + longest))
        for stop_at, cost in enumerate(costs, start + 1):
            if best[start] + cost < best[stop_at] * (1 - 1e-12):
                best[stop_at], begin[stop_at] = best[start] + cost, start
    result = []
    at = count
    while at:
        result.append((begin[at], at))
        at = begin[at]
    return tuple(reversed(result))


class _FusionCosts:
    """What runs that begin at a position cost, for all their ends at once. Arrays are indexed [end, device]."""

    def __init__(self, space: Space, shares: Sequence[Share], cluster: Cluster) -> None:
        import numpy as np

        self.space, self.cluster, self.shares = space, cluster, shares
        self.population = Population(space, cluster, [share.axis for share in shares])
        self.units: list[tuple[Integers, Integers]] = []
        self.owned: dict[int, Boxes] = {}
        self.read: list[dict[int, Boxes]] = []
        """Per position what each device needs of what the op reads, were it alone."""
        for position, share in enumerate(shares):
            bounds = np.array([share.bounds], dtype=np.int64)
            work = self.population.work(position)
            units = -(-bounds // work.division.unit)
            self.units.append((units[:, :-1], units[:, 1:]))
            needs = needs_of(space, work, *self.units[-1])
            self.read.append(dict(zip(work.division.tensors, needs, strict=True)))
            there = bounds[:, :-1] < bounds[:, 1:]
            for tensor in space.op(position).outputs:
                self.owned[tensor] = slab(share.axis, bounds[:, :-1], bounds[:, 1:], there)

    def costs(self, start: int, most: int) -> list[float]:
        """Return the seconds of the runs [start, end) for the ends from start + 1 to ``most``."""
        import numpy as np

        ends = np.arange(start + 1, most + 1)
        shape = (len(ends), len(self.cluster.devices))
        inner: dict[int, Boxes] = {}
        asked: dict[int, Boxes] = {}
        computing = np.zeros(shape)
        for position in range(most - 1, start - 1, -1):
            work = self.population.work(position)
            shown = np.array([leaves(self.space, position, int(end)) and position < end for end in ends])[:, None]
            first, last = self.units[position]
            parts = [(first * shown, last * shown)]
            outputs = [tensor for tensor in self.space.op(position).outputs if tensor in inner]
            parts.extend(units_of(inner[tensor], work) for tensor in outputs)
            units = joined(parts)
            needs = needs_of(self.space, work, *units)
            _, seconds, _ = cost_of(self.space, work, units, needs)
            computing += seconds
            for tensor, box in zip(work.division.tensors, needs, strict=True):
                found = inner if self.space.first[tensor] >= start else asked
                found[tensor] = hull_of(found[tensor], box, self.space.extents[tensor]) if tensor in found else box
        links, outside = self._links(start, asked, shape)
        total = np.maximum((links + computing).max(axis=1), outside)
        return [float(cost) for cost in total]

    def _links(self, start: int, asked: dict[int, Boxes], shape: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return how long each device waits for its link, and the source of the inputs for its own."""
        loads = LinkLoads.none(shape)
        for tensor, need in asked.items():
            owner = _spread(self.owned[tensor], shape[0]) if tensor in self.owned else None
            holds = [] if owner is None else [owner]
            readers = [reader for reader in self.space.readers[tensor] if reader < start]
            holds.extend(_spread(self.read[reader][tensor], shape[0]) for reader in readers)
            found = exchange(need, holds, owner, self.space.extents[tensor], self.cluster.router.mode)
            if found is not None:
                loads.add(found, outside=owner is None)
        return loads.seconds(self.cluster.router)


def _spread(boxes: Boxes, plans: int) -> Boxes:
    """Return the boxes of one plan, repeated for several."""
    import numpy as np

    def side(span: PlanRanges | None) -> PlanRanges | None:
        if span is None:
            return None
        low, high = (np.broadcast_to(end, (plans, end.shape[1])) for end in (span.low, span.high))
        return PlanRanges(low, high, (low, high))

    return Boxes(np.broadcast_to(boxes.there, (plans, boxes.there.shape[1])), side(boxes.channels), side(boxes.rows))
