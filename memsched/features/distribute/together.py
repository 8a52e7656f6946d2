"""Orders for given shares: one that the tightest device holds least in, and one that fuses more.

An order is looked for once before there are shares ("MemoriaNova", section 3.2). Once there are, every device holds
other parts of the tensors than one device alone would, and blocks of ops that need no synchronisation between them can
only be runs of the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from memsched.graph import dag
from memsched.graph.distribution import Distribution
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.cluster import Cluster

__all__ = ["orders_for", "plain", "rank"]


def rank(plan: Distribution) -> tuple[float, int, int]:
    """Return what plans are compared by; plans whose latencies differ only by rounding are equally fast."""
    return float(f"{plan.latency:.9e}"), len(plan.steps), max(plan.memory)


def plain(graph: Graph) -> Graph:
    """Return the graph with bytes of its own for every tensor, as on devices."""
    ops = tuple(replace(op, views=(), view_offsets=(), in_place=(), workspace=0) for op in graph.ops)
    return replace(graph, ops=ops)


def orders_for(graph: Graph, plan: Distribution, cluster: Cluster, run: Run) -> Iterator[tuple[int, ...]]:
    """Yield orders of execution worth trying with a plan's shares, none of them its own, each once."""
    tried = {tuple(share.op for share in plan.shares)}
    for order in (_least_held(graph, plan, cluster, run), _depth_first(graph)):
        if order not in tried:
            tried.add(order)
            yield order


def _least_held(graph: Graph, plan: Distribution, cluster: Cluster, run: Run) -> tuple[int, ...]:
    """Return the order in which the device whose memory is nearest to its end holds least, with these shares."""
    left = [device.memory - used for device, used in zip(cluster.devices, plan.memory, strict=True)]
    held = _held(graph, plan, left.index(min(left)))
    tensors = tuple(
        replace(one, size=held.get(number, 0), shape=None, sized=True, external=False)
        for number, one in enumerate(graph.tensors)
    )
    sized = plain(replace(graph, tensors=tensors))
    return schedule_graph(sized, run.quiet(), storage=Storage.of(sized)).schedule.order


def _held(graph: Graph, plan: Distribution, device: int) -> dict[int, int]:
    """Return per tensor the bytes of it that come into being on a device."""
    result: dict[int, int] = {}
    for step in plan.steps:
        for one in (*step.transfers, *step.ahead):
            if device in one.targets:
                result[one.tensor] = result.get(one.tensor, 0) + one.size
        for part in step.computations[device]:
            op = graph.ops[part.op]
            elements = math.prod(part.region.lengths)
            whole = math.prod(graph.tensors[op.outputs[0]].shape or ())
            for tensor in op.outputs:
                size = -(-graph.tensors[tensor].size * elements // max(1, whole))
                result[tensor] = result.get(tensor, 0) + size
    return result


def _depth_first(graph: Graph) -> tuple[int, ...]:
    """Return the order that goes on with what the last op made wherever it can: branches lie in one piece."""
    preds = dag.predecessors(graph)
    succs = dag.successors_of(preds)
    waiting = [len(before) for before in preds]
    ready = [op for op in reversed(range(len(preds))) if not waiting[op]]
    order: list[int] = []
    while ready:
        op = ready.pop()
        order.append(op)
        for after in sorted(succs[op], reverse=True):
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return tuple(order)
