"""A model with orders and addresses, whatever was done to it, and what may still be done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from memsched.commands.optimize.by_turns import with_earlier
from memsched.commands.optimize.permissions import Permissions, percent_left
from memsched.commands.optimize.place import ModulePlan, Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import Part, RewriteBase
from memsched.commands.optimize.rewritten import RewriteResult, RewriteRun, RewrittenModel, rank
from memsched.formats.module import LoadOptions, Module
from memsched.graph.border import Border
from memsched.lowering.prices import Pace
from memsched.planning.rewrite import restated
from memsched.planning.values import TargetModule

__all__ = ["FinalModel", "after", "base_of", "better", "compared", "left_of", "met", "next_best", "slower_by_less"]


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
        slowdown: Time that it takes beyond the model as given, in percent, as the target's price of an operator has it;
            0 where it has none.
        borders: What its caller has to do instead of it.
        whole: The model as given in the best order found, where this is another one.
        options: What is stated of this model.
        before: The model that it was made from, which is the next best; None for the model as given.
        fewer: Makes models with fewer parts of the last rewrite, such as layers in pieces, best first.
    """

    module: Module
    data: bytes
    prepared: TargetModule
    placed: ModulePlan
    rewrites: Rewrites = field(default_factory=Rewrites)
    rewritten: bool = False
    extra_work: Fraction = Fraction(0)
    extra_macs: int = 0
    slowdown: float = 0.0
    borders: tuple[Border, ...] = ()
    whole: ModulePlan | None = None
    options: LoadOptions = field(default_factory=LoadOptions)
    before: FinalModel | None = None
    fewer: Callable[[], Iterator[FinalModel]] = field(default=lambda: iter(()), compare=False, repr=False)


def base_of(final: FinalModel) -> RewriteBase:
    """Return what a rewrite of this model starts from."""
    return RewriteBase(final.module, final.prepared, final.placed, final.options)


def after(final: FinalModel, run: RewriteRun[Part], *, ties: bool = False, anyway: bool = False) -> FinalModel:
    """Return ``final`` rewritten further where that requires less; with the report's section on it either way.

    Args:
        ties: No more is enough.
        anyway: Whatever it requires: more is to follow.
    """
    made = _after(final, run.result(final.rewrites, ties=ties, anyway=anyway))
    if made.before is not final:
        return made
    return dataclasses.replace(made, fewer=lambda: (_after(final, result) for result in run.fewer(final.rewrites)))


def next_best(final: FinalModel) -> Iterator[FinalModel]:
    """Yield models with less of what was done to ``final``, the best first; each is made when it is asked for."""
    step: FinalModel | None = final
    while step is not None and step.rewritten:
        for fewer in step.fewer():
            tiling, known = fewer.rewrites.tiling, final.rewrites.tiling
            if tiling is not None and known is not None:
                stated = {"max_extra_macs_percent": known.max_extra_macs_percent, "short": known.short}
                tiling = msgspec.structs.replace(tiling, **stated)
            yield _beside(fewer, final, dataclasses.replace(fewer.rewrites, tiling=tiling))
        step = step.before
        if step is not None and step.rewritten:
            yield _beside(step, final, step.rewrites)


def _beside(other: FinalModel, final: FinalModel, rewrites: Rewrites) -> FinalModel:
    """Return another model, compared with the one that ``final`` is compared with."""
    placed = other.placed if final.whole is None else compared(other.placed, final.whole)
    return dataclasses.replace(other, rewrites=rewrites, placed=placed, whole=final.whole)


def compared(placed: ModulePlan, given: ModulePlan) -> ModulePlan:
    """Return what was placed for a rewritten model, with its figures compared with the model as given."""
    if placed.chosen is None or given.chosen is None:
        return placed
    return dataclasses.replace(placed, chosen=placed.chosen.compared_with(given.chosen))


def _after(final: FinalModel, result: RewriteResult) -> FinalModel:
    model = result.model
    graph = final.module.graphs[0]
    given = sum(op.macs for op in graph.ops) - final.extra_macs
    rewrites = with_earlier(final.rewrites, result.rewrites, graph, given)
    if model is None:
        return dataclasses.replace(final, rewrites=rewrites)
    return FinalModel(
        module=model.module,
        data=model.data,
        prepared=dataclasses.replace(model.prepared, baselines=final.prepared.baselines),
        placed=model.placed,
        rewrites=rewrites,
        rewritten=True,
        extra_work=final.extra_work + (1 + final.extra_work) * result.extra_work,
        extra_macs=final.extra_macs + model.extra_macs,
        slowdown=_slower(final, model),
        borders=(*final.borders, *model.borders),
        options=restated(final.options, model.borders),
        before=final,
    )


def _slower(final: FinalModel, model: RewrittenModel) -> float:
    """Return `FinalModel.slowdown` of a model that ``final`` was rewritten to."""
    price = final.prepared.target.price
    if price is None:
        return 0.0
    pace = Pace(price.macs_per_op, price.macs_per_byte)
    ratio = pace.of_graph(model.module.graphs[0]) / max(1.0, pace.of_graph(final.module.graphs[0]))
    return 100 * (ratio * (1 + final.slowdown / 100) - 1)


def better(first: FinalModel, second: FinalModel, budget: int | None) -> FinalModel:
    """Return what meets the budget with the least extra work; of what does not, what requires least."""
    return min(first, second, key=lambda final: rank(final.placed, final.extra_work, budget))


def met(final: FinalModel, budget: int | None) -> bool:
    """Whether there is a budget, in bytes, that the model meets."""
    return budget is not None and final.placed.required <= budget


def left_of(final: FinalModel, permitted: Permissions) -> float:
    """Return the extra work that is still permitted, in percent of the work of ``final``."""
    done = sum(op.macs for op in final.module.graphs[0].ops)
    return percent_left(permitted.extra_percent, done - final.extra_macs, final.extra_macs, float(final.extra_work))


def slower_by_less(request: Request, final: FinalModel) -> Request:
    """Return ``request`` with the slowdown that is still permitted."""
    if request.slowdown is None:
        return request
    return dataclasses.replace(request, slowdown=max(0.0, request.slowdown - final.slowdown))
