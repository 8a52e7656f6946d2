"""Layers in pieces: the search for groups to cut, the graph that computes them piece by piece, and what is reported.

A group is cut into pieces that are ops of their own, or into tiles of one loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Literal

from msgspec import UNSET

from memsched.base.units import percent_of
from memsched.commands.optimize.loop_order import LoopStart
from memsched.commands.optimize.loops import LoopWays, loop_proposals
from memsched.commands.optimize.rewrite import Candidate, Proposals, Refusals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.commands.optimize.steps import next_stop
from memsched.commands.optimize.tiling_section import group_row, loop_row, lower_bound, refusal_row
from memsched.formats.known import format_of
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.ops.geometry import has_windows
from memsched.report.values.rewrites import GroupRow, TilingPointRow, TilingSection
from memsched.report.values.shared import FiguresSection
from memsched.rewrites.recompute.cost import MACS_PER_BYTE, work_of
from memsched.rewrites.tile.fold import fold_pads
from memsched.rewrites.tile.local import Group
from memsched.rewrites.tile.loop import LoopGroup, loop_of
from memsched.rewrites.tile.loop_rewrite import with_loops
from memsched.rewrites.tile.pieces import Pieces, TilingGroup, plan_pieces
from memsched.rewrites.tile.rewrite import rewrite
from memsched.rewrites.tile.search import FrontierPoint, TilingSearch
from memsched.search.run import Run

__all__ = ["TileRewrite"]

Form = Literal["loops", "pieces"]

_SHARES: Final[dict[Form, int]] = {"loops": 2, "pieces": 1}
"""How the work is divided where both forms are possible."""


@dataclass(frozen=True, slots=True)
class TileRewrite:
    """Groups of layers computed piece by piece, by ops for each piece or in loops.

    Attributes:
        free: Only without extra work.
        forms: In which layers may be computed.
    """

    free: bool = False
    forms: tuple[Form, ...] = ("loops", "pieces")

    name = "tile"
    once = False
    described = "layers in pieces (tile)"

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is; see `Rewrite`."""
        del base
        return False

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose layers to compute in loops where the format has any, and in pieces, which may be beside loops."""
        base = base.for_free() if self.free else base
        ways = _TileWays(base, run)
        refused = dict((yield Candidate(ways)) or {})
        going: dict[Form, Proposals] = {}
        loops = None
        if base.dialect.loop is not None and "loops" in self.forms:
            loops = LoopWays(base, LoopStart(ways.graph, ()))
            going["loops"] = loop_proposals(loops, run)
        if "pieces" in self.forms:
            going["pieces"] = _piece_proposals(ways, run)
        spent, told = dict.fromkeys(going, 0.0), dict.fromkeys(going, False)
        fresh = False
        while going:
            form = min(going, key=lambda one: spent[one] / _SHARES[one])
            before, one = run.meter.done, None
            try:
                one = going[form].send(refused or None) if told[form] else next(going[form])
                told[form] = True
            except StopIteration:
                del going[form]
                fresh = fresh or form == "loops"
            spent[form] += run.meter.done - before
            fresh = fresh or (form == "loops" and one is not None and one.ways is loops and bool(one.way))
            if loops is not None and fresh and (one is None or not one.way) and "pieces" in self.forms:
                # What loops bring down need not be in pieces as well.
                ways.search.take(loops.search.of_use())
                going["pieces"], told["pieces"], fresh = _piece_proposals(ways, run), False, False
            refused = dict((yield one) or {})


def _piece_proposals(ways: _TileWays, run: Run) -> Proposals:
    """Propose groups of layers to cut, those of the frontier whenever its least requirement falls."""
    refused: dict[tuple[Group, ...], str] = {}
    least, ended = float("inf"), False
    while True:
        if ended and not refused:
            refused = dict((yield None) or {})
            if not refused:
                return
        if refused:
            ways.drop(refused)
            least = float("inf")
        before = ways.search.work
        ended = ways.search.go_on(next_stop(before))
        run.spend(ways.search.work - before)
        best = ways.search.best().required
        fresh = [one for one in ways.points() if one.way not in ways.told] if best < least or ended else []
        ways.told.update(one.way for one in fresh)
        least, refused = min(least, best), {}
        for one in fresh:
            refused |= (yield one) or {}
        if not fresh:
            refused |= (yield None) or {}


class _TileWays(Ways):
    """Groups of layers in pieces; a part of a way is a group."""

    def __init__(self, base: RewriteBase, run: Run) -> None:
        self._base, self._dialect = base, base.dialect
        super().__init__(fold_pads(base.to_cut, self._dialect))
        self.total = sum(op.macs for op in self.graph.ops)
        most = int(self.total * base.pricing.percent / 100)
        self._prices, self._most_time = base.prices(), base.most_time()
        self.told: set[tuple[Group, ...]] = set()
        self._refused: dict[str, str] = {}
        self._extra: dict[Group, int] = {}
        self.search = TilingSearch(
            self.graph,
            base.prepared.target,
            self._dialect,
            run,
            most_macs=most,
            prices=self._prices,
            most_time=self._most_time,
            exact=base.pricing.exact,
        )
        self._most = most

    def points(self) -> Iterator[Candidate]:
        """Yield what is permitted of the frontier: rising work, falling requirements."""
        for point in self.search.frontier():
            if point.groups and point.extra_macs <= self._most and point.time <= self._most_time:
                work = Fraction(point.extra_macs, self.total) if self.total else Fraction(0)
                yield Candidate(self, point.groups, point.required, work, point.extra_macs)

    def drop(self, refused: Refusals) -> None:
        """Leave groups out that cannot be written; what is left is proposed again."""
        self.told.clear()
        for groups, reason in refused.items():
            self.search.drop(groups)
            for group in groups:
                form = "a loop" if isinstance(group, LoopGroup) else f"{' x '.join(map(str, group.counts))} pieces"
                why = f"{len(group.ops)} layers from here in {form} cannot be written: {reason}"
                self._refused[self.graph.ops[group.ops[0]].name] = why

    def ops(self, way: tuple[Group, ...]) -> int:
        """Return how many ops there are with these groups in pieces, each with a slice or so of its own."""
        pieces = (2 * len(group.ops) * math.prod(group.counts) for group in way if isinstance(group, TilingGroup))
        return len(self.graph.ops) + sum(pieces)

    def coarser(self, part: tuple[Group, ...]) -> Sequence[tuple[Group, ...]]:
        """Return the group with half as many pieces along one axis."""
        return [(one,) for group in part for one in group.coarser()]

    def build(self, way: tuple[Group, ...]) -> Graph:
        """Return the graph with these groups in pieces."""
        return _in_pieces(self.graph, way, self._dialect)

    def cost(self, candidate: Candidate) -> int:
        """Return a candidate's extra multiply-accumulates and bytes moved."""
        # Candidates share most of their groups, and groups do not touch each other.
        for group in candidate.way:
            if group not in self._extra:
                self._extra[group] = _work(self.build((group,)), self.graph) - work_of(self.graph).total
        return max(0, sum(self._extra[group] for group in candidate.way))

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on layers in pieces."""
        graph = self.graph
        axes = format_of(self._base.module).traits.axes if has_windows(graph) else ()
        ops = {op.name: op for op in graph.ops}
        refused = {**dict(self.search.refusals()), **self._refused}
        section = TilingSection(
            applied=used is not None,
            max_extra_macs_percent=float(self._base.pricing.percent),
            extra_macs=extra_macs,
            extra_macs_percent=percent_of(extra_macs, self.total),
            untiled=FiguresSection(peak_bytes=self._base.peak, arena_bytes=self._base.placed.allocation.arena),
            groups=tuple(_group_row(graph, group, self._dialect, axes) for group in (used.way if used else ())),
            refusals=tuple(
                refusal_row(ops[name], reason, "pieces", found=name in self._refused)
                for name, reason in refused.items()
            ),
            judged=self.search.judged,
            exhausted=self.search.exhausted,
            lower_bound_bytes=lower_bound(self._base, graph, self.search.intervals.geometries),
            frontier=tuple(map(self._frontier_row, self.search.frontier())),
        )
        return replace(before, tiling=section)

    def _frontier_row(self, point: FrontierPoint) -> TilingPointRow:
        # What is kept for ops is no part of what some runtimes require.
        beside_arena = self._prices is not None and self._prices.pace is not None
        return TilingPointRow(
            peak_bytes=point.peak,
            extra_macs_percent=percent_of(point.extra_macs, self.total),
            whole_arena_bytes_estimate=point.required if point.beside and not beside_arena else UNSET,
        )


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
