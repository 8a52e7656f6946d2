"""A target's rules alone, for runtimes of which nothing more is known: what is required is the arena."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memsched.base.frozen import FrozenValue
from memsched.formats.module import LoadOptions, Module
from memsched.graph.model import Allocation
from memsched.lowering.prices import NOTHING_KEPT, Kept, Pace, Prices
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph, lower_module
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import (
    MemoryPlans,
    Opening,
    OrderChoice,
    OrderInFile,
    RelayRules,
    Requirement,
    RuntimeTraits,
    SearchAllowance,
)
from memsched.search.run import Run
from memsched.targets.model import Target

__all__ = ["TargetRules"]


class TargetRules(FrozenValue, frozen=True):
    """What any target says; the other runtimes add what they do beyond it.

    Attributes:
        target: Whose rules hold.
        opening: How the file that is written will be opened.
    """

    target: Target
    opening: Opening

    @property
    def traits(self) -> RuntimeTraits:
        """Return the name of the runtime that can verify the figures; what is required is the arena."""
        return RuntimeTraits(self.target.runtime)

    @property
    def memory_plans(self) -> MemoryPlans:
        """Return what holds for runtimes that take no plan."""
        return MemoryPlans(self.target)

    def lower(self, module: Module) -> tuple[LoweredGraph, ...]:
        """Return the graphs with the target's rules."""
        return lower_module(module, self.target)

    def requires_as_given(self, module: Module, lowered: Sequence[LoweredGraph], given: OrderInFile) -> Requirement:
        """Return the arena of the file's own order."""
        del module, lowered
        return _arena(given.allocation, given.schedule.peak)

    def requires(
        self,
        module: Module,
        lowered: Sequence[LoweredGraph],
        plans: Sequence[GraphPlan],
        allocation: Allocation,
        allowance: SearchAllowance,
    ) -> Requirement | None:
        """Return the arena."""
        del module, lowered, allowance
        return _arena(allocation, plans[0].schedule.peak)

    def choose(
        self, module: Module, lowered: Sequence[LoweredGraph], plans: tuple[GraphPlan, ...], allowance: SearchAllowance
    ) -> OrderChoice | None:
        """Return None: the orders found are those that run."""
        del module, lowered, plans, allowance
        return None

    def check_kernels(self, given: Module, written: Module) -> None:
        """Pass: nothing is known of its kernels."""

    def relay_rules(self) -> RelayRules | None:
        """Return None: nothing is known of blocks of memory that it is given."""
        return None

    def joins_quantised(self, module: Module) -> bool:
        """Return False: ops are executed as the file has them."""
        del module
        return False

    def prices(self, module: Module) -> Prices | None:
        """Return the target's price of an operator, whatever it does; None where it has none."""
        del module
        price = self.target.price
        if price is None:
            return None
        kept = Kept(price.bytes_per_op)
        pace = Pace(price.macs_per_op, price.macs_per_byte)
        dear = price.cautious
        cautious = None if dear is None else Pace(dear.macs_per_op, dear.macs_per_byte, dear.macs_per_weight_byte)
        return Prices(NOTHING_KEPT, lambda _graph, _op: kept, kept, pace=pace, cautious=cautious, uniform=True)

    def facts(self, module: Module) -> Any:
        """Return None."""
        del module

    def finish(
        self,
        module: Module,
        written: ModelBytes,
        plans: Sequence[GraphPlan],
        options: LoadOptions,
        run: Run,
        *,
        plan: bool | None,
        given: Module | None,
    ) -> tuple[ModelBytes, Any]:
        """Return the file as it is."""
        del module, plans, options, run, plan, given
        return written, None


def _arena(allocation: Allocation, peak: int) -> Requirement:
    return Requirement(allocation.arena, (("activations", peak), ("slack", allocation.arena - peak)))
