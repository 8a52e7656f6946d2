"""What is least over all orders and repetitions of a small graph, and what that proves about every sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from memsched.rewrites.recompute.cost import RematPoint
from memsched.rewrites.recompute.exact import BudgetResult, cheapest, least_peak
from memsched.rewrites.recompute.holding import Game

__all__ = ["BudgetProofs", "settle"]

_METHOD: Final = "exhaustive search"


@dataclass(slots=True)
class BudgetProofs:
    """What was proven.

    Attributes:
        lower_bound: Bytes below which no sequence brings the peak.
        costs: Pairs (budget, cost): no sequence whose peak is at most the budget has repetitions that cost less.
        settled: What was sought is known: nothing better exists.
    """

    lower_bound: int
    costs: list[tuple[int, float]] = field(default_factory=list)
    settled: bool = False

    def least(self, peak: int) -> float:
        """Return a cost below which no sequence of this peak, in bytes, has repetitions; may be infinite."""
        return max((cost for budget, cost in self.costs if budget >= peak), default=0)


def settle(
    game: Game,
    known: RematPoint,
    lower_bound: int,
    *,
    most_cost: float,
    most_moves: int,
    offer: Callable[[Sequence[int], str], RematPoint],
    stop: Callable[[], bool],
) -> BudgetProofs:
    """Search all orders and repetitions, as far as the effort goes.

    That is the least extra work of each peak, from the order without repetition down.

    Args:
        known: The order without repetition.
        lower_bound: Bytes that are proven needed.
        most_cost: Extra work permitted.
        most_moves: Effort.
        offer: Judges a sequence of ops.
    """
    run = _BudgetSweep(game, BudgetProofs(lower_bound), most_cost, game.moves + most_moves, offer, stop)
    run.proven.settled = run.descend(known.peak)
    return run.proven


@dataclass(slots=True)
class _BudgetSweep:
    game: Game
    proven: BudgetProofs
    most_cost: float
    end: int
    offer: Callable[[Sequence[int], str], RematPoint]
    stop: Callable[[], bool]

    def descend(self, peak: int) -> bool:
        """Find what each peak below costs, down to the least; return whether that was possible in full."""
        best = peak
        while best > self.proven.lower_bound:
            found = self._answer(best - 1)
            if found.sequence is None:
                if not found.ended:
                    return False
                break
            point = self._judged(found.sequence)
            if point.peak >= best:
                # The bytes that a target lets ops share are fewer than the game has it.
                return False
            best = point.peak
        return self._bottom(best)

    def _bottom(self, best: int) -> bool:
        """Prove the least peak; return True, as what is sought was found by now."""
        if best > self.proven.lower_bound and self.proven.least(best - 1) == math.inf:
            self.proven.lower_bound = best
        if best > self.proven.lower_bound:
            bound, sequence = least_peak(
                self.game, self.proven.lower_bound, best, most_moves=self.end - self.game.moves, stop=self.stop
            )
            self.proven.lower_bound = bound
            if sequence is not None:
                self._judged(sequence)
        return True

    def _answer(self, budget: int) -> BudgetResult:
        found = cheapest(
            self.game, budget, most_cost=self.most_cost, most_moves=self.end - self.game.moves, stop=self.stop
        )
        self.proven.costs.append((budget, found.bound))
        return found

    def _judged(self, tasks: Sequence[int]) -> RematPoint:
        return self.offer([op for task in tasks for op in self.game.members[task]], _METHOD)
