"""A file for LiteRT: what its planner makes of an order, kernels' own memory included."""

from __future__ import annotations

from collections.abc import Iterator

from memsched.allocate.litert import ALIGNMENT, MOST_REQUESTS, Request, arena_bytes
from memsched.formats.module import Module
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.lowering.litert_kernels import is_lasting, lasting_sizes, own_memory
from memsched.targets.model import Target

__all__ = ["applies", "required_bytes"]


def applies(module: Module, target: Target) -> bool:
    """Return whether ``module`` is for LiteRT."""
    return module.format == "tflite" and target.kernels == "litert"


def required_bytes(graph: Graph, schedule: Schedule, allocation: Allocation) -> int:
    """Return the bytes that LiteRT takes for ``graph`` in the order of ``schedule``, laid by its own planner.

    Args:
        graph: With the target's rules applied.
        allocation: What lives when, and in which bytes; its addresses are memsched's and do not matter, but for graphs
            that are too large to repeat LiteRT's planner for: there its arena is the result.
    """
    requests = list(_requests(graph, schedule, allocation))
    if len(requests) > MOST_REQUESTS:
        return allocation.arena
    arena, heap = lasting_sizes(graph)
    # The last one in the arena is not rounded up.
    kept = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in arena) - min(
        (-size % ALIGNMENT for size in arena[-1:]), default=0
    )
    return arena_bytes(requests) + kept + sum(heap)


def _requests(graph: Graph, schedule: Schedule, allocation: Allocation) -> Iterator[Request]:
    end = max(0, len(schedule.order) - 1)
    read = {tensor for op in graph.ops for tensor in op.inputs}
    results, variables = set(graph.outputs), set(graph.variables)
    for placement in allocation.placements:
        first = placement.first_step
        if not placement.tensors:
            yield from _of_step(graph, schedule.order[first], first, placement.size)
            continue
        tensors = set(placement.tensors)
        if any(is_lasting(graph, tensor) for tensor in tensors):
            continue
        # LiteRT frees a tensor when it was read.
        kept = bool(tensors & (results | variables)) or not tensors & read
        yield Request(
            _largest(graph, placement.tensors), first, end if kept else placement.last_step, kept and not first
        )


def _largest(graph: Graph, tensors: tuple[int, ...]) -> int:
    return max(graph.tensors[tensor].size for tensor in tensors)


def _of_step(graph: Graph, op: int, step: int, size: int) -> Iterator[Request]:
    """Yield the buffers of a workspace: the kernel's, and what else there is in one piece."""
    during = own_memory(graph, graph.ops[op]).during
    rest = size - sum(-(-one // ALIGNMENT) * ALIGNMENT for one in during)
    for one in (*during, *((rest,) if rest > 0 else ())):
        yield Request(one, step, step)
