"""Orders for sessions that hand dead buffers on: the least peak by `reuse`, among good orders.

There the peak is not a matter of which ops were executed alone, so the exact search's argument does not hold. Orders
found otherwise are tried as they are; the best are then changed op by op in a seeded local search. The optimum of
liveness alone is a lower bound: handing on never lowers a peak.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from memsched.base.frozen import FrozenValue
from memsched.runtimes.onnxruntime.reuse import PlannerGraph, ReuseProfile, simulate_reuse

__all__ = ["ReuseOrder", "least_with_reuse"]

_STARTS = 3
_NEAR_PEAK = 0.7


class ReuseOrder(FrozenValue, frozen=True):
    """An order and what it costs when dead buffers are handed on, bytes."""

    order: tuple[int, ...]
    peak: int


def least_with_reuse(
    planned: PlannerGraph,
    candidates: Sequence[Sequence[int]],
    *,
    lower_bound: int = 0,
    effort: int = 200_000,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> ReuseOrder:
    """Return the best order found; never worse than any of ``candidates``, the first of equals.

    Args:
        candidates: Topological orders of all ops, one or more.
        lower_bound: Bytes below which nothing need be tried.
        effort: Ops to simulate in all: 200,000 take about a third of a second.
        stop: Polled often; True ends the search with the best order so far.
    """
    known = dict.fromkeys(tuple(order) for order in candidates)
    starts = [(simulate_reuse(planned, order), order) for order in known]
    starts.sort(key=lambda start: start[0].peak)  # stable: the first of equals stays first
    best = ReuseOrder(starts[0][1], starts[0][0].peak)
    rng = random.Random(seed)  # noqa: S311 - a search, no secret
    left = effort // max(1, len(best.order)) - len(starts)
    for number, (profile, order) in enumerate(starts[:_STARTS]):
        share = left // (min(_STARTS, len(starts)) - number)
        left -= share
        walk = _ReuseWalk(planned, list(order), profile)
        while share > 0 and best.peak > lower_bound and not stop():
            share -= 1
            walk.step(rng)
            if walk.profile.peak < best.peak:
                best = ReuseOrder(tuple(walk.order), walk.profile.peak)
    return best


class _ReuseWalk:
    """A local search that moves one run of ops at a time and never climbs."""

    def __init__(self, planned: PlannerGraph, order: list[int], profile: ReuseProfile) -> None:
        self.planned, self.order, self.profile = planned, order, profile

    def step(self, rng: random.Random) -> None:
        count = len(self.order)
        if count < 2:
            return
        if rng.random() < _NEAR_PEAK:
            # Most moves far from the peak change nothing.
            peak = self.profile.footprints.index(self.profile.peak)
            at = min(max(peak + rng.randint(-8, 8), 0), count - 1)
        else:
            at = rng.randrange(count)
        length = min(rng.choice((1, 1, 1, 2, 3, 5, 8)), count - at)
        low, high = self._range(at, length)
        if low == high:
            return
        to = rng.randint(low, high - 1)
        to += to >= at
        run = self.order[at : at + length]
        rest = self.order[:at] + self.order[at + length :]
        order = rest[:to] + run + rest[to:]
        profile = simulate_reuse(self.planned, order)
        if profile.peak <= self.profile.peak:
            self.order, self.profile = order, profile

    def _range(self, at: int, length: int) -> tuple[int, int]:
        """Return the first and the last place to which the run of ``length`` ops at ``at`` can be moved."""
        storage, order = self.planned.storage, self.order
        run = order[at : at + length]
        before = {op for moved in run for op in storage.preds[moved]}
        after = {op for moved in run for op in storage.succs[moved]}
        low = at
        while low and order[low - 1] not in before:
            low -= 1
        high = at
        while high + length < len(order) and order[high + length] not in after:
            high += 1
        return low, high
