"""Ordering the stages of a partition one by one, and judging the whole that they make.

Source: "Iterative Graph Optimization", Algorithm 2.

Only stages that can set the peak are searched; the others keep the order that was known before. Each attempt either
beats the best order so far or ends at the first stage that cannot, so the result is never worse than what it began
with. It proves nothing about other orders of the whole: a lower bound must come from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Literal

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks, restrict
from memsched.solve.schedule import exact, windows
from memsched.solve.schedule.partition import partition

__all__ = ["PartitionResult", "solve_partitioned"]

# How far stages may be off equal shares, in turn: looser balance gives better cuts, and stages of up to 2.5 shares.
_BALANCES = (0.5, 0.9, 1.5)
_ROUNDS = 4
# What one stage may be large without a search of it becoming hopeless.
_TASKS_PER_PART = 64
_WINDOW_SHARE = 10


class PartitionResult(FrozenValue, frozen=True):
    """What partitioning gave.

    Attributes:
        order: The best order known, which needs no more than the one that was given.
        peak: Of it, bytes.
        attempts: Partitions tried.
        states: Downsets expanded in all attempts.
    """

    order: tuple[int, ...]
    peak: int
    attempts: int
    states: int


def solve_partitioned(
    tasks: Tasks,
    parts: int | Literal["auto"],
    order: Sequence[int],
    *,
    lower_bound: int = 0,
    rounds: int = _ROUNDS,
    max_states: int = 200_000,
    most_attempts: float = math.inf,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
    states_left: Callable[[int], float] = lambda _: math.inf,
    on_states: Callable[[int, int], None] = lambda _states, _tasks: None,
) -> PartitionResult:
    """Return an order of ``tasks`` that needs no more than ``order``, and how it was found.

    Args:
        parts: Stages; "auto" derives the number from that of the tasks and tries its neighbours too.
        order: The best order of tasks known.
        lower_bound: Bytes below which nothing need be tried: proven elsewhere, or 0.
        rounds: How often to partition anew along a better order; each round tries several balances. With 0, one
            partition is tried alone.
        max_states: Downsets that the search of one stage may expand.
        most_attempts: Partitions that may be tried.
        seed: As of `partition`.
        stop: Polled often; True ends the search with the best order so far.
        states_left: Returns the downsets that may still be expanded in stages of so many tasks; 0 ends the search.
        on_states: Called with the downsets that a search of a stage expanded, and the tasks of that stage.

    Raises:
        UsageError: ``parts`` is neither "auto" nor a number of 1 or more.
    """
    if parts != "auto" and parts < 1:
        raise UsageError(f"--partitions {parts} is not possible", code="option-range", action="give 1 or more, or auto")

    def over() -> bool:
        return stop() or not states_left(len(tasks))

    solver = _PartitionSolver(tasks, order, lower_bound, max_states, over, states_left, on_states)
    for count in _counts(len(tasks)) if parts == "auto" else (parts,):
        for groups in _partitions(solver, count, rounds, seed):
            if not solver.try_groups(groups) or solver.done() or solver.attempts >= most_attempts:
                break
        if solver.done() or solver.attempts >= most_attempts:
            break
    return solver.result()


def _counts(tasks: int) -> tuple[int, ...]:
    base = max(1, -(-tasks // _TASKS_PER_PART))
    counts = (base, base + 1, base - 1, 2 * base)
    return tuple(dict.fromkeys(count for count in counts if 1 <= count <= max(1, tasks)))


def _partitions(solver: _PartitionSolver, parts: int, rounds: int, seed: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield partitions to try, each once: from cheap orders and along the best order so far, by rising imbalance."""
    tasks = solver.tasks
    if not rounds or parts == 1:
        yield partition(tasks, parts, seed=seed, stop=solver.stop)
        return
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for turn in range(rounds):
        begun_with = solver.order
        for epsilon in _BALANCES:
            for order in (None, solver.order) if not turn else (solver.order,):
                groups = partition(tasks, parts, seed=seed + turn, epsilon=epsilon, order=order, stop=solver.stop)
                if groups not in seen:
                    seen.add(groups)
                    yield groups
        if solver.order == begun_with:
            return


class _StagePrefix(FrozenValue, frozen=True):
    """The tasks of the stages before ``stage``."""

    stages: Sequence[int]
    stage: int

    def __contains__(self, task: object) -> bool:
        return isinstance(task, int) and self.stages[task] < self.stage


class _PartitionSolver:
    """The best order so far and what it took."""

    def __init__(
        self,
        tasks: Tasks,
        order: Sequence[int],
        lower_bound: int,
        max_states: int,
        stop: Callable[[], bool],
        states_left: Callable[[int], float],
        on_states: Callable[[int, int], None],
    ) -> None:
        self.tasks = tasks
        self.order = tuple(order)
        self._peak = max(tasks.run(order)[0], default=tasks.initial)
        self._lower_bound = lower_bound
        self._max_states = max_states
        self.stop = stop
        self._states_left = states_left
        self._on_states = on_states
        self.attempts = self._states = 0

    def done(self) -> bool:
        return self._peak <= self._lower_bound or self.stop()

    def result(self) -> PartitionResult:
        return PartitionResult(self.order, self._peak, self.attempts, self._states)

    def try_groups(self, groups: Sequence[Sequence[int]]) -> bool:
        """Order the stages; False when it is time to stop."""
        self.attempts += 1
        stages = [0] * len(self.tasks)
        for stage, group in enumerate(groups):
            for task in group:
                stages[task] = stage
        # Stable: within a stage the tasks keep the best order known.
        whole = sorted(self.order, key=lambda task: stages[task])
        footprints, residues = self.tasks.run(whole)
        ends = list(accumulate(len(group) for group in groups))
        ranges = [range(end - len(group), end) for end, group in zip(ends, groups, strict=True)]
        before = [max(footprints[part.start : part.stop]) for part in ranges]
        floor = self._lower_bound
        for stage in sorted(range(len(groups)), key=lambda stage: (-before[stage], stage)):
            part = ranges[stage]
            if before[stage] <= floor:
                break
            start = residues[part.start - 1] if part.start else self.tasks.initial
            members = whole[part.start : part.stop]
            ordered, peak = self._solve(members, _StagePrefix(stages, stage), start, floor)
            if peak >= self._peak:
                return not self.stop()
            whole[part.start : part.stop] = ordered
            floor = max(floor, peak)
        peak = max(self.tasks.run(whole)[0], default=self.tasks.initial)
        if peak < self._peak:
            self.order, self._peak = tuple(whole), peak
        return not self.stop()

    def _solve(self, members: list[int], executed: _StagePrefix, residue: int, floor: int) -> tuple[list[int], int]:
        """Return the members of a stage in a better order where there is one below the peak so far, and its peak.

        Args:
            floor: Bytes that the whole needs anyway.
        """
        ascending = sorted(members)
        part = restrict(self.tasks, ascending, executed, residue)
        most = int(min(self._max_states, self._states_left(len(members))))
        result = exact.search(part, lower_bound=floor, upper_bound=self._peak, max_states=most, stop=self.stop)
        self._on_states(result.states, len(members))
        states, order = result.states, result.order
        if not result.complete:
            local = {task: index for index, task in enumerate(ascending)}
            improved = windows.improve(
                part,
                [local[task] for task in members],
                lower_bound=floor,
                states_per_window=max(1, most // _WINDOW_SHARE),
                stop=self.stop,
                on_states=lambda states: self._on_states(states, len(members)),
            )
            states, order = states + improved.states, improved.order
        self._states += states
        order = order if order is not None else tuple(ascending.index(task) for task in members)
        return [ascending[index] for index in order], max(part.run(order)[0])
