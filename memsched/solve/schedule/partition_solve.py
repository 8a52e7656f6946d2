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
from memsched.solve.schedule.partition import cut_bytes, partition

__all__ = ["PartReport", "PartitionReport", "solve_partitioned"]

# How far stages may be off equal shares, in turn: looser balance gives better cuts, and stages of up to 2.5 shares.
_BALANCES = (0.5, 0.9, 1.5)
_ROUNDS = 4
# What one stage may be large without a search of it becoming hopeless.
_TASKS_PER_PART = 64
_WINDOW_SHARE = 10


class PartReport(FrozenValue, frozen=True):
    """One stage.

    Attributes:
        tasks: How many it has.
        peak_before: Of the order known before, bytes.
        peak: Of the order that it has now, bytes.
        residue: After it, bytes.
        states: Downsets that its search expanded; 0 where the order known before was good enough.
        complete: Whether its peak is proven least for this stage, or need not be lower.
    """

    tasks: int
    peak_before: int
    peak: int
    residue: int
    states: int
    complete: bool


class PartitionReport(FrozenValue, frozen=True):
    """What partitioning gave.

    Attributes:
        peak: Of the order returned, bytes.
        parts: The stages behind that order; empty when no partition beat the order known before.
        cut: Bytes live across the boundaries between them, summed.
        attempts: Partitions tried.
        states: Downsets expanded in all attempts.
        complete: Whether every attempt finished.
    """

    peak: int
    parts: tuple[PartReport, ...]
    cut: int
    attempts: int
    states: int
    complete: bool


def solve_partitioned(
    tasks: Tasks,
    parts: int | Literal["auto"],
    order: Sequence[int],
    *,
    lower_bound: int = 0,
    memory_aware: bool = True,
    rounds: int = _ROUNDS,
    max_states: int = 200_000,
    most_attempts: float = math.inf,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
    states_left: Callable[[int], float] = lambda _: math.inf,
    on_states: Callable[[int, int], None] = lambda _states, _tasks: None,
    on_order: Callable[[tuple[int, ...], int], None] = lambda _order, _peak: None,
) -> tuple[tuple[int, ...], PartitionReport]:
    """Return an order of ``tasks`` that needs no more than ``order``, and how it was found.

    Args:
        parts: Stages; "auto" derives the number from that of the tasks and tries its neighbours too.
        order: The best order of tasks known.
        lower_bound: Bytes below which nothing need be tried: proven elsewhere, or 0.
        memory_aware: As of `partition`.
        rounds: How often to partition anew along a better order; each round tries several balances. With 0, one
            partition is tried alone.
        max_states: Downsets that the search of one stage may expand.
        most_attempts: Partitions that may be tried.
        seed: As of `partition`.
        stop: Polled often; True ends the search with the best order so far.
        states_left: Returns the downsets that may still be expanded in stages of so many tasks; 0 ends the search.
        on_states: Called with the downsets that a search of a stage expanded, and the tasks of that stage.
        on_order: Called with each better order and its peak, bytes.

    Raises:
        UsageError: ``parts`` is neither "auto" nor a number of 1 or more.
    """
    if parts != "auto" and parts < 1:
        raise UsageError(f"--partitions {parts} is not possible", code="option-range", action="give 1 or more, or auto")

    def over() -> bool:
        return stop() or not states_left(len(tasks))

    solver = _PartitionSolver(tasks, order, lower_bound, max_states, over, states_left, on_states, on_order)
    for count in _counts(len(tasks)) if parts == "auto" else (parts,):
        for groups in _partitions(solver, count, memory_aware, rounds, seed):
            if not solver.try_groups(groups) or solver.done() or solver.attempts >= most_attempts:
                break
        if solver.done() or solver.attempts >= most_attempts:
            break
    return solver.order, solver.report()


def _counts(tasks: int) -> tuple[int, ...]:
    base = max(1, -(-tasks // _TASKS_PER_PART))
    counts = (base, base + 1, base - 1, 2 * base)
    return tuple(dict.fromkeys(count for count in counts if 1 <= count <= max(1, tasks)))


def _partitions(
    solver: _PartitionSolver, parts: int, memory_aware: bool, rounds: int, seed: int
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield partitions to try, each once: from cheap orders and along the best order so far, by rising imbalance."""
    tasks = solver.tasks
    if not memory_aware or not rounds or parts == 1:
        yield partition(tasks, parts, seed=seed, memory_aware=memory_aware, stop=solver.stop)
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
        on_order: Callable[[tuple[int, ...], int], None],
    ) -> None:
        self.tasks = tasks
        self.order = tuple(order)
        self._peak = max(tasks.run(order)[0], default=tasks.initial)
        self._lower_bound = lower_bound
        self._max_states = max_states
        self.stop = stop
        self._states_left = states_left
        self._on_states = on_states
        self._on_order = on_order
        self._parts: tuple[PartReport, ...] = ()
        self._cut = self.attempts = self._states = 0
        self._complete = True

    def done(self) -> bool:
        return self._peak <= self._lower_bound or self.stop()

    def report(self) -> PartitionReport:
        return PartitionReport(self._peak, self._parts, self._cut, self.attempts, self._states, self._complete)

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
        found: dict[int, PartReport] = {}
        floor = self._lower_bound
        for stage in sorted(range(len(groups)), key=lambda stage: (-before[stage], stage)):
            part = ranges[stage]
            if before[stage] <= floor:
                break
            start = residues[part.start - 1] if part.start else self.tasks.initial
            members = whole[part.start : part.stop]
            ordered, report = self._solve(members, _StagePrefix(stages, stage), start, before[stage], floor)
            if report.peak >= self._peak:
                return not self.stop()
            whole[part.start : part.stop] = ordered
            found[stage] = report
            floor = max(floor, report.peak)
        parts = [
            found.get(stage) or PartReport(len(part), before[stage], before[stage], residues[part.stop - 1], 0, True)
            for stage, part in enumerate(ranges)
        ]
        self._offer(tuple(whole), tuple(parts), groups)
        return not self.stop()

    def _solve(
        self, members: list[int], executed: _StagePrefix, residue: int, peak_before: int, floor: int
    ) -> tuple[list[int], PartReport]:
        """Return the members of a stage in a better order where there is one below the peak so far, and its report.

        Args:
            floor: Bytes that the whole needs anyway.
        """
        ascending = sorted(members)
        part = restrict(self.tasks, ascending, executed, residue)
        most = int(min(self._max_states, self._states_left(len(members))))
        result = exact.search(part, lower_bound=floor, upper_bound=self._peak, max_states=most, stop=self.stop)
        self._on_states(result.states, len(members))
        states, complete, order = result.states, result.complete, result.order
        if not complete:
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
        self._complete &= complete
        order = order if order is not None else tuple(ascending.index(task) for task in members)
        footprints, residues = part.run(order)
        report = PartReport(len(members), peak_before, max(footprints), residues[-1], states, complete)
        return [ascending[index] for index in order], report

    def _offer(self, order: tuple[int, ...], parts: tuple[PartReport, ...], groups: Sequence[Sequence[int]]) -> None:
        peak = max(self.tasks.run(order)[0], default=self.tasks.initial)
        if peak < self._peak:
            self.order, self._peak, self._parts = order, peak, parts
            self._cut = cut_bytes(self.tasks, groups)
            self._on_order(order, peak)
