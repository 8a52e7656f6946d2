"""The order of ONNX Runtime's sessions without options, and what makes them keep that of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from memsched.base.errors import ModelError
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


class OrderKeeper:
    """Knows a runtime's own order, and what makes it execute that of a file: for planning and writing files.

    Its modules are imported when they are needed.

    Attributes:
        name: Of the runtime's own order, in targets.
        format: Of the files that it loads.
    """

    name: Final[DefaultOrder] = "onnxruntime"
    format: Final[FormatName] = "onnx"

    def default_order(self, storage: Storage) -> tuple[int, ...]:
        """Return the order in which the runtime executes the graph that ``storage`` was made of."""
        from memsched.runtimes.onnxruntime.orders import default_order_of

        return default_order_of(storage)

    def instructions(self, guarantee: OrderGuarantee) -> tuple[str, ...]:
        """Return the lines of Python by which the runtime executes the order of a file."""
        from memsched.runtimes.onnxruntime.verification import session_instructions

        return tuple(session_instructions(guarantee))

    def pin(self, ordered: bytes, path: str, metadata: Mapping[str, str]) -> PinnedFile:
        """Return a file with dependencies added that leave no order but its own possible.

        Args:
            path: Of the model, for messages.
            metadata: Added if pins are.

        Raises:
            ModelError: It cannot be written with pins.
        """
        import onnx

        from memsched.formats.onnx.writer import set_metadata
        from memsched.runtimes.onnxruntime import pins

        pinned = pins.pin(onnx.ModelProto.FromString(ordered))
        notes = list(pinned.notes)
        if pinned.unpinnable:
            earlier, later = pinned.unpinnable[0]
            count = len(pinned.unpinnable)
            notes.append(f"{count} neighbours could not be pinned, such as '{earlier}' before '{later}'")
        if not pinned.pins:
            return PinnedFile(ordered, 0, tuple(notes))
        set_metadata(pinned.model, metadata)
        try:
            model: bytes = pinned.model.SerializeToString(deterministic=True)
        except ValueError as error:
            raise ModelError(f"{path}: the model with pins cannot be written: {error}") from error
        return PinnedFile(model, pinned.pins, tuple(notes))

    def required(
        self, module: Module, lowered: Sequence[LoweredGraph], orders: Sequence[tuple[int, ...]] | None = None
    ) -> int:
        """Return the bytes that the runtime needs for a file by itself.

        Args:
            orders: For each graph another order in which the file stores its ops; None for the module's own.
        """
        from memsched.runtimes.onnxruntime.guarantee import required_as_stored

        return required_as_stored(module, lowered, "default", orders)

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
        from memsched.runtimes.onnxruntime.guarantee import plans_as_stored

        return plans_as_stored(module, lowered, plans, orders)

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
        from memsched.runtimes.onnxruntime.verification import compare_models

        return compare_models(
            before,
            after,
            expected_order=expected_order,
            guarantee="default",
            seed=seed,
            input_shapes=options.input_shapes,
            dims=options.dims,
            data_folder=folder,
        ).explained
