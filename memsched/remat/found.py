"""What a search for sequences with repetitions found."""

from __future__ import annotations

from dataclasses import dataclass

from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.remat.cost import RematPoint, least_peak, work_of
from memsched.remat.rewrite import repeatable
from memsched.targets.model import Target

__all__ = ["RematResult", "untried"]


@dataclass(frozen=True, slots=True)
class RematResult:
    """What a search found.

    Attributes:
        best: The point that was requested; the order without repetition where nothing better was found, and the least
            peak within the permitted work where the budget was not met.
        frontier: Falling peaks with rising cost; the first is the order without repetition.
        lower_bound: Bytes below which no order and no repetition brings the peak.
        total: The cost of executing every op once.
        met: Whether the budget was met; True where there was none.
        finished: The search ended before its time was up.
        settled: Over all orders and repetitions nothing better exists within the permitted work.
        judged: How many sequences were judged.
    """

    best: RematPoint
    frontier: tuple[RematPoint, ...]
    lower_bound: int
    total: int
    met: bool
    finished: bool
    settled: bool = False
    judged: int = 0

    def within(self, budget: int) -> RematPoint | None:
        """Return the cheapest known point whose peak is ``budget`` bytes at most."""
        return min((p for p in self.frontier if p.peak <= budget), key=lambda p: (p.cost, p.peak), default=None)

    def at_most(self, extra: float) -> RematPoint:
        """Return the known point of least peak whose extra work is at most ``extra`` of all work."""
        return min((p for p in self.frontier if p.cost <= extra * self.total), key=lambda p: (p.peak, p.cost))


def untried(graph: Graph, order: tuple[int, ...], target: Target, budget: int | None, custom: bool) -> RematResult:
    """Return what is known without a search; see `memsched.remat.search.search`."""
    lowered = apply_target(graph, target)
    peak = evaluate(Storage.of(lowered), order).peak
    point = RematPoint(peak, 0, 0, 0, order, method="no repetition")
    bound = least_peak(lowered, repeatable(graph, custom))
    met = budget is None or peak <= budget
    return RematResult(point, (point,), bound, work_of(graph).total, met, finished=False)
