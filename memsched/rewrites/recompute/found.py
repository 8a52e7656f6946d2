"""What a search for sequences with repetitions found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memsched.base.frozen import FrozenValue
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.cost import RematPoint, least_peak, work_of
from memsched.rewrites.recompute.rewrite import repeatable
from memsched.targets.model import Target

__all__ = ["PointFrontier", "RematResult", "untried"]


class RematResult(FrozenValue, frozen=True):
    """What a search found.

    Attributes:
        best: The point of least peak within the permitted work.
        frontier: Falling peaks with rising cost; the first is the order without repetition.
        lower_bound: Bytes below which no order and no repetition brings the peak.
        total: The cost of executing every op once.
        finished: The search ended before its time was up.
        settled: Over all orders and repetitions nothing better exists within the permitted work.
        judged: How many sequences were judged.
    """

    best: RematPoint
    frontier: tuple[RematPoint, ...]
    lower_bound: int
    total: int
    finished: bool
    settled: bool = False
    judged: int = 0


class PointFrontier:
    """Points that no other undercuts, with rising cost, and what is permitted of them.

    Attributes:
        left_out: A point was refused for its multiply-accumulates.

    Args:
        first: Without repetition.
        most: Cost that is permitted.
        most_macs: Multiply-accumulates that are permitted; points with more are not kept.
    """

    def __init__(self, first: RematPoint, most: float, most_macs: float) -> None:
        self._points = [first]
        self._most, self._most_macs = most, most_macs
        self.left_out = False

    def __iter__(self) -> Iterator[RematPoint]:
        return iter(self._points)

    @property
    def first(self) -> RematPoint:
        """The point of least cost."""
        return self._points[0]

    def keep(self, point: RematPoint) -> None:
        """Put a point on the frontier where it is permitted and not undercut."""
        if point.extra_macs > self._most_macs:
            self.left_out = True
        elif not any(known.peak <= point.peak and known.cost <= point.cost for known in self._points):
            kept = [known for known in self._points if not (point.peak <= known.peak and point.cost <= known.cost)]
            self._points = sorted([*kept, point], key=lambda one: one.cost)

    def replace(self, points: Iterable[RematPoint]) -> None:
        """Take the same points with more proven of them."""
        self._points = list(points)

    def best(self) -> RematPoint:
        """Return the point of the least peak within the permitted work."""
        within = [point for point in self._points if point.cost <= self._most]
        return min(within, key=lambda one: (one.peak, one.cost))


def untried(graph: Graph, order: tuple[int, ...], target: Target) -> RematResult:
    """Return what is known without a search; see `memsched.rewrites.recompute.search.search`."""
    lowered = apply_target(graph, target)
    peak = evaluate(Storage.of(lowered), order).peak
    point = RematPoint(peak, 0, 0, 0, order, method="no repetition")
    bound = least_peak(lowered, repeatable(graph))
    return RematResult(point, (point,), bound, work_of(graph).total, finished=False)
