"""The model that is written: as given in a better order, or as the best of what the permitted rewrites make of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.base.units import Percentage
from memsched.commands.optimize.algebra import AlgebraRewrite
from memsched.commands.optimize.arms import Form
from memsched.commands.optimize.bands import BandsRewrite
from memsched.commands.optimize.border import BorderRewrite
from memsched.commands.optimize.built_in import BuiltInRewrite
from memsched.commands.optimize.described import described, tried_rows
from memsched.commands.optimize.driver import Driver
from memsched.commands.optimize.executed import AHEAD, IN_ORDER, ExecutedRewrite, SessionSource, executed_start
from memsched.commands.optimize.final_model import FinalModel, met
from memsched.commands.optimize.folded import FoldRewrite
from memsched.commands.optimize.fuse import ChainRewrite
from memsched.commands.optimize.permissions import Permissions
from memsched.commands.optimize.place import ModulePlan, Request, place, prepare, required_as_given
from memsched.commands.optimize.recompute import CopiesRewrite, RematRewrite
from memsched.commands.optimize.rewrite import Pricing, Rewrite
from memsched.commands.optimize.tile import TileRewrite
from memsched.formats.capabilities import SizeGuards
from memsched.formats.files import load_module
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions, Module
from memsched.plan.values import TargetModule
from memsched.runtimes.runtime import Opening

__all__ = ["FinalModel", "FoundModels", "Permissions", "find", "find_executed", "rewrites_of"]

_AS_GIVEN_SHARE = 0.3
"""Share of the time for the model as it is, when it may be rewritten as well."""

_ORDER_SHARE = 0.9
"""The same where only what costs nothing may follow."""

_FREE_EFFORT = 2.0
"""Work of the search for pieces that cost nothing, as `Limits.effort` counts it.

NASNet mobile in TensorFlow Lite Micro takes 1,071,436 B after 1, 1,063,820 after 2, and after 4 only 3,728 less.
"""

_PART_OF_SLOWDOWN = 0.3
"""Share of the permitted slowdown with which pieces are sought as well that a runtime then optimises."""

_SURE = 0.5
"""Share of the permitted slowdown for these: measured times were up to twice what cautious prices say."""


def rewrites_of(permitted: Permissions) -> tuple[Rewrite, ...]:
    """Return the rewrites that are permitted, cheaper ones first."""
    listed: tuple[tuple[bool, Rewrite], ...] = (
        (permitted.fuse, ChainRewrite()),
        (permitted.io, BorderRewrite()),
        (permitted.built_in, BuiltInRewrite()),
        (permitted.bands, BandsRewrite()),
        (permitted.algebra, AlgebraRewrite(permitted.reassociate)),
        (permitted.tile, FoldRewrite()),
        (permitted.tile, TileRewrite()),
        (permitted.remat, RematRewrite()),
        (permitted.tile and permitted.remat, CopiesRewrite()),
    )
    return tuple(rewrite for may, rewrite in listed if may)


def pricing_of(permitted: Permissions, request: Request, budget: int | None) -> Pricing:
    """Return what rewrites may cost: nothing where only what costs nothing is permitted."""
    budgeted = budget is not None
    if not permitted.free:
        return Pricing(permitted.extra_percent, request.slowdown, request.free_ops, budgeted=budgeted)
    slowdown = None if request.slowdown is None else _SURE * request.slowdown
    percent = _SURE * permitted.extra_percent
    return Pricing(percent, slowdown, 0, cautious=True, exact=permitted.exact, budgeted=budgeted)


class FoundModels(FrozenValue, frozen=True):
    """What was found for a model.

    Attributes:
        file: The best file to open as the given one is.
        start: What sessions execute of the model as given, ordered; None if that was not asked for.
        executed: The best of what they execute, rewritten or not; None likewise.
    """

    file: FinalModel
    start: FinalModel | None = None
    executed: FinalModel | None = None


def find(
    module: Module,
    data: bytes,
    prepared: TargetModule,
    options: LoadOptions,
    request: Request,
    budget: int | None,
    permitted: Permissions,
    source: SessionSource | None = None,
) -> FoundModels:
    """Return the model that needs least, or with a budget (bytes) the one that meets it with the least extra work.

    Args:
        source: The model as sessions read it, if what they execute may be written as well.
    """
    rewrites = rewrites_of(permitted)
    share = _ORDER_SHARE if permitted.free else _AS_GIVEN_SHARE
    placed = _placed(module, prepared, request.within(share) if rewrites or source else request)
    request.ledger.add_passes(placed.plans[0].passes)
    given = FinalModel(module, data, prepared, placed, options=options)
    start: FinalModel | None = None
    if source is not None:
        with request.failures.left_out("what a session executes"):
            rest = request.rest()
            start = executed_start(source, module.sha256, rest.within(_AS_GIVEN_SHARE) if rewrites else rest)
    if not rewrites or met(given, budget):
        return FoundModels(given, start, start)
    found = _searched(given, rewrites, request.rest(), budget, permitted, _form(source, start, request))
    if permitted.free and not found.file.rewritten:
        found = dataclasses.replace(found, file=given)
    return found


def _form(
    source: SessionSource | None, start: FinalModel | None, request: Request, *, only: bool = False
) -> Form | None:
    if source is None or start is None:
        return None
    turn = ExecutedRewrite(source.session, source.seed, start, request.slowdown)
    return Form(start, turn, AHEAD, _PART_OF_SLOWDOWN, IN_ORDER, only)


def find_executed(
    source: SessionSource, request: Request, budget: int | Percentage | None, permitted: Permissions
) -> tuple[FinalModel, FinalModel]:
    """Return what sessions execute of a model, ordered, and the best that the permitted rewrites make of it.

    Layers may be in pieces in what is executed, or in the model as given, which the runtime then optimises.

    Args:
        budget: Bytes, or a part of what the session needs for the model as given; None for none.

    Raises:
        MemschedError: The runtime does not load or run the model.
    """
    given = load_module(source.data, source.path, source.options)
    if not capability(given, SizeGuards).sizes_can_be_refused(given, source.options):
        # Pieces hold for one size alone, where a runtime can refuse others.
        permitted = dataclasses.replace(permitted, tile=False)
    rewrites = rewrites_of(permitted)
    start = executed_start(source, given.sha256, request.within(_AS_GIVEN_SHARE) if rewrites else request)
    if isinstance(budget, Percentage):
        budget = budget.of(required_as_given(start.module, start.prepared, Opening("none")).total)
    if not rewrites or met(start, budget):
        return start, start
    rest = request.rest()
    if not permitted.tile:
        best = _searched(start, rewrites, rest, budget, permitted).file
        return start if best.rewritten else best, best
    prepared = prepare(given, source.rules, in_place=source.in_place)
    placed = _placed(given, prepared, rest.within(_AS_GIVEN_SHARE))
    unturned = FinalModel(given, source.data, prepared, placed, options=source.options)
    found = _searched(unturned, rewrites, rest, budget, permitted, _form(source, start, request, only=True))
    return found.start or start, found.executed or start


def _searched(
    given: FinalModel,
    rewrites: Sequence[Rewrite],
    request: Request,
    budget: int | None,
    permitted: Permissions,
    form: Form | None = None,
) -> FoundModels:
    """Return the best models that a driver finds, with what the report says of them."""
    within = _briefly(request) if permitted.free and not permitted.opening else request
    cheaper = (TileRewrite(free=True),) if permitted.tile and permitted.extra_percent else ()
    driver = Driver(given, rewrites, within, pricing_of(permitted, request, budget), budget, cheaper, form)
    start = None if form is None else form.start
    with request.failures.left_out("rewrites"):
        best = driver.run()
        request.ledger.rows += tried_rows(driver, best)
        file = described(driver, driver.best_of_given(), permitted)
        turned = driver.best_of_form()
        if turned is None:
            return FoundModels(file)
        executed = described(driver, turned, permitted)
        return FoundModels(file, start if executed.rewritten else executed, executed)
    return FoundModels(given, start, start)


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
