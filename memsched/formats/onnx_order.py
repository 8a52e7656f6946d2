"""The orders that ONNX Runtime executes: its default, which ignores the file's order, and the one that honours it.

Both rules are measured behaviour of ONNX Runtime 1.31 (``GraphViewer``'s two topological orders); the tests compare
them with the installed runtime, so that a release that changes them is noticed.
"""

from __future__ import annotations

import heapq

from memsched.graph.dag import predecessors, successors_of
from memsched.graph.model import Graph

__all__ = ["default_order", "priority_order"]

_HOISTED = frozenset({"Shape", "Size"})


def default_order(graph: Graph) -> tuple[int, ...]:
    """Return the order of ops that an ONNX Runtime session without options takes.

    A depth-first search from the ops whose outputs nobody reads: they are pushed on a stack by ascending index, the
    top is popped, its predecessors are pushed by ascending index, and an op comes after all of its predecessors. It
    holds for the graph as it is executed: graph optimisation may first merge, drop and renumber nodes.
    """
    preds = predecessors(graph)
    stack = [op for op, consumers in enumerate(successors_of(preds)) if not consumers]
    visited = bytearray(len(preds))
    order: list[int] = []
    while stack:
        op = stack.pop()
        if op < 0:
            order.append(~op)
        elif not visited[op]:
            visited[op] = True
            stack.append(~op)  # its place to leave: after everything pushed from here on
            stack.extend(before for before in preds[op] if not visited[before])
    return tuple(order)


def priority_order(graph: Graph) -> tuple[int, ...]:
    """Return the order of ops with ``execution_order = PRIORITY_BASED``: the file's, but ``Shape`` and ``Size`` first.

    Of the ops whose predecessors are done, the next is a ``Shape`` or ``Size`` if there is one, otherwise the first
    of the file.
    """
    preds = predecessors(graph)
    succs = successors_of(preds)
    missing = [len(befores) for befores in preds]
    ready = [_key(graph, op) for op, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, op = heapq.heappop(ready)
        order.append(op)
        for after in succs[op]:
            missing[after] -= 1
            if not missing[after]:
                heapq.heappush(ready, _key(graph, after))
    return tuple(order)


def _key(graph: Graph, op: int) -> tuple[bool, int]:
    return graph.ops[op].type not in _HOISTED, op
