"""What every op costs a runtime, whatever the order and the addresses: bytes beside activations, and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import Graph, Op
from memsched.ops.table import families

__all__ = ["NOTHING_KEPT", "PARTIAL", "Avoidable", "Kept", "Pace", "Prices", "weight_bytes"]


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
class Avoidable:
    """What a delegate keeps for an op, and a built-in kernel that is as quick does not.

    Attributes:
        saved: Bytes.
        place: Position of an input that the delegate accepts only as a constant of the file.
    """

    saved: int
    place: int


PARTIAL: Final = families("selection")
"""Ops that read no more of their input than they make of it."""


def weight_bytes(graph: Graph, op: Op) -> int:
    """Return the bytes of constants that an op with multiply-accumulates reads, elements as wide as its output's."""
    if not op.macs or not op.outputs:
        return 0
    shapes = [shape for name, shape in op.attributes.items() if name.startswith(CONSTANT_SHAPE)]
    elements = sum(math.prod(map(int, shape)) for shape in shapes if isinstance(shape, tuple))
    made = graph.tensors[op.outputs[0]]
    return elements * made.size // max(1, math.prod(made.shape or ()))


class Pace(FrozenValue, frozen=True):
    """What ops take of a runtime's time, in the multiply-accumulates that take as long: an estimate.

    Attributes:
        of_op: For each op, whatever it does.
        of_byte: For each byte of activations that is read or written.
        of_weight: For each byte of weights that is read: all of them again by each piece of a layer.
    """

    of_op: float
    of_byte: float
    of_weight: float = 0.0

    def of_ops(self, graph: Graph, ops: Iterable[Op]) -> float:
        """Return what these ops of ``graph`` take together."""
        count = macs = moved = weights = 0
        for op in ops:
            made = sum(graph.tensors[tensor].size for tensor in op.outputs)
            read = made if op.type in PARTIAL else sum(graph.tensors[tensor].size for tensor in op.inputs)
            count, macs, moved = count + 1, macs + op.macs, moved + made + read
            weights += weight_bytes(graph, op) if self.of_weight else 0
        return self.of_counted(count, macs, moved, weights)

    def of_counted(self, ops: int, macs: int, moved: int, weights: int) -> float:
        """Return what so many ops take that together do ``macs`` and move so many bytes, those of weights apart."""
        return macs + self.of_op * ops + self.of_byte * moved + self.of_weight * weights

    def of_graph(self, graph: Graph) -> float:
        """Return what all ops of ``graph`` take together."""
        return self.of_ops(graph, graph.ops)


class Prices(FrozenValue, frozen=True):
    """What a runtime keeps for a model and for each op more.

    Attributes:
        of_model: For the model as it is, but for its graph's variables, which are activations.
        of_op: For an op of a graph, with its outputs and the constants that it brings; an estimate. It depends on no
            more than the op's type, how many outputs it has and, of one with multiply-accumulates, their last axis.
        of_slice: For a slice, and roughly for any other op by which a loop hands data on.
        pace: What ops take of the time, where that is known; then what is kept are the runtime's own structures, which
            lie in the process and are no part of what it requires.
        cautious: The same for what is to cost nothing however the model is run; None where that is not known.
        free: Bytes beyond those of the model that are kept for nothing.
        uniform: What is kept is the same for every op.
        least: Returns what is kept at least for one more op of a type that brings so many tensors, before anything is
            rounded up; None where no more is known than ``of_op``.
    """

    of_model: Kept
    of_op: Callable[[Graph, Op], Kept]
    of_slice: Kept
    pace: Pace | None = None
    cautious: Pace | None = None
    free: int = 0
    uniform: bool = False
    least: Callable[[str, int], int] | None = None

    def of_ops(self, graph: Graph, ops: Iterable[Op]) -> Kept:
        """Return what is kept for these ops together."""
        total = NOTHING_KEPT
        for op in ops:
            total += self.of_op(graph, op)
        return total

    def required(self, peak: int, more: Kept) -> int:
        """Return what the model requires with activations of ``peak`` bytes and so much ``more`` kept."""
        kept = self.of_model + more
        return max(peak, kept.planning) + kept.persistent - min(self.free, max(0, more.persistent))
