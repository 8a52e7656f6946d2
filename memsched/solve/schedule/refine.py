"""The methods of the portfolio in turn: threshold search per segment, windows, dives below the incumbent, CP-SAT.

Each shares what the others found: the incumbent's peak is the bound above which nothing is looked at, and a proven
lower bound is where the threshold starts.

Methods share work, counted in states, and never seconds. Under a limit of time alone they take turns in rounds of
growing work, in which the threshold search goes on where it was: time only says when to end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.core.library import library
from memsched.graph.contraction import Tasks
from memsched.graph.dag import topological_order
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.solve.schedule import backtrack, cpsat, exact, excerpts, windows
from memsched.solve.schedule.bounds import BOUND_TASKS, NECESSARY, necessary_bytes
from memsched.solve.schedule.exact import ExactResult, OrderSearch
from memsched.solve.schedule.parallel import SegmentJob, search_all
from memsched.solve.schedule.partition_solve import solve_partitioned
from memsched.solve.schedule.segments import split

__all__ = ["Incumbent", "RefineEffort", "RefineSearch", "run"]

_EXHAUSTED = "a complete search found no order below it"
_CPSAT = "CP-SAT proved that no order needs less"
_BACKTRACKED = "backtracking over all states that could need less found no order below it"
_FIRST_STATES = 100_000
_WINDOW_STATES = 20_000
"""States of a search of a window; a search that needed fewer gains nothing by processes."""

_EXCERPT_STATES = 40_000
_MOST_STATES = 2_000_000
"""States of one threshold search in all: they take up to 1 GB."""

_COMPILED_STATES = {_FIRST_STATES: 6_000_000, _MOST_STATES: 40_000_000}
"""What these are with the compiled core, where a state takes a tenth of the memory and a hundredth of the time: 2 GB.

A limit of work means the same with and without the core.
"""
_FIRST_WORK = 1.0
_MORE_WORK = 4
"""The work of the first round under a limit of time, and how many times more each round gets than the one before."""

_SHARES = (0.2, 0.25, 0.3, 0.35, 0.55, 0.65, 0.9, 0.95)
_SHARES_IN_ROUNDS = (0.4, 0.5, 0.6, 0.65, 0.85, 0.9, 0.95, 0.99)
"""Shares of the work by which the methods of `_plan` end: in later rounds little but the search finds anything."""

_PROGRAM_WORK = 0.15
_PROGRAM_WORK_IN_ROUNDS = 0.03
_PROGRAM_WORK_COMPILED = 0.008
"""CP-SAT's share of a limit of work, and of the work of a round, most of which is states: these take less time, and
with the compiled core a tenth of that."""

_LEAST_PROGRAM_WORK = 0.5
_SEARCH_EFFORT = 0.2
_SEARCH_EFFORT_IN_ROUNDS = 0.45
"""Share of the work for each threshold search."""

_PARTITIONING_EFFORT = 0.15
"""Share of the work that is done by the end of it for cutting the tasks into stages, and for ordering these."""

_SEARCH_TASKS = 6_000
_EXCERPT_TASKS = 600
"""Tasks up to which a search of a whole segment proves more than excerpts of it do."""


class Incumbent(FrozenValue, frozen=True):
    """The best order of ops so far, its peak in bytes, and the method that found it."""

    order: tuple[int, ...]
    peak: int
    method: str


class RefineSearch(FrozenValue, frozen=True):
    """What a search works on and its callbacks.

    Attributes:
        run: Of all methods together.
        on_order: Offers an order of ops; returns the best one known.
        on_bound: Tells a proven lower bound in bytes, with its proof in words.
    """

    tasks: Tasks
    run: Run
    on_order: Callable[[tuple[int, ...], str], Incumbent]
    on_bound: Callable[[int, str], None]


class ProgramEffort(FrozenValue, frozen=True):
    """What CP-SAT was given, and what it did with it.

    Attributes:
        segments: How many it was given, of ``tasks`` in all.
        peak_before: The whole order's, bytes, as ``peak_after``.
        bound: Bytes that the orders of these segments are known to need.
    """

    segments: int
    tasks: int
    seconds: float
    peak_before: int
    peak_after: int
    bound: int


class RefineEffort(FrozenValue, frozen=True):
    """How much was done.

    Attributes:
        program: None where CP-SAT was not asked.
    """

    states: int
    segments: int
    program: ProgramEffort | None = None


def run(
    search: RefineSearch, best: Incumbent, lower_bound: int, solver: str, partitions: int | Literal["auto"] = "auto"
) -> RefineEffort:
    """Improve ``best`` and the bound until they meet, the time is up or every method has ended.

    Args:
        partitions: The paper's partitioning into so many stages and nothing else; 1: never partition; "auto": where no
            proof is found quickly, into a number derived from that of the tasks.
    """
    parts = split(search.tasks)
    state = _SegmentOrders(search, parts, best, lower_bound)
    state.bounds()
    for part in _rounds(
        search.run, state.most_work(), alone=solver in {"cpsat", "backtrack"} or partitions not in {1, "auto"}
    ):
        state.search = dataclasses.replace(search, run=part)
        for step in _plan(state, solver, partitions):
            if state.done():
                break
            step()
        if state.done():
            break
    return RefineEffort(state.states, len(parts), state.program)


def _rounds(run: Run, most: float, *, alone: bool) -> Iterator[Run]:
    """Yield the run, or rounds of growing work up to ``most`` where it has a limit of time alone.

    Args:
        alone: There is one method, which needs no rounds.
    """
    if alone or run.limits.time_limit is None or run.limits.effort is not None:
        yield run
        return
    work = _FIRST_WORK
    while not run.over():
        yield dataclasses.replace(run, limits=dataclasses.replace(run.limits, effort=work), done_before=run.meter.done)
        if work >= most:
            return
        work *= _MORE_WORK


def _plan(state: _SegmentOrders, solver: str, partitions: int | Literal["auto"]) -> list[Callable[[], None]]:
    """Return the methods in turn, each with the share of the work by which it ends.

    A short search proves most models at once; where it does not, an order near the optimum is worth having first.
    """
    if solver == "cpsat":
        return [partial(state.cpsat, 1.0)]
    if solver == "backtrack":
        return [partial(state.backtrack, 1.0)]
    if partitions not in {1, "auto"}:
        return [partial(state.partitioned, 1.0, partitions)]
    shares = _SHARES_IN_ROUNDS if state.in_rounds else _SHARES
    first, window, excerpt, cut, second, dive, more_windows, more_excerpts = shares
    stages = [partial(state.partitioned, cut, partitions)] if solver == "auto" and partitions == "auto" else []
    improvement = [partial(state.windows, window, _WINDOW_STATES), partial(state.excerpts, excerpt)]
    improvement += [*stages, partial(state.exact, second), partial(state.dive, dive)]
    more = [partial(state.cpsat, _PROGRAM_WORK)] if solver == "auto" else []
    rest = [partial(state.windows, more_windows, 10 * _WINDOW_STATES), partial(state.excerpts, more_excerpts)]
    return [partial(state.exact, first, _FIRST_STATES), *improvement, *more, *rest, partial(state.exact, 1.0)]


class _SegmentOrders:
    """The segments with the best order known for each, and what is proven of them."""

    def __init__(
        self, search: RefineSearch, parts: Sequence[tuple[Tasks, range]], best: Incumbent, lower_bound: int
    ) -> None:
        self.search = search
        self.best = best
        self.lower_bound = lower_bound
        self.states = 0
        self.program: ProgramEffort | None = None
        # The peak that was cut into stages last: what that found then, it finds again.
        self._cut_at: int | None = None
        self._exact: dict[int, OrderSearch] = {}
        self.in_rounds = search.run.limits.effort is None and search.run.limits.time_limit is not None
        self._compiled = search.run.limits.effort is None and library() is not None
        self._parts = [part for part, _ in parts]
        self._numbers = [numbers for _, numbers in parts]
        place = {task: position for position, task in enumerate(_task_order(search.tasks, best.order))}
        self._orders = [
            tuple(sorted(range(len(numbers)), key=lambda local, of=numbers: place[of[local]]))  # type: ignore[misc]
            for numbers in self._numbers
        ]
        self._peaks = [_peak(part, order) for part, order in zip(self._parts, self._orders, strict=True)]
        # Running fused tasks at one go and segments one by one can already be better than the order they came from.
        self._offer_whole(f"{best.method}, by tasks")

    def done(self) -> bool:
        return self.best.peak <= self.lower_bound

    def bounds(self) -> None:
        """Raise the bound to what must be live during one step of a segment."""
        for index in self._open_parts():
            if len(self._parts[index]) <= BOUND_TASKS:
                self._raise(necessary_bytes(self._parts[index]), NECESSARY)

    def most_work(self) -> float:
        """Return the work with which one threshold search of an open segment visits all states that it may."""
        tasks = max((len(self._parts[index]) for index in self._open_parts()), default=0)
        return self._capped(_MOST_STATES) * (tasks + 100) / (_SEARCH_EFFORT_IN_ROUNDS * MachinePace.TASK_STATES)

    def _capped(self, most: int) -> int:
        if self.in_rounds and most == _FIRST_STATES:
            most = _MOST_STATES
        return _COMPILED_STATES.get(most, most) if self._compiled else most

    def _offer(self, part: int, order: tuple[int, ...], method: str) -> None:
        """Keep a segment's order when it is better, and offer the whole that the segments' orders make."""
        peak = _peak(self._parts[part], order)
        if peak >= self._peaks[part]:
            return
        self._peaks[part], self._orders[part] = peak, order
        self._offer_whole(method)

    def _whole(self) -> list[int]:
        """Return the order of all tasks that the segments' orders make."""
        return [numbers[local] for numbers, order in zip(self._numbers, self._orders, strict=True) for local in order]

    def _offer_whole(self, method: str) -> None:
        if max(self._peaks) < self.best.peak:
            self.best = self.search.on_order(self.search.tasks.expand(self._whole()), method)

    def _raise(self, bound: int, proof: str) -> None:
        if bound > self.lower_bound:
            self.lower_bound = min(bound, self.best.peak)
            self.search.on_bound(self.lower_bound, proof)

    def _open_parts(self) -> list[int]:
        """Segments whose order may still set the peak, the most demanding first."""
        open_parts = [index for index, peak in enumerate(self._peaks) if peak > self.lower_bound]
        return sorted(open_parts, key=lambda index: (-self._peaks[index], index))

    def windows(self, share: float, states: int) -> None:
        """Improve the open segments' orders window by window."""
        stop = self.search.run.until(share).over
        for index in self._open_parts():
            result = windows.improve(
                self._parts[index],
                self._orders[index],
                lower_bound=self.lower_bound,
                states_per_window=self._most_states(index, states, share),
                stop=stop,
                on_states=partial(self._spend, index),
            )
            self.states += result.states
            self._offer(index, result.order, "windows")

    def excerpts(self, share: float) -> None:
        """Raise the bound of segments that are too large for a search to what windows of them need by themselves."""
        if max((len(self._parts[index]) for index in self._open_parts()), default=0) <= _EXCERPT_TASKS:
            return
        run = self.search.run

        def spend(states: int, ops: int) -> None:
            run.spend(ops * MachinePace.OP_SECONDS)
            _spend(run, states, ops)

        found = excerpts.raise_bound(
            self.search.tasks.storage,
            self.best.order,
            lower_bound=self.lower_bound,
            states_per_window=_EXCERPT_STATES,
            stop=run.until(share).over,
            on_bound=lambda bound: self._raise(bound, excerpts.EXCERPTS),
            on_states=spend,
        )
        self.states += found.states

    def partitioned(self, share: float, partitions: int | Literal["auto"]) -> None:
        """Cut all tasks into stages at moments of low residue, and order the stages that can set the peak."""
        tasks = self.search.tasks
        if partitions == "auto" and (len(tasks) > _SEARCH_TASKS or self._cut_at == self.best.peak):
            return
        run, most = self.search.run.until(share), math.inf
        if run.limits.effort is not None:
            run = run.within(_PARTITIONING_EFFORT)
            most = int((run.effort() or 0.0) * MachinePace.CUT_TASKS / max(1, len(tasks)))
            if partitions == "auto" and not most:
                return
        found = solve_partitioned(
            tasks,
            partitions,
            self._whole(),
            lower_bound=self.lower_bound,
            most_attempts=most,
            seed=run.limits.seed,
            stop=run.over,
            states_left=partial(_states_left, run),
            on_states=partial(_spend, run),
        )
        self.states += found.states
        # With more work it would go on.
        self._cut_at = self.best.peak if self.in_rounds and _states_left(run, len(tasks)) else None
        run.spend(found.attempts * len(tasks) / MachinePace.CUT_TASKS)
        # Separating tasks keep their places in every order, so each segment's part of the order is contiguous.
        for index, numbers in enumerate(self._numbers):
            inner = found.order[numbers.start : numbers.stop]
            self._offer(index, tuple(task - numbers.start for task in inner), "partitioning")

    def exact(self, share: float, max_states: int = _MOST_STATES) -> None:
        """Search each open segment completely: the most demanding first, the others with what it proved.

        The bounds of the others are then fixed, so that they can be searched side by side with the same results.
        """
        stop = self.search.run.until(share).over
        searchable = [index for index in self._open_parts() if len(self._parts[index]) <= _SEARCH_TASKS]
        if not searchable or stop():
            return
        first, *others = searchable
        known = self._exact.pop(first, None) or OrderSearch(self._parts[first])
        # One search is kept: what it has seen needs memory.
        self._exact = {first: known}
        result = known.run(
            lower_bound=self.lower_bound,
            upper_bound=self.best.peak,
            max_states=min(self._most_states(first, max_states, share), self._capped(_MOST_STATES) - known.states),
            stop=stop,
            on_bound=lambda bound: self._raise(bound, _EXHAUSTED),
        )
        self._take(first, result)
        waiting = [index for index in others if self._peaks[index] > self.lower_bound]
        most = {index: self._most_states(index, max_states, share, parts=len(waiting)) for index in waiting}
        others = [index for index in waiting if most[index]]
        jobs = [SegmentJob(self._parts[index], self.lower_bound, self.best.peak, most[index]) for index in others]
        # Starting processes takes longer than most searches; the effort so far tells which these are.
        run = self.search.run.until(share)
        if result.states < _WINDOW_STATES:
            run = dataclasses.replace(run, limits=dataclasses.replace(run.limits, workers=1, executor=None))
        results = search_all(jobs, run)
        for index, found in zip(others, results, strict=True):
            if found is not None:
                self._take(index, found)

    def _most_states(self, part: int, most: int, share: float, *, parts: int = 1) -> int:
        """Return ``most`` states, or those that one search of a segment may visit within the limit of work.

        Args:
            share: Of that limit, at which the method ends.
            parts: Searches that are begun side by side.
        """
        run, most = self.search.run, self._capped(most)
        left = run.until(share).effort()
        if left is None:
            return most
        of_search = _SEARCH_EFFORT_IN_ROUNDS if self.in_rounds else _SEARCH_EFFORT
        work = min(left / parts, of_search * (run.limits.effort or 0.0))
        return min(most, int(work * MachinePace.TASK_STATES / (len(self._parts[part]) + 100)))

    def _spend(self, part: int, states: int) -> None:
        _spend(self.search.run, states, len(self._parts[part]))

    def _take(self, part: int, result: ExactResult) -> None:
        self.states += result.states
        self._spend(part, result.states)
        self._raise(result.lower_bound, _EXHAUSTED)
        if result.order is not None:
            self._offer(part, result.order, "threshold search")

    def dive(self, share: float) -> None:
        """Look for any order under thresholds between the bound and the incumbent, halving the gap.

        Above the optimum a threshold leaves many orders, so a walk in depth mostly finds one at once.
        """
        stop = self.search.run.until(share).over
        for index in self._open_parts():
            if len(self._parts[index]) > _SEARCH_TASKS:
                continue
            low = self.lower_bound
            while self._peaks[index] - low > 1 and not stop():
                middle = (low + self._peaks[index]) // 2
                result = exact.search(
                    self._parts[index],
                    lower_bound=middle,
                    upper_bound=self._peaks[index],
                    max_states=self._most_states(index, _FIRST_STATES, share),
                    stop=stop,
                )
                self.states += result.states
                self._spend(index, result.states)
                if result.order is not None:
                    self._offer(index, result.order, "dive")
                if result.lower_bound > middle:
                    # All below was exhausted, although the walk began above the proven bound.
                    self._raise(result.lower_bound, _EXHAUSTED)
                low = max(self.lower_bound, middle)

    def backtrack(self, share: float) -> None:
        """Search the open segments by BTSearch, the most demanding first."""
        stop = self.search.run.until(share).over
        for index in self._open_parts():
            if self._peaks[index] <= self.lower_bound:
                continue
            result = backtrack.search(
                self._parts[index],
                start=self._orders[index],
                lower_bound=self.lower_bound,
                max_states=self._most_states(index, backtrack.MOST_STATES, share),
                stop=stop,
                on_order=partial(self._offer, index, method="backtracking"),
            )
            self.states += result.states
            self._spend(index, result.states)
            if result.complete:
                self._raise(result.cost, _BACKTRACKED)

    def cpsat(self, share: float) -> None:
        """Give the open segments to CP-SAT with the incumbent as hint and the bound as floor.

        Args:
            share: Of the limit of work, for all segments together.
        """
        run = self.search.run.quiet()
        since, before = run.clock(), self.best.peak
        if self.in_rounds and share < 1:
            share = _PROGRAM_WORK_COMPILED if self._compiled else _PROGRAM_WORK_IN_ROUNDS
        if self.in_rounds and share * (run.limits.effort or math.inf) < _LEAST_PROGRAM_WORK:
            return
        waiting = self._open_parts()
        for count, index in enumerate(waiting, 1):
            if self.done() or run.over():
                return
            result = cpsat.solve(
                self._parts[index],
                run.within(share / len(waiting)) if run.limits.effort is not None else run,
                hint=self._orders[index],
                lower_bound=self.lower_bound,
                upper_bound=self._peaks[index],
            )
            self._raise(result.lower_bound, _CPSAT)
            if result.order is not None:
                self._offer(index, tuple(result.order), "CP-SAT")
            tasks = sum(len(self._parts[given]) for given in waiting[:count])
            told = before, self.best.peak, self.lower_bound
            self.program = ProgramEffort(count, tasks, run.clock() - since, *told)


def _states_left(run: Run, tasks: int) -> float:
    """Return the states that a search of so many tasks may visit with the work that is left."""
    left = run.effort()
    return math.inf if left is None else int(left * MachinePace.TASK_STATES / (tasks + 100))


def _spend(run: Run, states: int, tasks: int) -> None:
    """Count the states that a search of so many tasks visited."""
    run.spend(states * (tasks + 100) / MachinePace.TASK_STATES)


def _peak(part: Tasks, order: Sequence[int]) -> int:
    """Return the peak of a segment's order."""
    return max(part.run(order)[0], default=part.initial)


def _task_order(tasks: Tasks, order: Sequence[int]) -> tuple[int, ...]:
    """Return the order of tasks closest to an order of ops: topological, ties by each task's first op in it."""
    step = {op: index for index, op in enumerate(order)}
    first = [min(step[op] for op in members) for members in tasks.members]
    return tuple(topological_order(tasks.preds, first))
