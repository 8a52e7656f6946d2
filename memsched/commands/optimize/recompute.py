"""Values computed again: the search for sequences, the graph that executes some ops several times, what is reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from memsched.base.units import percent_of
from memsched.commands.optimize.rewrite import Candidate, Proposals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.graph.model import Graph, Op
from memsched.lowering.apply import apply_target
from memsched.report.values.rewrites import CopyRow, RematPointRow, RematSection
from memsched.report.values.shared import FiguresSection
from memsched.rewrites.recompute.apart import apart
from memsched.rewrites.recompute.cost import RematPoint, judge, least_peak, work_of
from memsched.rewrites.recompute.found import RematResult, untried
from memsched.rewrites.recompute.rewrite import rematerialise, repeatable
from memsched.rewrites.recompute.search import SMALL, search
from memsched.search.limits import Limits
from memsched.search.run import Run

__all__ = ["CopiesRewrite", "RematRewrite"]

_STEP: Final = 0.01
"""Work of the first search, as `Limits.effort` counts it; each one after it has twice as much."""

_ENOUGH: Final = 4
"""A search that ended by itself with this fraction of the work that it might do would find no more with more."""

_COPIED: Final = 0.75
"""Share of the extra work that is permitted for copies of the largest value; pieces of them may repeat some, too."""


@dataclass(frozen=True, slots=True)
class RematRewrite:
    """Ops executed several times."""

    name = "remat"
    once = False
    described = "values computed again (remat)"

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is; see `Rewrite`."""
        return len(base.given.ops) <= SMALL

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose sequences with repetitions, by searches with more and more work that go on from what is known."""
        ways = _RematWays(base)
        refused = dict((yield Candidate(ways)) or {})
        told: set[tuple[int, ...]] = set()
        least, work, ended = float("inf"), _STEP, False
        while True:
            if refused:
                ways.refused.update(refused)
                told.clear()
            before = run.meter.done
            if not ended:
                ways.search_on(run.again(Limits(None, run.limits.seed, effort=work)))
                # With little work, all of its stages are cut short.
                spent = run.meter.done - before
                ended = ways.found.settled or (ways.found.finished and spent <= work / _ENOUGH)
            work *= 2
            points = list(ways.points())
            best = min((one.promise for one in points), default=least)
            fresh = [one for one in points if one.way not in told] if best < least or ended else []
            told.update(one.way for one in fresh)
            least, refused = min(least, best), {}
            for one in fresh:
                refused |= (yield one) or {}
            if ended or not fresh:
                refused |= (yield None) or {}
            if ended and not refused:
                refused = dict((yield None) or {})
                if not refused:
                    return


@dataclass(frozen=True, slots=True)
class CopiesRewrite:
    """The largest value computed for each op that reads it, so that pieces can be cut through it: half a rewrite."""

    name = "remat"
    once = True
    described = "a copy of a value for each reader (remat)"

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is; see `Rewrite`."""
        del base
        return False

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose the one sequence that there is, if it is within the permitted work; it may need more than without."""
        del run
        ways = _RematWays(base, stands=True)
        yield Candidate(ways)
        ways.take_apart()
        yield from (one for one in ways.points() if ways.parts(one.way))


class _RematWays(Ways):
    """Ops executed several times; a way is a sequence of ops, which is done as a whole.

    Work is multiply-accumulates and bytes moved; the permitted percentage holds for that and for multiply-accumulates
    alone.
    """

    def __init__(self, base: RewriteBase, *, stands: bool = False) -> None:
        super().__init__(base.executed)
        self._base, self.stands = base, stands
        # In the module's order; the graph that is rewritten is in the order of execution.
        self._given = base.given
        self._step_of = {op: step for step, op in enumerate(base.order)}
        self.total = work_of(self.graph).total
        percent = base.pricing.percent * (_COPIED if stands else 1.0)
        self._percent = percent
        self._most = int(self.total * percent / 100)
        self._most_macs = int(sum(op.macs for op in self.graph.ops) * percent / 100)
        self._prices, self._most_time = base.prices(), base.most_time()
        self.found: RematResult = untried(self._given, base.order, base.prepared.target)
        self._points: dict[tuple[int, ...], RematPoint] = {}
        self.refused: dict[tuple[int, ...], str] = {}

    def search_on(self, run: Run) -> None:
        """Search within ``run``, from what is known."""
        self.found = search(
            self._given,
            self._base.order,
            self._base.prepared.target,
            self._base.dialect,
            run,
            most_extra=self._percent / 100,
            most_macs=self._most_macs,
            known=self.found.frontier,
        )

    def take_apart(self) -> None:
        """Know of one sequence alone: the largest value that several ops read executed for each of them."""
        base = self._base
        work, may = work_of(self.graph), repeatable(self.graph)
        found = apart(self.graph, work.costs, may, self._most)
        if found:
            sequence = [base.order[op] for op in found]
            point = judge(self._given, sequence, base.prepared.target, base.dialect, "copies for readers")
            frontier = (*self.found.frontier, point)
            self.found = replace(self.found, frontier=frontier, judged=1, finished=True)

    def points(self) -> Iterator[Candidate]:
        """Yield what is permitted of the frontier: rising work, falling peaks."""
        given = self._needed(self._base.peak, ())
        for point in self.found.frontier:
            if not self._permits(point) or point.sequence in self.refused:
                continue
            needed = self._needed(point.peak, point.sequence)
            # Where the work was too little for the best order, the search may know a better one that costs nothing.
            if needed < given or self.stands:
                # More may be proven of it now.
                self._points[point.sequence] = point
                work = Fraction(point.cost, self.total) if self.total else Fraction(0)
                yield Candidate(self, point.sequence, needed, work, point.extra_macs)

    def _permits(self, point: RematPoint) -> bool:
        pace = None if self._prices is None else self._prices.pace
        if point.cost > self._most or point.extra_macs > self._most_macs:
            return False
        return pace is None or pace.of_ops(self._given, self._again(point.sequence)) <= self._most_time

    def _again(self, sequence: Sequence[int]) -> list[Op]:
        """Return what a sequence executes again, each op as often."""
        return [self._given.ops[op] for op, count in Counter(sequence).items() for _ in range(count - 1)]

    def _needed(self, peak: int, sequence: Sequence[int]) -> int:
        """Return the peak with what is kept beside it, for what a sequence executes again, too; bytes."""
        if self._prices is None:
            return peak
        return self._prices.required(peak, self._prices.of_ops(self._given, self._again(sequence)))

    def ops(self, way: tuple[int, ...]) -> int:
        """Return how often ops are executed."""
        return len(way)

    def parts(self, way: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
        """Return the whole sequence, if it has repetitions."""
        return [way] if len(way) > len(self.graph.ops) else []

    def build(self, way: tuple[int, ...]) -> Graph:
        """Return the graph as executed by a sequence."""
        return rematerialise(self.graph, [self._step_of[op] for op in way], self._base.dialect).graph

    def cost(self, candidate: Candidate) -> int:
        """Return a candidate's extra multiply-accumulates and bytes moved."""
        return self._points[candidate.way].cost

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on values computed again."""
        del extra_macs  # each point has its own
        point = self._points[used.way] if used is not None else None
        refused = tuple(dict.fromkeys(self.refused.values()))
        section = _section(self._given, self.found, point, self._base, self._percent, refused)
        return replace(before, remat=section)


def _section(
    graph: Graph, found: RematResult, used: RematPoint | None, base: RewriteBase, percent: float, refused: Sequence[str]
) -> RematSection:
    """Return what a report says of a search.

    Args:
        used: The point that the model was rewritten to.
        refused: Why points could not be used.
    """
    macs = sum(op.macs for op in graph.ops)
    point = used or found.frontier[0]
    # Where a runtime lays out loops or its kernels' buffers otherwise, what the search proved is of another memory.
    executed = base.placed.plans[0].graph
    alike = executed == apply_target(graph, base.prepared.target)
    bound = found.lower_bound if alike else least_peak(executed, repeatable(graph))
    return RematSection(
        applied=used is not None and used.cost > 0,
        max_extra_work_percent=round(float(percent), 3),
        extra_macs=point.extra_macs,
        extra_macs_percent=percent_of(point.extra_macs, macs),
        extra_bytes_moved=point.extra_bytes,
        extra_work_percent=percent_of(point.cost, found.total),
        status=point.status if used is not None and alike else "feasible",
        extra_work_bound_percent=percent_of(min(point.cost_bound, point.cost), found.total) if alike else 0.0,
        proof=point.proof if alike else "",
        lower_bound_bytes=bound,
        without=FiguresSection(peak_bytes=base.peak, arena_bytes=base.placed.allocation.arena),
        copies=tuple(_copies(graph, point)),
        frontier=tuple(
            RematPointRow(
                peak_bytes=step.peak,
                extra_macs_percent=percent_of(step.extra_macs, macs),
                extra_work_percent=percent_of(step.cost, found.total),
            )
            for step in found.frontier
        ),
        refusals=tuple(refused),
        judged=found.judged,
        finished=found.finished,
        settled=found.settled and alike,
    )


def _copies(graph: Graph, point: RematPoint) -> Iterator[CopyRow]:
    """Yield the ops that are executed several times, in order of execution, with what their repetitions cost."""
    work = work_of(graph)
    for op, count in Counter(point.sequence).items():
        if count > 1:
            again = count - 1
            yield CopyRow(
                op=graph.ops[op].name,
                type=graph.ops[op].type,
                times=again,
                extra_macs=again * work.macs[op],
                extra_bytes_moved=again * work.bytes[op],
            )
