"""The recursion as the patent states it, and what a schedule holds as the patent counts it: for comparison."""

from __future__ import annotations

import math
from typing import Final, Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph
from memsched.rewrites.recompute import annotate as annotated
from memsched.rewrites.recompute import decompose
from memsched.rewrites.recompute.annotate import AnnotatedSchedule, annotate
from memsched.rewrites.recompute.recursion import Recursion, SequenceTooLongError

__all__ = ["Memory", "full_schedule", "memory"]

_DEEPEST: Final = 64


class Memory(FrozenValue, frozen=True):
    """What a schedule holds, per execution.

    Attributes:
        units: Outputs of ops, each of which counts one (the patent's Figure 1).
        sizes: Bytes as the patent counts them: outputs that are in memory, the op's workspace, graph inputs up to their
            last reader and variables. Views lie in their source.
        merged: The footprints of `memsched.graph.liveness` with each execution as an op of its own: of several outputs
            of an op each is live for itself, and what is written in place of a dying input is counted once.
    """

    units: tuple[int, ...]
    sizes: tuple[int, ...]
    merged: tuple[int, ...]

    @property
    def peak_units(self) -> int:
        """The most outputs held at once."""
        return max(self.units, default=0)

    @property
    def peak_bytes(self) -> int:
        """The most bytes held at once."""
        return max(self.sizes, default=0)

    @property
    def peak(self) -> int:
        """The largest footprint, bytes."""
        return max(self.merged, default=0)


def full_schedule(
    graph: Graph, decomposition: Literal["tree", "path"], *, longest: int | None = None
) -> AnnotatedSchedule | None:
    """Return the recursion's schedule as the patent states it: separated down to one or two nodes, nothing improved.

    `tree_schedule` and `path_schedule` stop where separating gains nothing, and take out repetitions; this is for
    comparison with the theory.

    Args:
        longest: Executions at most; by default 1000 per op.

    Returns:
        None when it is longer.
    """
    storage = Storage.of(graph)
    search = decompose._DecompositionSearch(graph, storage, range(len(graph.ops)), None, math.inf)
    methods = decompose._tree_methods if decomposition == "tree" else decompose._path_methods
    method = next(methods(storage.preds, search.size, range(len(graph.ops)), None))
    longest = 1000 * len(graph.ops) if longest is None else longest
    recursion = Recursion(
        search.problem(method.rank),
        method.separators,
        method.parts,
        depth=_DEEPEST,
        policy="first",
        pure=True,
        longest=longest,
    )
    try:
        return annotate(graph, recursion.run())
    except SequenceTooLongError:
        return None


def memory(graph: Graph, schedule: AnnotatedSchedule, storage: Storage | None = None) -> Memory:
    """Return what ``schedule`` holds during each execution, by executing it.

    Args:
        storage: That of ``graph``, if the caller has it.
    """
    storage = storage or Storage.of(graph)
    blocks = annotated._blocks(graph, storage, schedule.sequence)
    units, sizes = _by_annotation(graph, storage, schedule, blocks)
    return Memory(units, sizes, tuple(annotated._footprints(storage, schedule.sequence, blocks)))


def _by_annotation(
    graph: Graph, storage: Storage, schedule: AnnotatedSchedule, blocks: annotated._ValueBlocks
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return units and bytes where an op's outputs are held, and released, together."""
    held: dict[int, tuple[annotated._Block, ...]] = {}
    holders: dict[annotated._Block, int] = {}
    live = storage.variables

    def hold(block: annotated._Block) -> int:
        holders[block] = holders.get(block, 0) + 1
        return storage.sizes[block[0]] if holders[block] == 1 else 0

    def drop(block: annotated._Block) -> int:
        holders[block] -= 1
        return 0 if holders[block] else storage.sizes[block[0]]

    given: dict[int, list[annotated._Block]] = {}
    direct = {
        (buffer, -1): step
        for step, op in enumerate(schedule.sequence)
        for tensor in graph.ops[op].inputs
        for buffer in storage.buffers_of[tensor]
        if storage.creator[buffer] < 0 and storage.tensor_of[buffer] == tensor
    }
    for block, last in blocks.last.items():
        if block[1] < 0 and (last >= 0 or block in blocks.kept):
            live += hold(block)
            if block not in blocks.kept:
                given.setdefault(direct[block], []).append(block)
    units, sizes = [], []
    for step, op in enumerate(schedule.sequence):
        held[op] = blocks.values[step]
        live += sum(map(hold, blocks.values[step]))
        units.append(len(held))
        sizes.append(live + storage.workspace[op])
        live -= sum(map(drop, given.get(step, ())))
        for dropped in schedule.releases[step]:
            live -= sum(map(drop, held.pop(dropped)))
    return tuple(units), tuple(sizes)
