"""Structure of a graph: producers, consumers, precedence, validity and reachability. All linear, no recursion."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterable, Sequence

from memsched.base.errors import GraphError
from memsched.graph.model import Graph

__all__ = [
    "MOST_FOR_BITSETS",
    "ancestor_bitsets",
    "bitset",
    "descendant_bitsets",
    "has_choice",
    "in_order",
    "members",
    "predecessors",
    "producers",
    "separating_nodes",
    "successors_of",
    "topological_order",
    "validate",
]

MOST_FOR_BITSETS = 20_000
"""Ops, or tasks, up to which all their ancestors are kept as bits: 50 MB of them."""


def in_order(graph: Graph, order: Sequence[int]) -> Graph:
    """Return ``graph`` with its ops in the given order."""
    place_of = {op: step for step, op in enumerate(order)}
    return dataclasses.replace(
        graph,
        ops=tuple(graph.ops[op] for op in order),
        dependencies=tuple((place_of[before], place_of[after]) for before, after in graph.dependencies),
    )


def has_choice(graph: Graph) -> bool:
    """Return whether a graph, its ops in an order of execution, has another one as well."""
    before = predecessors(graph)
    return any(number - 1 not in before[number] for number in range(1, len(before)))


def producers(graph: Graph) -> list[int]:
    """Return, per tensor, the index of the op that produces it; -1 for one that is given from outside."""
    result = [-1] * len(graph.tensors)
    for index, op in enumerate(graph.ops):
        for tensor in op.outputs:
            result[tensor] = index
    return result


def predecessors(graph: Graph) -> list[tuple[int, ...]]:
    """Return, per op, the distinct ops that must come directly before it, ascending."""
    producer = producers(graph)
    result: list[tuple[int, ...]] = []
    for op in graph.ops:
        if len(op.inputs) == 1:
            before = producer[op.inputs[0]]
            result.append((before,) if before >= 0 else ())
            continue
        befores = {producer[tensor] for tensor in op.inputs}
        befores.discard(-1)
        result.append(tuple(sorted(befores)) if len(befores) > 1 else tuple(befores))
    for before, after in graph.dependencies:
        result[after] = tuple(sorted({*result[after], before}))
    return result


def successors_of(preds: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return, per node, the distinct nodes that name it as a predecessor, ascending."""
    result: list[list[int]] = [[] for _ in preds]
    for node, befores in enumerate(preds):
        for before in befores:
            result[before].append(node)
    return list(map(tuple, result))


def topological_order(preds: Sequence[Sequence[int]], rank: Sequence[int]) -> list[int]:
    """Return the nodes so that each follows its predecessors, and of those that may come next the least ``rank`` does.

    Nodes on a cycle, and those after one, are left out: the result is then shorter than ``preds``.

    Args:
        preds: Per node its distinct direct predecessors.
        rank: Per node; ties by number.
    """
    succs = successors_of(preds)
    waiting = [len(befores) for befores in preds]
    ready = [(rank[node], node) for node, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    result: list[int] = []
    while ready:
        _, node = heapq.heappop(ready)
        result.append(node)
        for after in succs[node]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (rank[after], after))
    return result


def validate(graph: Graph) -> None:
    """Check that ``graph`` is a DAG whose op order is an execution order.

    Raises:
        GraphError: An index is out of range, a name is used twice, a size is negative, a tensor has two
            producers or none, or an op reads a tensor that a later op produces (which a cycle always shows).
    """
    _check_tensors(graph)
    _check_ops(graph)
    _check_order(graph)
    for before, after in graph.dependencies:
        if not 0 <= before < after < len(graph.ops):
            raise GraphError(
                f"graph '{graph.name}' asks op {before} to come before op {after}, against its own order",
                code="dependency-backwards",
            )


def _check_tensors(graph: Graph) -> None:
    seen: set[str] = set()
    for tensor in graph.tensors:
        if tensor.size < 0:
            raise GraphError(f"tensor '{tensor.name}' has a negative size ({tensor.size} bytes)", code="negative-size")
        if tensor.name in seen:
            raise GraphError(f"tensor name '{tensor.name}' is used twice", code="name-twice")
        seen.add(tensor.name)
    for index in (*graph.inputs, *graph.variables, *graph.outputs):
        if not 0 <= index < len(graph.tensors):
            raise GraphError(
                f"graph '{graph.name}' names tensor {index}, but it has only {len(graph.tensors)}",
                code="tensor-index",
            )
    if len(set(graph.inputs)) < len(graph.inputs):
        twice = next(index for place, index in enumerate(graph.inputs) if index in graph.inputs[:place])
        raise GraphError(f"graph '{graph.name}' has input '{graph.tensors[twice].name}' twice", code="input-twice")


def _check_ops(graph: Graph) -> None:
    seen: set[str] = set()
    produced = set(graph.inputs)
    tensors = range(len(graph.tensors))
    for op in graph.ops:
        if op.name in seen:
            raise GraphError(f"op name '{op.name}' is used twice", code="name-twice")
        seen.add(op.name)
        if op.workspace < 0:
            raise GraphError(f"op '{op.name}' has a negative workspace ({op.workspace} bytes)", code="negative-size")
        for index in (*op.inputs, *op.outputs):
            if index not in tensors:
                raise GraphError(
                    f"op '{op.name}' names tensor {index}, but there are only {len(graph.tensors)}",
                    code="tensor-index",
                )
        for index in op.outputs:
            if index in produced:
                raise GraphError(
                    f"tensor '{graph.tensors[index].name}' has more than one producer", code="two-producers"
                )
            produced.add(index)
        for output, read in (*op.views, *op.in_place) if op.views or op.in_place else ():
            if output not in op.outputs or read not in op.inputs:
                raise GraphError(
                    f"op '{op.name}' shares memory between tensors that it does not produce and read",
                    code="foreign-memory",
                )


def _check_order(graph: Graph) -> None:
    available = {*graph.inputs, *graph.variables}
    produced = {tensor for op in graph.ops for tensor in op.outputs}
    for op in graph.ops:
        for tensor in op.inputs:
            if tensor not in available:
                raise _unavailable(graph, op.name, tensor, tensor in produced)
        available.update(op.outputs)
    for tensor in graph.outputs:
        if tensor not in available:
            raise GraphError(f"graph output '{graph.tensors[tensor].name}' is produced by no op", code="no-producer")


def _unavailable(graph: Graph, op: str, tensor: int, produced: bool) -> GraphError:
    name = graph.tensors[tensor].name
    if not produced:
        return GraphError(
            f"op '{op}' reads tensor '{name}', which no op produces and which is no graph input", code="no-producer"
        )
    reason = "the graph has a cycle or is not stored in execution order"
    return GraphError(f"op '{op}' reads tensor '{name}' before any op has produced it: {reason}", code="read-too-early")


def bitset(numbers: Iterable[int]) -> int:
    """Return the set of ``numbers`` as bits: bit i for number i."""
    result = 0
    for number in numbers:
        result |= 1 << number
    return result


def members(bits: int) -> list[int]:
    """Return the members of a set given as bits, ascending."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


def ancestor_bitsets(preds: Sequence[Sequence[int]]) -> list[int]:
    """Return, per node, its ancestors as a bitset (bit i = node i). Nodes are numbered topologically.

    Memory is nodes^2 / 8 bytes: 1.25 GB for 100,000 nodes, so callers keep to graphs below about 20,000.
    """
    result: list[int] = []
    for befores in preds:
        bits = 0
        for before in befores:
            bits |= result[before] | (1 << before)
        result.append(bits)
    return result


def descendant_bitsets(succs: Sequence[Sequence[int]]) -> list[int]:
    """Return, per node, its descendants as a bitset (bit i = node i). Nodes are numbered topologically."""
    result = [0] * len(succs)
    for node in reversed(range(len(succs))):
        for after in succs[node]:
            result[node] |= result[after] | (1 << after)
    return result


def separating_nodes(preds: Sequence[Sequence[int]], succs: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes that every other node either precedes or follows, ascending, in linear time.

    Nodes are numbered topologically. Node v is one exactly when each node before it has a successor no later
    than v (so that following first successors leads to v) and each node after it has a predecessor no earlier.
    """
    count = len(preds)
    firsts = (min(afters, default=count) for afters in succs)
    latest_first_successor = list(itertools.accumulate(firsts, max, initial=0))
    lasts = (max(befores, default=-1) for befores in reversed(preds))
    earliest_last_predecessor = list(itertools.accumulate(lasts, min, initial=count))[::-1]
    return [
        node for node in range(count) if latest_first_successor[node] <= node <= earliest_last_predecessor[node + 1]
    ]
