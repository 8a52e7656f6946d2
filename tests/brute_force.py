"""What the memory model's definitions say, computed naively from the graph's values alone.

Nothing here calls `memsched.graph` beyond its plain values: property tests compare the package with this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memsched.graph.model import Graph

__all__ = ["Bytes", "bytes_of", "footprint", "footprints", "optimal_peak", "residue", "topological_orders"]


@dataclass
class Bytes:
    """A block of memory: what creates it (-1: given from outside), which ops use it, whether it stays to the end."""

    tensor: int
    size: int
    creator: int
    users: set[int]
    kept: bool


def _blocks_of_tensors(graph: Graph) -> dict[int, list[int]]:
    """Per tensor the tensors in whose own bytes it lies."""
    result: dict[int, list[int]] = {tensor: [tensor] for tensor in graph.inputs}
    result.update({tensor: [] for tensor in graph.variables})
    for op in graph.ops:
        for output in op.outputs:
            if output in graph.variables:
                continue
            lies_in: list[int] = []
            shown_bytes = 0
            for source in {shown for out, shown in op.views if out == output}:
                shown_bytes += graph.tensors[source].size
                lies_in += result[source]
            if not lies_in or shown_bytes < graph.tensors[output].size:
                lies_in.append(output)
            result[output] = lies_in
    return result


def bytes_of(graph: Graph) -> dict[int, Bytes]:
    """Return the graph's blocks of memory by the tensor that they were made for; variables are left out."""
    lies_in = _blocks_of_tensors(graph)
    creator = {tensor: index for index, op in enumerate(graph.ops) for tensor in op.outputs}
    result: dict[int, Bytes] = {}
    for tensor, blocks in lies_in.items():
        if tensor not in blocks:
            continue
        size = graph.tensors[tensor].size
        if tensor in creator:
            views = graph.ops[creator[tensor]].views
            size -= sum(graph.tensors[source].size for source in {read for out, read in views if out == tensor})
        users = {i for i, op in enumerate(graph.ops) if any(tensor in lies_in[read] for read in op.inputs)}
        kept = any(tensor in lies_in[output] for output in graph.outputs)
        size = 0 if graph.tensors[tensor].external else max(size, 0)
        result[tensor] = Bytes(tensor, size, creator.get(tensor, -1), users, kept)
    return result


def _always_live(graph: Graph) -> int:
    return sum(graph.tensors[t].size for t in set(graph.variables) if not graph.tensors[t].external)


def residue(graph: Graph, executed: set[int]) -> int:
    """Return the bytes needed when exactly the ops ``executed`` were executed."""
    total = _always_live(graph)
    for block in bytes_of(graph).values():
        exists = block.creator < 0 or block.creator in executed
        total += block.size if exists and (block.kept or block.users - executed) else 0
    return total


def footprint(graph: Graph, executed: set[int], op: int, blocks: dict[int, Bytes] | None = None) -> int:
    """Return the least footprint of executing ``op`` right after the ops ``executed``, in-place choices included."""
    blocks = bytes_of(graph) if blocks is None else blocks
    total = _always_live(graph) + graph.ops[op].workspace
    for block in blocks.values():
        exists = block.creator < 0 or block.creator == op or block.creator in executed
        needed = block.kept or block.creator == op or bool(block.users - executed)
        total += block.size if exists and needed else 0
    return total - _most_merged(graph, executed, op, blocks)


def _most_merged(graph: Graph, executed: set[int], op: int, blocks: dict[int, Bytes]) -> int:
    """Try all choices of in-place pairs: every output and every dying input in at most one."""
    lies_in = _blocks_of_tensors(graph) if graph.ops[op].in_place else {}
    pairs = []
    for output, read in graph.ops[op].in_place:
        if lies_in[output] != [output] or len(lies_in[read]) != 1:
            continue
        source = blocks[lies_in[read][0]]
        dies = not source.kept and source.users <= executed | {op}
        if dies and source.size == blocks[output].size:
            pairs.append((output, source.tensor))

    def best(remaining: Sequence[tuple[int, int]], used: frozenset[tuple[str, int]]) -> int:
        if not remaining:
            return 0
        (output, read), rest = remaining[0], remaining[1:]
        result = best(rest, used)
        if ("out", output) not in used and ("in", read) not in used:
            taken = blocks[output].size + best(rest, used | {("out", output), ("in", read)})
            result = max(result, taken)
        return result

    return best(pairs, frozenset())


def footprints(graph: Graph, order: Sequence[int]) -> list[int]:
    """Return the footprint of every step of ``order``."""
    blocks = bytes_of(graph)
    return [footprint(graph, set(order[:step]), op, blocks) for step, op in enumerate(order)]


def _before(graph: Graph) -> list[set[int]]:
    creator = {tensor: index for index, op in enumerate(graph.ops) for tensor in op.outputs}
    result = [{creator[tensor] for tensor in op.inputs if tensor in creator} for op in graph.ops]
    for first, second in graph.dependencies:
        result[second].add(first)
    return result


def topological_orders(graph: Graph) -> Iterator[tuple[int, ...]]:
    """Yield every execution order of a small graph."""
    before = _before(graph)
    stack: list[tuple[int, ...]] = [()]
    while stack:
        order = stack.pop()
        if len(order) == len(graph.ops):
            yield order
        done = set(order)
        stack += [(*order, op) for op in range(len(graph.ops)) if op not in done and before[op] <= done]


def optimal_peak(graph: Graph) -> int:
    """Return the smallest peak of any order, by dynamic programming over all sets of executed ops (up to ~14 ops)."""
    if not graph.ops:
        return residue(graph, set())
    before = _before(graph)
    blocks = bytes_of(graph)
    layer: dict[frozenset[int], int] = {frozenset(): 0}
    for _ in graph.ops:
        following: dict[frozenset[int], int] = {}
        for executed, peak in layer.items():
            for op in range(len(graph.ops)):
                if op in executed or not before[op] <= executed:
                    continue
                reached = executed | {op}
                cost = max(peak, footprint(graph, set(executed), op, blocks))
                following[reached] = min(cost, following.get(reached, cost))
        layer = following
    return min(layer.values())
