"""The model that is written: as given in a better order, with other inputs, in pieces, or with values computed again.

What changes no operator comes first, then one operator for many, then inputs and outputs, then the same values
computed otherwise, then pieces, then repetitions: with a budget the first that fits is taken.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from memsched.check.rewrite import check_folded
from memsched.commands.optimize.border import BorderRewrite, unused
from memsched.commands.optimize.final_model import (
    FinalModel,
    after,
    base_of,
    better,
    left_of,
    met,
    slower_by_less,
)
from memsched.commands.optimize.fuse import ChainRewrite
from memsched.commands.optimize.permissions import Permissions
from memsched.commands.optimize.place import GivenUpError, ModulePlan, Request, place, prepare_again
from memsched.commands.optimize.rewritten import RewriteRun, rank
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module
from memsched.formats.read_back import load_again
from memsched.graph.border import Borders
from memsched.graph.chain import Chain
from memsched.graph.dag import has_choice
from memsched.planning.values import TargetModule
from memsched.report.border import border_section
from memsched.report.chains import chain_section

if TYPE_CHECKING:
    from memsched.commands.optimize.loop_order import LoopStart
    from memsched.report.values.rewrites import TilingSection
    from memsched.tiling.local import Group
    from memsched.tiling.loop import LoopGroup

__all__ = ["FinalModel", "Permissions", "find"]

_AS_GIVEN_SHARE = 0.3
"""Share of the time for the model as it is, when it may be rewritten as well."""

_ORDER_SHARE = 0.9
"""The same where only what costs nothing may follow."""

_FREE_EFFORT = 0.375
"""Work of the search for pieces that cost nothing, as `Limits.effort` counts it."""

_SURE = 0.5
"""Share of the permitted slowdown for these: measured times were up to twice what cautious prices say."""

_FOLDED_SHARE = 0.1
"""Share of what is left then for the model with its shape arithmetic done."""

_CHAIN_SHARE = 0.2
"""Share of what is left then for the model with one operator for each chain, where more may follow."""

_BORDER_SHARE = 0.2
"""Share of what is left then for the model with other inputs and outputs, where more may follow."""

_ALGEBRA_SHARE = 0.3
"""Share of what is left then for operators computed otherwise, where more may follow."""

_FREE_SHARE = 0.4
"""Share of what is left when a budget is met for pieces that meet it at no cost."""

_MIX_SHARE = 0.5
"""Share of what is left for each mix of pieces and repetitions."""

_LOOP_SHARE = 0.5
"""Share of the time for pieces that loops get: their search nearly always ends by itself long before."""

_LOOP_SHARE_APART = 1 / 3
"""The same where both forms are looked for apart, with little work."""

_ORDERS = (6.0, 16.0, 16.0)
"""Work, as `Limits.effort` counts it, for loops in each order before they are looked for in another one: whatever the
limit, so that more work goes on from where less ends."""

_TILING_SHARE = 0.6
"""Share of what is left then for pieces, when values may be computed again as well."""

_TURNS_SHARE = 0.5
"""Share of what is left then for repetitions and pieces by turns, and for pieces of a model with copies."""

_COPIES_SHARE = 0.15
"""Share of what is left then to order the model with copies of its largest value."""

_COPIED = 0.75
"""Share of the extra work that is permitted for these copies; pieces of them may repeat some, too."""

_APART_SHARE = 0.8
"""Share of what is left then for pieces of that model."""

_TURN_SHARE = 0.6
"""Share of what is left then for repetitions, and of what is left for each turn after them: of pieces of the model with
repetitions, of repetitions in the one with more pieces, and so on."""


def find(
    module: Module,
    data: bytes,
    prepared: TargetModule,
    options: LoadOptions,
    request: Request,
    budget: int | None,
    permitted: Permissions,
) -> FinalModel:
    """Return the model that needs least, or with a budget (bytes) the one that meets it with the least extra work."""
    borders = format_of(module).borders(module) if permitted.io else Borders()
    chains = format_of(module).chains(module) if permitted.fuse else ()
    rewriting = permitted.tile or permitted.remat or permitted.algebra or bool(borders.found) or bool(chains)
    share = _AS_GIVEN_SHARE if rewriting else _ORDER_SHARE
    placed = place(module, prepared, request.within(share) if rewriting or permitted.free else request)
    given = final = FinalModel(module, data, prepared, placed, options=options)
    request = request.rest()
    if permitted.fuse and not met(final, budget):
        final = _in_one(final, chains, request, budget, permitted)
        borders = format_of(final.module).borders(final.module) if permitted.io else Borders()
        request = request.rest()
    first = final
    if permitted.io and not met(final, budget):
        final = _at_the_border(final, borders, request, budget, permitted)
        request = request.rest()
    if permitted.algebra and not met(final, budget):
        final = _by_algebra(final, request, budget, permitted)
        request = request.rest()
    if (permitted.tile or permitted.only_free) and not met(final, budget):
        final = _in_pieces(final, request, budget, permitted)
    elif permitted.remat and not met(final, budget):
        final = _recomputed(final, request, budget, permitted)
    if final.borders and final.placed.required >= first.placed.required:
        # Nobody has to change for nothing.
        kept = border_section(unused(borders, borders.found), (), first.placed.required, first.placed.required)
        final = dataclasses.replace(first, rewrites=dataclasses.replace(final.rewrites, io=kept))
    chained = final.rewrites.chains
    if chained is not None and chained.applied and final.placed.required >= given.placed.required:
        # Fewer operators alone are no reason to write a file that only one runtime takes.
        left = msgspec.structs.replace(chained, applied=False, bytes=chained.given_bytes, chains=())
        final = dataclasses.replace(given, rewrites=dataclasses.replace(final.rewrites, chains=left))
    if not final.rewritten:
        return final
    return dataclasses.replace(final, placed=_compared(final.placed, placed), whole=placed)


def _in_pieces(given: FinalModel, request: Request, budget: int | None, permitted: Permissions) -> FinalModel:
    """Return the model in pieces, with its shape arithmetic done first; ``given`` where that requires no less."""
    flat = _across_shapes(given, request)
    if permitted.tile:
        found = _rewritten(flat, request.rest(), budget, permitted)
    else:
        found = _for_free(flat, request.rest(), budget)
    less = found.placed.requirement.weight < given.placed.requirement.weight
    if flat is given or (less and found.module is not flat.module):
        return found
    sections = found.rewrites
    remat = sections.remat if sections.remat is None or not sections.remat.applied else None
    unused = dataclasses.replace(given.rewrites, tiling=_unused(sections.tiling), remat=remat)
    return dataclasses.replace(given, rewrites=unused)


def _across_shapes(given: FinalModel, request: Request) -> FinalModel:
    """Return the model with its shape arithmetic done, where it has any: ops whose shapes are computed stay whole."""
    data = None if request.over() else format_of(given.module).folded(given.module, given.options)
    if data is None:
        return given
    try:
        again = load_again(given.module, data, given.options, "folded")
        check_folded(given.module.graphs[0], again.graphs[0])
        prepared = prepare_again(again, given.prepared, request)
        placed = place(again, prepared, request.within(_FOLDED_SHARE))
    except GivenUpError:
        return given
    prepared = dataclasses.replace(prepared, baselines=given.prepared.baselines)
    return dataclasses.replace(given, module=again, data=data, prepared=prepared, placed=placed)


def _unused(section: TilingSection | None) -> TilingSection | None:
    """Return the section on pieces of a search whose result is not used."""
    if section is None:
        return None
    return msgspec.structs.replace(section, applied=False, extra_macs=0, extra_macs_percent=0.0, groups=())


def _for_free(given: FinalModel, request: Request, budget: int | None) -> FinalModel:
    """Return the model in pieces that a short search finds to cost nothing; ``given`` where that requires no less."""
    run, left = request.run, request.effort()
    effort = _FREE_EFFORT if left is None else min(left, _FREE_EFFORT)
    if not effort or request.over():
        return given
    short = dataclasses.replace(
        run.again(dataclasses.replace(run.limits, time_limit=None, effort=effort)),
        stop=lambda: run.stop() or request.late() or run.late(),
    )
    slowdown = None if request.slowdown is None else _SURE * request.slowdown
    quick = dataclasses.replace(request, run=short, free_ops=0, slowdown=slowdown, cautious=True)
    # So little work is better spent on each form alone.
    found = _rewritten(given, quick, budget, Permissions(tile=True, extra_percent=0.0), mixed=False)
    section = found.rewrites.tiling
    if not found.rewritten or section is None:
        return given
    rewrites = dataclasses.replace(found.rewrites, tiling=msgspec.structs.replace(section, short=True))
    return dataclasses.replace(found, rewrites=rewrites)


def _in_one(
    given: FinalModel, chains: Sequence[Chain], request: Request, budget: int | None, permitted: Permissions
) -> FinalModel:
    """Return the model with one operator for each chain of ``chains``, where that requires less.

    Where pieces or repetitions may follow, no more is enough: with them, chains may be what needs most.
    """
    more = permitted.tile or permitted.remat
    final = given
    if chains:
        run = RewriteRun(
            functools.partial(ChainRewrite, chains),
            *(base_of(given), request.within(_CHAIN_SHARE) if more or permitted.io else request),
            percent=0.0,
            budget=budget,
        )
        run.go_on(request, until_met=False)
        final = after(given, run, ties=more)
    found = final.rewrites.chains or chain_section(())
    section = msgspec.structs.replace(found, given_bytes=given.placed.required, bytes=final.placed.required)
    return dataclasses.replace(final, rewrites=dataclasses.replace(final.rewrites, chains=section))


def _at_the_border(
    given: FinalModel,
    borders: Borders,
    request: Request,
    budget: int | None,
    permitted: Permissions,
) -> FinalModel:
    """Return the model with its inputs and outputs as its layers have them, where that requires less.

    Where more may follow, no more is enough: what follows may be held up by the larger tensors at the border.
    """
    more = permitted.tile or permitted.remat
    request = request.within(_BORDER_SHARE) if more else request
    final = given
    if borders.found:
        make = functools.partial(BorderRewrite, borders)
        run = RewriteRun(make, base_of(given), request, percent=0.0, budget=budget)
        run.go_on(request, until_met=False)
        final = after(given, run, ties=more)
    found = final.rewrites.io or border_section(borders, (), 0, 0)
    required = given.placed.required, final.placed.required
    section = msgspec.structs.replace(found, given_bytes=required[0], bytes=required[1])
    return dataclasses.replace(final, rewrites=dataclasses.replace(final.rewrites, io=section))


def _by_algebra(given: FinalModel, request: Request, budget: int | None, permitted: Permissions) -> FinalModel:
    """Return the model with operators computed otherwise with the same values, where that requires less."""
    from memsched.commands.optimize.algebra import AlgebraRewrite

    request = request.within(_ALGEBRA_SHARE) if permitted.tile or permitted.remat else request
    make = functools.partial(AlgebraRewrite, sums=permitted.reassociate)
    run = RewriteRun(make, base_of(given), request, percent=0.0, budget=budget)
    run.go_on(request, until_met=False)
    final = after(given, run)
    if final.rewrites.algebra is None:
        return final
    required = given.placed.required, final.placed.required
    section = msgspec.structs.replace(final.rewrites.algebra, given_bytes=required[0], bytes=required[1])
    return dataclasses.replace(final, rewrites=dataclasses.replace(final.rewrites, algebra=section))


def _rewritten(
    given: FinalModel, request: Request, budget: int | None, permitted: Permissions, *, mixed: bool = True
) -> FinalModel:
    """Return the model in pieces, with values computed again where that is permitted, too.

    With a budget everything begins as without one, until the budget is met: so whatever is reached without one also
    meets every budget as large, however little time or work there is. Only then does the search look for less extra
    work.
    """

    def in_pieces(percent: float) -> _PieceRuns:
        return _PieceRuns(given, request, budget, percent, mixed=mixed)

    share = _TILING_SHARE if permitted.remat else 1.0
    pieces = in_pieces(permitted.extra_percent)
    pieces.go_on(request.within(share), until_met=True)
    best = tiled = pieces.best()
    if permitted.remat and not met(best, budget):
        turns = request.rest().within(_TURNS_SHARE)
        best = _by_turns(tiled, turns, budget, permitted)
        if not met(best, budget):
            # As much work whatever the turns have done: what is looked for there depends on the budget.
            within = request.as_much(turns, 1.0)
            best = better(best, _apart(given, within, budget, permitted), budget)
    # From here on the search is for less work.
    for_free = given
    if budget is not None and permitted.extra_percent > 0 and not _settled(best, request, budget):
        free = in_pieces(0.0)
        free.go_on(request.within(_FREE_SHARE), until_met=False)
        for_free = free.best()
        best = better(best, for_free, budget)
        if met(tiled, budget) and not _settled(best, request, budget):
            pieces.go_on(request.within(share), until_met=False)
            tiled = pieces.best()
            best = better(best, tiled, budget)
    if budget is not None and permitted.remat:
        for base in (given, for_free) if for_free.rewritten else (given,):
            if not _settled(best, request, budget):
                again = _recomputed(base, request.within(_MIX_SHARE), budget, permitted)
                best = better(best, again, budget)
    return _with_section(best, tiled, permitted)


class _PieceRuns:
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
            self._in_loops.append(RewriteRun(lambda *_: loops, base, request, percent=percent, budget=budget))
            return self._in_loops[-1]

        self._loop_run = in_loops
        if base.dialect.loop is not None:
            in_loops(request)
        self._one_by_one: RewriteRun[Group] | None = None

        def one_by_one() -> RewriteRun[Group]:
            # What loops bring down need not be in pieces as well; the order is that of the first search for them.
            loops = self._loops[0].of_use() if mixed and self._loops else ()
            make = functools.partial(TileRewrite, loops=loops)
            return RewriteRun(make, base, request, percent=percent, budget=budget)

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


def _settled(final: FinalModel, request: Request, budget: int) -> bool:
    """Whether nothing can be better: the budget is met without extra work, or there is no time to look."""
    return request.over() or (final.placed.required <= budget and final.extra_work == 0)


def _with_section(final: FinalModel, tiled: FinalModel, permitted: Permissions) -> FinalModel:
    """Return ``final`` with a section on pieces, used or not: where they are not, that of ``tiled``."""
    section = final.rewrites.tiling
    if section is None:
        section = _unused(tiled.rewrites.tiling)
    if section is not None:
        section = msgspec.structs.replace(section, max_extra_macs_percent=float(permitted.extra_percent))
    return dataclasses.replace(final, rewrites=dataclasses.replace(final.rewrites, tiling=section))


def _by_turns(final: FinalModel, request: Request, budget: int | None, permitted: Permissions) -> FinalModel:
    """Return ``final`` with values computed again, then more layers in pieces, and so on while that requires less.

    A model is as any other whatever was done to it before: what repetitions leave as the peak may be cut, and what
    pieces leave may be computed again.
    """
    best, found = final, _recomputed(final, request.rest().within(_TURN_SHARE), budget, permitted)
    pieces = True
    while found.placed.requirement.weight < best.placed.requirement.weight:
        best = found
        request = request.rest()
        if request.over() or met(best, budget):
            return best
        turn = request.within(_TURN_SHARE)
        if pieces:
            turn = slower_by_less(turn, best)
            runs = _PieceRuns(best, turn, budget, left_of(best, permitted))
            runs.go_on(turn, until_met=True)
            found = runs.best()
        else:
            found = _recomputed(best, turn, budget, permitted)
        pieces = not pieces
    # Where the first turn was in vain, it says what was looked for.
    return found if best is final else best


def _apart(given: FinalModel, request: Request, budget: int | None, permitted: Permissions) -> FinalModel:
    """Return ``given`` in pieces where its largest value is computed for each op that reads it."""
    from memsched.commands.optimize.reader_copies import ReaderCopies

    if request.over():
        return given
    placing = slower_by_less(request.within(_COPIES_SHARE), given)
    run = RewriteRun(ReaderCopies, base_of(given), placing, percent=_COPIED * left_of(given, permitted), budget=None)
    run.go_on(placing, until_met=False)
    copied = after(given, run, anyway=True)
    if copied.module is given.module:
        return given
    request = slower_by_less(request.rest().within(_APART_SHARE), copied)
    pieces = _PieceRuns(copied, request, budget, left_of(copied, permitted))
    pieces.go_on(request, until_met=True)
    return pieces.best()


def _recomputed(final: FinalModel, request: Request, budget: int | None, permitted: Permissions) -> FinalModel:
    """Return ``final`` with values computed again, where that requires less; with a budget as `_rewritten` does it."""
    from memsched.commands.optimize.recompute import RematRewrite

    percent = left_of(final, permitted)
    request = slower_by_less(request.rest(), final)
    run = RewriteRun(RematRewrite, base_of(final), request, percent=percent, budget=budget)
    run.go_on(request, until_met=True)
    if budget is not None and not run.settled(request):
        run.go_on(request, until_met=False)
    return after(final, run)


def _compared(placed: ModulePlan, given: ModulePlan) -> ModulePlan:
    """Return what was placed for a rewritten model, with its figures compared with the model as given."""
    if placed.chosen is None or given.chosen is None:
        return placed
    return dataclasses.replace(placed, chosen=placed.chosen.compared_with(given.chosen))
