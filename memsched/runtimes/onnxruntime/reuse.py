"""What an order costs in a runtime that hands dead buffers on: ONNX Runtime's memory planner, simulated.

With ``enable_mem_reuse``, its default, ONNX Runtime plans the buffers before it runs (``allocation_planner.cc``,
``ComputeSingleStreamReusePlan``). Op by op in the order of execution, an output

1. that is a graph output gets bytes of its own;
2. is a view, or is written in place of a dying input, where the kernel permits it: as in `memsched.graph.liveness`;
3. otherwise takes a dead buffer that was made for a tensor of the identical shape and element size, of several the
   one that died last; scalars never do, nor tensors with lengths of which the file says nothing;
4. otherwise gets new bytes.

Buffers die in the order in which an op names them as inputs, then those of its unread outputs. At run time the bytes
are requested when the first tensor of a buffer is born and given back after the last one's death, so the gaps between
sharers cost memory too: the peak is never below that of liveness alone, which rule 3 left out gives. Measured on
ONNX Runtime 1.31: the tests compare random models and real ones with the installed runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.liveness import Storage, match_in_place
from memsched.graph.model import Graph

__all__ = ["PlannerGraph", "ReuseProfile", "simulate_reuse"]


class PlannerGraph(FrozenValue, frozen=True):
    """A graph as ONNX Runtime's planner sees it.

    Attributes:
        storage: The graph on buffers.
        kind: Per buffer a number that buffers of one shape and element size have in common; -1 for those that are
            neither handed on nor take what others held (scalars, graph inputs, values of unknown size, values with a
            length that the file leaves open without a name).
        released: Per op the buffers it reads, each once, in the order in which it lets go of them.
    """

    storage: Storage
    kind: tuple[int, ...]
    released: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(graph: Graph, storage: Storage | None = None) -> PlannerGraph:
        """Prepare ``graph``, to which the target's rules were applied, in linear time.

        Args:
            storage: What `Storage.of(graph)` gives, where the caller has it already.
        """
        storage = storage or Storage.of(graph)
        numbers: dict[tuple[tuple[int | str, ...], int], int] = {}
        kinds = []
        for tensor, size, creator in zip(storage.tensor_of, storage.sizes, storage.creator, strict=True):
            shape, in_file = graph.tensors[tensor].shape, graph.tensors[tensor].shape_in_file()
            # A buffer smaller than its tensor is what a concatenation holds beside the parts that lie in it.
            own = size == graph.tensors[tensor].size and graph.tensors[tensor].sized
            if creator < 0 or not shape or in_file is None or not own or not math.prod(shape):
                kinds.append(-1)
            else:
                kinds.append(numbers.setdefault((in_file, size), len(numbers)))
        released = []
        for op in graph.ops:
            named = [buffer for tensor in op.inputs for buffer in storage.buffers_of[tensor]]
            released.append(tuple(dict.fromkeys(reversed(named)))[::-1])
        return PlannerGraph(storage, tuple(kinds), tuple(released))


class ReuseProfile(FrozenValue, frozen=True):
    """What an order costs under the planner's rules.

    Attributes:
        footprints: Bytes per step, workspaces included.
        peak: The largest footprint, bytes.
        requested_peak: The largest footprint without workspaces, bytes: what ONNX Runtime's profiles show, because
            they are sampled when an op has ended.
        handed_on: Pairs (created buffer, buffer whose dead bytes it takes), in order of execution.
    """

    footprints: tuple[int, ...]
    peak: int
    requested_peak: int
    handed_on: tuple[tuple[int, int], ...]


def simulate_reuse(planned: PlannerGraph, order: Sequence[int], *, reuse: bool = True) -> ReuseProfile:
    """Return what ``order``, a topological order of all ops, costs; linear time.

    Args:
        reuse: The session's ``enable_mem_reuse``. Without it, the footprints are those of `liveness.evaluate`.
    """
    storage = planned.storage
    birth, death, first, handed_on = _plan(planned, order, reuse)
    changes = [0] * (len(order) + 1)
    base = storage.variables
    for buffer, size in enumerate(storage.sizes):
        if first[buffer] != buffer or not size:
            continue
        if storage.creator[buffer] < 0:
            if not storage.users[buffer] and not storage.kept[buffer]:
                continue
            changes[0] += size
        else:
            changes[birth[buffer]] += size
        if not storage.kept[buffer] and death[buffer] >= 0:
            changes[death[buffer] + 1] -= size
    footprints: list[int] = []
    requested, live = base, base
    for op, change in zip(order, changes, strict=False):
        live += change
        requested = max(requested, live) if footprints else live
        footprints.append(live + storage.workspace[op])
    start = storage.initial_residue()
    if not footprints:
        requested = start
    return ReuseProfile(tuple(footprints), max(footprints, default=start), requested, tuple(handed_on))


def _plan(
    planned: PlannerGraph, order: Sequence[int], reuse: bool
) -> tuple[list[int], list[int], list[int], list[tuple[int, int]]]:
    """Plan the buffers.

    Returns:
        Per buffer its step of birth, the step of the last death in its bytes (-1: never), and the buffer whose bytes
        it has (itself where they are its own); and who took whose dead bytes.
    """
    storage, kind = planned.storage, planned.kind
    takes, creates, kept, sizes = storage.takes, storage.creates, storage.kept, storage.sizes
    # As the planner counts: one use for the op that creates a buffer, which ends with that op.
    uses = [left + (creator >= 0) for left, creator in zip(storage.remaining_uses(), storage.creator, strict=True)]
    first = list(range(len(sizes)))
    read = [creator < 0 for creator in storage.creator]
    birth, death = [0] * len(sizes), [-1] * len(sizes)
    dead: dict[int, list[int]] = {}
    handed_on: list[tuple[int, int]] = []
    for step, op in enumerate(order):
        if takes[op]:
            dying = [pair for pair in takes[op] if uses[first[pair[1]]] == 1]
            for created, source in match_in_place(dying, sizes):
                first[created] = first[source]
                uses[first[source]] += uses[created]
        for buffer in creates[op]:
            read[first[buffer]] |= bool(storage.users[buffer])
            if first[buffer] != buffer:
                continue
            birth[buffer] = step
            if reuse and not kept[buffer] and dead.get(kind[buffer]):
                first[buffer] = taken = dead[kind[buffer]].pop()
                uses[taken], death[taken] = uses[buffer], -1
                read[taken] |= read[buffer]
                handed_on.append((buffer, taken))
        for buffer in (*planned.released[op], *creates[op]):
            root = first[buffer]
            uses[root] -= 1
            if not uses[root]:
                if read[root]:
                    death[root] = step
                if kind[root] >= 0:
                    dead.setdefault(kind[root], []).append(root)
    return birth, death, first, handed_on
