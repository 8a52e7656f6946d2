"""The memory of a sequence with repetitions, without making the graph of it: what the searches judge by.

Ops are numbered in the order of their first execution. Each execution makes values of its own; a reader takes those
computed last before it. Rules of the target that depend on all readers of a tensor are taken from the graph without
repetitions, so `cost.judge` has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from memsched.graph.liveness import match_in_place
from memsched.graph.model import Graph
from memsched.rewrites.recompute.unread import Readers

__all__ = ["SequenceRun", "Tracer"]


@dataclass(slots=True)
class SequenceRun:
    """What a sequence does; buffers are numbered as they are made, those given from outside first.

    Attributes:
        footprints: Bytes per step.
        peak: The largest of them.
        sizes: Bytes per buffer.
        birth: Step that makes each buffer; -1 for those given.
        last: Step of its last use; one past the end for those that stay.
        uses: Per buffer the (step, tensor) that read it, by step; empty where not asked for.
    """

    footprints: list[int]
    peak: int
    sizes: list[int]
    birth: list[int]
    last: list[int]
    uses: list[list[tuple[int, int]]]


class _RunBuffers:
    """The buffers of one run."""

    def __init__(self, tensor_sizes: Sequence[int], list_uses: bool) -> None:
        self._tensor_sizes = tensor_sizes
        self._list_uses = list_uses
        self._pieces: set[int] = set()
        self.sizes: list[int] = []
        self.birth: list[int] = []
        self.last: list[int] = []
        self.uses: list[list[tuple[int, int]]] = []

    def buffer(self, size: int, birth: int, last: int) -> int:
        """Make a buffer and return its number."""
        self.sizes.append(size)
        self.birth.append(birth)
        self.last.append(last)
        if self._list_uses:
            self.uses.append([])
        return len(self.sizes) - 1

    def view(self, tensor: int, own: int, sources: Sequence[tuple[int, ...]], step: int) -> tuple[int, ...]:
        """Return the buffers of a tensor that shows ``sources`` and has ``own`` bytes beside them."""
        inner = tuple(dict.fromkeys(buffer for source in sources for buffer in source))
        if len(sources) > 1 or own > 0:
            if self._pieces.intersection(inner):
                # What lies in one concatenation cannot lie in another: this one is a copy.
                return (self.buffer(self._tensor_sizes[tensor], step, step),)
            self._pieces.update(inner)
        return inner if inner and own <= 0 else (*inner, self.buffer(max(own, 0), step, step))


class Tracer:
    """Executes sequences of the ops of one graph.

    Args:
        graph: With the target's rules applied, in an order of execution.
        costs: Per op what one execution costs.
        repeat: Per op whether it may be executed again.

    Attributes:
        steps: Steps executed so far: the effort of a search, on any machine.
    """

    def __init__(self, graph: Graph, costs: Sequence[int], repeat: Sequence[bool]) -> None:
        self.graph = graph
        self.costs = tuple(costs)
        self.repeat = tuple(repeat)
        self.count = len(graph.ops)
        self.steps = 0
        whole = [tensor.size for tensor in graph.tensors]
        sizes = [0 if tensor.external else tensor.size for tensor in graph.tensors]
        self.reads = tuple(tuple(dict.fromkeys(op.inputs)) for op in graph.ops)
        self._readers = Readers.of(graph)
        self.producer = [-1] * len(graph.tensors)
        for number, op in enumerate(graph.ops):
            for tensor in op.outputs:
                self.producer[tensor] = number
        # Whole tensors of their own by far outnumber the others, so they are kept apart.
        self._plain: list[tuple[tuple[int, int], ...]] = []
        self._shared: list[tuple[tuple[int, int, tuple[int, ...]], ...]] = []
        variables = set(graph.variables)
        for op in graph.ops:
            shown: dict[int, list[int]] = {}
            for output, source in op.views:
                shown.setdefault(output, []).append(source)
            made = [tensor for tensor in op.outputs if tensor not in variables]
            self._plain.append(tuple((t, sizes[t]) for t in made if t not in shown))
            self._shared.append(
                tuple(
                    (t, whole[t] - sum(whole[s] for s in dict.fromkeys(shown[t])), tuple(dict.fromkeys(shown[t])))
                    for t in made
                    if t in shown
                )
            )
        self._takes = tuple(op.in_place for op in graph.ops)
        self._workspace = [op.workspace for op in graph.ops]
        self._sizes = sizes
        self._given = [tensor for tensor in graph.inputs if tensor not in variables]
        self._variables = sum(sizes[tensor] for tensor in dict.fromkeys(graph.variables))

    def run(self, sequence: Sequence[int], *, uses: bool = False) -> SequenceRun:
        """Return what ``sequence`` needs.

        Args:
            sequence: Every op at least once and after its inputs, no execution useless.
            uses: List the uses of each buffer.
        """
        self.steps += len(sequence)
        made = _RunBuffers(self._sizes, uses)
        current: list[tuple[int, ...]] = [()] * len(self._sizes)
        for tensor in self._given:
            current[tensor] = (made.buffer(self._sizes[tensor], -1, -1),)
        last, used, new = made.last, made.uses, made.buffer
        reads, plain, shared, may_take = self.reads, self._plain, self._shared, self._takes
        takes: list[tuple[int, list[tuple[int, int]]]] = []
        for step, op in enumerate(sequence):
            for tensor in reads[op]:
                for buffer in current[tensor]:
                    last[buffer] = step
                    if uses:
                        used[buffer].append((step, tensor))
            # What may be overwritten is what the inputs are before the outputs take their places.
            pairs = [(output, current[source]) for output, source in may_take[op]] if may_take[op] else ()
            for tensor, size in plain[op]:
                current[tensor] = (new(size, step, step),)
            for tensor, own, sources in shared[op]:
                current[tensor] = made.view(tensor, own, [current[source] for source in sources], step)
            if pairs:
                takes.append((step, [(current[o][0], s[0]) for o, s in pairs if len(s) == len(current[o]) == 1]))
        for tensor in self.graph.outputs:
            for buffer in current[tensor]:
                last[buffer] = len(sequence)
        footprints = self._footprints(sequence, made, takes)
        return SequenceRun(footprints, max(footprints, default=self._variables), made.sizes, made.birth, last, used)

    def _footprints(
        self, sequence: Sequence[int], made: _RunBuffers, takes: Sequence[tuple[int, list[tuple[int, int]]]]
    ) -> list[int]:
        length, sizes, birth, last = len(sequence), made.sizes, made.birth, made.last
        change = [0] * (length + 2)
        change[0] = self._variables
        for size, first, end in zip(sizes, birth, last, strict=True):
            if end >= 0:
                change[max(0, first)] += size
                change[end + 1] -= size
        footprints = list(accumulate(change[:length]))
        for step, pairs in takes:
            dying = [(new, old) for new, old in pairs if last[old] == step == birth[new] and sizes[new] == sizes[old]]
            if dying:
                footprints[step] -= sum(sizes[new] for new, _ in match_in_place(dying, sizes))
        workspace = self._workspace
        if any(workspace):
            return [bytes_ + workspace[op] for bytes_, op in zip(footprints, sequence, strict=True)]
        return footprints

    def needed(self, sequence: Sequence[int]) -> list[int]:
        """Return ``sequence`` without executions whose values nothing reads; see `Readers.needed`."""
        return self._readers.needed(sequence)

    def cost(self, sequence: Sequence[int]) -> int:
        """Return what the repetitions cost."""
        costs = self.costs
        return sum([costs[op] for op in sequence]) - sum(costs)

    def repetitions(self, sequence: Sequence[int]) -> list[int]:
        """Return the steps that execute an op again."""
        seen = [False] * self.count
        found = []
        for step, op in enumerate(sequence):
            if seen[op]:
                found.append(step)
            seen[op] = True
        return found
