"""The interface of a runtime that does not keep the order of a file: its own order, and what makes it keep another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from memsched.base.frozen import FrozenValue
from memsched.formats.module import FormatName, LoadOptions, Module, OrderGuarantee
from memsched.graph.liveness import Storage
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph
from memsched.runtimes.values import Verification
from memsched.targets.model import DefaultOrder

__all__ = ["OrderKeeper", "PinnedFile"]


class PinnedFile(FrozenValue, frozen=True):
    """A file with dependencies that leave no other order possible.

    Attributes:
        data: The file; the one that was given, byte for byte, without pins.
        pins: Number of dependencies that were added.
        notes: What a report must say about nodes that pins do not reach.
    """

    data: bytes
    pins: int
    notes: tuple[str, ...]


class OrderKeeper(Protocol):
    """Knows a runtime's own order, and what makes it execute that of a file: for planning and writing files.

    Attributes:
        name: Of the runtime's own order, in targets.
        format: Of the files that it loads.
    """

    @property
    def name(self) -> DefaultOrder: ...  # noqa: D102 - above
    @property
    def format(self) -> FormatName: ...  # noqa: D102 - above

    def default_order(self, storage: Storage) -> tuple[int, ...]:
        """Return the order in which the runtime executes the graph that ``storage`` was made of."""

    def instructions(self, guarantee: OrderGuarantee) -> tuple[str, ...]:
        """Return the lines of Python by which the runtime executes the order of a file."""

    def pin(self, ordered: bytes, path: str, metadata: Mapping[str, str]) -> PinnedFile:
        """Return a file with dependencies added that leave no order but its own possible.

        Args:
            path: Of the model, for messages.
            metadata: Added if pins are.

        Raises:
            ModelError: It cannot be written with pins.
        """

    def required(
        self, module: Module, lowered: Sequence[LoweredGraph], orders: Sequence[tuple[int, ...]] | None = None
    ) -> int:
        """Return the bytes that the runtime needs for a file by itself.

        Args:
            orders: For each graph another order in which the file stores its ops; None for the module's own.
        """

    def plans(
        self,
        module: Module,
        lowered: Sequence[LoweredGraph],
        plans: Sequence[GraphPlan],
        orders: Sequence[tuple[int, ...]],
    ) -> tuple[GraphPlan, ...]:
        """Return checked plans of what the runtime executes by itself of a file that stores its ops in ``orders``.

        Args:
            plans: Of the graphs of ``module``, in any order.
        """

    def verify(
        self,
        before: bytes,
        after: bytes,
        options: LoadOptions,
        *,
        expected_order: Sequence[str],
        folder: Path | None,
        seed: int,
    ) -> Verification:
        """Run two files as the runtime executes them by itself: compare outputs, peaks, and the order of the second.

        Args:
            options: What states the sizes of both.
            folder: The folder of their external data; None if there is none.
        """
