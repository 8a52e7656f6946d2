"""A model's bytes, and what makes a runtime keep their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.formats.module import OrderGuarantee
from memsched.graph.border import Border

__all__ = ["Guarantee", "ModelBytes"]


class Guarantee(FrozenValue, frozen=True):
    """What makes the runtime keep the order; the report's section of that name.

    Attributes:
        predicted: ONNX Runtime's peak by guarantee, bytes; None where nothing predicts it.
        requested: What a verification should measure before and after, bytes; None where nothing predicts it.
        executed: Names of the main graph's ops as they run; None where that is the file's order.
    """

    kind: OrderGuarantee | Literal["file", "control_dependencies"]
    session_options: tuple[str, ...] = ()
    pins: int | None = None
    predicted: Mapping[str, int] | None = None
    requested: tuple[int, int] | None = None
    executed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """A model's bytes.

    Attributes:
        unchanged: They are the input's.
        notes: What the report must say of the writing.
        promised: What a session with the options of the guarantee needs is told of the file, changed or not.
        borders: What the caller has to do instead of the model; nothing where inputs and outputs are those given.
        fixed: Dimensions that the model as given leaves open, names to sizes; another size would be wrong.
    """

    model: bytes
    unchanged: bool
    guarantee: Guarantee
    notes: tuple[str, ...] = ()
    fixed: Mapping[str, int] = field(default_factory=dict)
    promised: bool = False
    borders: tuple[Border, ...] = ()

    @property
    def opened_with_options(self) -> bool:
        """Whether the figures that are told of the file hold for the options of its guarantee."""
        return not self.unchanged or (self.promised and self.guarantee.kind == "session")
