"""Local search on sequences with repetitions: take some repetitions out, put others in, keep what is better."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from memsched.rewrites.recompute.greedy import GreedyResult, reduce_to
from memsched.rewrites.recompute.trace import Tracer

__all__ = ["improve", "prune"]


def prune(tracer: Tracer, sequence: Sequence[int], peak: int) -> tuple[int, ...]:
    """Return ``sequence`` without repetitions that its peak does not need, the dearest out first.

    Args:
        peak: Bytes that the peak may have.
    """
    best = tuple(sequence)
    tried: set[tuple[int, int]] = set()
    while True:
        steps = tracer.repetitions(best)
        runs: dict[int, int] = {}
        left = []
        for step in steps:
            op = best[step]
            runs[op] = runs.get(op, 0) + 1
            if (op, runs[op]) not in tried:
                left.append((-tracer.costs[op], step, (op, runs[op])))
        if not left:
            return best
        _, step, key = min(left)
        tried.add(key)
        shorter = tuple(tracer.needed((*best[:step], *best[step + 1 :])))
        if tracer.run(shorter).peak <= peak:
            best = shorter


def improve(
    tracer: Tracer,
    start: GreedyResult,
    budget: int,
    *,
    seed: int = 0,
    most_steps: int = 20_000_000,
    most_rounds: int = 200,
    most_cost: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_point: Callable[[GreedyResult], None] = lambda _: None,
) -> GreedyResult:
    """Return a sequence no worse than ``start``: nearer to the budget, or at the budget at a lower cost.

    Each round takes out some repetitions, near to each other or anywhere, and lets the greedy meet the budget again
    with its choices disturbed.

    Args:
        most_steps: Steps to execute in all, so that the result does not depend on the machine's speed.
        most_rounds: End after so many rounds without a better sequence.
        most_cost: Sequences that cost more are of no interest.
        on_point: Called with each better sequence.
    """
    rng = random.Random(seed)  # noqa: S311 - to try orders, not to hide anything
    end = tracer.steps + most_steps
    best = _pruned(tracer, start, budget)
    if best != start:
        on_point(best)
    current = best
    idle = 0
    while tracer.steps < end and idle < most_rounds and not stop() and not (best.peak <= budget and not best.cost):
        idle += 1
        limit = current.cost if current.peak <= budget else most_cost
        base = _without_some(tracer, current.sequence, rng)
        found = reduce_to(tracer, base, budget, most_cost=limit, rng=rng, stop=lambda: stop() or tracer.steps >= end)
        found = _pruned(tracer, found, budget)
        if most_cost is not None and found.cost > most_cost:
            continue
        if _key(found, budget) <= _key(current, budget):
            current = found
        if _key(found, budget) < _key(best, budget):
            best, idle = found, 0
            on_point(best)
    return best


def _key(one: GreedyResult, budget: int) -> tuple[int, int]:
    return max(one.peak, budget), one.cost


def _pruned(tracer: Tracer, one: GreedyResult, budget: int) -> GreedyResult:
    sequence = prune(tracer, one.sequence, max(one.peak, budget))
    return GreedyResult(sequence, tracer.run(sequence).peak, tracer.cost(sequence))


def _without_some(tracer: Tracer, sequence: Sequence[int], rng: random.Random) -> tuple[int, ...]:
    """Return ``sequence`` without some repetitions: those of a stretch, or a few anywhere."""
    steps = tracer.repetitions(sequence)
    if not steps:
        return tuple(sequence)
    if rng.random() < 0.6:
        count = rng.randint(1, min(len(steps), 12))
        first = rng.randrange(len(steps) - count + 1)
        gone = set(steps[first : first + count])
    else:
        gone = set(rng.sample(steps, min(len(steps), rng.randint(1, 4))))
    return tuple(tracer.needed([op for step, op in enumerate(sequence) if step not in gone]))
