"""LiteRT as a `Runtime`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from memsched.formats.module import Module
from memsched.formats.tflite.open_sizes import with_guards
from memsched.graph.model import Allocation, Graph, Op, Schedule
from memsched.lowering.prices import Avoidable
from memsched.lowering.xnnpack import MOST_JOINED, avoidable, packed_bytes, table_bytes
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph
from memsched.runtimes.litert.partitions import delegated_memory
from memsched.runtimes.litert.planner import MOST_REQUESTS
from memsched.runtimes.litert.requirement import required_bytes
from memsched.runtimes.offer import Offer
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import (
    Opening,
    OrderedFile,
    OrderInFile,
    Requirement,
    Runtime,
    RuntimeTraits,
    SearchAllowance,
)
from memsched.targets.model import Target

__all__ = ["LiteRt"]

_NAME = "litert"
"""The target for interpreters with the default delegate."""

_REFERENCE = f"{_NAME}-reference"

_OPERATOR: Final = 5_300
"""Bytes of LiteRT's and XNNPACK's structures for one op, fitted to ten models (`scripts.bench litert_default`)."""


class LiteRt(Runtime, frozen=True):
    """LiteRT: requires its arena, kernels' temporaries included, and the memory of the default delegate.

    XNNPACK keeps a workspace for the tensors inside its partitions, packed weights, and tables of pointers.
    """

    @staticmethod
    def judges(module: Module, target: Target, opening: Opening) -> bool:
        """Return whether ``module`` is for LiteRT."""
        del opening
        return module.format == "tflite" and target.kernels == "litert"

    @staticmethod
    def offers(module: Module) -> tuple[Offer, ...]:
        """Return the interpreters that people open by default, and those without delegates."""
        if module.format != "tflite":
            return ()
        return (
            Offer(_NAME, "LiteRT, default delegate", True, True, elsewhere=("browsers", "phones", "GPUs and NPUs")),
            Offer(_REFERENCE, "LiteRT without delegates", True, False),
        )

    @property
    def traits(self) -> RuntimeTraits:
        """Return that its planner is repeated here, and that XNNPACK packs weights for each tile anew.

        Interpreters with other delegates leave to XNNPACK what it takes. A target that is another's extension has no
        counterpart without delegates to name.
        """
        return RuntimeTraits(
            self.target.runtime,
            figure="interpreter" if self.keeps_tables else "litert",
            tiles_for="interpreters without XNNPACK",
            session_options=("--target", _REFERENCE) if self.target.name == _NAME else (),
        )

    def requires_as_given(self, module: Module, lowered: Sequence[LoweredGraph], given: OrderInFile) -> Requirement:
        """Return what its planner takes for the file's own order."""
        del module, lowered
        return self._required(given.graph, given.schedule, given.allocation)

    def requires(
        self,
        module: Module,
        lowered: Sequence[LoweredGraph],
        plans: Sequence[GraphPlan],
        allocation: Allocation,
        allowance: SearchAllowance,
    ) -> Requirement | None:
        """Return what its planner takes for the orders of ``plans``."""
        del module, lowered, allowance
        return self._required(plans[0].graph, plans[0].schedule, allocation)

    def _required(self, graph: Graph, schedule: Schedule, allocation: Allocation) -> Requirement:
        """Return the bytes of the arena, and of the default delegate if the target has it."""
        if not self.keeps_tables:
            return Requirement(required_bytes(graph, schedule, allocation))
        arena, workspace = allocation.arena, 0
        if len(graph.ops) <= MOST_REQUESTS:
            arena, workspace = delegated_memory(graph, schedule.order)
        kept = {
            "workspace": workspace,
            "tables": sum(table_bytes(graph, op) for op in graph.ops),
            "packed_weights": sum(packed_bytes(graph, op) for op in graph.ops),
            "structures": _OPERATOR * len(graph.ops),
        }
        beside = sum(kept.values())
        return Requirement(arena + beside, (("activations", arena), *kept.items()), beside)

    @property
    def keeps_tables(self) -> bool:
        """Whether interpreters apply the default delegate."""
        return self.target.default_delegate

    @property
    def most_joined(self) -> int | None:
        """Largest number of inputs of a concatenation that the default delegate accepts."""
        return MOST_JOINED if self.keeps_tables else None

    def table_bytes(self, graph: Graph, op: Op) -> int:
        """Return the bytes of the table that the default delegate keeps for an op."""
        return table_bytes(graph, op) if self.keeps_tables else 0

    def avoidable(self, graph: Graph, op: Op) -> Avoidable | None:
        """Return what the default delegate keeps for an op that a built-in kernel computes as quickly."""
        return avoidable(graph, op) if self.keeps_tables else None

    def finish(self, file: OrderedFile) -> tuple[ModelBytes, None]:
        """Return the file with operators that refuse sizes for which it does not hold; see `Runtime.finish`."""
        if file.given is None:
            return file.written, None
        return replace(file.written, model=with_guards(file.given, file.module, file.written.model)), None
