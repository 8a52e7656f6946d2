"""A file for LiteRT: what its planner makes of an order, kernels' own memory included."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from memsched.graph.model import Allocation, Graph, Schedule
from memsched.lowering.litert_kernels import ALIGNMENT, is_lasting, lasting_sizes, own_memory
from memsched.runtimes.litert.planner import MOST_REQUESTS, LiteRtRequest, arena_bytes

__all__ = ["required_bytes"]


def required_bytes(graph: Graph, schedule: Schedule, allocation: Allocation) -> int:
    """Return the bytes that LiteRT takes for ``graph`` in the order of ``schedule``, laid by its own planner.

    Args:
        graph: With the target's rules applied.
        allocation: What lives when, and in which bytes; its addresses are memsched's and do not matter, but for graphs
            that are too large to repeat LiteRT's planner for: there its arena is the result.
    """
    late = _late(graph, schedule)
    requests = list(_requests(graph, schedule, allocation, late))
    if len(requests) > MOST_REQUESTS:
        return allocation.arena
    arena, heap = lasting_sizes(graph)
    # The last one in the arena is not rounded up.
    kept = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in arena) - min(
        (-size % ALIGNMENT for size in arena[-1:]), default=0
    )
    sizes = [graph.tensors[tensor].size for tensor in _on_heap(graph, schedule, late)]
    return arena_bytes(requests) + kept + sum(heap) + sum(size for size in sizes if size >= ALIGNMENT)


def _late(graph: Graph, schedule: Schedule) -> tuple[int, ...]:
    """Return the steps whose output's shape LiteRT knows no sooner; what follows from shapes alone it knows before."""
    known: set[int] = set()
    found = []
    for step, number in enumerate(schedule.order):
        op = graph.ops[number]
        shape = next((tensor for tensor, at in zip(op.inputs, op.positions, strict=True) if at == 1), None)
        if op.type == "SHAPE" or (op.type == "STRIDED_SLICE" and known.issuperset(op.inputs)):
            known.update(op.outputs)
        elif op.type == "RESHAPE" and op.outputs and shape is not None and shape not in known:
            found.append(step)
    return tuple(found)


def _on_heap(graph: Graph, schedule: Schedule, late: Sequence[int]) -> set[int]:
    """Return the outputs of ``late`` steps that do not lie in their input's bytes: they are on the heap."""
    ops = (graph.ops[schedule.order[step]] for step in late)
    return {op.outputs[0] for op in ops if not op.views}


def _requests(
    graph: Graph, schedule: Schedule, allocation: Allocation, late: tuple[int, ...]
) -> Iterator[LiteRtRequest]:
    on_heap = _on_heap(graph, schedule, late)
    end = max(0, len(schedule.order) - 1)
    read = {tensor for op in graph.ops for tensor in op.inputs}
    results, variables = set(graph.outputs), set(graph.variables)
    for placement in allocation.placements:
        first = placement.first_step
        if not placement.tensors:
            for request in _of_step(graph, schedule.order[first], first, placement.size):
                yield replace(request, stage=bisect_left(late, first))
            continue
        # What shows a tensor on the heap lies there as well.
        tensors = set(itertools.takewhile(lambda tensor: tensor not in on_heap, placement.tensors))
        if not tensors or any(is_lasting(graph, tensor) for tensor in tensors):
            continue
        # LiteRT frees a tensor when it was read.
        kept = bool(tensors & (results | variables)) or not tensors & read
        whole = len(tensors) == len(placement.tensors)
        last = end if kept else placement.last_step if whole else _last_read(graph, schedule, tensors, first)
        stage = bisect_left(late, first)
        yield LiteRtRequest(_largest(graph, tensors), first, last, kept and not first, stage)


def _last_read(graph: Graph, schedule: Schedule, tensors: set[int], first: int) -> int:
    reads = (step for step, op in enumerate(schedule.order) if tensors.intersection(graph.ops[op].inputs))
    return max(reads, default=first)


def _largest(graph: Graph, tensors: set[int]) -> int:
    return max(graph.tensors[tensor].size for tensor in tensors)


def _of_step(graph: Graph, op: int, step: int, size: int) -> Iterator[LiteRtRequest]:
    """Yield the buffers of a workspace: the kernel's, and what else there is in one piece."""
    during = own_memory(graph, graph.ops[op]).during
    rest = size - sum(-(-one // ALIGNMENT) * ALIGNMENT for one in during)
    for one in (*during, *((rest,) if rest > 0 else ())):
        yield LiteRtRequest(one, step, step)
