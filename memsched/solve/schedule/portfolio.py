"""The scheduler: the best of the cheap orders first, then exact methods under a time limit; anytime and proven.

The result is never worse than the file's order, and keeps that order when nothing is better.
"""

from __future__ import annotations

import time
from typing import Literal

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.units import counted
from memsched.graph import dag
from memsched.graph.contraction import Tasks, single_op_tasks
from memsched.graph.liveness import Profile, Storage, evaluate
from memsched.graph.model import Graph, InPlace, Schedule
from memsched.search.progress import PassRecord
from memsched.search.run import Run
from memsched.solve.fusion.iterate import FusedGraph, fuse
from memsched.solve.schedule import refine
from memsched.solve.schedule.bounds import BOUND_TASKS, NECESSARY, first_and_last_step, largest_step, necessary_bytes
from memsched.solve.schedule.orders import ORDERS
from memsched.solve.schedule.refine import Incumbent, ProgramEffort, RefineSearch
from memsched.solve.schedule.solvers import SOLVERS

__all__ = ["ScheduleResult", "schedule_graph"]

_PROGRAM = "CP-SAT"


class ScheduleResult(FrozenValue, frozen=True):
    """A schedule and how it was found.

    Attributes:
        fused: The fused graph; None where the solver needs none.
        baselines: Name of each cheap order to (order, peak in bytes).
        segments: How many parts were ordered apart.
    """

    schedule: Schedule
    fused: FusedGraph | None
    passes: tuple[PassRecord, ...]
    baselines: dict[str, tuple[tuple[int, ...], int]]
    segments: int


def schedule_graph(
    graph: Graph,
    run: Run,
    *,
    solver: str = "auto",
    storage: Storage | None = None,
    partitions: int | Literal["auto"] = "auto",
    given: Schedule | None = None,
) -> ScheduleResult:
    """Return the best order of ``graph`` found by the end of ``run``, with its proof.

    Args:
        graph: Valid, with the target's rules applied.
        run: Says when to end, with the best order so far, and receives each new stage, order and bound.
        solver: "auto" is the portfolio; "exact" the threshold search alone, "cpsat" the integer program
            (`formulation`) on the fused graph alone, "backtrack" MemoriaNova's BTSearch on it alone, "greedy" the
            best cheap order, "file" the file's own.
        storage: What `Storage.of(graph)` gives, where the caller has it already; then ``graph`` is taken for valid.
        partitions: Stages to cut the fused graph into ("Iterative Graph Optimization", Algorithm 2) instead of
            searching it whole; 1 never cuts, "auto" cuts where no proof is found quickly.
        given: The file's order with its peak and in-place choices, where the caller has it already.

    Raises:
        UsageError: ``solver`` has no such name, or ``partitions`` is less than 1.
        GraphError: ``graph`` is not valid.
    """
    if solver not in SOLVERS:
        raise UsageError(
            f"--solver {solver} does not exist", code="option-choice", action=f"choose one of {', '.join(SOLVERS)}"
        )
    if partitions != "auto" and not (isinstance(partitions, int) and partitions >= 1):
        raise UsageError(
            f"--partitions {partitions} is not possible", code="option-range", action="give 1 or more, or auto"
        )
    if storage is None:
        dag.validate(graph)
        storage = Storage.of(graph)
    state = _PortfolioState(storage, run, given)
    state.cheap_orders(["file"] if solver == "file" else list(ORDERS))
    fused = state.fuse() if solver != "file" else None
    searched = fused is not None and solver != "greedy"
    state.bound(searched=searched)
    segments, program = 1, None
    if fused and searched and run.effort() != 0 and not state.done():
        segments, program = state.search(fused.tasks, solver, partitions)
    if searched:
        state.record_program(program, solver)
    return state.result(fused, segments)


class _PortfolioState:
    """One call's state: the incumbent, the bound, and what was recorded on the way."""

    def __init__(self, storage: Storage, run: Run, given: Schedule | None) -> None:
        self._run = run
        self.storage = storage
        self._passes: list[PassRecord] = []
        self.baselines: dict[str, tuple[tuple[int, ...], int]] = {}
        file_order = tuple(range(len(storage.preds)))
        # What is known of the best order: large graphs take long to evaluate.
        self._known: Profile | Schedule = given or evaluate(storage, file_order)
        self.best = Incumbent(file_order, self._known.peak, "file order")
        self.lower_bound = 0
        self.proof = "nothing is less than nothing"
        self.states = 0

    def done(self) -> bool:
        return self.best.peak <= self.lower_bound

    def tell(self, stage: str) -> None:
        self._run.tell(stage, self.best.peak, self.lower_bound)

    def record(self, name: str, since: float, ops: tuple[int, int], peak_before: int) -> None:
        seconds = time.monotonic() - since
        self._passes.append(PassRecord(name, seconds, ops[0], ops[1], peak_before, self.best.peak))

    def offer(self, order: tuple[int, ...], method: str) -> int:
        """Take ``order`` when it is better than the incumbent; return its peak."""
        if order == self.best.order:
            return self.best.peak
        profile = evaluate(self.storage, order)
        if profile.peak < self.best.peak:
            self._known = profile
            self.best = Incumbent(order, profile.peak, method)
        return profile.peak

    def _in_place(self) -> tuple[InPlace, ...]:
        """Return the in-place choices of the best order."""
        known = self._known
        return known.in_place if isinstance(known, Schedule) else known.in_place(self.storage, self.best.order)

    def raise_bound(self, bound: int, proof: str) -> None:
        if bound > self.lower_bound:
            self.lower_bound, self.proof = bound, proof

    def cheap_orders(self, names: list[str]) -> None:
        since, before, count = time.monotonic(), self.best.peak, len(self.storage.preds)
        for name in names:
            order = ORDERS[name](self.storage)
            self.baselines[name] = (order, self.offer(order, name))
        self.record("cheap orders", since, (count, count), before)
        self.tell("cheap orders")

    def fuse(self) -> FusedGraph:
        since = time.monotonic()
        fused = fuse(self.storage, stop=self._run.over)
        self.record("fusion", since, (fused.ops_before, fused.ops_after), self.best.peak)
        self.tell("fusion")
        return fused

    def bound(self, *, searched: bool) -> None:
        """Raise the bound without a search; unless one follows, which begins with it, to what lives in every order."""
        since = time.monotonic()
        self.raise_bound(largest_step(self.storage), "no order needs less than its largest single step")
        self.raise_bound(first_and_last_step(self.storage), "all inputs live at the start, and all outputs at the end")
        count = len(self.storage.preds)
        if not searched and not self.done() and count <= BOUND_TASKS:
            self.raise_bound(necessary_bytes(single_op_tasks(self.storage)), NECESSARY)
        self.record("bounds", since, (count, count), self.best.peak)
        self.tell("bounds")

    def record_program(self, program: ProgramEffort | None, solver: str) -> None:
        """Record what CP-SAT did, or why it was not asked."""
        if program is None:
            count, peak = len(self.storage.preds), self.best.peak
            why = "the order was proven optimal before" if self.done() else "no time was left"
            told = why if solver in {"auto", "cpsat"} else f"--solver {solver}"
            self._passes.append(PassRecord(_PROGRAM, 0.0, count, count, peak, peak, f"not asked: {told}"))
            return
        proved = "an optimum" if program.peak_after <= program.bound else "a bound"
        outcome = f"proved {proved}: {program.bound:,} B, over {counted(program.segments, 'part')} of the graph"
        sizes = program.tasks, program.tasks, program.peak_before, program.peak_after
        self._passes.append(PassRecord(_PROGRAM, program.seconds, *sizes, outcome))

    def search(self, tasks: Tasks, solver: str, partitions: int | Literal["auto"]) -> tuple[int, ProgramEffort | None]:
        """Run the exact methods; return the number of segments, and what CP-SAT did."""
        since, before = time.monotonic(), self.best.peak
        search = RefineSearch(
            tasks=tasks,
            run=self._run,
            on_order=self._found,
            on_bound=self._bounded,
        )
        outcome = refine.run(search, self.best, self.lower_bound, solver, partitions)
        self.states += outcome.states
        self.record("search", since, (len(tasks), len(tasks)), before)
        self.tell("search")
        return outcome.segments, outcome.program

    def _found(self, order: tuple[int, ...], method: str) -> Incumbent:
        self.offer(order, method)
        self.tell(method)
        return self.best

    def _bounded(self, bound: int, proof: str) -> None:
        self.raise_bound(bound, proof)
        self.tell(proof)

    def result(self, fused: FusedGraph | None, segments: int) -> ScheduleResult:
        optimal = self.done()
        schedule = Schedule(
            order=self.best.order,
            in_place=self._in_place(),
            peak=self.best.peak,
            lower_bound=min(self.lower_bound, self.best.peak),
            status="optimal" if optimal else "feasible",
            proof=self.proof,
            method=self.best.method,
            states=self.states,
            seconds=self._run.elapsed(),
        )
        return ScheduleResult(schedule, fused, tuple(self._passes), self.baselines, segments)
