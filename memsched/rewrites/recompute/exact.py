"""Least peak and least extra work over all orders and all repetitions, by search over sets of held values.

With the game of `holding` a sequence of executions is a path, and A* finds the cheapest: what a state still has to
execute at least, each task once, is a bound that never falls along a path by more than a step costs. Dropping is free,
so holding more is never worse: something is dropped only where the next execution asks for it, no more than it asks
for, and a state in which less is held than in one that came as cheap is left out. Where any path does, for the least
peak, the states with the least left to execute come first, and costs do not count.

Effort is counted in moves, so what is found does not depend on the machine.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.rewrites.recompute.holding import IMPOSSIBLE, Game

__all__ = ["BudgetResult", "cheapest", "least_peak"]

_COMPARED: Final = 48
"""States that one is compared with: those looked at last, which hold much the same."""


class BudgetResult(FrozenValue, frozen=True):
    """What a search for one budget came to.

    Attributes:
        sequence: Tasks in order of execution; None where none was found.
        peak: Bytes by the game; 0 without a sequence.
        cost: Of its repetitions; 0 without a sequence.
        bound: No sequence that meets the budget has repetitions that cost less; infinite where none meets it at all.
        ended: The search was complete: the cost is the bound, or there is no sequence within the permitted cost.
    """

    sequence: tuple[int, ...] | None
    peak: int
    cost: int
    bound: float
    ended: bool


def cheapest(
    game: Game,
    budget: int,
    *,
    most_cost: float = math.inf,
    most_moves: int,
    any_cost: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> BudgetResult:
    """Return a sequence whose peak is ``budget`` bytes at most and whose repetitions cost least.

    Args:
        most_cost: Sequences whose repetitions cost more are of no interest.
        most_moves: Ends the search.
        any_cost: Accept any sequence that meets the budget.
        stop: Polled now and then; True ends the search.
    """
    return _ExactSearch(game, budget, most_cost, any_cost).run(game.moves + most_moves, stop)


def least_peak(
    game: Game, lowest: int, known: int, *, most_moves: int, stop: Callable[[], bool] = lambda: False
) -> tuple[int, tuple[int, ...] | None]:
    """Return a proven lower bound of the peak, and the sequence that reaches it where the search got so far.

    Args:
        lowest: Bytes that every sequence needs.
        known: Bytes that a known sequence needs.
        most_moves: Ends the search.
    """
    end = game.moves + most_moves
    best: tuple[int, ...] | None = None
    low, high = lowest, known
    # The bound first, which often is reached; then between: what needs less memory has fewer states.
    aim = low
    while low < high:
        found = cheapest(game, aim, most_moves=end - game.moves, any_cost=True, stop=stop)
        if found.sequence is not None:
            best, high = found.sequence, max(low, found.peak)
        elif found.ended:
            low = min(high, _next_sum(game, aim))
        else:
            return low, None
        aim = (low + high) // 2
    return low, best


def _next_sum(game: Game, budget: int) -> int:
    """Return the least footprint above ``budget`` that there can be."""
    return game.variables + ((budget - game.variables) // game.unit + 1) * game.unit


class _ExactSearch:
    def __init__(self, game: Game, budget: int, most_cost: float, any_cost: bool) -> None:
        self._game = game
        self._budget = budget
        self._any = any_cost
        self._once = sum(game.costs)
        self._most = self._once + (most_cost if most_cost == math.inf else int(most_cost))
        self._number = 0
        self._too_dear = False
        # State -> the cost so far, the state before, the task executed in between, and its footprint.
        self._from: dict[tuple[int, int], tuple[int, tuple[int, int], int, int]] = {}
        self._open: list[tuple[int, int, int, tuple[int, int], int, int]] = []
        self._looked: dict[int, list[tuple[int, int]]] = {}

    def run(self, end: int, stop: Callable[[], bool]) -> BudgetResult:
        """Search until ``end`` moves were looked at."""
        game = self._game
        start = game.start & game.useful(0), 0
        first = game.needed(*start)
        self._from[start] = 0, start, -1, 0
        self._push(start, 0, first)
        looked = 0
        while self._open:
            least, _, _, state, cost, left = heapq.heappop(self._open)
            if self._from[state][0] < cost or self._is_worse(state, cost):
                continue
            if not left:
                return self._answer(state, cost)
            looked += 1
            if game.moves >= end or (not looked & 63 and stop()):
                return BudgetResult(None, 0, 0, 0 if self._any else least - self._once, False)
            self._expand(state, cost, left)
        return BudgetResult(None, 0, 0, self._most - self._once + 1 if self._too_dear else math.inf, True)

    def _push(self, state: tuple[int, int], cost: int, left: int) -> None:
        rest = self._game.cost(left)
        if cost + rest <= self._most:
            self._number += 1
            key = rest if self._any else cost + rest
            heapq.heappush(self._open, (key, rest, self._number, state, cost, left))
        else:
            self._too_dear = True

    def _expand(self, state: tuple[int, int], cost: int, left: int) -> None:
        game = self._game
        held, done = state
        if self._any:
            for task in range(game.count):
                free = game.free_move(task, held, done, self._budget)
                if free is not None:
                    # A value that can be kept without dropping anything is never worse to keep.
                    key = free.held, done | (game.flagged & 1 << task)
                    if key not in self._from:
                        self._from[key] = 0, state, task, free.footprint
                        self._push(key, 0, left & ~(1 << task))
                    return
        for task in range(game.count):
            spent = cost + game.costs[task]
            after = done | (game.flagged & 1 << task)
            useful = game.useful(after)
            for move in game.moves_of(task, held, done, self._budget):
                key = move.held, after
                known = self._from.get(key)
                if known is not None and (self._any or known[0] <= spent):
                    continue
                lost = held & useful & ~move.held
                waiting = game.needed(*key) if lost else left & ~(1 << task)
                if waiting != IMPOSSIBLE:
                    self._from[key] = spent, state, task, move.footprint
                    self._push(key, spent, waiting)

    def _is_worse(self, state: tuple[int, int], cost: int) -> bool:
        """Whether more is held in a state that was looked at and came as cheap; remembers ``state`` otherwise."""
        held, done = state
        others = self._looked.setdefault(done, [])
        for other, spent in others:
            if not held & ~other and (self._any or spent <= cost):
                return True
        others.append((held, cost))
        if len(others) > _COMPARED:
            del others[0]
        return False

    def _answer(self, state: tuple[int, int], cost: int) -> BudgetResult:
        tasks: list[int] = []
        peak = 0
        while True:
            _, before, task, footprint = self._from[state]
            if task < 0:
                break
            tasks.append(task)
            peak = max(peak, footprint)
            state = before
        extra = cost - self._once
        return BudgetResult(tuple(reversed(tasks)), peak, extra, 0 if self._any else extra, True)
