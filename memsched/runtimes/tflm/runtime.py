"""TensorFlow Lite Micro as a `Runtime`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memsched.formats.module import LoadOptions, Module
from memsched.graph.model import Allocation
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph, lower_module
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import Opening, OrderInFile, Requirement, SearchAllowance
from memsched.runtimes.target_rules import TargetRules
from memsched.runtimes.tflm import arena
from memsched.targets.model import Target

__all__ = ["TensorFlowLiteMicro"]


@dataclass(frozen=True, slots=True)
class TensorFlowLiteMicro(TargetRules):
    """Requires the head of its arena, as its own greedy planner or a memory plan in the file lays it."""

    @staticmethod
    def judges(module: Module, target: Target, opening: Opening) -> bool:
        """Return whether ``module`` is for TensorFlow Lite Micro's planner."""
        del opening
        return module.format == "tflite" and target.planner == "tflm"

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
        return arena.with_scratch(module, lower_module(module, self.target))

    def requires_as_given(self, module: Module, lowered: Sequence[LoweredGraph], given: OrderInFile) -> Requirement:
        """Return the head for the file with the plan that it brings; our arena where TFLM refuses that plan."""
        del lowered
        head = arena.analyzed(module).file_head
        return Requirement(given.allocation.arena if head is None else head)

    def requires(
        self,
        module: Module,
        lowered: Sequence[LoweredGraph],
        plans: Sequence[GraphPlan],
        allocation: Allocation,
        allowance: SearchAllowance,
    ) -> Requirement | None:
        """Return the head for the file in the plans' orders; None where TFLM could not load it."""
        del lowered, allocation, allowance
        return _required(arena.required_bytes(module, plans, plan=self.opening.memory_plan))

    def check_kernels(self, given: Module, written: Module) -> None:
        """Check that TFLM refuses no operator that was added; see `Runtime.check_kernels`."""
        arena.check_kernels(given, written)

    def wants_plan(self, asked: bool) -> bool:
        """Return whether a plan is asked for, or implied by a target that lets tensors share bytes."""
        # TFLM shares bytes only where a plan tells it to.
        return asked or bool(self.target.views or self.target.part_views or self.target.in_place)

    def with_memory_plan(self, module: Module, plans: Sequence[GraphPlan]) -> Requirement | None:
        """Return the head with a plan in the file; None where it has one already, or none helps."""
        if self.opening.memory_plan:
            return None
        return _required(arena.required_bytes(module, plans, plan=True))

    def whole_bytes(self, module: Module, required: int) -> int | None:
        """Return an estimate of the whole arena on 32 bit."""
        return arena.whole_arena_bytes(module, required)

    def facts(self, module: Module) -> arena.TflmFacts:
        """Return heads and refused operators of the file as given."""
        return arena.analyzed(module)

    def finish(
        self,
        module: Module,
        written: ModelBytes,
        plans: Sequence[GraphPlan],
        options: LoadOptions,
        *,
        plan: bool,
        asked: bool,
        given: Module | None,
    ) -> tuple[ModelBytes, arena.TflmFacts]:
        """Return the file without dead tensors and with the plan; see `Runtime.finish`."""
        return arena.finish(module, written, plans, options, self.target, plan=plan, asked=asked, given=given)


def _required(head: int | None) -> Requirement | None:
    return None if head is None else Requirement(head)
