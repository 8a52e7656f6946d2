"""Layers in loops: one body that computes groups of layers tile by tile, for runtimes that keep bytes for every op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import RewriteBase, RewritePoint
from memsched.errors import InternalError
from memsched.formats.known import format_of
from memsched.graph.loop import Loop
from memsched.graph.model import Graph
from memsched.regions.geometry import has_windows
from memsched.regions.rules import Refusal
from memsched.report.values.rewrites import GroupRow, RefusalRow, TilingPointRow, TilingSection
from memsched.report.values.shared import FiguresSection
from memsched.tiling.fold import fold_pads
from memsched.tiling.loop import LoopGroup, plan_loop
from memsched.tiling.loop_rewrite import with_loops
from memsched.tiling.loop_search import LoopPoint, LoopSearch

__all__ = ["LoopRewrite"]

_SEARCH_SHARE = 0.5
"""Of the time that is left, for the search; the rest is for orders and addresses of what it finds."""

_LEAST_EFFORT = 0.4
"""Of the search, whatever the time."""

_EFFORT = 30.0
"""Of a search without another limit: it nearly always ends by itself long before."""


class LoopRewrite:
    """Groups of layers computed tile by tile in loops; work counts multiply-accumulates. See `Rewrite`.

    A part of a way is a group. Points compare what their largest step needs and what the ops of their loops keep.
    """

    share = 0.2
    small = True
    told_as_stored = True

    def __init__(self, base: RewriteBase, request: Request, percent: float, budget: int | None) -> None:
        del budget  # the whole frontier is found in one search, and the budget picks from it
        self._base, self._request, self._percent = base, request, percent
        self._dialect = base.dialect
        self.graph = fold_pads(base.executed, self._dialect)
        self.total = sum(op.macs for op in self.graph.ops)
        target = base.prepared.target
        self._most = int(self.total * percent / 100)
        beside = base.placed.requirement.beside
        price = target.bytes_per_op if beside else 0
        self._search = LoopSearch(self.graph, target, self._dialect, price=price, most_macs=self._most)
        self._beside = beside
        self._points: tuple[LoopPoint, ...] | None = None
        self._refused: dict[str, str] = {}

    @property
    def finished(self) -> bool:
        """Whether nothing was left to try."""
        return self._search.exhausted

    def resume(self, request: Request) -> None:
        """Search within another request from now on."""
        self._request = request

    def search(
        self, meets: Callable[[RewritePoint[LoopGroup]], bool], lookout: Lookout[RewritePoint[LoopGroup]] | None
    ) -> Sequence[RewritePoint[LoopGroup]]:
        """Search until nothing is left, or for as much work as is permitted."""
        del meets, lookout
        return self.search_out()

    def search_out(self) -> Sequence[RewritePoint[LoopGroup]]:
        """Search until nothing is left, or for as much work as is permitted."""
        effort = self._request.effort()
        pause = self._request.within(_SEARCH_SHARE).deadline()
        clock, stop = self._request.run.clock, self._request.run.stop
        most = _EFFORT if effort is None else effort
        least = min(_LEAST_EFFORT, most)
        self._points = self._search.run(least, stop)
        if not self._search.exhausted and most > least:
            self._points = self._search.run(most - least, lambda: stop() or clock() >= pause)
        return [self._point(one) for one in self._points if one.groups]

    def _point(self, point: LoopPoint) -> RewritePoint[LoopGroup]:
        return RewritePoint(point.required + self._beside, point.extra_macs, point.extra_macs, point.groups)

    def goes_on(self, seconds: float) -> bool:
        """Return False: all that may be found is found at once."""
        del seconds
        return False

    def drop(self, reasons: Mapping[tuple[LoopGroup, ...], str], *, last: bool) -> None:
        """Leave groups out; others may be found instead of them."""
        for groups, reason in reasons.items():
            self._search.drop(groups)
            for group in groups:
                why = f"{len(group.ops)} layers from here cannot be written as a loop: {reason}"
                self._refused[self.graph.ops[group.ops[0]].name] = why
        if last:
            self._points = self._search.run(0.0, lambda: True)

    def parts(self, way: tuple[LoopGroup, ...]) -> Sequence[tuple[LoopGroup, ...]]:
        """Return each group by itself."""
        return [(group,) for group in way]

    def build(self, way: tuple[LoopGroup, ...]) -> Graph:
        """Return the graph with these groups as loops."""
        return with_loops(self.graph, [self._loop(group) for group in way], self._dialect)

    def _loop(self, group: LoopGroup) -> Loop:
        found = plan_loop(self.graph, group, self._dialect)
        if isinstance(found, Refusal):
            raise InternalError(f"a group that was judged cannot be a loop: {found.reason}")
        return found

    def cost(self, point: RewritePoint[LoopGroup]) -> int:
        """Return a point's extra multiply-accumulates."""
        return point.extra_macs

    def describe(self, before: Rewrites, used: RewritePoint[LoopGroup] | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on layers in pieces, which loops are one form of."""
        axes = format_of(self._base.module).axes if has_windows(self.graph) else ()
        kinds = {op.name: op.type for op in self.graph.ops}
        section = TilingSection(
            applied=used is not None,
            max_extra_macs_percent=float(self._percent),
            extra_macs=extra_macs,
            extra_macs_percent=self._share_of(extra_macs),
            untiled=FiguresSection(peak_bytes=self._base.peak, arena_bytes=self._base.placed.allocation.arena),
            groups=tuple(self._row(group, axes) for group in (used.way if used else ())),
            refusals=tuple(
                RefusalRow(op=name, type=kinds[name], reason=reason) for name, reason in self._refused.items()
            ),
            judged=self._search.judged,
            exhausted=self._search.exhausted,
            frontier=tuple(
                TilingPointRow(
                    peak_bytes=point.peak,
                    extra_macs_percent=self._share_of(point.extra_macs),
                )
                for point in self._points or ()
            ),
        )
        return replace(before, tiling=section)

    def _row(self, group: LoopGroup, axes: Sequence[str]) -> GroupRow:
        loop = self._loop(group)
        given = sum(self.graph.ops[op].macs for op in group.ops)
        shape = self.graph.tensors[loop.output].shape or ()
        return GroupRow(
            ops=tuple(self.graph.ops[op].name for op in group.ops),
            axes=group.axes,
            axis_names=tuple(axes[axis] if len(shape) == len(axes) else f"axis {axis}" for axis in group.axes),
            pieces=tuple(len(tiles) for tiles in loop.tiles),
            kept_halos=(),
            padded_ops=(),
            extra_macs=loop.macs - given,
            peak_bytes=0,
            form="loop",
        )

    def _share_of(self, macs: int) -> float:
        return round(100 * macs / self.total, 3) if self.total else 0.0
