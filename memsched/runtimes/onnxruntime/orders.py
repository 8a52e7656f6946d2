"""The orders that ONNX Runtime executes: its default, which ignores the file's order, and the one that honours it.

Both rules are measured behaviour of ONNX Runtime 1.31 (``GraphViewer``'s two topological orders); the tests compare
them with the installed runtime, so that a release that changes them is noticed.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from memsched.graph.dag import predecessors, successors_of
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph
from memsched.solve.schedule.compiled_orders import post_order

__all__ = ["default_order", "default_order_of", "priority_order", "walk_backwards"]

_HOISTED = frozenset({"Shape", "Size"})


def default_order(graph: Graph) -> tuple[int, ...]:
    """Return the order of ops that an ONNX Runtime session without options takes.

    A depth-first search from the ops whose outputs no op reads: they are pushed on a stack by ascending index, the top
    is popped, its predecessors are pushed by ascending index, and an op comes after all of its predecessors. It applies
    to the executed graph: graph optimisation may first merge, drop and renumber nodes.
    """
    preds = predecessors(graph)
    return walk_backwards(preds, successors_of(preds), range(len(preds)))


def default_order_of(storage: Storage) -> tuple[int, ...]:
    """Return `default_order` of the graph that ``storage`` was made of."""
    found = post_order(storage.uses, last_first=True)
    return found or walk_backwards(storage.preds, storage.succs, range(len(storage.preds)))


def walk_backwards(
    preds: Sequence[Sequence[int]], succs: Sequence[Sequence[int]], file_order: Sequence[int]
) -> tuple[int, ...]:
    """Return the default order of a graph whose file stores its ops as ``file_order`` says.

    Args:
        preds: Per op its predecessors, in any order.
        succs: Per op its successors.
        file_order: A topological order of all ops.
    """
    place = [0] * len(file_order)
    for position, op in enumerate(file_order):
        place[op] = position
    stack = [op for op in file_order if not succs[op]]
    visited = bytearray(len(file_order))
    order: list[int] = []
    while stack:
        op = stack.pop()
        if op < 0:
            order.append(~op)
        elif not visited[op]:
            visited[op] = True
            stack.append(~op)  # its place to leave: after everything pushed from here on
            befores = preds[op]
            if len(befores) > 1:
                befores = sorted([before for before in befores if not visited[before]], key=place.__getitem__)
            stack.extend(befores)
    return tuple(order)


def priority_order(graph: Graph, file_order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the order of ops with ``execution_order = PRIORITY_BASED``: the file's, but ``Shape`` and ``Size`` first.

    Of the ops whose predecessors are done, the next is a ``Shape`` or ``Size`` if there is one, otherwise the first
    of the file.

    Args:
        file_order: The topological order in which the file stores the ops; None for that of ``graph``.
    """
    place = list(range(len(graph.ops)))
    for position, op in enumerate(file_order or ()):
        place[op] = position
    preds = predecessors(graph)
    succs = successors_of(preds)
    missing = [len(befores) for befores in preds]
    ready = [_key(graph, place, op) for op, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        op = heapq.heappop(ready)[2]
        order.append(op)
        for after in succs[op]:
            missing[after] -= 1
            if not missing[after]:
                heapq.heappush(ready, _key(graph, place, after))
    return tuple(order)


def _key(graph: Graph, place: Sequence[int], op: int) -> tuple[bool, int, int]:
    return graph.ops[op].type not in _HOISTED, place[op], op
