"""What crosses a cut: the tensors that a model has made, or was given, and still needs."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph
from memsched.graph.parts import readers_of
from memsched.runtimes.arena_facts import round_up

__all__ = ["RelayCuts"]

_NOT_HANDED_OVER = frozenset({"int4", "uint4", "int2", "uint2", "string", "resource", "variant"})
"""Element types that are no whole bytes, or nothing that can be copied."""


class RelayCuts(FrozenValue, frozen=True):
    """The places at which a graph, in one order, can be cut: place p is in front of step p.

    Attributes:
        order: Ops of the graph, a topological order.
        made: Per tensor the place behind the step that makes it: 0 for inputs of the graph, -1 for no value.
        needed: Per tensor the last place in front of a step that reads it, the last place of all for outputs of the
            graph; -1 where nothing reads it.
        places: Where it may be cut, the beginning and the end among them, rising.
        handed: Per place the bytes that cross it, each tensor rounded up to the runtime's alignment.
    """

    graph: Graph
    order: tuple[int, ...]
    made: tuple[int, ...]
    needed: tuple[int, ...]
    places: tuple[int, ...]
    handed: tuple[int, ...]

    @staticmethod
    def of(graph: Graph, order: Sequence[int], together: Sequence[Sequence[int]] = ()) -> RelayCuts:
        """Return the cuts of ``graph`` in ``order``; none is between two ops of one group of ``together``."""
        steps = {op: step for step, op in enumerate(order)}
        end = len(order)
        made, needed = [-1] * len(graph.tensors), [-1] * len(graph.tensors)
        for tensor in graph.inputs:
            made[tensor] = 0
        for op, step in steps.items():
            for tensor in graph.ops[op].outputs:
                made[tensor] = step + 1
        for tensor, readers in enumerate(readers_of(graph)):
            needed[tensor] = max((steps[op] for op in readers), default=-1)
        for tensor in graph.outputs:
            needed[tensor] = end
        handed, forbidden = [0] * (end + 1), [False] * (end + 1)
        for tensor, (first, last) in enumerate(zip(made, needed, strict=True)):
            stuck = graph.tensors[tensor].dtype in _NOT_HANDED_OVER or not graph.tensors[tensor].sized
            for place in range(first, last + 1) if first >= 0 else ():
                handed[place] += round_up(graph.tensors[tensor].size)
                forbidden[place] |= stuck
        for group in together:
            held = [steps[op] for op in group]
            for place in range(min(held) + 1, max(held) + 1):
                forbidden[place] = True
        places = tuple(place for place in range(end + 1) if place in (0, end) or not forbidden[place])
        return RelayCuts(graph, tuple(order), tuple(made), tuple(needed), places, tuple(handed))

    def crossing(self, place: int) -> tuple[int, ...]:
        """Return the tensors that are there at a place and needed behind it."""
        return tuple(
            tensor
            for tensor, (made, needed) in enumerate(zip(self.made, self.needed, strict=True))
            if 0 <= made <= place <= needed
        )

    def kept(self, first: int, last: int) -> tuple[int, ...]:
        """Return the tensors that must lie outside while the steps from ``first`` to ``last`` (excluded) are executed.

        The first stage is given the graph's inputs where it reads them: only those that are needed later still are
        kept outside.
        """
        if first > 0:
            return self.crossing(first)
        return tuple(tensor for tensor in self.crossing(0) if self.needed[tensor] >= last < len(self.order))

    def kept_bytes(self, first: int, last: int) -> int:
        """Return the bytes of `kept`."""
        if first > 0:
            return self.handed[first]
        return sum(round_up(self.graph.tensors[tensor].size) for tensor in self.kept(first, last))

    def inputs(self, first: int, last: int) -> tuple[int, ...]:
        """Return the tensors that the steps from ``first`` to ``last`` read and do not make, in order."""
        read = {tensor for step in range(first, last) for tensor in self.graph.ops[self.order[step]].inputs}
        return tuple(sorted(tensor for tensor in read if 0 <= self.made[tensor] <= first))

    def outputs(self, first: int, last: int) -> tuple[int, ...]:
        """Return the tensors that the steps from ``first`` to ``last`` make and others need, the graph's first."""
        found = {
            tensor
            for step in range(first, last)
            for tensor in self.graph.ops[self.order[step]].outputs
            if self.needed[tensor] >= last
        }
        results = [tensor for tensor in dict.fromkeys(self.graph.outputs) if tensor in found]
        return (*results, *sorted(found.difference(results)))

    def least_bytes(self, first: int, last: int) -> tuple[int, int]:
        """Return the bytes at the two ends of a stage: what it is given, and what it hands on."""
        sizes = self.graph.tensors
        return (
            sum(round_up(sizes[tensor].size) for tensor in self.inputs(first, last)),
            sum(round_up(sizes[tensor].size) for tensor in self.outputs(first, last)),
        )
