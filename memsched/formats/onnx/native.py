"""What the writer needs to know of an ONNX file that was read."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto

from memsched.formats.onnx import functions

__all__ = ["OnnxNative"]


@dataclass(frozen=True, slots=True, repr=False)
class OnnxNative:
    """The file itself and how its nodes map to ops.

    Attributes:
        data: The file's bytes.
        inlined: Node indices count in the model with its functions inlined.
        nodes: Per graph of the module and op the index of its node.
        constant_nodes: Per graph the indices of the nodes that compute constants.
        external: Locations of external data, in order of first use.
        computed_bytes: Name and size of constants of the main graph that nodes compute, where it is known.
        constants: Whether any graph has a constant, stored or computed.
        folded: As in the options that the file was read with.
    """

    data: bytes
    inlined: bool
    nodes: tuple[tuple[int, ...], ...]
    constant_nodes: tuple[tuple[int, ...], ...]
    external: tuple[str, ...]
    computed_bytes: tuple[tuple[str, int], ...] = ()
    constants: bool = True
    folded: bool = True

    def parse(self) -> ModelProto:
        """Return the model as in the file."""
        model: ModelProto = ModelProto.FromString(self.data)
        return model

    def scheduled(self) -> ModelProto:
        """Return the model that the node indices count in: functions inlined where there are any."""
        model = self.parse()
        return functions.inline(model) if self.inlined else model
