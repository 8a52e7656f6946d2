"""Stage schedules where a stage's cost is not a sum over its layers: exact in small networks, else by refinement.

Where all places to cut can be listed and priced, the dynamic program over them is exact. Elsewhere it runs over some
places of one topological order, then over those near the cuts that it chose, until all of their neighbours have been
looked at.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.features.pipeline.boundaries import Boundaries, ExhaustedError, all_places
from memsched.features.pipeline.condense import Condensation
from memsched.features.pipeline.heuristic import cutting_order
from memsched.features.pipeline.prices import MemoryPrice, TimePrice

__all__ = ["ONLY_ONE", "PricedStages", "solve"]

ONLY_ONE = "one stage for everything, or one for each group of layers"
"""The proof where all schedules are alike."""

_COARSE_PLACES = 40
"""Places of an order that one round of the refinement looks at."""


class PricedStages(FrozenValue, frozen=True):
    """Stages of groups with what is proven of them."""

    stages: Sequence[int]
    objective: int
    lower_bound: int
    communication_bound: int
    proof: str


def solve(
    condensed: Condensation,
    price: TimePrice | MemoryPrice,
    starts: Iterable[Sequence[int]],
    count: int,
    *,
    most_places: int,
    most_prices: float = math.inf,
    deadline: float,
) -> PricedStages:
    """Return the schedule whose dearest stage is cheapest, and of those one that communicates least.

    Args:
        starts: Schedules that are known.
        most_places: With at most so many places to cut, all stages between them are priced.
        most_prices: Most stages that are priced.
        deadline: A time of `time.monotonic`.
    """
    known = [(dearest(price, stages, count), condensed.communication(stages), tuple(stages)) for stages in starts]
    best = min(known)
    floor = max(-(-sum(price.loads.weights) // count) - price.slack, 0)
    if condensed.alike(count):
        return _proven(price, best, floor, ONLY_ONE)
    priced = itertools.count()

    def timely(before: int, stage: int) -> int:
        if time.monotonic() > deadline or next(priced) >= most_prices:
            raise ExhaustedError
        return price(before, stage)

    places = all_places(condensed, price.loads, most_places)
    if places is not None:
        try:
            best = _search(condensed, price, timely, places, count, floor, best, deadline)
        except ExhaustedError:
            pass
        else:
            proof = f"dynamic program over all {len(places):,} places to cut {len(condensed.groups):,} groups of layers"
            return _proven(price, best, floor, proof)
    best = _refined(condensed, price, timely, count, floor, best, deadline)
    proof = "places to cut of one topological order were searched, others were not"
    if floor:
        proof += "; the bound is an even share of computing and of parameters to be sent"
    return PricedStages(best[2], best[0], min(floor, best[0]), 0, proof)


def _proven(price: TimePrice | MemoryPrice, best: _Known, floor: int, proof: str) -> PricedStages:
    """Return the best of all schedules, which is proven only where all prices are."""
    if price.exact:
        return PricedStages(best[2], best[0], best[0], best[1], proof)
    return PricedStages(
        best[2], best[0], min(floor, best[0]), 0, f"{proof}; the least memory of some stages is not proven"
    )


def dearest(price: TimePrice | MemoryPrice, stages: Sequence[int], count: int) -> int:
    """Return what the dearest stage costs."""
    masks = [0] * count
    for group, stage in enumerate(stages):
        masks[stage] |= 1 << group
    before, result = 0, 0
    for mask in masks:
        result = max(result, price(before, mask))
        before |= mask
    return result


_Known = tuple[int, int, tuple[int, ...]]
"""Cost of the dearest stage, communication, and the stages of groups."""


def _search(
    condensed: Condensation,
    price: TimePrice | MemoryPrice,
    timely: Callable[[int, int], int],
    places: Sequence[tuple[int, int]],
    count: int,
    floor: int,
    best: _Known,
    deadline: float,
) -> _Known:
    """Return the best schedule that ends stages at ``places`` alone, or ``best`` where that is better.

    Raises:
        ExhaustedError: That took too long.
    """
    program = Boundaries(condensed, price.loads, places, price=timely, slack=price.slack)
    peak = program.least_peak(count, floor, best[0], deadline)
    if peak is None:
        return best
    found = program.least_communication(count, peak, deadline, best[1])
    if found is None:
        raise InternalError("the dynamic program lost a schedule that it found")
    return min(best, (peak, found[0], tuple(found[1])))


def _refined(
    condensed: Condensation,
    price: TimePrice | MemoryPrice,
    timely: Callable[[int, int], int],
    count: int,
    floor: int,
    best: _Known,
    deadline: float,
) -> _Known:
    order, forced = cutting_order(condensed)
    stride = max(1, len(order) // _COARSE_PLACES)
    near: set[int] = set(range(0, len(order), stride))
    while True:
        chosen = sorted(near | forced | {0, len(order)} | _ends(best[2], order))
        try:
            places = _masks(order, price.loads.weights, chosen)
            best = _search(condensed, price, timely, places, count, floor, best, deadline)
        except ExhaustedError:
            return best
        if stride == 1:
            return best
        step = max(1, stride // 4)
        near = {
            place
            for end in _ends(best[2], order)
            for place in range(max(end - stride, 0), min(end + stride, len(order)) + 1, step)
        }
        stride = step


def _masks(order: Sequence[int], weights: Sequence[int], places: Sequence[int]) -> list[tuple[int, int]]:
    """Return the groups before each of ``places`` of ``order``, ascending, with their weight."""
    result, mask, weight, begin = [], 0, 0, 0
    for place in places:
        for group in order[begin:place]:
            mask |= 1 << group
            weight += weights[group]
        result.append((mask, weight))
        begin = place
    return result


def _ends(stages: Sequence[int], order: Sequence[int]) -> set[int]:
    """Return the places of ``order`` at which ``stages`` end, as far as they are places of it."""
    latest = list(accumulate([stages[group] for group in order], max))
    earliest = list(accumulate([stages[group] for group in reversed(order)], min))[::-1]
    return {place for place in range(1, len(order)) if latest[place - 1] < earliest[place]}
