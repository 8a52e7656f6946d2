"""The model that is written: as given in a better order, or as the best of what the permitted rewrites make of it."""

from __future__ import annotations

import dataclasses

from memsched.commands.optimize.algebra import AlgebraRewrite
from memsched.commands.optimize.border import BorderRewrite
from memsched.commands.optimize.described import described, tried_rows
from memsched.commands.optimize.driver import Driver
from memsched.commands.optimize.final_model import FinalModel, met
from memsched.commands.optimize.folded import FoldRewrite
from memsched.commands.optimize.fuse import ChainRewrite
from memsched.commands.optimize.permissions import Permissions
from memsched.commands.optimize.place import ModulePlan, Request, place
from memsched.commands.optimize.recompute import CopiesRewrite, RematRewrite
from memsched.commands.optimize.rewrite import Pricing, Rewrite
from memsched.commands.optimize.tile import TileRewrite
from memsched.formats.module import LoadOptions, Module
from memsched.plan.values import TargetModule

__all__ = ["FinalModel", "Permissions", "find", "rewrites_of"]

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


def rewrites_of(permitted: Permissions) -> tuple[Rewrite, ...]:
    """Return the rewrites that are permitted, cheaper ones first."""
    tile = permitted.tile or permitted.only_free
    listed: tuple[tuple[bool, Rewrite], ...] = (
        (permitted.fuse, ChainRewrite()),
        (permitted.io, BorderRewrite()),
        (permitted.algebra, AlgebraRewrite(permitted.reassociate)),
        (tile, FoldRewrite()),
        (tile, TileRewrite()),
        (permitted.remat, RematRewrite()),
        (permitted.tile and permitted.remat, CopiesRewrite()),
    )
    return tuple(rewrite for may, rewrite in listed if may)


def pricing_of(permitted: Permissions, request: Request, budget: int | None) -> Pricing:
    """Return what rewrites may cost: nothing where only what costs nothing is permitted."""
    budgeted = budget is not None
    if not permitted.only_free:
        return Pricing(permitted.extra_percent, request.slowdown, request.free_ops, budgeted=budgeted)
    slowdown = None if request.slowdown is None else _SURE * request.slowdown
    return Pricing(0.0, slowdown, 0, cautious=True, exact=True, budgeted=budgeted)


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
    rewrites = rewrites_of(permitted)
    share = _ORDER_SHARE if permitted.only_free else _AS_GIVEN_SHARE
    placed = _placed(module, prepared, request.within(share) if rewrites else request)
    request.ledger.add_passes(placed.plans[0].passes)
    given = FinalModel(module, data, prepared, placed, options=options)
    if not rewrites or met(given, budget):
        return given
    rest = request.rest()
    within = _briefly(rest) if permitted.only_free else rest
    cheaper = (TileRewrite(free=True),) if permitted.tile and permitted.extra_percent else ()
    driver = Driver(given, rewrites, within, pricing_of(permitted, rest, budget), budget, cheaper)
    with request.failures.left_out("rewrites"):
        final = driver.run()
        request.ledger.rows += tried_rows(driver, final)
        if permitted.only_free and not final.rewritten:
            return given
        return described(driver, final, permitted)
    return given


def _placed(module: Module, prepared: TargetModule, request: Request) -> ModulePlan:
    """Return orders and addresses, those of the file as given if no others can be found."""
    with request.failures.left_out("another order of the operators"):
        return place(module, prepared, request)
    return place(module, prepared, dataclasses.replace(request, solver="file"))


def _briefly(request: Request) -> Request:
    """Return a request for as much work as what costs nothing is worth."""
    run, left = request.run, request.effort()
    effort = _FREE_EFFORT if left is None else min(left, _FREE_EFFORT)
    short = run.again(dataclasses.replace(run.limits, time_limit=None, effort=effort))
    stopped = dataclasses.replace(short, stop=lambda: run.stop() or request.late() or run.late())
    return dataclasses.replace(request, run=stopped)
