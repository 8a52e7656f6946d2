"""Layers in loops: one body that computes groups of layers tile by tile, for runtimes that keep bytes for every op."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.looks import Looks
from memsched.commands.optimize.loop_order import LoopStart, reordered
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import RewriteBase, RewritePoint
from memsched.commands.optimize.tiling_section import form_of, loop_row, lower_bound, refusal_row
from memsched.formats.known import format_of
from memsched.graph.border import Border
from memsched.graph.model import Graph
from memsched.ops.geometry import has_windows
from memsched.report.values.rewrites import TilingPointRow, TilingSection
from memsched.report.values.shared import FiguresSection
from memsched.tiling.fold import fold_pads
from memsched.tiling.local import GroupCost
from memsched.tiling.loop import LoopGroup, loop_of
from memsched.tiling.loop_rewrite import with_loops
from memsched.tiling.loop_search import LoopPoint, LoopSearch
from memsched.units import percent_of

__all__ = ["LoopRewrite"]

_SEARCH_SHARE = 0.5
"""Share of the time left for the search; the rest is for orders and addresses of what it finds."""

_LEAST_EFFORT = 0.4
"""Least effort of the search, however little time there is."""

_PLACINGS = 2.0
"""Time that is left for another placing, as a multiple of what the last one took."""

_EFFORT = 30.0
"""Effort of a search without another limit: it nearly always ends by itself long before."""


class LoopRewrite:
    """Groups of layers computed tile by tile in loops; work counts multiply-accumulates. See `Rewrite`.

    A part of a way is a group. Points compare what their largest step needs and what the ops of their loops keep.

    Args:
        start: The model in another order; None for that in which it was placed.
    """

    share = 0.2
    small = False
    told_as_stored = True
    proven = False

    def __init__(
        self,
        base: RewriteBase,
        request: Request,
        percent: float,
        budget: int | None,
        start: LoopStart | None = None,
    ) -> None:
        self._base, self._request, self._percent, self._budget = base, request, percent, budget
        self._dialect = base.dialect
        self._start = start or LoopStart(fold_pads(base.to_cut, self._dialect), ())
        self.graph = self._start.graph
        self.total = sum(op.macs for op in self.graph.ops)
        target = base.prepared.target
        most_macs = int(self.total * percent / 100)
        # Beside what it says of prices the budget changes nothing: one search finds the frontier, of which it picks.
        prices = base.prices(request, budget)
        self._pause = math.inf
        self._search = LoopSearch(
            self.graph,
            target,
            self._dialect,
            prices=prices,
            most_macs=most_macs,
            known=self._start.groups,
            exact=request.exact,
        )
        self._points: tuple[LoopPoint, ...] | None = None
        self._refused: dict[int, str] = {}
        self.looks = Looks()

    @property
    def finished(self) -> bool:
        """Whether nothing was left to try."""
        return self._search.exhausted

    def resume(self, request: Request) -> None:
        """Search within another request from now on."""
        self._request = request
        self._pause = request.within(_SEARCH_SHARE).deadline()
        self.looks.within(request, self._search.effort)

    def search(
        self, meets: Callable[[RewritePoint[LoopGroup]], bool], lookout: Lookout[RewritePoint[LoopGroup]] | None
    ) -> Sequence[RewritePoint[LoopGroup]]:
        """Search until there is something to make models of, or until nothing is left or the time is up."""
        del meets
        looks = self.looks
        # The least work within a budget is not what earlier looks are for.
        least_work = lookout is None and self._budget is not None
        if least_work:
            looks.skip()
        while True:
            points = self._search_on(looks.at if looks.fixed else self._search.effort + _EFFORT)
            ended = self.finished or not looks.due(self._search.effort)
            worth = looks.worth(min((point.peak for point in points), default=math.inf), last=ended)
            if worth or least_work or not looks.fixed:
                return points
            if ended or not looks.next():
                return ()

    def search_out(self) -> Sequence[RewritePoint[LoopGroup]]:
        """Search until nothing is left, or for as much work as is permitted."""
        within = self._request.within(_SEARCH_SHARE)
        effort, self._pause = within.effort(), within.deadline()
        return self._search_on(self._search.effort + (_EFFORT if effort is None else effort))

    def _search_on(self, until: float) -> list[RewritePoint[LoopGroup]]:
        run, before = self._request.run, self._search.effort

        def over() -> bool:
            return run.stop() or (run.clock() >= self._pause and self._search.effort >= _LEAST_EFFORT)

        self._points = self._search.run(until - before, over)
        run.spend(self._search.effort - before)
        return [self._point(one) for one in self._points if one.groups]

    @staticmethod
    def _point(point: LoopPoint) -> RewritePoint[LoopGroup]:
        return RewritePoint(point.required, point.extra_macs, point.extra_macs, point.groups)

    def goes_on(self, seconds: float) -> bool:
        """Return whether there is time for going on and for placing what it finds."""
        self._pause = self._request.deadline() - _PLACINGS * seconds
        if self.finished or not self.looks.fixed or self._request.run.clock() >= self._pause:
            return False
        return not self.looks.due(self._search.effort) or self.looks.next()

    def drop(self, reasons: Mapping[tuple[LoopGroup, ...], str], *, last: bool) -> None:
        """Leave groups out; others may be found instead of them."""
        for groups, reason in reasons.items():
            self._search.drop(groups)
            self.looks.again()
            for group in groups:
                self._refused[group.ops[0]] = f"{len(group.ops)} layers from here cannot be written as a loop: {reason}"
        if last:
            self._points = self._search.points()

    def again(self) -> LoopStart | None:
        """Return the model in an order in which the best loops so far need less; None where none was found."""
        blocks = self._search.blocks()
        return reordered(self.graph, blocks, self._base.prepared.target) if blocks else None

    def of_use(self) -> list[GroupCost]:
        """Return what known loops cost that are of use beside layers in pieces."""
        return self._search.of_use()

    def parts(self, way: tuple[LoopGroup, ...]) -> Sequence[tuple[LoopGroup, ...]]:
        """Return each group by itself."""
        return [(group,) for group in way]

    def coarser(self, part: tuple[LoopGroup, ...]) -> Sequence[tuple[LoopGroup, ...]]:
        """Return the loop with tiles twice as large."""
        return [(one,) for group in part for one in group.coarser()]

    def borders(self, way: tuple[LoopGroup, ...]) -> tuple[Border, ...]:
        """Return nothing: inputs and outputs stay."""
        del way
        return ()

    def build(self, way: tuple[LoopGroup, ...]) -> Graph:
        """Return the graph with these groups as loops."""
        return with_loops(self.graph, [loop_of(self.graph, group, self._dialect) for group in way], self._dialect)

    def cost(self, point: RewritePoint[LoopGroup]) -> int:
        """Return a point's extra multiply-accumulates."""
        return point.extra_macs

    @functools.cached_property
    def _bound(self) -> int | None:
        # It holds for groups in the order in which the model was placed.
        return None if self._start.groups else lower_bound(self._base, self._request, self.graph)

    def describe(self, before: Rewrites, used: RewritePoint[LoopGroup] | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on layers in pieces, which loops are one form of."""
        axes = format_of(self._base.module).traits.axes if has_windows(self.graph) else ()
        refused = {**dict(self._search.refusals()), **self._refused}
        section = TilingSection(
            applied=used is not None,
            max_extra_macs_percent=float(self._percent),
            extra_macs=extra_macs,
            extra_macs_percent=percent_of(extra_macs, self.total),
            untiled=FiguresSection(peak_bytes=self._base.peak, arena_bytes=self._base.placed.allocation.arena),
            groups=tuple(loop_row(self.graph, group, self._dialect, axes) for group in (used.way if used else ())),
            refusals=tuple(
                refusal_row(self.graph.ops[op], reason, form_of(self._dialect), found=op in self._refused)
                for op, reason in sorted(refused.items())
            ),
            judged=self._search.judged,
            exhausted=self._search.exhausted,
            lower_bound_bytes=self._bound,
            frontier=tuple(
                TilingPointRow(
                    peak_bytes=point.peak,
                    extra_macs_percent=percent_of(point.extra_macs, self.total),
                )
                for point in self._points or ()
            ),
        )
        return replace(before, tiling=section)
