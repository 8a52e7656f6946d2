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
    compared,
    left_of,
    met,
    slower_by_less,
)
from memsched.commands.optimize.fuse import ChainRewrite
from memsched.commands.optimize.permissions import Permissions
from memsched.commands.optimize.piece_runs import PieceRuns
from memsched.commands.optimize.place import GivenUpError, ModulePlan, Request, place, prepare_again
from memsched.commands.optimize.rewritten import RewriteRun
from memsched.formats.capabilities import ActivationChains, BorderRewrites, ShapeArithmetic
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions, Module
from memsched.formats.read_back import load_again
from memsched.graph.border import Borders
from memsched.graph.chain import Chain
from memsched.planning.values import TargetModule
from memsched.report.border import border_section
from memsched.report.chains import chain_section

if TYPE_CHECKING:
    from memsched.report.values.rewrites import TilingSection

__all__ = ["FinalModel", "Permissions", "find"]

_AS_GIVEN_SHARE = 0.3
"""Share of the time for the model as it is, when it may be rewritten as well."""

_ORDER_SHARE = 0.9
"""The same where only what costs nothing may follow."""

_FREE_EFFORT = 2.0
"""Work of the search for pieces that cost nothing, as `Limits.effort` counts it.

NASNet mobile in TensorFlow Lite Micro takes 1,071,436 B after 1, 1,063,820 after 2, and after 4 only 3,728 less.
"""

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
    borders = capability(module, BorderRewrites).borders(module) if permitted.io else Borders()
    chains = capability(module, ActivationChains).chains(module) if permitted.fuse else ()
    rewriting = permitted.tile or permitted.remat or permitted.algebra or bool(borders.found) or bool(chains)
    share = _AS_GIVEN_SHARE if rewriting else _ORDER_SHARE
    placed = _placed(module, prepared, request.within(share) if rewriting or permitted.free else request)
    given = FinalModel(module, data, prepared, placed, options=options)
    request = request.rest()
    with request.failures.left_out("rewrites"):
        return _rewritten_further(given, chains, borders, request, budget, permitted)
    return given


def _placed(module: Module, prepared: TargetModule, request: Request) -> ModulePlan:
    """Return orders and addresses, those of the file as given if no others can be found."""
    with request.failures.left_out("another order of the operators"):
        return place(module, prepared, request)
    return place(module, prepared, dataclasses.replace(request, solver="file"))


def _rewritten_further(
    given: FinalModel,
    chains: Sequence[Chain],
    borders: Borders,
    request: Request,
    budget: int | None,
    permitted: Permissions,
) -> FinalModel:
    """Return ``given`` with all that is permitted done to it where that requires less."""
    final, placed = given, given.placed
    if permitted.fuse and not met(final, budget):
        final = _in_one(final, chains, request, budget, permitted)
        borders = capability(final.module, BorderRewrites).borders(final.module) if permitted.io else Borders()
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
    return _compared_with(final, placed)


def _compared_with(final: FinalModel, given: ModulePlan) -> FinalModel:
    """Return ``final``, and what it was made from, with figures compared with those of the model as given."""
    if not final.rewritten:
        return final
    before = None if final.before is None else _compared_with(final.before, given)
    return dataclasses.replace(final, placed=compared(final.placed, given), whole=given, before=before)


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
    data = None if request.over() else capability(given.module, ShapeArithmetic).folded(given.module, given.options)
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
    return dataclasses.replace(given, module=again, data=data, prepared=prepared, placed=placed, before=given)


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
    quick = dataclasses.replace(request, run=short, free_ops=0, slowdown=slowdown, cautious=True, exact=True)
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
            base_of(given),
            request.within(_CHAIN_SHARE) if more or permitted.io else request,
            percent=0.0,
            budget=budget,
            what="one operator for a chain (fuse)",
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
        what = "another form of inputs and outputs (io)"
        run = RewriteRun(make, base_of(given), request, percent=0.0, budget=budget, what=what)
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
    what = "operators computed otherwise (algebra)"
    run = RewriteRun(make, base_of(given), request, percent=0.0, budget=budget, what=what)
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

    def in_pieces(percent: float) -> PieceRuns:
        return PieceRuns(given, request, budget, percent, mixed=mixed)

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
            runs = PieceRuns(best, turn, budget, left_of(best, permitted))
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
    percent, what = _COPIED * left_of(given, permitted), "a copy of a value for each reader (remat)"
    run = RewriteRun(ReaderCopies, base_of(given), placing, percent=percent, budget=None, what=what)
    run.go_on(placing, until_met=False)
    copied = after(given, run, anyway=True)
    if copied.module is given.module:
        return given
    request = slower_by_less(request.rest().within(_APART_SHARE), copied)
    pieces = PieceRuns(copied, request, budget, left_of(copied, permitted))
    pieces.go_on(request, until_met=True)
    return pieces.best()


def _recomputed(final: FinalModel, request: Request, budget: int | None, permitted: Permissions) -> FinalModel:
    """Return ``final`` with values computed again, where that requires less; with a budget as `_rewritten` does it."""
    from memsched.commands.optimize.recompute import RematRewrite

    percent = left_of(final, permitted)
    request = slower_by_less(request.rest(), final)
    what = "values computed again (remat)"
    run = RewriteRun(RematRewrite, base_of(final), request, percent=percent, budget=budget, what=what)
    run.go_on(request, until_met=True)
    if budget is not None and not run.settled(request):
        run.go_on(request, until_met=False)
    return after(final, run)
