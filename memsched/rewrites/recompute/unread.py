"""Executions whose outputs nothing reads before they are computed anew: useless work, and bytes that runtimes keep.

ONNX Runtime and LiteRT free an output after its last reader, so one without any stays to the end. What the model as
given computes for nobody stays as it is: once.
"""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import producers
from memsched.graph.model import Graph

__all__ = ["Readers", "operands"]


def operands(graph: Graph) -> list[tuple[int, ...]]:
    """Return, per op, the ops whose outputs it reads, ascending."""
    producer = producers(graph)
    return [tuple(sorted({producer[tensor] for tensor in op.inputs if producer[tensor] >= 0})) for op in graph.ops]


class Readers(FrozenValue, frozen=True):
    """Who reads what in a graph.

    Attributes:
        operands: Per op the ops whose outputs it reads, ascending.
        ends: Per op whether it is executed for itself: it makes an output of the graph or a variable, or no op reads
            what it makes.
    """

    operands: tuple[tuple[int, ...], ...]
    ends: tuple[bool, ...]

    @staticmethod
    def of(graph: Graph) -> Readers:
        """Look at ``graph``; linear time."""
        reads = operands(graph)
        read = {source for sources in reads for source in sources}
        stays = {*graph.outputs, *graph.variables}
        ends = tuple(op not in read or not stays.isdisjoint(made.outputs) for op, made in enumerate(graph.ops))
        return Readers(tuple(reads), ends)

    def needed(self, sequence: Sequence[int]) -> list[int]:
        """Return ``sequence`` without the executions whose outputs nothing reads, be they the first of an op or others.

        Each op is left once at least: of what is executed for itself the first execution is.

        Args:
            sequence: Every op at least once and after its inputs.
        """
        ends, reads = self.ends, self.operands
        latest = [-1] * len(reads)
        sources: list[list[int]] = []
        wanted = [False] * len(sequence)
        for step, op in enumerate(sequence):
            sources.append([latest[source] for source in reads[op]])
            if ends[op] and latest[op] < 0:
                wanted[step] = True
            latest[op] = step
        # Backwards: an execution is needed when one that is needed reads it.
        for step in range(len(sequence) - 1, -1, -1):
            if wanted[step]:
                for source in sources[step]:
                    wanted[source] = True
        return [op for step, op in enumerate(sequence) if wanted[step]]
