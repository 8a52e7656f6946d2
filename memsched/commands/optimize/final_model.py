"""A model with orders and addresses, whatever was done to it, and what may still be done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from memsched.commands.optimize.permissions import percent_left
from memsched.commands.optimize.place import ModulePlan
from memsched.commands.optimize.rewrite import Candidate, Pricing, Rewrite, RewriteBase
from memsched.commands.optimize.rewrites import Rewrites
from memsched.formats.module import LoadOptions, Module
from memsched.graph.border import Border
from memsched.lowering.prices import Pace
from memsched.plan.values import TargetModule
from memsched.runtimes.runtime import AS_TOLD, Opening
from memsched.runtimes.sessions import ExecutedModel

__all__ = ["FinalModel", "base_of", "compared", "met", "next_best", "rank", "slower"]


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
        made: The candidate that it was; None for the model as given.
        steps: The rewrites that led to it.
        fewer: Makes models with fewer parts of the last rewrite, such as layers in pieces, best first.
        executed: What a session executes of the model that it was made from; None for a file to open as usual.
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
    made: Candidate | None = field(default=None, compare=False, repr=False)
    steps: tuple[Rewrite, ...] = ()
    fewer: Callable[[], Iterator[FinalModel]] = field(default=lambda: iter(()), compare=False, repr=False)
    cheaper: Callable[[Fraction], FinalModel | None] = field(default=lambda _: None, compare=False, repr=False)
    executed: ExecutedModel | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """What the rewrites that led to it are permitted by."""
        return tuple(step.name for step in self.steps)

    @property
    def weight(self) -> int:
        """Bytes that it requires, with the structures that its runtime has for more operators."""
        return self.placed.requirement.weight


def base_of(final: FinalModel, pricing: Pricing, opening: Opening = AS_TOLD) -> RewriteBase:
    """Return what a rewrite of this model starts from.

    Args:
        pricing: What may be spent on the model as given.
    """
    done = sum(op.macs for op in final.module.graphs[0].ops)
    percent = percent_left(pricing.percent, done - final.extra_macs, final.extra_macs, float(final.extra_work))
    slowdown = None if pricing.slowdown is None else max(0.0, pricing.slowdown - final.slowdown)
    left = dataclasses.replace(pricing, percent=percent, slowdown=slowdown)
    return RewriteBase(final.module, final.prepared, final.placed, final.options, left, opening, final.data)


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


def slower(final: FinalModel, module: Module) -> float:
    """Return `FinalModel.slowdown` of a model that ``final`` was rewritten to."""
    price = final.prepared.target.price
    if price is None:
        return 0.0
    pace = Pace(price.macs_per_op, price.macs_per_byte)
    ratio = pace.of_graph(module.graphs[0]) / max(1.0, pace.of_graph(final.module.graphs[0]))
    return 100 * (ratio * (1 + final.slowdown / 100) - 1)


def rank(final: FinalModel, budget: int | None) -> tuple[bool, tuple[Fraction | int, ...]]:
    """Return what is less for the better of two: the work of what meets the budget, the bytes of what does not."""
    within = met(final, budget)
    least = final.placed.requirement.rank
    # Where all is alike, what nobody needs to trust is better.
    alike = len(final.steps), final.placed.allocation.arena
    return (not within, (final.extra_work, *least, *alike) if within else (*least, final.extra_work, *alike))


def met(final: FinalModel, budget: int | None) -> bool:
    """Whether there is a budget, in bytes, that the model meets."""
    return budget is not None and final.placed.required <= budget
