"""ONNX Runtime as an `OrderKeeper`; its modules are imported when they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from memsched.base.errors import ModelError
from memsched.formats.module import FormatName, LoadOptions, Module, OrderGuarantee
from memsched.graph.liveness import Storage
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph
from memsched.runtimes.order_keeper import PinnedFile
from memsched.runtimes.values import Verification
from memsched.targets.model import DefaultOrder

__all__ = ["OnnxRuntimeOrders"]


class OnnxRuntimeOrders:
    """Sessions without options order the nodes of a file by themselves."""

    name: Final[DefaultOrder] = "onnxruntime"
    format: Final[FormatName] = "onnx"

    def default_order(self, storage: Storage) -> tuple[int, ...]:
        """Return the order of a session without options; see `memsched.runtimes.onnxruntime.orders`."""
        from memsched.runtimes.onnxruntime.orders import default_order_of

        return default_order_of(storage)

    def instructions(self, guarantee: OrderGuarantee) -> tuple[str, ...]:
        """Return how to open a session; see `session_instructions`."""
        from memsched.runtimes.onnxruntime.verification import session_instructions

        return tuple(session_instructions(guarantee))

    def pin(self, ordered: bytes, path: str, metadata: Mapping[str, str]) -> PinnedFile:
        """Return the file with pins; see `memsched.runtimes.onnxruntime.pins`."""
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
        """Return the peak of a session without options; see `required_as_stored`."""
        from memsched.runtimes.onnxruntime.guarantee import required_as_stored

        return required_as_stored(module, lowered, "default", orders)

    def plans(
        self,
        module: Module,
        lowered: Sequence[LoweredGraph],
        plans: Sequence[GraphPlan],
        orders: Sequence[tuple[int, ...]],
    ) -> tuple[GraphPlan, ...]:
        """Return plans of a session without options; see `plans_as_stored`."""
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
        """Run both in sessions without options; see `memsched.runtimes.onnxruntime.verification.verify`."""
        from memsched.runtimes.onnxruntime.verification import verify

        return verify(
            before,
            after,
            expected_order=expected_order,
            guarantee="default",
            seed=seed,
            input_shapes=options.input_shapes,
            dims=options.dims,
            data_folder=folder,
        )
