"""Sequences with repetitions, what each execution's output is kept for, and the memory that this takes.

An execution's output is kept from the execution to its last reader before the op is executed again, graph outputs to
the end. That is the shortest time a sequence permits, so it gives the least memory, and it includes the patent's last
step, the release of the separator's nodes ("Scheduling Operations on a Computation Graph",
Figure 4, 460). The annotation (claim 6) says which outputs outlive their first reader.
"""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.graph.liveness import Storage, match_in_place
from memsched.graph.model import Graph
from memsched.rewrites.recompute.unread import operands

__all__ = ["AnnotatedSchedule", "annotate", "footprints"]


class AnnotatedSchedule(FrozenValue, frozen=True):
    """A sequence of executions, and when their outputs are dropped.

    Attributes:
        sequence: Indices of ops; each op at least once.
        keep: Per execution whether its output stays in memory after its first reader.
        releases: Per execution the ops whose outputs are dropped after it, ascending.
    """

    sequence: tuple[int, ...]
    keep: tuple[bool, ...]
    releases: tuple[tuple[int, ...], ...]

    @property
    def extra(self) -> int:
        """How many executions are repetitions."""
        return len(self.sequence) - len(set(self.sequence))


def annotate(graph: Graph, sequence: Sequence[int]) -> AnnotatedSchedule:
    """Return ``sequence`` with its annotations; every output is dropped as early as the sequence permits.

    Raises:
        InternalError: An op comes before one whose output it reads, or never.
    """
    reads = operands(graph)
    latest: dict[int, int] = {}
    first_use: dict[int, int] = {}
    last_use: dict[int, int] = {}
    for step, op in enumerate(sequence):
        for source in reads[op]:
            if source not in latest:
                raise InternalError(f"op '{graph.ops[op].name}' comes before its input", code="order")
            first_use.setdefault(latest[source], step)
            last_use[latest[source]] = step
        latest[op] = step
        last_use[step] = step
    if len(latest) != len(graph.ops):
        raise InternalError("a sequence does not execute every op", code="op-missing")
    final = {latest[op] for op in _final(graph)}
    releases: list[list[int]] = [[] for _ in sequence]
    for step, op in enumerate(sequence):
        if step not in final:
            releases[last_use[step]].append(op)
    return AnnotatedSchedule(
        tuple(sequence),
        tuple(step in final or last_use[step] > first_use.get(step, step) for step in range(len(sequence))),
        tuple(tuple(sorted(dropped)) for dropped in releases),
    )


def _final(graph: Graph) -> list[int]:
    """Return the ops whose outputs are held to the end."""
    outputs = set(graph.outputs)
    return [number for number, op in enumerate(graph.ops) if outputs & set(op.outputs)]


def footprints(graph: Graph, storage: Storage, sequence: Sequence[int]) -> list[int]:
    """Return the footprint of each execution of ``sequence``, bytes: what liveness has with each as an op of its own.

    Of several outputs of an op each is live for itself, and what is written in place of a dying input is counted once.
    """
    return _footprints(storage, sequence, _blocks(graph, storage, sequence))


_Block = tuple[int, int]
"""A buffer and the execution that created it, -1 for graph inputs."""


class _ValueBlocks(FrozenValue, frozen=True):
    """Where values lie.

    Attributes:
        reads: Per execution the blocks that it reads, each once.
        values: Per execution the blocks that its outputs lie in.
        takes: Per execution the pairs (created buffer, read block) that in-place execution may merge.
        last: Per block the last execution that reads it, or creates it; -1 for a graph input that no op reads.
        kept: Blocks that are live to the end.
    """

    reads: list[tuple[_Block, ...]]
    values: list[tuple[_Block, ...]]
    takes: list[tuple[tuple[int, _Block], ...]]
    last: dict[_Block, int]
    kept: set[_Block]


def _blocks(graph: Graph, storage: Storage, sequence: Sequence[int]) -> _ValueBlocks:
    own = {tensor: buffer for buffer, tensor in enumerate(storage.tensor_of)}
    lies_in: dict[int, tuple[_Block, ...]] = dict.fromkeys(graph.variables, ())
    result = _ValueBlocks([], [], [], {}, set())
    for buffer, creator in enumerate(storage.creator):
        if creator < 0:
            lies_in[storage.tensor_of[buffer]] = ((buffer, -1),)
            result.last[buffer, -1] = -1
    for step, op in enumerate(sequence):
        inputs, views = graph.ops[op].inputs, graph.ops[op].views
        read = tuple(dict.fromkeys([block for tensor in inputs for block in lies_in[tensor]]))
        result.reads.append(read)
        result.last.update(dict.fromkeys(read, step))
        # An op may read one copy of a buffer itself and another through a view: only the first may be written over.
        allowed = storage.takes[op]
        pairs = (
            [(own.get(made, -1), block) for made, source in graph.ops[op].in_place for block in lies_in[source]]
            if allowed
            else []
        )
        result.takes.append(tuple(dict.fromkeys([pair for pair in pairs if (pair[0], pair[1][0]) in allowed])))
        value: dict[_Block, None] = {}
        for tensor in graph.ops[op].outputs:
            if tensor in graph.variables:
                continue
            blocks = dict.fromkeys(block for made, source in views if made == tensor for block in lies_in[source])
            buffer = own.get(tensor, -1)
            if buffer >= 0:
                blocks[buffer, step] = None
                result.last[buffer, step] = step
            lies_in[tensor] = tuple(blocks)
            value.update(blocks)
        result.values.append(tuple(value))
    result.kept.update(block for tensor in graph.outputs for block in lies_in[tensor])
    return result


def _footprints(storage: Storage, sequence: Sequence[int], blocks: _ValueBlocks) -> list[int]:
    sizes = storage.sizes
    ends: list[list[_Block]] = [[] for _ in sequence]
    live = storage.variables
    for block, last in blocks.last.items():
        if block[1] < 0 and (last >= 0 or block in blocks.kept):
            live += sizes[block[0]]
        if last >= 0 and block not in blocks.kept:
            ends[last].append(block)
    result = []
    for step, op in enumerate(sequence):
        live += sum(sizes[buffer] for buffer in storage.creates[op])
        merged = 0
        if blocks.takes[step] and ends[step]:
            dying = {block: number for number, block in enumerate(ends[step])}
            pairs = [(created, dying[block]) for created, block in blocks.takes[step] if block in dying]
            merged = sum(sizes[created] for created, _ in match_in_place(pairs, sizes))
        result.append(live + storage.workspace[op] - merged)
        live -= sum(sizes[buffer] for buffer, _ in ends[step])
    return result
