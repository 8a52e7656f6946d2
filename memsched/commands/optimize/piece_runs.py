"""Searches for layers to compute in pieces: as loops where possible, in several orders, then one by one as well."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import msgspec

from memsched.commands.optimize.final_model import FinalModel, after, base_of, met
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.rewritten import RewriteRun, rank
from memsched.graph.dag import has_choice

if TYPE_CHECKING:
    from memsched.commands.optimize.loop_order import LoopStart
    from memsched.tiling.local import Group
    from memsched.tiling.loop import LoopGroup

__all__ = ["PieceRuns"]

_LOOP_SHARE = 0.5
"""Share of the time for pieces that loops get: their search nearly always ends by itself long before."""

_LOOP_SHARE_APART = 1 / 3
"""The same where both forms are looked for apart, with little work."""

_ORDERS = (6.0, 16.0, 16.0)
"""Work, as `Limits.effort` counts it, for loops in each order before they are looked for in another one: whatever the
limit, so that more work goes on from where less ends."""


class PieceRuns:
    """Searches for layers of the given model to compute in pieces: as loops where possible, then one by one as well.

    Args:
        mixed: One result may hold both.
    """

    def __init__(
        self, given: FinalModel, request: Request, budget: int | None, percent: float, *, mixed: bool = True
    ) -> None:
        from memsched.commands.optimize.loops import LoopRewrite
        from memsched.commands.optimize.tile import TileRewrite

        self._given, self._budget = given, budget
        self._loop_share = _LOOP_SHARE if mixed else _LOOP_SHARE_APART
        base = base_of(given)
        # The first in the order in which the model was placed, others in those in which the loops before need less.
        self._loops: list[LoopRewrite] = []
        self._in_loops: list[RewriteRun[LoopGroup]] = []
        self._orders = _ORDERS if mixed and has_choice(base.executed) else ()

        def in_loops(request: Request, start: LoopStart | None = None) -> RewriteRun[LoopGroup]:
            loops = LoopRewrite(base, request, percent, budget, start)
            self._loops.append(loops)
            what = "layers in loops (tile)"
            run = RewriteRun(lambda *_: loops, base, request, percent=percent, budget=budget, what=what)
            self._in_loops.append(run)
            return self._in_loops[-1]

        self._loop_run = in_loops
        if base.dialect.loop is not None:
            in_loops(request)
        self._one_by_one: RewriteRun[Group] | None = None

        def one_by_one() -> RewriteRun[Group]:
            # What loops bring down need not be in pieces as well; the order is that of the first search for them.
            loops = self._loops[0].of_use() if mixed and self._loops else ()
            make = functools.partial(TileRewrite, loops=loops)
            what = "layers in pieces (tile)"
            return RewriteRun(make, base, request, percent=percent, budget=budget, what=what)

        self._make = one_by_one

    def go_on(self, request: Request, *, until_met: bool) -> None:
        """Search on within ``request``; see `RewriteRun.go_on`."""
        if self._in_loops:
            self._loop_on(request.within(self._loop_share), until_met=until_met)
            if any(met(after(self._given, run), self._budget) for run in self._in_loops):
                return
            if not self._in_loops[-1].finished and request.effort() is not None:
                # Whatever that one has left over: with more work for both, neither gets less.
                request = request.within(1 - self._loop_share)
        if self._one_by_one is None:
            self._one_by_one = self._make()
        self._one_by_one.go_on(request, until_met=until_met)

    def _loop_on(self, request: Request, *, until_met: bool) -> None:
        """Search for loops, then, while that finds better ones, in orders in which those found before need less."""
        if not self._orders:
            self._in_loops[0].go_on(request, until_met=until_met)
            return
        self._in_loops[0].go_on(request.taking(self._orders[0]), until_met=until_met)
        best = after(self._given, self._in_loops[0])
        while len(self._in_loops) < len(self._orders) and not met(best, self._budget):
            rest = request.rest()
            start = None if rest.over() else self._loops[-1].again()
            if start is None:
                break
            work = self._orders[len(self._in_loops)]
            run = self._loop_run(rest, start)
            run.go_on(rest.taking(work), until_met=until_met)
            found = after(self._given, run)
            if found.placed.requirement.weight >= best.placed.requirement.weight:
                break
            best = found
        rest = request.rest()
        if not (rest.over() or self._in_loops[-1].finished or met(best, self._budget)):
            self._in_loops[-1].go_on(rest, until_met=until_met)

    def best(self) -> FinalModel:
        """Return the better of their results; see `_after`."""
        found = [after(self._given, run) for run in self._in_loops]
        if self._one_by_one is not None:
            found.append(after(self._given, self._one_by_one))
        best = min(found, key=lambda one: rank(one.placed, one.extra_work, self._budget))
        # What ends groups of one form is worth knowing where the other form is used, too.
        sections = [one.rewrites.tiling for one in found if one.rewrites.tiling is not None]
        refusals = tuple(row for section in sections for row in section.refusals)
        tiling = best.rewrites.tiling and msgspec.structs.replace(best.rewrites.tiling, refusals=refusals)
        return dataclasses.replace(best, rewrites=dataclasses.replace(best.rewrites, tiling=tiling))
