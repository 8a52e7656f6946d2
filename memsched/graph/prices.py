"""What a runtime keeps beside activations: bytes that every op costs, whatever the order and the addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from memsched.graph.model import Graph, Op

__all__ = ["NOTHING_KEPT", "Kept", "Prices"]


@dataclass(frozen=True, slots=True, order=True)
class Kept:
    """Bytes beside activations.

    Attributes:
        persistent: They stay.
        planning: They are needed for a moment, where activations lie later.
    """

    persistent: int = 0
    planning: int = 0

    def __add__(self, other: Kept) -> Kept:
        return Kept(self.persistent + other.persistent, self.planning + other.planning)

    def __sub__(self, other: Kept) -> Kept:
        return Kept(self.persistent - other.persistent, self.planning - other.planning)

    def __mul__(self, times: int) -> Kept:
        return Kept(self.persistent * times, self.planning * times)


NOTHING_KEPT: Final = Kept()


@dataclass(frozen=True, slots=True)
class Prices:
    """What a runtime keeps for a model and for each op more.

    Attributes:
        of_model: For the model as it is.
        of_op: For an op of a graph, with its outputs and the constants that it brings; an estimate.
        of_slice: For a slice, and roughly for any other op by which a loop hands data on.
    """

    of_model: Kept
    of_op: Callable[[Graph, Op], Kept]
    of_slice: Kept

    def of_ops(self, graph: Graph, ops: Iterable[Op]) -> Kept:
        """Return what is kept for these ops together."""
        total = NOTHING_KEPT
        for op in ops:
            total += self.of_op(graph, op)
        return total

    def required(self, peak: int, more: Kept) -> int:
        """Return what the model requires with activations of ``peak`` bytes and so much ``more`` kept."""
        kept = self.of_model + more
        return max(peak, kept.planning) + kept.persistent
