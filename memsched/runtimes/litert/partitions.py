"""The parts of a model that LiteRT hands to its default delegate, and where tensors lie then.

LiteRT takes nodes in the order of the file: as long as one of a kind is ready, delegated or not, it joins the part that
is being made (``PartitionGraphIntoIndependentNodeSubsets``). What a part hands to another one lies in LiteRT's arena;
all else lies in the workspace that all parts share.
"""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph
from memsched.lowering.litert_kernels import ALIGNMENT, own_memory
from memsched.lowering.xnnpack import takes
from memsched.runtimes.litert.planner import LiteRtRequest, arena_bytes

__all__ = ["Part", "delegated_memory", "parts_of"]

_Span = tuple[int, int, int]
"""Bytes, and the first and the last step at which they are needed."""


class Part(FrozenValue, frozen=True):
    """Ops that are executed by the delegate, or by LiteRT's own kernels.

    Attributes:
        ops: In the order of execution.
    """

    delegated: bool
    ops: tuple[int, ...]


def parts_of(graph: Graph, order: Sequence[int]) -> tuple[Part, ...]:
    """Return the parts of a graph whose file has its ops in an order."""
    made = {tensor: op for op, value in enumerate(graph.ops) for tensor in value.outputs}
    waits = {before: set[int]() for before in order}
    for op in order:
        waits[op] = {made[tensor] for tensor in graph.ops[op].inputs if tensor in made}
    for before, after in graph.dependencies:
        waits[after].add(before)
    taken = {op: takes(graph, graph.ops[op]) for op in order}
    done: set[int] = set()
    left, parts = list(order), list[Part]()
    while left:
        ops: list[int] = []
        kind: bool | None = None
        for op in left:
            if (kind is None or taken[op] is kind) and waits[op] <= done:
                kind = taken[op]
                ops.append(op)
                done.add(op)
        if kind is None:
            return (*parts, Part(False, tuple(left)))
        parts.append(Part(kind, tuple(ops)))
        left = [op for op in left if op not in done]
    return tuple(parts)


def delegated_memory(graph: Graph, order: Sequence[int]) -> tuple[int, int]:
    """Return the bytes of LiteRT's arena, and those of the workspace, for a graph with the target's rules applied.

    The arena is laid by LiteRT's planner; the workspace takes what lives at its fullest step.
    """
    parts = parts_of(graph, order)
    part_of = {op: number for number, part in enumerate(parts) for op in part.ops}
    step_of, end = _steps(parts)
    own = {op: at for part in parts if part.delegated for at, op in enumerate(part.ops)}
    handed: list[LiteRtRequest] = []
    inside: dict[int, list[_Span]] = {}
    kept = {*graph.inputs, *graph.outputs, *graph.variables}
    for tensor, ends in enumerate(_users(graph)):
        size, among = graph.tensors[tensor].size, {part_of[op] for op in ends}
        if not size or (not ends and tensor not in kept):
            continue
        if tensor not in kept and len(among) == 1 and all(op in own for op in ends):
            steps = [own[op] for op in ends]
            inside.setdefault(among.pop(), []).append((_up(size), min(steps), max(steps)))
            continue
        steps = [step_of[op] for op in ends]
        first = 0 if tensor in graph.inputs or tensor in graph.variables else min(steps)
        last = end if tensor in kept else max(steps)
        handed.append(LiteRtRequest(size, first, last, not first and tensor in kept))
    for op in order:
        if op not in own:
            during = own_memory(graph, graph.ops[op]).during
            handed += [LiteRtRequest(size, step_of[op], step_of[op]) for size in during]
    return arena_bytes(handed), max(map(_most_live, inside.values()), default=0)


def _steps(parts: Sequence[Part]) -> tuple[dict[int, int], int]:
    """Return when LiteRT executes each op, and its last step: what is delegated together takes one."""
    found, step = {}, 0
    for part in parts:
        for op in part.ops:
            found[op] = step
            step += not part.delegated
        step += part.delegated
    return found, max(0, step - 1)


def _users(graph: Graph) -> list[list[int]]:
    """Return per tensor the ops that make or read it."""
    found: list[list[int]] = [[] for _ in graph.tensors]
    for number, op in enumerate(graph.ops):
        for tensor in (*op.inputs, *op.outputs):
            found[tensor].append(number)
    return found


def _up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _most_live(spans: Sequence[_Span]) -> int:
    """Return the most bytes that live at one step; spans are sizes, first and last steps."""
    changes: dict[int, int] = {}
    for size, first, last in spans:
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most
