"""Layers in pieces: the search for groups to cut, the graph that computes them piece by piece, and what is reported."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from msgspec import UNSET

from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.looks import Looks
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import RewriteBase, RewritePoint
from memsched.commands.optimize.tiling_section import group_row, loop_row, lower_bound, refusal_row
from memsched.errors import InternalError
from memsched.formats.known import format_of
from memsched.frozen import FrozenValue
from memsched.graph.border import Border
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.ops.geometry import has_windows
from memsched.remat.cost import MACS_PER_BYTE, work_of
from memsched.report.values.rewrites import GroupRow, TilingPointRow, TilingSection
from memsched.report.values.shared import FiguresSection
from memsched.tiling.fold import fold_pads
from memsched.tiling.local import Group, GroupCost
from memsched.tiling.loop import LoopGroup, loop_of
from memsched.tiling.loop_rewrite import with_loops
from memsched.tiling.pieces import Pieces, TilingGroup, plan_pieces
from memsched.tiling.rewrite import rewrite
from memsched.tiling.search import FrontierPoint, TilingResult, TilingSearch
from memsched.units import percent_of

__all__ = ["TileRewrite"]

_SEARCH_SHARE = 0.45
"""Share of the time left for the search for groups until the first are placed, if there are any by then."""

_PLACINGS = 2.0
"""Time that is set aside for the next placing while the search goes on, as a multiple of what the last one took."""


_AHEAD = 0.25
"""Work of the search at a time while models are made in other processes, which then wait for nothing for long."""

_ROUNDING = 1e-6
"""By how much work, counted in whole steps, may seem less than it is."""


class TilingBuilder(FrozenValue, frozen=True):
    """Makes graphs in pieces, in whichever process.

    Attributes:
        graph: As it is.
    """

    graph: Graph
    base: RewriteBase

    @property
    def proven(self) -> bool:
        """Whether graphs are checked when they are built: they are not."""
        return False

    def borders(self, way: tuple[Group, ...]) -> tuple[Border, ...]:
        """Return nothing: inputs and outputs stay."""
        del way
        return ()

    def build(self, way: tuple[Group, ...]) -> Graph:
        """Return the graph with these groups in pieces, or in loops."""
        return _in_pieces(self.graph, way, self.base.dialect)


class _TilingLook(FrozenValue, frozen=True):
    """A look at the search.

    Attributes:
        looks: As they were then.
        work: Of the search until then.
        more: Another look may follow.
        late: The time was up before the look was due.
    """

    found: TilingResult
    points: Sequence[RewritePoint[Group]]
    looks: Looks
    work: float
    more: bool
    late: bool


class TileRewrite:
    """Groups of layers computed piece by piece; work counts multiply-accumulates. See `Rewrite`.

    A part of a way is a group.

    Args:
        loops: Known loops that may be part of a way, too.
    """

    share = 0.15
    small = False
    told_as_stored = True
    proven = False

    def __init__(
        self,
        base: RewriteBase,
        request: Request,
        percent: float,
        budget: int | None,
        *,
        loops: Sequence[GroupCost] = (),
    ) -> None:
        self._base, self._request = base, request
        self._percent, self._budget = percent, budget
        self._dialect = base.dialect
        self.graph = fold_pads(base.to_cut, self._dialect)
        self.total = sum(op.macs for op in self.graph.ops)
        self.most = int(self.total * percent / 100)
        self._meets: Callable[[RewritePoint[Group]], bool] = lambda _: True
        self._refused: dict[str, str] = {}
        self._extra: dict[Group, int] = {}
        self._prices, self._most_time = base.prices(request, budget), base.most_time(request)
        self._loops = tuple(loops)
        self._search = self._begun()
        self._done, self._more = 0.0, True
        self._dropped: list[tuple[float, tuple[Group, ...]]] = []
        self._looking: Iterator[_TilingLook | None] | None = None
        self._seen_ahead: deque[_TilingLook] = deque()
        self._at_once = math.inf
        self.looks = Looks()
        self._found: TilingResult | None = None
        self.resume(request)

    def _begun(self) -> TilingSearch:
        return TilingSearch(
            self.graph,
            self._base.prepared.target,
            self._dialect,
            self._request.run,
            most_macs=self.most,
            budget=self._budget,
            enough=lambda point: bool(point.groups) and self._meets(_point(point)),
            prices=self._prices,
            most_time=self._most_time,
            loops=self._loops,
            exact=self._request.exact,
        )

    @property
    def finished(self) -> bool:
        """Whether nothing was left to try."""
        return self._known.exhausted

    @property
    def _known(self) -> TilingResult:
        if self._found is None:
            raise InternalError("nothing was searched yet")
        return self._found

    def resume(self, request: Request) -> None:
        """Take up the search where it was left."""
        self._rewind()
        self._request = request
        self._pause, self._end = request.within(_SEARCH_SHARE).deadline(), request.deadline()
        # A limit of work is divided once: what models on the way take changes nothing about the search.
        self.looks.within(request, self._search.work)

    def search(
        self,
        meets: Callable[[RewritePoint[Group]], bool],
        lookout: Lookout[RewritePoint[Group]] | None,
    ) -> Sequence[RewritePoint[Group]]:
        """Search until there is something to make a model of, or until nothing is left or the time is up."""
        self._meets = meets
        looks = self.looks
        # The least work within a budget is not what earlier looks are for.
        least_work = lookout is None and self._budget is not None
        if least_work:
            looks.skip()
        if looks.fixed and self._budget is None:
            return self._look()
        while True:
            until = lookout.at if lookout is not None else None
            most = looks.at if looks.fixed and not (least_work and math.isfinite(self._end)) else None
            self._found = self._run(self._pause, self._end, most, until)
            points = self._points()
            if self._found.reached and lookout is not None:
                if lookout.sees(points):
                    return points
                continue
            if not looks.fixed or least_work:
                return points
            ended = self._found.exhausted or not looks.due(self._search.work)
            if looks.worth(min((point.peak for point in points), default=math.inf), last=ended):
                return points
            if ended or not looks.next():
                return ()

    def _look(self) -> Sequence[RewritePoint[Group]]:
        """Go on to the next look at which there may be models to make."""
        if not self._seen_ahead:
            self._at_once = math.inf
            self._looking = self._looking or self._further_looks()
            self._seen_ahead.append(next(one for one in self._looking if one is not None))
        look = self._seen_ahead.popleft()
        self._found, self.looks, self._more = look.found, look.looks, look.more
        self._request.run.spend(look.work - self._done)
        self._done = look.work
        return look.points

    def _further_looks(self) -> Iterator[_TilingLook | None]:
        """Yield looks, from the one that is due next on, and None while the search goes on."""
        looks, more = copy.copy(self.looks), True
        while more:
            found = None
            while found is None:
                most = min(looks.at, self._search.work + self._at_once)
                found = self._search.run(self._pause, self._end, most)
                done = self._search.work
                if not (found.exhausted or looks.due(done) or done < most - _ROUNDING):
                    yield None
                    found = None
            points = [_point(one) for one in found.frontier if one.groups and self._permits(one)]
            late = not found.exhausted and not looks.due(done)
            ended = found.exhausted or late
            worth = looks.worth(min((point.peak for point in points), default=math.inf), last=ended)
            then = copy.copy(looks)
            more = not found.exhausted and (late or looks.next())
            if worth or not more or late:
                yield _TilingLook(found, points if worth else (), then, done, more, late)

    def _rewind(self) -> None:
        """Forget what was searched ahead."""
        self._looking = None
        self._seen_ahead.clear()
        if self._search.work > self._done + _ROUNDING:
            self._search = self._begun()
            for work, groups in self._dropped:
                self._search_until(work)
                self._search.drop(groups)
            self._search_until(self._done)

    def _search_until(self, work: float) -> None:
        # As it was left there before: a search that has done so much would go on by another way of cutting.
        if self._search.work < work - _ROUNDING:
            self._search.run(math.inf, math.inf, work - _ROUNDING)

    def builder(self) -> TilingBuilder:
        """Return what builds its graphs in another process."""
        return TilingBuilder(self.graph, self._base)

    def goes_ahead(self) -> bool:
        """Return whether there is something to search for beyond the last look."""
        if not self.looks.fixed or self._budget is not None or self._request.over():
            return False
        last = self._seen_ahead[-1] if self._seen_ahead else None
        return self._more if last is None else last.more and not last.late

    def go_ahead(self) -> tuple[Looks, Sequence[RewritePoint[Group]]] | None:
        """Search on for a moment; return the next look and what it is at, once there is one."""
        self._at_once = _AHEAD
        self._looking = self._looking or self._further_looks()
        look = next(self._looking, None)
        if look is None:
            return None
        self._seen_ahead.append(look)
        return look.looks, look.points

    def search_out(self) -> Sequence[RewritePoint[Group]]:
        """Search until nothing is left or the time is up."""
        left = self._request.effort()
        most = None if left is None else self._search.work + left
        self._found = self._run(self._end, self._end, most, None)
        return self._points()

    def _run(self, pause: float, end: float, most: float | None, until: int | None) -> TilingResult:
        before = self._search.work
        found = self._search.run(pause, end, most, until=until)
        self._done = self._search.work
        self._request.run.spend(self._done - before)
        return found

    def _points(self) -> Sequence[RewritePoint[Group]]:
        return [_point(one) for one in self._known.frontier if one.groups and self._permits(one)]

    def _permits(self, point: FrontierPoint) -> bool:
        return point.extra_macs <= self.most and point.time <= self._most_time

    def goes_on(self, seconds: float) -> bool:
        """Whether there is time for going on and for placing what it finds."""
        self._pause = self._end = self._request.deadline() - _PLACINGS * seconds
        if self._known.exhausted or not self.looks.fixed or self._request.run.clock() >= self._end:
            return False
        if self._budget is None:
            return self._more
        return not self.looks.due(self._search.work) or self.looks.next()

    def drop(self, reasons: Mapping[tuple[Group, ...], str], *, last: bool) -> None:
        """Leave groups out; others may be found instead of them."""
        self._rewind()
        for groups, reason in reasons.items():
            self._search.drop(groups)
            self._dropped.append((self._done, groups))
            self.looks.again()
            for group in groups:
                form = "a loop" if isinstance(group, LoopGroup) else f"{' x '.join(map(str, group.counts))} pieces"
                why = f"{len(group.ops)} layers from here in {form} cannot be written: {reason}"
                self._refused[self.graph.ops[group.ops[0]].name] = why
        if last:
            self._found = self._search.run(0.0, 0.0, 0.0)
            self._done = self._search.work

    def parts(self, way: tuple[Group, ...]) -> Sequence[tuple[Group, ...]]:
        """Return each group by itself."""
        return [(group,) for group in way]

    def coarser(self, part: tuple[Group, ...]) -> Sequence[tuple[Group, ...]]:
        """Return the group with half as many pieces along one axis, or the loop with tiles twice as large."""
        return [(one,) for group in part for one in group.coarser()]

    def borders(self, way: tuple[Group, ...]) -> tuple[Border, ...]:
        """Return nothing: inputs and outputs stay."""
        del way
        return ()

    def build(self, way: tuple[Group, ...]) -> Graph:
        """Return the graph with these groups in pieces, or in loops."""
        return _in_pieces(self.graph, way, self._dialect)

    def cost(self, point: RewritePoint[Group]) -> int:
        """Return a point's extra multiply-accumulates and bytes moved."""
        # Points share most of their groups, and groups do not touch each other.
        for group in point.way:
            if group not in self._extra and isinstance(group, LoopGroup):
                self._extra[group] = loop_of(self.graph, group, self._dialect).macs - self._macs(group)
            elif group not in self._extra:
                self._extra[group] = _work(self.build((group,)), self.graph) - work_of(self.graph).total
        return max(0, sum(self._extra[group] for group in point.way))

    def _macs(self, group: Group) -> int:
        return sum(self.graph.ops[op].macs for op in group.ops)

    def describe(
        self,
        before: Rewrites,
        used: RewritePoint[Group] | None,
        extra_macs: int,
    ) -> Rewrites:
        """Return ``before`` with the section on layers in pieces."""
        graph, found = self.graph, self._known
        axes = format_of(self._base.module).traits.axes if has_windows(graph) else ()
        ops = {op.name: op for op in graph.ops}
        refused = {**dict(found.refusals), **self._refused}
        section = TilingSection(
            applied=used is not None,
            max_extra_macs_percent=float(self._percent),
            extra_macs=extra_macs,
            extra_macs_percent=percent_of(extra_macs, self.total),
            untiled=FiguresSection(peak_bytes=self._base.peak, arena_bytes=self._base.placed.allocation.arena),
            groups=tuple(_group_row(graph, group, self._dialect, axes) for group in (used.way if used else ())),
            refusals=tuple(
                refusal_row(ops[name], reason, "pieces", found=name in self._refused)
                for name, reason in refused.items()
            ),
            judged=found.judged,
            exhausted=found.exhausted,
            lower_bound_bytes=lower_bound(self._base, self._request, graph, self._search.intervals.geometries),
            frontier=tuple(map(self._frontier_row, found.frontier)),
        )
        return replace(before, tiling=section)

    @property
    def _beside_arena(self) -> bool:
        """Whether what is kept for ops is no part of what the runtime requires."""
        return self._prices is not None and self._prices.pace is not None

    def _frontier_row(self, point: FrontierPoint) -> TilingPointRow:
        return TilingPointRow(
            peak_bytes=point.peak,
            extra_macs_percent=percent_of(point.extra_macs, self.total),
            whole_arena_bytes_estimate=point.required if point.beside and not self._beside_arena else UNSET,
        )


def _point(point: FrontierPoint) -> RewritePoint[Group]:
    return RewritePoint(point.required, point.extra_macs, point.extra_macs, point.groups)


def _in_pieces(graph: Graph, way: Sequence[Group], dialect: Dialect) -> Graph:
    plans = [plan_pieces(graph, group, dialect) for group in way if isinstance(group, TilingGroup)]
    cut = rewrite(graph, [plan for plan in plans if isinstance(plan, Pieces)], dialect).graph
    loops = [group for group in way if isinstance(group, LoopGroup)]
    if not loops:
        return cut
    place = {op.name: number for number, op in enumerate(cut.ops)}
    moved = [replace(one, ops=tuple(place[graph.ops[op].name] for op in one.ops)) for one in loops]
    return with_loops(cut, [loop_of(cut, one, dialect) for one in moved], dialect)


def _work(cut: Graph, given: Graph) -> int:
    """Return the work of a graph in pieces; slices, pads and concatenations move no more than twice what they make."""
    known = {op.name for op in given.ops}
    return sum(_costs(cut, known))


def _costs(cut: Graph, known: set[str]) -> Iterator[int]:
    work = work_of(cut)
    for number, op in enumerate(cut.ops):
        if op.origin is None and op.name not in known:
            yield max(1, 2 * MACS_PER_BYTE * sum(cut.tensors[tensor].size for tensor in op.outputs))
        else:
            yield work.cost(number)


def _group_row(graph: Graph, group: Group, dialect: Dialect, axes: Sequence[str]) -> GroupRow:
    if isinstance(group, LoopGroup):
        return loop_row(graph, group, dialect, axes)
    pieces = plan_pieces(graph, group, dialect)
    macs = pieces.macs if isinstance(pieces, Pieces) else sum(graph.ops[op].macs for op in group.ops)
    return group_row(graph, group, axes, group.counts, macs, form="pieces", kept=group.kept, padded=group.padded)
