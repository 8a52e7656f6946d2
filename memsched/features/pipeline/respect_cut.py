"""The cut of an order into stages: rho of RESPECT (section III-B, equation 2), which the paper leaves open.

Here it is the best contiguous cut: of all ways to cut the order into so many runs, the one of the least peak of
parameters, then of the least communication. Exact for the order, by dynamic programming over pairs of places.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from memsched.base.frozen import FrozenValue
from memsched.base.units import MOST_BYTES
from memsched.features.pipeline.condense import Condensation, Loads

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Integers = NDArray[int64]

__all__ = ["MOST_STAGES", "best_cut"]

MOST_STAGES = 256
"""Stages beyond which the dynamic program would take too long."""

_MOST_PLACES = 1024
"""Places in an order that are tried for cuts; of longer orders, those at even steps of parameters and of length."""


class _StageCosts(FrozenValue, frozen=True):
    """What a stage from one place of the order to a later one costs.

    Attributes:
        loads: Parameters, [end, begin]; ``MOST_BYTES`` where a cut was asked for in between.
        moves: Bytes that it receives from other stages, [end, begin].
    """

    loads: Integers
    moves: Integers


def best_cut(condensed: Condensation, loads: Loads, order: Sequence[int], count: int) -> list[int] | None:
    """Return the stage of each group where ``order`` is cut into ``count`` runs; None if requested cuts forbid it.

    Of equally good cuts, the one whose last stage begins earliest, then the one before it.

    Args:
        order: Groups, each after those that it needs.
        count: At most the number of groups, and ``MOST_STAGES``.
    """
    places = _places(condensed, loads, order)
    runs = _runs(condensed, loads, order, places)
    begins = _begins(runs, count)
    if begins is None:
        return None
    result = [0] * len(order)
    for stage, (begin, end) in enumerate(zip(begins, [*begins[1:], len(places) - 1], strict=True)):
        for group in order[places[begin] : places[end]]:
            result[group] = stage
    return result


def _places(condensed: Condensation, loads: Loads, order: Sequence[int]) -> list[int]:
    """Return where a stage may begin or end, ascending, from 0 to the length of the order.

    The first place behind each cut that was requested, one after the other, is always among them.
    """
    length = len(order)
    if length <= _MOST_PLACES:
        return list(range(length + 1))
    half = _MOST_PLACES // 2
    found = {length * step // half for step in range(half + 1)}
    levels = condensed.levels()
    step = max(sum(loads.weights) // half, 1)
    highest, sums = 0, 0
    for place, group in enumerate(order):
        if levels[group] > highest:
            highest = levels[group]
            found.add(place)
        sums += loads.weights[group]
        if sums // step != (sums - loads.weights[group]) // step:
            found.update((place, place + 1))
    return sorted(found)


def _runs(condensed: Condensation, loads: Loads, order: Sequence[int], places: Sequence[int]) -> _StageCosts:
    """Return the costs of all runs, step by step along the order.

    A row holds, per place to begin at, what the run up to here costs. What a run counts once is added only for
    begins behind its last appearance.
    """
    import numpy as np

    # Sizes that 60 bits cannot hold are compared coarsely instead of overflowing.
    total = sum(loads.weights) + sum([size * len(groups) for size, groups in loads.shared])
    traffic = sum([flow.size * (MOST_STAGES if condensed.through else len(flow.readers)) for flow in condensed.flows])
    less, fewer = (max(0, amount.bit_length() - 58) for amount in (total, traffic))
    rank = {place: index for index, place in enumerate(places)}
    # Per place of the order: the first allowed begin behind it.
    behind = np.searchsorted(np.array(places), np.arange(len(order)), side="right")
    position = [0] * len(order)
    for place, group in enumerate(order):
        position[group] = place
    shared = _appearances([(size, groups) for size, groups in loads.shared], position)
    through = condensed.through
    flows = () if through else condensed.flows
    reads = _appearances([(flow.size, (flow.producer, *flow.readers)) for flow in flows], position)
    handed = _handed(condensed, position, places, fewer) if through else None
    barriers = [-1] * len(order)
    for before, after in condensed.strict:
        barriers[position[after]] = max(barriers[position[after]], position[before])
    load_row, move_row = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    result = _StageCosts(
        np.full((len(places), len(places)), MOST_BYTES), np.zeros((len(places), len(places)), np.int64)
    )
    allowed = 0
    for place, group in enumerate(order):
        here = behind[place]
        load_row[:here] += loads.weights[group] >> less
        for last, size in shared[place]:
            load_row[0 if last < 0 else behind[last] : here] += size >> less
        for last, size in reads[place]:
            # The first appearance is the producer, which receives nothing.
            if last >= 0:
                move_row[behind[last] : here] += size >> fewer
        if barriers[place] >= 0:
            allowed = max(allowed, int(behind[barriers[place]]))
        end = rank.get(place + 1)
        if end is not None:
            result.loads[end, allowed:end] = load_row[allowed:end]
            result.moves[end, :end] = move_row[:end] if handed is None else handed[:end]
    return result


def _handed(condensed: Condensation, position: Sequence[int], places: Sequence[int], fewer: int) -> Integers:
    """Return for each of ``places`` of the order what is handed over a boundary there, ``fewer`` bits left out."""
    import numpy as np

    change = [0] * (len(position) + 2)
    for flow in condensed.flows:
        last = max([position[reader] for reader in flow.readers], default=-1)
        change[position[flow.producer] + 1] += flow.size
        change[(len(position) if flow.to_end else last) + 1] -= flow.size
    sums = list(accumulate(change))
    return np.array([sums[place] >> fewer for place in places], np.int64)


def _appearances(
    counted: Sequence[tuple[int, tuple[int, ...]]], position: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """Return per place of the order (place where it appeared last or -1, size) of what appears there."""
    result: list[list[tuple[int, int]]] = [[] for _ in position]
    for size, groups in counted:
        last = -1
        for place in sorted([position[group] for group in groups]):
            result[place].append((last, size))
            last = place
    return result


def _begins(runs: _StageCosts, count: int) -> list[int] | None:
    """Return the index of the place at which each stage begins: the least peak, then the least communication."""
    import numpy as np

    length = len(runs.loads)
    peaks = np.full((count + 1, length), MOST_BYTES)
    peaks[0, 0] = 0
    for end in range(1, length):
        peaks[1:, end] = np.maximum(peaks[:-1, :end], runs.loads[end, :end]).min(1)
    peak = peaks[count, -1]
    if peak >= MOST_BYTES:
        return None
    costs = np.full((count + 1, length), MOST_BYTES)
    costs[0, 0] = 0
    came = np.zeros((count + 1, length), np.int64)
    for end in range(1, length):
        within = np.where(runs.loads[end, :end] <= peak, runs.moves[end, :end], MOST_BYTES)
        reached = np.minimum(costs[:-1, :end] + within, MOST_BYTES)
        came[1:, end] = reached.argmin(1)
        costs[1:, end] = reached.min(1)
    begins = [length - 1]
    for stage in range(count, 0, -1):
        begins.append(int(came[stage, begins[-1]]))
    return begins[:0:-1]
