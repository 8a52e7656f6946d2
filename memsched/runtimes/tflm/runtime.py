"""TensorFlow Lite Micro as a `Runtime`; its modules are imported for models that are for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from memsched.formats.module import Module
from memsched.graph.model import Allocation
from memsched.lowering.prices import Prices
from memsched.runtimes.arena_facts import ArenaFacts
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph, lower_module
from memsched.runtimes.offer import Offer
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import (
    MemoryPlans,
    Opening,
    OrderedFile,
    OrderInFile,
    Requirement,
    Runtime,
    RuntimeTraits,
    SearchAllowance,
)
from memsched.search.run import Run
from memsched.targets.model import BudgetFor, Target

__all__ = ["TensorFlowLiteMicro"]


class TflmMemoryPlans(MemoryPlans, frozen=True):
    """Memory plans that TFLM reads from a file's metadata.

    Attributes:
        opening: How the file that is written will be opened.
    """

    opening: Opening

    def wanted(self, asked: bool | None) -> bool | None:
        """Return what was asked for; None for nothing."""
        return asked

    def budgeted(self, what: BudgetFor | None) -> Target:
        """Return the target with what a budget is for: the arena, or its planned part."""
        return self.target if what is None else structs.replace(self.target, budget_for=what)

    def rules(self, plan: bool | None) -> Target:
        """Return the target; if no plan is written, without what shares bytes: TFLM's planner lays nothing so."""
        if plan is not False:
            return self.target
        return structs.replace(self.target, views=(), part_views=(), in_place=(), pads_over_inputs=())

    def requires(self, module: Module, plans: Sequence[GraphPlan], run: Run) -> Requirement | None:
        """Return the arena with a plan in the file if one helps; None if it was said whether to write one."""
        if self.opening.memory_plan is not None:
            return None
        from memsched.runtimes.tflm import arena

        return arena.required(module, plans, self.target, run, plan=None)


class TensorFlowLiteMicro(Runtime, frozen=True):
    """Requires all of its arena: what its own greedy planner or a memory plan in the file lays, and what stays."""

    @staticmethod
    def judges(module: Module, target: Target, opening: Opening) -> bool:
        """Return whether ``module`` is for TensorFlow Lite Micro's planner."""
        del opening
        return module.format == "tflite" and target.planner == "tflm"

    @staticmethod
    def offers(module: Module) -> tuple[Offer, ...]:
        """Return the target for any kernels."""
        if module.format != "tflite":
            return ()
        from memsched.runtimes.tflm.offer import offer

        found = offer(module)
        return () if found is None else (found,)

    @property
    def traits(self) -> RuntimeTraits:
        """Return that its planner is repeated here."""
        return RuntimeTraits("tflm", figure="tflm")

    @property
    def memory_plans(self) -> MemoryPlans:
        """Return that a plan can be written."""
        return TflmMemoryPlans(self.target, self.opening)

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

    def prices(self, module: Module) -> Prices | None:
        """Return what the arena's end and planning take for each op; None where the planned part alone decides."""
        from memsched.runtimes.tflm import arena

        return None if self.target.budget_for == "activations" else arena.prices(module, self.target)

    def facts(self, module: Module) -> ArenaFacts:
        """Return heads and refused operators of the file as given, and what TFLM itself says of it where it is here."""
        from memsched.runtimes.tflm import arena
        from memsched.runtimes.tflm.verification import refusal_words

        return replace(arena.analyzed_plan(module, self.target), words=refusal_words(module.native.model))

    def finish(self, file: OrderedFile) -> tuple[ModelBytes, ArenaFacts]:
        """Return the file without dead tensors and with the plan; see `Runtime.finish`."""
        from memsched.runtimes.tflm import arena

        return arena.finish(file, self.target)
