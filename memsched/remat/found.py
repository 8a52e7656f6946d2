"""What a search for sequences with repetitions found."""

from __future__ import annotations

from dataclasses import dataclass

from memsched.remat.cost import RematPoint

__all__ = ["RematResult"]


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
