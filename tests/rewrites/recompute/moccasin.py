"""Least extra work under a budget of memory by CP-SAT, in retention intervals (the formulation called Moccasin).

Nodes 0..n-1 stand in the order of their first executions, which is fixed. Stage t ends with the first execution of
node t, and before it any earlier nodes may be executed again, in the order of their numbers: so an execution of node v
in stage t happens at the time n t + v, and no two at one time. Each node has up to C copies, the first always present.
A copy's values are retained from its execution to an end of their own, and

- copies of a node are retained one after the other, never together;
- an execution that reads a node's value lies within the retention of one of its copies;
- the bytes retained at any time, with what the execution needs beside them, are within the budget (cumulative);
- the cost of the copies beyond the first is least.

That is O(C n) integer variables, and C^2 Booleans per edge. Beyond the formulation: a view keeps what it shows; an
input that dies in an op that may overwrite it is not counted twice; and one linear constraint per step, on which
values are dropped in the gap between two uses around it, gives the bounds of the cost.

Nodes may be groups of ops that are executed as one. A result is then a sequence of the ops as well, but its proof
covers executions of whole groups only: an inner value can no longer be dropped alone.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from memsched.base.frozen import FrozenValue
from memsched.rewrites.recompute.trace import Tracer
from memsched.rewrites.recompute.unread import Readers
from memsched.search import cpsat
from memsched.search.run import Run
from tests.rewrites.recompute.moccasin_nodes import Nodes

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CopyResult", "least_cost", "with_firsts"]

_EFFORT = 60.0
_HINT_EFFORT = 10.0
"""CP-SAT's own measure, about seconds of an idle machine: what it finds does not depend on how busy this one is."""

Gap = tuple[int, int, int]
"""The node that makes values, and the nodes between whose first executions they wait."""

CopyStatus = Literal["optimal", "feasible", "infeasible", "unknown", "refused"]


class CopyResult(FrozenValue, frozen=True):
    """What CP-SAT found.

    Attributes:
        sequence: Ops by number in the order of execution; None where no sequence was found.
        cost: Of its repetitions, as the tracer counts; 0 without a sequence.
        cost_bound: No sequence with these first executions and at most so many copies per node costs less.
        status: "optimal": the cost is the bound. "feasible": a sequence without proof. "infeasible": no such
            sequence meets the budget at the permitted cost. "unknown": out of time. "refused": too large.
        seconds: Building the model included.
    """

    sequence: tuple[int, ...] | None
    cost: int
    cost_bound: int
    status: CopyStatus
    seconds: float


def least_cost(
    tracer: Tracer,
    budget: int,
    run: Run,
    *,
    copies: int = 2,
    groups: Sequence[Sequence[int]] | None = None,
    hint: Sequence[int] | None = None,
    most_cost: int | None = None,
    max_intervals: int = 6_000,
) -> CopyResult:
    """Return a sequence of least cost whose peak is ``budget`` bytes at most.

    Args:
        tracer: The graph, its ops in the order of their first executions.
        run: When to end, with the best so far; receives no progress.
        copies: Most executions of an op, but for ops that ``hint`` executes more often: those may be as often.
        groups: A partition of the ops into sequences that are executed as one; None for each op alone.
        hint: A known sequence.
        most_cost: Sequences that cost more are of no interest.
        max_intervals: Refuse a larger model.
    """
    started = time.monotonic()
    nodes = Nodes(tracer, groups or [(op,) for op in range(tracer.count)])
    intervals = sum(len(values) + 1 for values in nodes.values) * copies
    if intervals > max_intervals:
        return CopyResult(None, 0, 0, "refused", time.monotonic() - started)
    known = nodes.stages(hint or ())
    model = _RetentionModel(nodes, budget, [max(copies, len(stages) + 1) for stages in known], most_cost)
    if hint is not None:
        model.add_hint(known)
        model.complete_hint(run)
    solver, status = model.solve(run)
    from ortools.sat.python import cp_model

    seconds = time.monotonic() - started
    if status == cp_model.INFEASIBLE:
        bound = (most_cost or 0) + 1 if most_cost is not None else 0
        return CopyResult(None, 0, bound, "infeasible", seconds)
    bound = max(0, math.ceil(solver.best_objective_bound * model.unit - 1e-6))
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return CopyResult(None, 0, bound, "unknown", seconds)
    # What is proven holds for this order of first executions; without those that nothing reads it is another one.
    sequence = tuple(with_firsts(tracer, model.sequence(solver)))
    assert groups or tracer.run(sequence).peak <= budget or any(op.views for op in tracer.graph.ops)
    done = status == cp_model.OPTIMAL
    return CopyResult(sequence, tracer.cost(sequence), bound, "optimal" if done else "feasible", seconds)


def with_firsts(tracer: Tracer, sequence: Sequence[int]) -> list[int]:
    """Return ``sequence`` without executions that nothing reads, but for the first one of every op."""
    return Readers(Readers.of(tracer.graph).operands, (True,) * tracer.count).needed(sequence)


@dataclass(slots=True)
class _Copy:
    """One execution of a node: when, and whether it is there (None: always)."""

    start: Any
    stage: Any
    present: Any


class _RetentionModel:
    """The CP-SAT model; costs are divided by ``unit``, which divides them all."""

    def __init__(self, nodes: Nodes, budget: int, copies: Sequence[int], most_cost: int | None) -> None:
        from ortools.sat.python import cp_model

        self.nodes = nodes
        self.model = cp_model.CpModel()
        self.horizon = nodes.count * nodes.count + nodes.count
        self.unit = math.gcd(*(cost for cost, may in zip(nodes.costs, nodes.repeat, strict=True) if may)) or 1
        self._latest = self._latest_stages()
        self.copies = [self._make_copies(node, copies[node]) for node in range(nodes.count)]
        self.ends: list[list[Any]] = []
        self._credited: dict[tuple[int, int], list[Any]] = {}
        self._intervals: list[Any] = []
        self._demands: list[int] = []
        self._dropped: dict[tuple[int, int], list[Any]] = {}
        for value in range(len(nodes.all)):
            self._add_ends(value)
        self.serves: dict[tuple[int, int, int, int], Any] = {}
        for node in range(nodes.count):
            self._add_reads(node)
        self._add_useful()
        self._add_memory(budget)
        self._add_gaps(budget)
        terms = [
            (copy.present, nodes.costs[node] // self.unit) for node, made in enumerate(self.copies) for copy in made[1:]
        ]
        cost = cp_model.LinearExpr.weighted_sum([term[0] for term in terms], [term[1] for term in terms])
        if most_cost is not None:
            self.model.add(cost <= most_cost // self.unit)
        self.model.minimize(cost)

    def _latest_stages(self) -> list[int]:
        """Return per node the last stage in which an execution of it can be of use."""
        nodes = self.nodes
        latest = list(range(nodes.count))
        for node in range(nodes.count - 1, -1, -1):
            for value in nodes.values[node]:
                for reader in nodes.all[value].readers:
                    latest[node] = max(latest[node], latest[reader] if nodes.repeat[reader] else reader)
        return latest

    def _time(self, node: int) -> int:
        return (self.nodes.count + 1) * node

    def _make_copies(self, node: int, copies: int) -> list[_Copy]:
        made = [_Copy(self._time(node), node, None)]
        if not self.nodes.repeat[node] or self._latest[node] <= node:
            return made
        for _ in range(1, copies):
            stage = self.model.new_int_var(node + 1, self._latest[node], "")
            present = self.model.new_bool_var("")
            if made[-1].present is not None:
                self.model.add_implication(present, made[-1].present)
            self.model.add(stage == node + 1).only_enforce_if(present.negated())
            made.append(_Copy(self.nodes.count * stage + node, stage, present))
        return made

    def _add_ends(self, index: int) -> None:
        """Retention of one copy ends before the next begins; what stays, stays."""
        value = self.nodes.all[index]
        made = self.copies[value.maker] if value.maker >= 0 else [_Copy(0, 0, None)]
        ends: list[Any] = []
        for place, copy in enumerate(made):
            if value.kept:
                ends.append(self.horizon)
                continue
            end = self.model.new_int_var(copy.start if copy.present is None else 0, self.horizon, "")
            self.model.add(end >= copy.start)
            if copy.present is not None:
                self.model.add(end == copy.start).only_enforce_if(copy.present.negated())
            if place + 1 < len(made):
                self.model.add(end < made[place + 1].start).only_enforce_if(made[place + 1].present)
            ends.append(end)
        self.ends.append(ends)
        for source in value.shows:
            if self.nodes.all[source].maker == value.maker and not self.nodes.all[source].kept:
                for mine, theirs in zip(ends, self.ends[source], strict=True):
                    self.model.add(theirs >= mine)

    def _add_reads(self, node: int) -> None:
        """Each execution takes the values of one copy of each node that it reads from."""
        nodes = self.nodes
        makers: dict[int, list[int]] = {}
        for index in nodes.reads[node]:
            makers.setdefault(nodes.all[index].maker, []).append(index)
        for place, copy in enumerate(self.copies[node]):
            for maker, values in makers.items():
                sources = self.copies[maker] if maker >= 0 else [_Copy(-1, 0, None)]
                chosen = []
                for which, source in enumerate(sources):
                    if len(sources) == 1:
                        literal = copy.present
                    else:
                        literal = self.model.new_bool_var("")
                        chosen.append(literal)
                    if which:
                        self.model.add_implication(literal, source.present)
                        self.model.add(source.start < copy.start).only_enforce_if(literal)
                    self.serves[maker, which, node, place] = literal
                    self._retain(values, which, copy.start, literal)
                    self._keep_shown(node, values, which, place, literal)
                if chosen and copy.present is None:
                    self.model.add_exactly_one(chosen)
                elif chosen:
                    self.model.add(sum(chosen) == 1).only_enforce_if(copy.present)
                    for literal in chosen:
                        self.model.add_implication(literal, copy.present)

    def _retain(self, values: Sequence[int], which: int, until: Any, literal: Any) -> None:
        for index in values:
            if not self.nodes.all[index].kept:
                self._when(self.model.add(self.ends[index][which] >= until), literal)

    def _keep_shown(self, node: int, values: Sequence[int], which: int, place: int, literal: Any) -> None:
        """What a view of ``node`` shows is retained as long as the view."""
        for made in self.nodes.values[node]:
            for index in self.nodes.all[made].shows:
                if index in values and not self.nodes.all[index].kept:
                    self._when(self.model.add(self.ends[index][which] >= self.ends[made][place]), literal)

    @staticmethod
    def _when(constraint: Any, literal: Any) -> None:
        if literal is not None:
            constraint.only_enforce_if(literal)

    def _add_useful(self) -> None:
        """Every copy must have a reader."""
        by_source: dict[tuple[int, int], list[Any]] = {}
        for (maker, which, _, _), literal in self.serves.items():
            by_source.setdefault((maker, which), []).append(literal)
        for node, made in enumerate(self.copies):
            for which in range(1, len(made)):
                readers = by_source.get((node, which), [])
                self.model.add_bool_or([*readers, made[which].present.negated()])

    def _add_credits(self, node: int, place: int) -> None:
        """At most one value that dies in an execution lowers what it needs."""
        copy = self.copies[node][place]
        taken = []
        for index, saved in self.nodes.credits[node]:
            value = self.nodes.all[index]
            makers = self.copies[value.maker] if value.maker >= 0 else [None]
            for which in range(len(makers)):
                literal = self.model.new_bool_var("")
                serving = self.serves[value.maker, which, node, place]
                if serving is not None:
                    self.model.add_implication(literal, serving)
                self.model.add(self.ends[index][which] <= copy.start).only_enforce_if(literal)
                self._credited.setdefault((index, which), []).append(literal)
                if value.size > saved:
                    self._interval(copy.start, 1, copy.start + 1, literal, value.size - saved)
                taken.append(literal)
        if len(taken) > 1:
            self.model.add_at_most_one(taken)

    def _interval(self, start: Any, size: Any, end: Any, present: Any, demand: int) -> None:
        if present is None:
            self._intervals.append(self.model.new_interval_var(start, size, end, ""))
        else:
            self._intervals.append(self.model.new_optional_interval_var(start, size, end, present, ""))
        self._demands.append(demand)

    def _add_memory(self, budget: int) -> None:
        nodes, model = self.nodes, self.model
        for node, made in enumerate(self.copies):
            for place, copy in enumerate(made):
                if nodes.extra[node]:
                    self._interval(copy.start, 1, copy.start + 1, copy.present, nodes.extra[node])
                self._add_credits(node, place)
        for index, value in enumerate(nodes.all):
            if not value.size or not (value.readers or value.kept):
                continue
            made = self.copies[value.maker] if value.maker >= 0 else [_Copy(0, 0, None)]
            for which, copy in enumerate(made):
                credited = self._credited.get((index, which), [])
                if value.kept:
                    end: Any = self.horizon + 1
                elif credited:
                    end = model.new_int_var(copy.start if copy.present is None else 0, self.horizon + 1, "")
                    model.add(end + sum(credited) == self.ends[index][which] + 1)
                else:
                    end = self.ends[index][which] + 1
                size = end - copy.start if copy.present is None else model.new_int_var(0, self.horizon + 1, "")
                self._interval(copy.start, size, end, copy.present, value.size)
        model.add_cumulative(self._intervals, self._demands, budget - nodes.variables)

    def _add_gaps(self, budget: int) -> None:
        """Per step: the values that idle in it, without those dropped in the gap around it, are within the budget."""
        gaps: dict[tuple[int, int], Any] = {}
        for need, idle in crowded(self.nodes, budget):
            terms = [size * self._gap(gaps, *gap) for gap, size in idle]
            self.model.add(sum(terms) >= need)

    def _gap(self, gaps: dict[tuple[int, int], Any], maker: int, left: int, right: int) -> Any:
        """Return the literal: some copy of ``maker`` is executed after node ``left`` and before ``right``."""
        key = maker, left * self.nodes.count + right
        if key not in gaps:
            inside = []
            for copy in self.copies[maker][1:]:
                literal = self.model.new_bool_var("")
                self.model.add_implication(literal, copy.present)
                self.model.add(copy.stage >= left + 1).only_enforce_if(literal)
                self.model.add(copy.stage <= right).only_enforce_if(literal)
                inside.append(literal)
            some = inside[0]
            if len(inside) > 1:
                some = self.model.new_bool_var("")
                self.model.add_bool_or([*inside, some.negated()])
            gaps[key] = some
        return gaps[key]

    def add_hint(self, stages: Sequence[Sequence[int]]) -> None:
        """Tell CP-SAT which nodes are executed again in which stages."""
        for made, known in zip(self.copies, stages, strict=True):
            for copy, stage in zip(made[1:], [*known, *[None] * len(made)], strict=False):
                self.model.add_hint(copy.present, stage is not None)
                if stage is not None:
                    self.model.add_hint(copy.stage, stage)

    def complete_hint(self, run: Run) -> None:
        """Let CP-SAT find the values of the other variables for the hinted stages, and hint at those, too."""
        from ortools.sat.python import cp_model

        solver, status = self.solve(run, fixed=True)
        if status in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            self.model.clear_hints()  # type: ignore[no-untyped-call]
            for index, value in enumerate(solver.response_proto.solution):
                self.model.add_hint(self.model.get_int_var_from_proto_index(index), value)

    def solve(self, run: Run, *, fixed: bool = False) -> tuple[cp_model.CpSolver, int]:
        """Run CP-SAT in another thread, so that ``run.stop`` and Ctrl-C are heard.

        Args:
            fixed: With the hinted variables as hinted.
        """
        left = run.effort()
        effort = min(_HINT_EFFORT if fixed else _EFFORT, math.inf if left is None else left)
        solver = cpsat.new_solver(run.limits.seed, seconds=run.remaining(), effort=effort)
        parameters = solver.parameters
        parameters.fix_variables_to_their_hinted_value = fixed
        # Measured on random layers of 100 and 250 ops: the full relaxation has bounds three times higher, and taking
        # turns with neighbourhood search finds better sequences, in one thread and in the same order every time.
        parameters.linearization_level = 2
        parameters.interleave_search = True
        status = int(cpsat.run(solver, self.model, run.stop))
        run.spend(solver.response_proto.deterministic_time)
        return solver, status

    def sequence(self, solver: cp_model.CpSolver) -> list[int]:
        """Return the ops in the order of the solution's times."""
        times = []
        for node, made in enumerate(self.copies):
            for copy in made:
                if copy.present is None:
                    times.append((self._time(node), node))
                elif solver.boolean_value(copy.present):
                    times.append((int(solver.value(copy.start)), node))
        return [op for _, node in sorted(times) for op in self.nodes.members[node]]


def crowded(nodes: Nodes, budget: int) -> Iterator[tuple[int, list[tuple[Gap, int]]]]:
    """Yield for each step that needs more than ``budget`` bytes how many too many, and the gaps around it in bytes."""
    load = [nodes.variables + nodes.extra[node] for node in range(nodes.count)]
    idle: list[list[tuple[Gap, int]]] = [[] for _ in range(nodes.count)]
    for value in nodes.all:
        first = max(value.maker, 0)
        last = nodes.count - 1 if value.kept else max(value.readers, default=first)
        for node in range(first, last + 1):
            load[node] += value.size
        if value.maker < 0 or value.kept or not nodes.repeat[value.maker] or not value.size:
            continue
        for left, right in itertools.pairwise(sorted({first, *value.readers})):
            for node in range(left + 1, right):
                idle[node].append(((value.maker, left, right), value.size))
    for node in range(nodes.count):
        most = max([bytes_ for _, bytes_ in nodes.credits[node]], default=0)
        if load[node] - most > budget:
            yield load[node] - most - budget, idle[node]
