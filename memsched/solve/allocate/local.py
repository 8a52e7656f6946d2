"""Local search: the order of greedy planning is changed where blocks stick out, as long as that helps.

A block that ends above the goal, or one of those that it rests on, moves to an earlier place in the order; the order is
planned again and kept unless it is worse than the one kept some steps before (late acceptance: Burke and Bykov 2017).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from memsched.solve.allocate.greedy import GreedyPlanner

__all__ = ["improve"]

_STARTS = 3
"""Greedy orders that a search starts from, the best first."""

_MOST_TRIES = 10
"""Orders tried per block, at most: of few blocks, more would be the same again."""

_HISTORY = 12
"""How many steps back an order must not be worse than."""


def improve(
    planner: GreedyPlanner, goal: int, *, seed: int, effort: int, stop: Callable[[], bool] | None = None
) -> tuple[int, list[int], int]:
    """Return a packing as (height, offsets, orders tried), the lowest that was found from the best greedy orders.

    Args:
        planner: Has run, with orders: its blocks are few enough.
        goal: Bytes at which the search ends.
        effort: Neighbours that may be looked at, over all orders tried, as `GreedyPlanner.order_steps` counts them.
        stop: Polled for every order tried.
    """
    height, offsets, _ = min(planner.found, key=lambda one: one[0])
    ranked = sorted((found for found in planner.found if found[2] in planner.orders), key=lambda one: one[0])
    if planner.conflicts is None or not ranked:
        return height, offsets, 0
    tries = min(effort // max(planner.order_steps, 1), _MOST_TRIES * len(planner.blocks)) // min(_STARTS, len(ranked))
    rng = random.Random(seed)  # noqa: S311 - no secret
    tried = 0
    for _, start, method in ranked[:_STARTS]:
        order, tight = planner.orders[method]
        walk = _PackingWalk(planner, goal, order, start, tight=tight)
        for _ in range(tries):
            if height <= goal or (stop is not None and stop()):
                return height, offsets, tried
            walk.step(rng)
            tried += 1
            if walk.height < height:
                height, offsets = walk.height, walk.offsets
    return height, offsets, tried


class _PackingWalk:
    """One walk over orders; ``height`` and ``offsets`` are those of the order it is at."""

    def __init__(
        self, planner: GreedyPlanner, goal: int, order: Sequence[int], offsets: list[int], *, tight: bool
    ) -> None:
        self._planner = planner
        self._goal = goal
        self._tight = tight
        self._order = list(order)
        self.offsets = offsets
        self.height, excess = self._cost(offsets)
        self._kept = [(self.height, excess)] * _HISTORY
        self._steps = 0

    def _cost(self, offsets: Sequence[int]) -> tuple[int, int]:
        ends = [offset + size for offset, size in zip(offsets, self._planner.sizes, strict=True)]
        return max(ends, default=0), sum([end - self._goal for end in ends if end > self._goal])

    def step(self, rng: random.Random) -> None:
        """Try one change of the order."""
        order = self._changed(rng)
        if order is None:
            return
        offsets = self._planner.in_order(order, tight=self._tight)
        cost = self._cost(offsets)
        now = self._steps % _HISTORY
        if cost <= self._kept[now] or cost <= self._kept[now - 1]:
            self._order, self.offsets, self.height = order, offsets, cost[0]
            self._kept[now] = cost
        else:
            self._kept[now] = self._kept[now - 1]
        self._steps += 1

    def _changed(self, rng: random.Random) -> list[int] | None:
        sizes, offsets, planner = self._planner.sizes, self.offsets, self._planner
        places = {index: place for place, index in enumerate(self._order)}
        above = [index for index in self._order if offsets[index] + sizes[index] > self._goal]
        if not above or planner.conflicts is None:
            return None
        index = rng.choice(above)
        # Half of the time, what it rests on is in the way.
        while rng.random() < 0.5:
            near = planner.conflicts.neighbours(index)
            below = [other for other in near if other in places and offsets[other] < offsets[index]]
            if not below:
                break
            index = rng.choice(below)
        place = places[index]
        order = self._order[:place] + self._order[place + 1 :]
        earlier = rng.randrange(place) if place and rng.random() < 0.8 else rng.randrange(len(order) + 1)
        order.insert(earlier, index)
        return order
