"""The model that is written: as given in a better order, with layers in pieces, or with values computed again.

What changes no operator comes first, then pieces, then repetitions: with a budget the first that fits is taken.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from memsched.commands.optimize.place import ModulePlan, Request, place
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import Maker, Part, RewriteBase
from memsched.commands.optimize.rewritten import apply, rank
from memsched.formats.module import LoadOptions, Module
from memsched.planning.rewrite import dialect_of
from memsched.planning.values import TargetModule

__all__ = ["MOST_EXTRA_MACS", "FinalModel", "Permissions", "find"]

MOST_EXTRA_MACS = 10_000
"""The most extra work that can be permitted, in percent of the model's."""

_AS_GIVEN_SHARE = 0.3
"""Of the time, for the model as it is, when it may be rewritten as well."""

_FREE_SHARE = 0.4
"""Of what is left, for pieces that cost nothing, which a budget is tried with first."""

_MIX_SHARE = 0.5
"""Of what is left, for each mix of pieces and repetitions."""

_LOOP_SHARE = 0.5
"""Of the time for pieces, for loops: their search ends by itself long before, nearly always."""

_TILING_SHARE = 0.6
"""Of what is left then, for pieces, when values may be computed again as well."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What may be done to the model beside ordering it.

    Attributes:
        extra_percent: Extra work, in percent of the model's: multiply-accumulates for pieces, for repetitions bytes
            moved as well.
    """

    tile: bool = False
    remat: bool = False
    extra_percent: float = 15.0


@dataclass(frozen=True, slots=True)
class FinalModel:
    """A model with orders and addresses.

    Attributes:
        data: Its file before orders are written.
        prepared: With the baselines of the model as given.
        rewritten: It is not the model as given.
        extra_work: Work that the model as given does not have, as a part of its own: multiply-accumulates for pieces,
            for repetitions bytes moved as well.
        extra_macs: Multiply-accumulates that it does not have.
    """

    module: Module
    data: bytes
    prepared: TargetModule
    placed: ModulePlan
    rewrites: Rewrites = field(default_factory=Rewrites)
    rewritten: bool = False
    extra_work: Fraction = Fraction(0)
    extra_macs: int = 0


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
    rewriting = permitted.tile or permitted.remat
    placed = place(module, prepared, request.within(_AS_GIVEN_SHARE) if rewriting else request)
    given = FinalModel(module, data, prepared, placed)
    if budget is not None and permitted.tile and not _met(given, budget):
        final = _cheapest(given, options, request, budget, permitted)
    else:
        final = given
        if permitted.tile and not _met(given, budget):
            final = _tiled(given, options, request, budget, permitted)
        if permitted.remat and not _met(given, budget):
            final = _recomputed(final, options, request, budget, permitted)
    return dataclasses.replace(final, placed=_compared(final.placed, placed)) if final.rewritten else final


def _cheapest(
    given: FinalModel, options: LoadOptions, request: Request, budget: int, permitted: Permissions
) -> FinalModel:
    """Return the cheapest mix of pieces and repetitions that meets the budget; what needs least if none does.

    Pieces that cost nothing come first, then pieces that cost something, repetitions alone, and repetitions on top of
    either kind of pieces.
    """

    def again(base: FinalModel) -> FinalModel:
        return _recomputed(base, options, request.within(_MIX_SHARE), budget, permitted)

    free = tiled = _tiled(
        given, options, request.within(_FREE_SHARE), budget, dataclasses.replace(permitted, extra_percent=0.0)
    )
    best = free
    if not _settled(best, request, budget) and permitted.extra_percent > 0:
        tiled = _tiled(given, options, request, budget, permitted)
        best = _better(best, tiled, budget)
    if permitted.remat:
        pieces = [free] if tiled is free else [free, tiled]
        for base in (given, *(base for base in pieces if base.rewritten)):
            if _settled(best, request, budget) or (base is tiled and _met(best, budget)):
                break
            best = _better(best, again(base), budget)
    if permitted.remat and best.rewrites.remat is None and not _met(best, budget):
        # Without time it only says so.
        best = again(best)
    return _with_sections(best, tiled, permitted)


def _settled(final: FinalModel, request: Request, budget: int) -> bool:
    """Whether nothing can be better: the budget is met without extra work, or there is no time to look."""
    return request.over() or (final.placed.required <= budget and final.extra_work == 0)


def _better(first: FinalModel, second: FinalModel, budget: int) -> FinalModel:
    """Return what meets the budget with the least extra work; of what does not, what requires least."""
    return min(first, second, key=lambda final: rank(final.placed, final.extra_work, budget))


def _with_sections(final: FinalModel, tiled: FinalModel, permitted: Permissions) -> FinalModel:
    """Return ``final`` with a section for everything that was tried, used or not."""
    rewrites = final.rewrites
    tiling = tiled.rewrites.tiling
    if rewrites.tiling is None and tiling is not None:
        unused = msgspec.structs.replace(tiling, applied=False, extra_macs=0, extra_macs_percent=0.0, groups=())
        rewrites = dataclasses.replace(rewrites, tiling=unused)
    elif rewrites.tiling is not None:
        stated = msgspec.structs.replace(rewrites.tiling, max_extra_macs_percent=float(permitted.extra_percent))
        rewrites = dataclasses.replace(rewrites, tiling=stated)
    return dataclasses.replace(final, rewrites=rewrites)


def _met(final: FinalModel, budget: int | None) -> bool:
    return budget is not None and final.placed.required <= budget


def _tiled(
    final: FinalModel, options: LoadOptions, request: Request, budget: int | None, permitted: Permissions
) -> FinalModel:
    from memsched.commands.optimize.loops import LoopRewrite
    from memsched.commands.optimize.tile import TileRewrite

    request = request.within(_TILING_SHARE) if permitted.remat else request
    if dialect_of(final.module, final.prepared.target).loop is None:
        return _rewritten(TileRewrite, final, options, request, budget, permitted)
    looped = _rewritten(LoopRewrite, final, options, request.within(_LOOP_SHARE), budget, permitted)
    if _met(looped, budget):
        return looped
    pieces = _rewritten(TileRewrite, final, options, request, budget, permitted)
    return min(looped, pieces, key=lambda one: rank(one.placed, one.extra_work, budget))


def _recomputed(
    final: FinalModel, options: LoadOptions, request: Request, budget: int | None, permitted: Permissions
) -> FinalModel:
    from memsched.commands.optimize.recompute import RematRewrite

    return _rewritten(RematRewrite, final, options, request, budget, permitted)


def _rewritten(
    make: Maker[Part],
    final: FinalModel,
    options: LoadOptions,
    request: Request,
    budget: int | None,
    permitted: Permissions,
) -> FinalModel:
    """Return ``final`` rewritten further where that requires less; with the report's section on it either way."""
    done = sum(op.macs for op in final.module.graphs[0].ops)
    used = 100 * final.extra_macs / done if done else 0.0
    result = apply(
        make,
        RewriteBase(final.module, final.prepared, final.placed, options),
        request,
        percent=max(0.0, permitted.extra_percent - used),
        budget=budget,
        before=final.rewrites,
    )
    model = result.model
    if model is None:
        return dataclasses.replace(final, rewrites=result.rewrites)
    return FinalModel(
        module=model.module,
        data=model.data,
        prepared=dataclasses.replace(model.prepared, baselines=final.prepared.baselines),
        placed=model.placed,
        rewrites=result.rewrites,
        rewritten=True,
        extra_work=final.extra_work + result.extra_work,
        extra_macs=final.extra_macs + model.extra_macs,
    )


def _compared(placed: ModulePlan, given: ModulePlan) -> ModulePlan:
    """Return what was placed for a rewritten model, its figures held against the model as given."""
    if placed.chosen is None or given.chosen is None:
        return placed
    return dataclasses.replace(placed, chosen=placed.chosen.compared_with(given.chosen))
