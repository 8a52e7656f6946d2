"""A model with orders and addresses, whatever was done to it, and what may still be done."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from fractions import Fraction

from memsched.commands.optimize.by_turns import with_earlier
from memsched.commands.optimize.permissions import Permissions, percent_left
from memsched.commands.optimize.place import ModulePlan, Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import Part, RewriteBase
from memsched.commands.optimize.rewritten import RewriteRun, RewrittenModel, rank
from memsched.formats.module import LoadOptions, Module
from memsched.graph.border import Border
from memsched.graph.prices import Pace
from memsched.planning.rewrite import restated
from memsched.planning.values import TargetModule

__all__ = ["FinalModel", "after", "base_of", "better", "left_of", "met", "slower_by_less"]


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


def base_of(final: FinalModel) -> RewriteBase:
    """Return what a rewrite of this model starts from."""
    return RewriteBase(final.module, final.prepared, final.placed, final.options)


def after(final: FinalModel, run: RewriteRun[Part], *, ties: bool = False, anyway: bool = False) -> FinalModel:
    """Return ``final`` rewritten further where that requires less; with the report's section on it either way.

    Args:
        ties: No more is enough.
        anyway: Whatever it requires: more is to follow.
    """
    result = run.result(final.rewrites, ties=ties, anyway=anyway)
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
