"""What an interpreter makes of a file in its arena, as reports show it, and how it aligns that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from memsched.base.frozen import FrozenValue

__all__ = ["ALIGNMENT", "ArenaFacts", "DeadTensor", "OperatorRefusal", "round_up"]

ALIGNMENT: Final = 16
"""Bytes to which TensorFlow Lite Micro's arena and every size in it are aligned, and models that lie in memory."""


def round_up(size: int) -> int:
    """Return ``size`` rounded up to `ALIGNMENT` bytes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class DeadTensor(FrozenValue, frozen=True):
    """A tensor that was dropped; ``size`` is what TFLM would have given it, bytes."""

    subgraph: int
    tensor: int
    name: str
    size: int


class OperatorRefusal(FrozenValue, frozen=True):
    """An operator that TensorFlow Lite Micro refuses.

    Attributes:
        subgraph: Index of its subgraph.
        operator: Its index there, in the file's order.
        name: Of its first output; empty where it has none.
    """

    subgraph: int
    operator: int
    type: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ArenaFacts:
    """What TFLM makes of the file as given and as written; all figures are heads of its arena in bytes.

    Attributes:
        file_head: The file as given, with the plan that it brings; None where TFLM refuses that plan.
        order_head: The new order, planned by TFLM itself; None where nothing was written.
        plan_head: The new order with our plan; None without one.
        dropped: Tensors that no operator refers to, no longer in the written file.
        offsets: Our plan, per (subgraph, tensor); empty without one.
        names: The names of the tensors in ``offsets``.
        refusals: Operators of the file as given that TFLM is known to refuse.
        plan_fault: What is wrong with the plan that the file brings, by the target's rules; None where nothing is.
        words: Why TFLM does not run the file as given, in its own words; None where it does, or was not asked.
    """

    file_head: int | None
    order_head: int | None = None
    plan_head: int | None = None
    dropped: tuple[DeadTensor, ...] = ()
    offsets: Mapping[tuple[int, int], int] = field(default_factory=dict)
    names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    refusals: tuple[OperatorRefusal, ...] = ()
    plan_fault: str | None = None
    words: str | None = None
