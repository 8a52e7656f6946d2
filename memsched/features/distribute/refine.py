"""Local search over bounds: boundaries of ops move by a few units, several at once, while the plan gets faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memsched.features.distribute.plan import Blocks
from memsched.features.distribute.population import Population
from memsched.features.distribute.space import Space
from memsched.graph.distribution import Share
from memsched.targets.cluster import Cluster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

__all__ = ["bounds_of", "refined", "shares_of"]

_BATCH = 128
_MOST_ENTRIES = 1 << 22
"""Most entries of a batch's arrays: plans x ops x devices."""
_STEPS = (1, 2, 4, 8)
_LEAST_GAIN = 2e-4
"""Relative gain of a round below which smaller moves are tried."""


def bounds_of(shares: Sequence[Share]) -> Integers:
    """Return the bounds of shares as an array [1, position, device + 1]."""
    import numpy as np

    return np.array([[share.bounds for share in shares]], dtype=np.int64)


def shares_of(space: Space, population: Population, bounds: Integers) -> tuple[Share, ...]:
    """Return the shares of bounds [position, device + 1]."""
    return tuple(
        Share(op, axis, tuple(int(bound) for bound in row))
        for op, axis, row in zip(space.order, population.axes, bounds, strict=True)
    )


def refined(
    space: Space,
    shares: Sequence[Share],
    cluster: Cluster,
    blocks: Blocks | None,
    *,
    home: int = 0,
    stop: Callable[[], bool],
) -> tuple[Share, ...]:
    """Return shares along the same axes that are no slower, and that fit wherever the given ones do.

    A move shifts one boundary of a run of ops that have the same bounds. All moves are evaluated one by one, then the
    best of them together, half of these, and so on.
    """
    import numpy as np

    population = Population(space, cluster, [share.axis for share in shares], blocks, home)
    limits = np.array([device.memory for device in cluster.devices])
    current = bounds_of(shares)[0]
    width = max(1, min(_BATCH, _MOST_ENTRIES // current.size))

    def score(plans: Integers) -> NDArray[np.float64]:
        found = population.evaluate(plans)
        return np.where((found.memory > limits).any(axis=1), np.inf, found.latency)

    best = float(score(current[None])[0])
    for step in reversed(_STEPS):
        while not stop():
            moves = _moves(space, population, current, step)
            gains = np.full(len(moves), -np.inf)
            for begin in range(0, len(moves), width):
                if stop():
                    break
                batch = moves[begin : begin + width]
                gains[begin : begin + len(batch)] = best - score(
                    np.array([_moved(space, population, current, [move]) for move in batch])
                )
            order = [int(place) for place in np.argsort(-gains, kind="stable") if gains[place] > 1e-12 * best]
            if not order:
                break
            counts = sorted({max(1, len(order) >> shift) for shift in range(12)})
            plans = np.array(
                [_moved(space, population, current, [moves[place] for place in order[:count]]) for count in counts]
            )
            scores = score(plans)
            winner = int(np.argmin(scores))
            if not scores[winner] < best:
                break
            little = scores[winner] > best * (1 - _LEAST_GAIN)
            current, best = plans[winner], float(scores[winner])
            if little:
                break
    return shares_of(space, population, current)


_Move = tuple[int, int, int, int]
"""(first position, end, boundary, units by which it moves)."""


def _moves(space: Space, population: Population, bounds: Integers, step: int) -> list[_Move]:
    """Return the moves of every op, and of every run of ops with the same bounds."""
    result: list[_Move] = []
    count, edges = bounds.shape
    start = 0
    for position in range(1, count + 1):
        same = (
            position < count
            and population.axes[position] == population.axes[start]
            and (bounds[position] == bounds[start]).all()
        )
        if same:
            continue
        spans = [(start, position)]
        if position - start > 1:
            spans.extend((place, place + 1) for place in range(start, position))
        for first, stop in spans:
            units = space.divisions[first][population.axes[first]].units
            if units >= edges - 1 or units > 1:
                result.extend(
                    (first, stop, boundary, change) for boundary in range(1, edges - 1) for change in (-step, step)
                )
        start = position
    return result


def _moved(space: Space, population: Population, bounds: Integers, moves: Sequence[_Move]) -> Integers:
    """Return bounds after moves; a boundary takes those with it that it would pass."""
    import numpy as np

    result: Integers = bounds.copy()
    for first, stop, boundary, change in moves:
        for position in range(first, stop):
            division = space.divisions[position][population.axes[position]]
            unit = division.unit_of(int(result[position, boundary])) + change
            bound = division.bound_of(min(max(unit, 0), division.units))
            row = result[position]
            row[boundary] = bound
            np.minimum(row[:boundary], bound, out=row[:boundary])
            np.maximum(row[boundary:], bound, out=row[boundary:])
    return result
