"""Values computed again: the search for sequences, the graph that executes some ops several times, what is reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import RewriteBase, RewritePoint
from memsched.errors import InternalError
from memsched.graph.border import Border
from memsched.graph.model import Graph, Op
from memsched.lowering.apply import apply_target
from memsched.remat.apart import apart
from memsched.remat.cost import RematPoint, judge, least_peak, work_of
from memsched.remat.found import RematResult, untried
from memsched.remat.rewrite import rematerialise, repeatable
from memsched.remat.search import SMALL, search
from memsched.report.values.rewrites import CopyRow, RematPointRow, RematSection
from memsched.report.values.shared import FiguresSection
from memsched.units import percent_of

__all__ = ["RematRewrite"]

_SEARCH_SHARE = 0.6
"""Share of the time left for the search; orders and addresses of what it found take the rest."""


class RematRewrite:
    """Ops executed several times; work counts multiply-accumulates and bytes moved. See `Rewrite`.

    The permitted percentage holds for that and for multiply-accumulates alone.

    A way is a sequence of ops, which is done as a whole.
    """

    share = 0.5
    told_as_stored = False
    proven = False
    looks = None

    def __init__(self, base: RewriteBase, request: Request, percent: float, budget: int | None) -> None:
        self._base, self._request, self._percent = base, request, percent
        # In the module's order; the graph that is rewritten is in the order of execution.
        self._given = base.given
        self._step_of = {op: step for step, op in enumerate(base.order)}
        self.graph = base.executed
        self.total = work_of(self.graph).total
        self.most = int(self.total * percent / 100)
        self._most_macs = int(sum(op.macs for op in self.graph.ops) * percent / 100)
        self.small = len(self.graph.ops) <= SMALL
        self._prices, self._most_time = base.prices(request, budget), base.most_time(request)
        self._kept = 0 if self._prices is None else self._prices.of_model.persistent
        self._budget = None if budget is None else max(0, budget - self._kept)
        self._found: RematResult | None = None
        self._aimed = False
        self._points: dict[tuple[int, ...], RematPoint] = {}
        self._refused: dict[tuple[int, ...], str] = {}

    @property
    def finished(self) -> bool:
        """Whether the search ended before its time was up."""
        return self._known.finished

    @property
    def _known(self) -> RematResult:
        if self._found is None:
            raise InternalError("nothing was searched yet")
        return self._found

    def resume(self, request: Request) -> None:
        """Search within another request from now on."""
        self._request = request

    def search(
        self,
        meets: Callable[[RewritePoint[int]], bool],  # noqa: ARG002
        lookout: Lookout[RewritePoint[int]] | None,
    ) -> Sequence[RewritePoint[int]]:
        """Search once as without a budget, and once for the least work within it, if it comes to that."""
        within = self._request.within(_SEARCH_SHARE)
        if self._found is None:

            def enough(point: RematPoint) -> bool:
                return lookout is not None and lookout.sees([self._point(point)])

            self._found = self._search(within, None, enough)
        if lookout is None and self._worth_aiming():
            self._found, self._aimed = self._search(within, self._budget), True
        # Where the time was too short for the best order, the search may know a better one that costs nothing.
        given = self._needed(self._base.peak, ())
        return [point for point in self._permitted() if point.peak < given]

    def search_out(self) -> Sequence[RewritePoint[int]]:
        """Search until nothing is left or the time is up."""
        self._found = self._search(self._request, None)
        return self._permitted()

    def take_apart(self) -> None:
        """Know of one sequence alone: the largest value that several ops read executed for each of them."""
        base = self._base
        known = untried(self._given, base.order, base.prepared.target, None, custom=False)
        work, may = work_of(self.graph), repeatable(self.graph)
        found = apart(self.graph, work.costs, may, self.most)
        if found:
            sequence = [base.order[op] for op in found]
            point = judge(self._given, sequence, base.prepared.target, base.dialect, "copies for readers")
            known = replace(known, frontier=(*known.frontier, point))
        self._found = replace(known, judged=len(known.frontier) - 1, finished=True)

    def _worth_aiming(self) -> bool:
        """Whether a search for the budget may find something; where the peak alone meets it, nothing says how."""
        if self._budget is None or self._aimed or self._budget >= self._base.peak:
            return False
        return not (self._known.settled and self._known.best.peak > self._budget)

    def _permitted(self) -> Sequence[RewritePoint[int]]:
        points = [one for one in self._known.frontier if self._permits(one) and one.sequence not in self._refused]
        for point in points:
            # More may be proven of it now.
            self._points[point.sequence] = point
        return [self._point(point) for point in points]

    def _permits(self, point: RematPoint) -> bool:
        pace = None if self._prices is None else self._prices.pace
        if point.cost > self.most or point.extra_macs > self._most_macs:
            return False
        return pace is None or pace.of_ops(self._given, self._again(point.sequence)) <= self._most_time

    def _again(self, sequence: Sequence[int]) -> list[Op]:
        """Return what a sequence executes again, each op as often."""
        return [self._given.ops[op] for op, count in Counter(sequence).items() for _ in range(count - 1)]

    def _point(self, point: RematPoint) -> RewritePoint[int]:
        needed = self._needed(point.peak, point.sequence)
        return RewritePoint(needed, point.cost, point.extra_macs, point.sequence)

    def _needed(self, peak: int, sequence: Sequence[int]) -> int:
        """Return the peak with what is kept beside it, for what a sequence executes again, too; bytes."""
        if self._prices is None:
            return peak
        return self._prices.required(peak, self._prices.of_ops(self._given, self._again(sequence)))

    def _search(
        self, request: Request, budget: int | None, enough: Callable[[RematPoint], bool] | None = None
    ) -> RematResult:
        return search(
            self._given,
            self._base.order,
            self._base.prepared.target,
            self._base.dialect,
            request.run,
            budget=budget,
            most_extra=self._percent / 100,
            most_macs=self._most_macs,
            known=self._found.frontier if self._found is not None else (),
            enough=enough,
        )

    def goes_on(self, seconds: float) -> bool:  # noqa: ARG002
        """Return False: a search ends by itself."""
        return False

    def drop(self, reasons: Mapping[tuple[int, ...], str], *, last: bool) -> None:  # noqa: ARG002
        """Leave out sequences; others that were found are tried in their place."""
        self._refused.update(reasons)

    def parts(self, way: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
        """Return the whole sequence, if it has repetitions."""
        return [way] if len(way) > len(self.graph.ops) else []

    def coarser(self, part: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
        """Return nothing: a part is done or left."""
        del part
        return ()

    def borders(self, way: tuple[int, ...]) -> tuple[Border, ...]:
        """Return nothing: inputs and outputs stay."""
        del way
        return ()

    def build(self, way: tuple[int, ...]) -> Graph:
        """Return the graph as executed by a sequence."""
        return rematerialise(self.graph, [self._step_of[op] for op in way], self._base.dialect).graph

    def cost(self, point: RewritePoint[int]) -> int:
        """Return a point's extra multiply-accumulates and bytes moved."""
        return point.work

    def describe(
        self,
        before: Rewrites,
        used: RewritePoint[int] | None,
        extra_macs: int,  # noqa: ARG002 each point has its own
    ) -> Rewrites:
        """Return ``before`` with the section on values computed again."""
        point = self._points[used.way] if used is not None else None
        refused = tuple(dict.fromkeys(self._refused.values()))
        section = _section(self._given, self._known, point, self._base, self._percent, refused)
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
