"""CP-SAT on the integer program of `formulation`: for what the exact search cannot finish.

One worker searches. On the fused networks of "Iterative Graph Optimization" it is faster than two, and what it finds
depends on the seed alone unless the time limit cuts it short, so that the same input gives the same order for any
`Limits.workers`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks
from memsched.graph.dag import MOST_FOR_BITSETS
from memsched.search import cpsat
from memsched.search.run import Run
from memsched.solve.schedule.formulation import Credit, IntegerProgram, StoredBuffer, formulate

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CpSatResult", "CpSatStatus", "solve"]

CpSatStatus = Literal["optimal", "feasible", "infeasible", "unknown", "refused"]

# Literals are ints: a variable's number, negated for its negation. Number 1 is the constant "true".
_TRUE = 1
_FALSE = -_TRUE


class CpSatResult(FrozenValue, frozen=True):
    """What CP-SAT found.

    Attributes:
        order: Task order of the least peak found; None where none is known.
        peak: Its peak, bytes; None without an order.
        lower_bound: No order has a smaller peak, bytes.
        status: "optimal": proven; "feasible": an order without proof; "infeasible": proven that no order keeps to
            the upper bound; "unknown": out of time without an order; "refused": the model would be too large.
        variables: Boolean variables of the model, or, where it was refused, the estimate.
        seconds: Building the model included.
    """

    order: tuple[int, ...] | None
    peak: int | None
    lower_bound: int
    status: CpSatStatus
    variables: int
    seconds: float


def solve(
    tasks: Tasks,
    run: Run,
    *,
    hint: Sequence[int] | None = None,
    lower_bound: int = 0,
    upper_bound: int | None = None,
    prune: bool = True,
    max_variables: int = 200_000,
) -> CpSatResult:
    """Return an order of ``tasks`` of least peak, as far as ``run`` lets it be found and proven.

    Args:
        tasks: What to order; parts (`contraction.restrict`) too.
        run: The time limit covers building the model; ``stop`` is asked about 20 times a second, and ends the search
            with what it has; ``workers`` is not used (see the module). Called with each better order, from another
            thread.
        hint: A known order; the result is never worse, and is this order when it is optimal.
        lower_bound: Bytes: an order that needs no more than this is good enough and counts as optimal.
        upper_bound: Orders with a larger peak are of no interest, bytes.
        prune: Fix variables by the topology, the paper's (7) to (10).
        max_variables: Refuse a larger model rather than fill the memory.

    Raises:
        InternalError: CP-SAT's result contradicts liveness.
    """
    started = time.monotonic()
    found = _solved(tasks, run, hint, lower_bound, upper_bound, prune=prune, max_variables=max_variables)
    order = None if found.order is None else tuple(found.order)
    peak = None if order is None else _peak(tasks, order)
    return CpSatResult(order, peak, found.bound, found.status, found.variables, time.monotonic() - started)


class _Answer(FrozenValue, frozen=True):
    """A `CpSatResult` as it is found."""

    order: Sequence[int] | None
    bound: int
    status: CpSatStatus
    variables: int = 0


def _solved(
    tasks: Tasks,
    run: Run,
    hint: Sequence[int] | None,
    lower_bound: int,
    upper_bound: int | None,
    *,
    prune: bool,
    max_variables: int,
) -> _Answer:
    if not len(tasks):
        return _Answer((), tasks.initial, "optimal")
    known = None
    if hint is not None:
        hint_peak = _peak(tasks, hint)
        if hint_peak <= lower_bound:
            return _Answer(hint, lower_bound, "optimal")
        if upper_bound is None or hint_peak <= upper_bound:
            known, upper_bound = hint, hint_peak
    if upper_bound is not None and upper_bound < lower_bound:
        return _Answer(None, lower_bound, "infeasible")
    program = formulate(tasks, prune=prune) if len(tasks) <= MOST_FOR_BITSETS else None
    if program is None or program.size() > max_variables:
        return _Answer(None, lower_bound, "refused", 0 if program is None else program.size())
    model = _OrderModel(program, lower_bound, upper_bound, run.over)
    if not model.complete:
        return _Answer(known, lower_bound, "unknown" if known is None else "feasible", model.variables)
    if hint is not None:
        model.add_hint(hint)
    return _searched(tasks, model, run, known, lower_bound, upper_bound)


def _searched(
    tasks: Tasks,
    model: _OrderModel,
    run: Run,
    known: Sequence[int] | None,
    lower_bound: int,
    upper_bound: int | None,
) -> _Answer:
    """Return what CP-SAT finds; ``known``, where there is one, is an order within ``upper_bound``."""
    outcome = model.search(run)
    bound = max(lower_bound, outcome.bound)
    if outcome.infeasible:
        if upper_bound is None or known is not None:
            raise InternalError("CP-SAT finds no order, although there is one", code="solver-contradicts")
        return _Answer(None, upper_bound + 1, "infeasible", model.variables)
    if outcome.order is None:
        return _Answer(known, bound, "unknown" if known is None else "feasible", model.variables)
    peak = _peak(tasks, outcome.order)
    if peak > outcome.peak or (outcome.optimal and lower_bound < outcome.peak != peak):
        raise InternalError(
            f"CP-SAT claims a peak of {outcome.peak} bytes, but the order has {peak}", code="peak-claim"
        )
    order = known if known is not None and upper_bound == peak else outcome.order
    return _Answer(order, bound, "optimal" if outcome.optimal or peak <= bound else "feasible", model.variables)


def _peak(tasks: Tasks, order: Sequence[int]) -> int:
    return max(tasks.run(order)[0], default=tasks.initial)


class _SolverAnswer(FrozenValue, frozen=True):
    """CP-SAT's own result; ``peak`` is 0 without an order."""

    order: tuple[int, ...] | None
    peak: int
    bound: int
    optimal: bool
    infeasible: bool


class _OrderModel:
    """The program as a CP-SAT model, in bytes divided by what divides them all. ``complete`` is False when it expired.

    Constraint numbers are those of `formulation`.
    """

    def __init__(
        self, program: IntegerProgram, lower_bound: int, upper_bound: int | None, expired: Callable[[], bool]
    ) -> None:
        from ortools.sat.python import cp_model

        self._program = program
        self._steps = len(program.earliest)
        self._model = cp_model.CpModel()
        self._literals: list[cp_model.IntVar] = []
        self._hints: list[Callable[[Sequence[int]], bool]] = []
        self._first_done: list[int] = []
        self._done_at: list[list[int]] = [[] for _ in range(self._steps)]
        self._terms: list[list[tuple[int, int]]] = [[] for _ in range(self._steps)]
        self._constants = [0] * self._steps
        self.complete = False
        for build, items in (
            (self._add_task, range(self._steps)),
            (self._add_order, range(self._steps)),
            (self._add_stored, range(len(program.stored))),
            (self._add_credits, range(self._steps)),
        ):
            for item in items:
                if item % 16 == 0 and expired():
                    return
                build(item)
        self._add_one_per_step()
        self._add_peak(lower_bound, upper_bound)
        self.complete = True

    @property
    def variables(self) -> int:
        return len(self._literals)

    def _new(self, hint: Callable[[Sequence[int]], bool]) -> int:
        """Make a variable whose value under an order, given as the step of each task, is ``hint``."""
        self._literals.append(self._model.new_bool_var(""))
        self._hints.append(hint)
        return len(self._literals) + 1

    def _literal(self, number: int) -> cp_model.LiteralT:
        literal = self._literals[abs(number) - 2]
        return literal if number > 0 else literal.negated()

    def _clause(self, *literals: int) -> None:
        if _TRUE not in literals:
            self._model.add_bool_or([self._literal(literal) for literal in literals if literal != _FALSE])

    def _done(self, task: int, step: int) -> int:
        """Return the literal done[task, step]: a constant outside the window, (7) and (9)."""
        first = self._program.earliest[task]
        if step <= first:
            return _FALSE
        return _TRUE if step > self._program.latest[task] else self._first_done[task] + step - first - 1

    def _add_task(self, task: int) -> None:
        """done[i, s] <= done[i, s+1] is (2), and that O is not negative; the task's bytes go into (6)."""
        program = self._program
        first, last = program.earliest[task], program.latest[task]
        change, excess = program.change[task], program.excess[task]
        self._first_done.append(len(self._literals) + 2)
        for step in range(first + 1, last + 1):
            literal = self._new(lambda steps, step=step: steps[task] < step)  # type: ignore[misc]
            self._done_at[step].append(literal)
            self._terms[step].append((literal, change - excess))
            self._terms[step - 1].append((literal, excess))
            if step > first + 1:
                self._clause(-(literal - 1), literal)
        self._constants[last] += excess
        if last + 1 < self._steps:
            self._constants[last + 1] += change - excess

    def _add_order(self, task: int) -> None:
        """done[i, s+1] <= done[p, s] for each predecessor p is (3), (4) and (5) together."""
        for before in self._program.before[task]:
            for step in range(self._program.earliest[task], self._program.latest[before] + 1):
                self._clause(-self._done(task, step + 1), self._done(before, step))

    def _add_stored(self, index: int) -> None:
        """T[j, s] >= done[p(j), s] - done[u, s] for each reader u: what (3) and (4) ask of T."""
        buffer = self._program.stored[index]
        for step in self._program.stored_steps(buffer):
            created = self._done(buffer.creator, step) if buffer.creator >= 0 else _TRUE
            readers = [self._done(reader, step) for reader in buffer.readers]
            stored = self._new(lambda steps, step=step: _is_stored(buffer, steps, step))  # type: ignore[misc]
            for reader in readers:
                self._clause(-created, reader, stored)
            self._terms[step].append((stored, buffer.size))

    def _add_credits(self, task: int) -> None:
        """A credit's literal in step s implies O[i, s] and done[u, s] for each task u that must have run."""
        program = self._program
        offers = program.credits[task]
        for step in range(program.earliest[task], program.latest[task] + 1) if offers else ():
            taken: list[int] = []
            for index, credit in enumerate(offers):
                conditions = [self._done(before, step) for before in credit.after]
                if _FALSE in conditions:
                    continue
                literal = self._new(
                    lambda steps, step=step, index=index: (  # type: ignore[misc]
                        steps[task] == step and _applying(offers, steps, step) == index
                    )
                )
                for condition in (*conditions, self._done(task, step + 1), -self._done(task, step)):
                    self._clause(-literal, condition)
                self._terms[step].append((literal, -credit.saved))
                taken.append(literal)
            if len(taken) > 1:
                self._model.add_at_most_one(self._literal(literal) for literal in taken)

    def _add_one_per_step(self) -> None:
        """sum_i done[i, s] = s is (1)."""
        always = 0
        ending = [0] * (self._steps + 1)
        for last in self._program.latest:
            ending[last + 1] += 1
        for step, literals in enumerate(self._done_at):
            always += ending[step]
            if literals:
                self._model.add(sum(self._literal(literal) for literal in literals) == step - always)

    def _add_peak(self, lower_bound: int, upper_bound: int | None) -> None:
        """(6), with M = lowest + unit * objective."""
        from ortools.sat.python import cp_model

        live = self._program.constant
        constants = []
        for constant in self._constants:
            live += constant
            constants.append(live)
        coefficients = (coefficient for terms in self._terms for _, coefficient in terms)
        self.unit = math.gcd(*coefficients, *(constant - constants[0] for constant in constants)) or 1
        self.lowest = constants[0] + (lower_bound - constants[0]) // self.unit * self.unit
        if upper_bound is None:
            upper_bound = max(
                constant + sum(max(coefficient, 0) for _, coefficient in terms)
                for constant, terms in zip(constants, self._terms, strict=True)
            )
        peak = self._model.new_int_var(0, (max(upper_bound, lower_bound) - self.lowest) // self.unit, "")
        for constant, terms in zip(constants, self._terms, strict=True):
            changing = cp_model.LinearExpr.weighted_sum(
                [self._literal(literal) for literal, _ in terms],
                [coefficient // self.unit for _, coefficient in terms],
            )
            self._model.add(changing + (constant - self.lowest) // self.unit <= peak)
        self._model.minimize(peak)

    def add_hint(self, order: Sequence[int]) -> None:
        """Tell CP-SAT a solution: the value of every Boolean variable under ``order``."""
        steps = [0] * self._steps
        for step, task in enumerate(order):
            steps[task] = step
        for literal, value in zip(self._literals, self._hints, strict=True):
            self._model.add_hint(literal, value(steps))

    def search(self, run: Run) -> _SolverAnswer:
        """Run CP-SAT in another thread, so that ``run.stop`` and Ctrl-C are heard."""
        from ortools.sat.python import cp_model

        solver = cpsat.new_solver(run.limits.seed, seconds=run.remaining(), effort=run.effort())
        # Linear relaxation, presolve and probing were each measured to cost more than they save.
        solver.parameters.linearization_level = 0
        solver.parameters.cp_model_presolve = False
        solver.parameters.cp_model_probing_level = 0
        model = self

        class SolutionCallback(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(self) -> None:
                run.tell("CP-SAT", model.bytes_of(self.objective_value), model.bytes_of(self.best_objective_bound))

        status = cpsat.run(solver, self._model, run.stop, SolutionCallback())
        run.spend(solver.response_proto.deterministic_time)
        found = status in {cp_model.OPTIMAL, cp_model.FEASIBLE}
        return _SolverAnswer(
            order=self._order(solver) if found else None,
            peak=self.bytes_of(solver.objective_value) if found else 0,
            bound=self.bytes_of(solver.best_objective_bound) if found else self.lowest,
            optimal=status == cp_model.OPTIMAL,
            infeasible=status == cp_model.INFEASIBLE,
        )

    def bytes_of(self, objective: float) -> int:
        """Return a value or bound of the objective, which takes whole numbers only, as bytes."""
        return self.lowest + self.unit * max(0, math.ceil(objective - 1e-6))

    def _order(self, solver: cp_model.CpSolver) -> tuple[int, ...]:
        steps: list[tuple[int, int]] = []
        for task, first in enumerate(self._program.earliest):
            literals = range(self._first_done[task], self._first_done[task] + self._program.latest[task] - first)
            late = sum(not solver.boolean_value(self._literal(literal)) for literal in literals)
            steps.append((first + late, task))
        return tuple(task for _, task in sorted(steps))


def _is_stored(buffer: StoredBuffer, steps: Sequence[int], step: int) -> bool:
    created = buffer.creator < 0 or steps[buffer.creator] < step
    return created and any(steps[reader] >= step for reader in buffer.readers)


def _applying(offers: Sequence[Credit], steps: Sequence[int], step: int) -> int:
    """Return the credit that saves most of those whose condition holds; -1 for none. They are sorted by that."""
    return next((k for k, credit in enumerate(offers) if all(steps[task] < step for task in credit.after)), -1)
