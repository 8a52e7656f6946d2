"""TensorFlow Lite Micro as a `Runtime`; its modules are imported for models that are for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from memsched.formats.module import LoadOptions, Module
from memsched.graph.model import Allocation
from memsched.graph.prices import Prices
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph, lower_module
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import Opening, OrderInFile, RelayRules, Requirement, SearchAllowance
from memsched.runtimes.target_rules import TargetRules
from memsched.search.run import Run
from memsched.targets.model import BudgetFor, Target

if TYPE_CHECKING:
    from memsched.runtimes.tflm.arena import TflmFacts

__all__ = ["TensorFlowLiteMicro"]


class TensorFlowLiteMicro(TargetRules, frozen=True):
    """Requires all of its arena: what its own greedy planner or a memory plan in the file lays, and what stays."""

    @staticmethod
    def judges(module: Module, target: Target, opening: Opening) -> bool:
        """Return whether ``module`` is for TensorFlow Lite Micro's planner."""
        del opening
        return module.format == "tflite" and target.planner == "tflm"

    @property
    def name(self) -> str:
        """Return "tflm"."""
        return "tflm"

    @property
    def has_planner(self) -> bool:
        """Return True: its planner is repeated here."""
        return True

    @property
    def figure(self) -> str | None:
        """Return the name of its figures in reports."""
        return "tflm"

    def lower(self, module: Module) -> tuple[LoweredGraph, ...]:
        """Return the graphs with the target's rules and the kernels' scratch buffers."""
        from memsched.runtimes.tflm import arena

        return arena.lowered_for(module, lower_module(module, self.target), self.target)

    def requires_as_given(self, module: Module, lowered: Sequence[LoweredGraph], given: OrderInFile) -> Requirement:
        """Return the arena of the file with the plan that it brings; with our addresses where TFLM refuses that."""
        del lowered
        from memsched.runtimes.tflm import arena

        return arena.required_as_given(module, self.target, otherwise=given.allocation.arena)

    def requires(
        self,
        module: Module,
        lowered: Sequence[LoweredGraph],
        plans: Sequence[GraphPlan],
        allocation: Allocation,
        allowance: SearchAllowance,
    ) -> Requirement | None:
        """Return the arena of the file in the plans' orders; None where TFLM could not load it."""
        del lowered, allocation
        from memsched.runtimes.tflm import arena

        return arena.required(module, plans, self.target, allowance.run, plan=self.opening.memory_plan)

    def check_kernels(self, given: Module, written: Module) -> None:
        """Check that TFLM refuses no operator that was added; see `Runtime.check_kernels`."""
        from memsched.runtimes.tflm import arena

        arena.check_kernels(given, written)

    def wants_plan(self, asked: bool | None) -> bool | None:
        """Return what was asked for; None for nothing."""
        return asked

    def budgeted(self, what: BudgetFor | None) -> Target:
        """Return the target with what a budget is for: the arena, or its planned part."""
        return self.target if what is None else structs.replace(self.target, budget_for=what)

    def rules(self, plan: bool | None) -> Target:
        """Return the target; where no plan is written, without what shares bytes: TFLM's planner lays nothing so."""
        if plan is not False:
            return self.target
        return structs.replace(self.target, views=(), part_views=(), in_place=(), pads_over_inputs=())

    def with_memory_plan(self, module: Module, plans: Sequence[GraphPlan], run: Run) -> Requirement | None:
        """Return the arena with a plan in the file where one helps; None where it was said whether to write one."""
        if self.opening.memory_plan is not None:
            return None
        from memsched.runtimes.tflm import arena

        return arena.required(module, plans, self.target, run, plan=None)

    def relay_rules(self) -> RelayRules | None:
        """Return the rules of an arena; see `memsched.runtimes.tflm.relay`."""
        from memsched.runtimes.tflm.relay import TflmRelay

        return TflmRelay(self.target.pointer_bits, self.target.kernels)

    def prices(self, module: Module) -> Prices | None:
        """Return what the arena's end and planning take for each op; None where the planned part alone decides."""
        from memsched.runtimes.tflm import arena

        return None if self.target.budget_for == "activations" else arena.prices(module, self.target)

    def facts(self, module: Module) -> TflmFacts:
        """Return heads and refused operators of the file as given, and what TFLM itself says of it where it is here."""
        from memsched.runtimes.tflm import arena
        from memsched.runtimes.tflm.verification import refusal_words

        return replace(arena.analyzed_plan(module, self.target), words=refusal_words(module.native.model))

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
    ) -> tuple[ModelBytes, TflmFacts]:
        """Return the file without dead tensors and with the plan; see `Runtime.finish`."""
        from memsched.runtimes.tflm import arena

        return arena.finish(module, written, plans, options, self.target, run, plan=plan, given=given)
