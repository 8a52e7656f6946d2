"""LiteRT's partitions of a graph for its default delegate, and the memory they need.

LiteRT scans the nodes in file order and adds each ready node of the current kind, delegated or not, to the current
partition (``PartitionGraphIntoIndependentNodeSubsets``). Tensors between partitions use LiteRT's arena. Tensors inside
a delegated partition use the workspace that all these partitions share.
"""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import predecessors
from memsched.graph.model import Graph
from memsched.lowering.litert_kernels import ALIGNMENT, own_memory
from memsched.lowering.xnnpack import takes
from memsched.runtimes.litert.planner import LiteRtRequest, arena_bytes

__all__ = ["Part", "delegated_memory", "parts_of"]


class Part(FrozenValue, frozen=True):
    """Ops that the delegate computes in one call, or that LiteRT's kernels compute one by one.

    Attributes:
        ops: Op indices in execution order.
    """

    delegated: bool
    ops: tuple[int, ...]


def parts_of(graph: Graph, order: Sequence[int]) -> tuple[Part, ...]:
    """Return the partitions for a file order."""
    waits = predecessors(graph)
    taken = {op: takes(graph, graph.ops[op]) for op in order}
    done: set[int] = set()
    left, parts = list(order), list[Part]()
    while left:
        ops: list[int] = []
        kind: bool | None = None
        for op in left:
            if (kind is None or taken[op] is kind) and done.issuperset(waits[op]):
                kind = taken[op]
                ops.append(op)
                done.add(op)
        if kind is None:
            return (*parts, Part(False, tuple(left)))
        parts.append(Part(kind, tuple(ops)))
        left = [op for op in left if op not in done]
    return tuple(parts)


def delegated_memory(graph: Graph, order: Sequence[int]) -> tuple[int, int]:
    """Return the bytes of LiteRT's arena and of the shared workspace for a lowered graph.

    Both planners place large tensors first, each in the smallest gap.
    """
    parts = parts_of(graph, order)
    part_of = {op: number for number, part in enumerate(parts) for op in part.ops}
    step_of, end = _steps(parts)
    own = {op: at for part in parts if part.delegated for at, op in enumerate(part.ops)}
    handed: list[LiteRtRequest] = []
    inside: dict[int, list[LiteRtRequest]] = {}
    kept = {*graph.inputs, *graph.outputs, *graph.variables}
    for tensor, ends in enumerate(_users(graph)):
        size, among = graph.tensors[tensor].size, {part_of[op] for op in ends}
        if not size or (not ends and tensor not in kept):
            continue
        if tensor not in kept and len(among) == 1 and all(op in own for op in ends):
            steps = [own[op] for op in ends]
            inside.setdefault(among.pop(), []).append(LiteRtRequest(_up(size), min(steps), max(steps)))
            continue
        steps = [step_of[op] for op in ends]
        first = 0 if tensor in graph.inputs or tensor in graph.variables else min(steps)
        last = end if tensor in kept else max(steps)
        handed.append(LiteRtRequest(size, first, last, not first and tensor in kept))
    for op in order:
        if op not in own:
            during = own_memory(graph, graph.ops[op]).during
            handed += [LiteRtRequest(size, step_of[op], step_of[op]) for size in during]
    return arena_bytes(handed), max(map(arena_bytes, inside.values()), default=0)


def _steps(parts: Sequence[Part]) -> tuple[dict[int, int], int]:
    """Return the step of each op and the last step; a delegated partition is one step."""
    found, step = {}, 0
    for part in parts:
        for op in part.ops:
            found[op] = step
            step += not part.delegated
        step += part.delegated
    return found, max(0, step - 1)


def _users(graph: Graph) -> list[list[int]]:
    """Return the producers and readers of each tensor."""
    found: list[list[int]] = [[] for _ in graph.tensors]
    for number, op in enumerate(graph.ops):
        for tensor in (*op.inputs, *op.outputs):
            found[tensor].append(number)
    return found


def _up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
