"""Layers in loops: one body that computes groups of layers tile by tile, for runtimes that keep bytes for every op."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from memsched.base.units import percent_of
from memsched.commands.optimize.loop_order import LoopStart, reordered
from memsched.commands.optimize.rewrite import Candidate, Proposals, Refusals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.commands.optimize.steps import next_stop
from memsched.commands.optimize.tiling_section import form_of, loop_row, lower_bound, refusal_row
from memsched.formats.known import format_of
from memsched.graph.dag import has_choice
from memsched.graph.model import Graph
from memsched.ops.geometry import has_windows
from memsched.report.values.rewrites import TilingPointRow, TilingSection
from memsched.report.values.shared import FiguresSection
from memsched.rewrites.tile.loop import LoopGroup, loop_of
from memsched.rewrites.tile.loop_rewrite import with_loops
from memsched.rewrites.tile.loop_search import LoopSearch
from memsched.search.run import Run

__all__ = ["LoopWays", "loop_proposals"]

_ORDERS: Final = (6.0, 16.0)
"""Work, as `Limits.effort` counts it, for loops in an order before they are looked for in the next one."""


def loop_proposals(ways: LoopWays, run: Run) -> Proposals:
    """Propose loops: in the order in which the model was placed, then in those in which the last ones need less."""
    base = ways.base
    orders = _ORDERS if has_choice(base.executed) else ()
    least = yield from _proposed(ways, run, orders[0] if orders else float("inf"))
    for most in (*orders[1:], float("inf")) if orders else ():
        start = ways.again()
        if start is None:
            break
        other = LoopWays(base, start)
        found = yield from _proposed(other, run, most)
        if found >= least:
            break
        ways, least = other, found
    if not ways.search.exhausted:
        yield from _proposed(ways, run, float("inf"))


def _proposed(ways: LoopWays, run: Run, most: float) -> Generator[Candidate | None, Refusals | None, float]:
    """Propose loops in one order until so much work is done; return bytes that the best of them require."""
    refused = dict((yield Candidate(ways)) or {})
    least, ended = float("inf"), False
    while ways.search.effort < most:
        if ended and not refused:
            refused = dict((yield None) or {})
            if not refused:
                break
        if refused:
            ways.drop({way: why for way, why in refused.items() if all(isinstance(one, LoopGroup) for one in way)})
            least = float("inf")
        before = ways.search.effort
        ended = ways.search.go_on(next_stop(before) - before, run.stop)
        points = list(ways.points())
        run.spend(ways.search.effort - before)
        best = min((one.promise for one in points), default=float("inf"))
        fresh = [one for one in points if one.way not in ways.told] if best < least else []
        ways.told.update(one.way for one in fresh)
        least, refused = min(least, best), {}
        for one in fresh:
            refused |= (yield one) or {}
        if not fresh:
            refused |= (yield None) or {}
    return least


class LoopWays(Ways):
    """Groups of layers computed tile by tile in loops; a part of a way is a group.

    Args:
        start: The model in an order, and loops that are known there.
    """

    def __init__(self, base: RewriteBase, start: LoopStart) -> None:
        super().__init__(start.graph)
        self.base, self._start, self._dialect = base, start, base.dialect
        self.total = sum(op.macs for op in self.graph.ops)
        self.told: set[tuple[LoopGroup, ...]] = set()
        self._refused: dict[int, str] = {}
        self.search = LoopSearch(
            self.graph,
            base.prepared.target,
            self._dialect,
            prices=base.prices(),
            most_macs=int(self.total * base.pricing.percent / 100),
            known=start.groups,
            exact=base.pricing.exact,
        )

    def points(self) -> Iterator[Candidate]:
        """Yield what is known: rising work, falling requirements."""
        for point in self.search.points():
            if point.groups:
                work = Fraction(point.extra_macs, self.total) if self.total else Fraction(0)
                yield Candidate(self, point.groups, point.required, work, point.extra_macs)

    def drop(self, refused: Refusals) -> None:
        """Leave groups out that cannot be written; what is left is proposed again."""
        self.told.clear()
        for groups, reason in refused.items():
            self.search.drop(groups)
            for group in groups:
                self._refused[group.ops[0]] = f"{len(group.ops)} layers from here cannot be written as a loop: {reason}"

    def again(self) -> LoopStart | None:
        """Return the model in an order in which the best loops so far need less; None where none was found."""
        blocks = self.search.blocks()
        return reordered(self.graph, blocks, self.base.prepared.target) if blocks else None

    def coarser(self, part: tuple[LoopGroup, ...]) -> Sequence[tuple[LoopGroup, ...]]:
        """Return the loop with tiles twice as large."""
        return [(one,) for group in part for one in group.coarser()]

    def build(self, way: tuple[LoopGroup, ...]) -> Graph:
        """Return the graph with these groups as loops."""
        return with_loops(self.graph, [loop_of(self.graph, group, self._dialect) for group in way], self._dialect)

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on layers in pieces, which loops are one form of."""
        axes = format_of(self.base.module).traits.axes if has_windows(self.graph) else ()
        refused = {**dict(self.search.refusals()), **self._refused}
        section = TilingSection(
            applied=used is not None,
            max_extra_macs_percent=float(self.base.pricing.percent),
            extra_macs=extra_macs,
            extra_macs_percent=percent_of(extra_macs, self.total),
            untiled=FiguresSection(peak_bytes=self.base.peak, arena_bytes=self.base.placed.allocation.arena),
            groups=tuple(loop_row(self.graph, group, self._dialect, axes) for group in (used.way if used else ())),
            refusals=tuple(
                refusal_row(self.graph.ops[op], reason, form_of(self._dialect), found=op in self._refused)
                for op, reason in sorted(refused.items())
            ),
            judged=self.search.judged,
            exhausted=self.search.exhausted,
            # It holds for groups in the order in which the model was placed.
            lower_bound_bytes=None if self._start.groups else lower_bound(self.base, self.graph),
            frontier=tuple(
                TilingPointRow(
                    peak_bytes=point.peak,
                    extra_macs_percent=percent_of(point.extra_macs, self.total),
                )
                for point in self.search.points()
            ),
        )
        return replace(before, tiling=section)
