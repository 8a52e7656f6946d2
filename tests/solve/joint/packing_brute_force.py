"""The least arena over all orders, in-place choices and packings of a tiny graph, by trying them all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from memsched.graph.model import Graph
from tests.brute_force import Bytes, _blocks_of_tensors, bytes_of, topological_orders

__all__ = ["least_arena", "least_height"]

_Block = tuple[int, int, int]
"""Size, first step and last step."""


def least_height(blocks: Sequence[_Block], at_most: int) -> int:
    """Return the least height of a packing; ``at_most`` where none is lower.

    In a packing pushed down, placing the blocks by rising offset, each at its lowest free address, gives it again.
    """
    best = at_most

    def place(left: Sequence[_Block], placed: list[tuple[int, _Block]], height: int) -> None:
        nonlocal best
        if height >= best:
            return
        if not left:
            best = height
            return
        for index, (size, first, last) in enumerate(left):
            taken = sorted((at, at + s) for at, (s, begin, end) in placed if begin <= last and first <= end)
            offset = 0
            for begin, end in taken:
                if begin - offset >= size:
                    break
                offset = max(offset, end)
            rest = [*left[:index], *left[index + 1 :]]
            place(rest, [*placed, (offset, left[index])], max(height, offset + size))

    place(blocks, [], 0)
    return best


def least_arena(graph: Graph, *, peak_limit: int, alignment: int = 1) -> int | None:
    """Return the least arena of any order whose peak is at most ``peak_limit`` bytes; None where there is no order."""
    best = None
    bytes_by_tensor = bytes_of(graph)
    for order in topological_orders(graph):
        for merged in _in_place_choices(graph, order, bytes_by_tensor):
            exact = _blocks(graph, order, bytes_by_tensor, merged, 1)
            if _peak(exact, len(order)) <= peak_limit:
                rounded = _blocks(graph, order, bytes_by_tensor, merged, alignment)
                best = least_height(rounded, 1 << 60 if best is None else best)
    return best


def _lifetime(block: Bytes, order: Sequence[int]) -> tuple[int, int] | None:
    """Return first and last step; inputs live from -1."""
    step = {op: index for index, op in enumerate(order)}
    first = step[block.creator] if block.creator >= 0 else -1
    if block.kept:
        return first, len(order)
    if not block.users and block.creator < 0:
        return None
    return first, max((step[op] for op in block.users), default=first)


def _in_place_choices(
    graph: Graph, order: Sequence[int], blocks: dict[int, Bytes]
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield every set of pairs (output, input) of which each is allowed and no two share a tensor."""
    lifetimes = {tensor: _lifetime(block, order) for tensor, block in blocks.items()}
    lies_in = _blocks_of_tensors(graph)
    possible = []
    for step, op in enumerate(order):
        for output, shown in graph.ops[op].in_place:
            if lies_in[output] != [output] or len(lies_in[shown]) != 1:
                continue
            read = lies_in[shown][0]
            if blocks[output].size == blocks[read].size > 0:
                lifetime = lifetimes[read]
                if lifetime is not None and lifetime[1] == step and not blocks[read].kept:
                    possible.append((output, read))
    for count in range(len(possible) + 1):
        for chosen in itertools.combinations(dict.fromkeys(possible), count):
            outputs, reads = {output for output, _ in chosen}, {read for _, read in chosen}
            if len(outputs) == len(reads) == count:
                yield chosen


def _blocks(
    graph: Graph, order: Sequence[int], blocks: dict[int, Bytes], merged: Sequence[tuple[int, int]], alignment: int
) -> list[_Block]:
    head = {tensor: tensor for tensor in blocks}
    into = dict(merged)
    for tensor in blocks:
        end = tensor
        while end in into:
            end = into[end]
        head[tensor] = end
    chains: dict[int, list[tuple[int, int]]] = {}
    for tensor, block in blocks.items():
        lifetime = _lifetime(block, order)
        if block.size and lifetime is not None:
            chains.setdefault(head[tensor], []).append(lifetime)
    result = [
        (blocks[tensor].size, min(first for first, _ in spans), max(last for _, last in spans))
        for tensor, spans in chains.items()
    ]
    result += [(graph.ops[op].workspace, step, step) for step, op in enumerate(order) if graph.ops[op].workspace]
    result += [(graph.tensors[t].size, -1, len(order)) for t in set(graph.variables) if not graph.tensors[t].external]
    return [(-(-size // alignment) * alignment, first, last) for size, first, last in result]


def _peak(blocks: Sequence[_Block], steps: int) -> int:
    return max(sum(size for size, first, last in blocks if first <= step <= last) for step in range(steps))
