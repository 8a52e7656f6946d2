"""ONNX Runtime as a `Runtime`."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.errors import UsageError
from memsched.formats.module import Module
from memsched.graph.model import Allocation
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph
from memsched.runtimes.offer import Offer
from memsched.runtimes.onnxruntime.guarantee import GuaranteePlans, choose, effort_for, required_as_stored, work_of
from memsched.runtimes.runtime import (
    Opening,
    OrderChoice,
    OrderInFile,
    Requirement,
    Runtime,
    RuntimeTraits,
    SearchAllowance,
)
from memsched.targets.model import Target

__all__ = ["OnnxRuntime"]

_LARGEST = 20_000
"""Ops of all graphs of the largest module for which figures beyond liveness are worth their time."""


class OnnxRuntime(Runtime, frozen=True):
    """Requires the peak of the session that the order guarantee promises, of what it requests of its allocator."""

    @staticmethod
    def judges(module: Module, target: Target, opening: Opening) -> bool:
        """Return whether the target describes ONNX Runtime's planner, and the module is not too large to look closer.

        Raises:
            UsageError: The target knows no default order that could be improved.
        """
        known = target.default_order == "onnxruntime"
        if opening.guarantee == "default" and not known:
            raise UsageError(
                "--order-guarantee default is for targets that take ONNX Runtime's default order, which "
                f"'{target.name}' does not",
                code="no-default-order",
                action="use --target onnxruntime",
            )
        small = sum(len(graph.ops) for graph in module.graphs) <= _LARGEST
        return module.format == "onnx" and known and (small or opening.guarantee == "default")

    @staticmethod
    def offers(module: Module) -> tuple[Offer, ...]:
        """Return the target for processors like this one."""
        if module.format != "onnx":
            return ()
        return (Offer("onnxruntime", "ONNX Runtime", True, True, elsewhere=("browsers", "phones", "GPUs and NPUs")),)

    @property
    def traits(self) -> RuntimeTraits:
        """Return that what a session requests of its allocator is known.

        In a session with the options that are listed, graph optimization multiplies scales. Without options it does,
        too, but the file is verified without it, and bits would then differ.
        """
        scales = self.opening.guarantee == "session"
        return RuntimeTraits(self.target.runtime, figure="session", multiplies_scales=scales)

    def joins_quantised(self, module: Module) -> bool:
        """Return whether values are quantised beside the ops: a session without options joins both to integer kernels.

        What keeps a halo, or cuts a value, stands between them; twice the time was measured.
        """
        return any(op.type == "QuantizeLinear" for graph in module.graphs for op in graph.ops)

    def requires_as_given(self, module: Module, lowered: Sequence[LoweredGraph], given: OrderInFile) -> Requirement:
        """Return the peak of the promised session on the file as it is."""
        del given
        return Requirement(required_as_stored(module, lowered, self.opening.guarantee))

    def requires(
        self,
        module: Module,
        lowered: Sequence[LoweredGraph],
        plans: Sequence[GraphPlan],
        allocation: Allocation,
        allowance: SearchAllowance,
    ) -> Requirement | None:
        """Return the peak of the promised session on the file that would be written for ``plans``."""
        del allocation
        if not allowance.reorder and not any(plan.reordered for plan in plans):
            return Requirement(required_as_stored(module, lowered, self.opening.guarantee))
        return Requirement(self._choose(module, lowered, tuple(plans), allowance).required)

    def choose(
        self, module: Module, lowered: Sequence[LoweredGraph], plans: tuple[GraphPlan, ...], allowance: SearchAllowance
    ) -> OrderChoice | None:
        """Return the orders to write for the guarantee."""
        return self._choose(module, lowered, plans, allowance)

    def _choose(
        self, module: Module, lowered: Sequence[LoweredGraph], plans: tuple[GraphPlan, ...], allowance: SearchAllowance
    ) -> GuaranteePlans:
        effort = effort_for(allowance.seconds)
        if allowance.reorder:
            allowance.run.spend(work_of(effort, self.opening.guarantee))
        return choose(
            module,
            lowered,
            plans,
            self.opening.guarantee,
            reorder=allowance.reorder,
            effort=effort,
            seed=allowance.run.limits.seed,
            stop=allowance.run.stop,
        )
