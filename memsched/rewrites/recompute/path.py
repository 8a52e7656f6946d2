"""Path decompositions of the undirected counterpart of a DAG, and the balanced separators that they give.

A path decomposition is a tree decomposition whose tree is a path ("Scheduling Operations on a Computation Graph",
Figure 6): each node is in bags ``first[node]`` to ``last[node]``, and the two ends of each edge meet in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

from memsched.base.frozen import FrozenValue
from memsched.rewrites.recompute.separator import CANDIDATES, shrink

__all__ = ["PathDecomposition", "path_decomposition", "path_separators"]


class PathDecomposition(FrozenValue, frozen=True):
    """Bags in a row, as many as there are nodes; each node is in those from ``first`` to ``last``, both included."""

    first: tuple[int, ...]
    last: tuple[int, ...]

    @property
    def bags(self) -> tuple[tuple[int, ...], ...]:
        """Per bag its nodes, ascending; this takes nodes times width steps."""
        result: list[list[int]] = [[] for _ in self.first]
        for node, (first, last) in enumerate(zip(self.first, self.last, strict=True)):
            for number in range(first, last + 1):
                result[number].append(node)
        return tuple(map(tuple, result))

    @property
    def width(self) -> int:
        """Size of the largest bag less one; -1 without nodes."""
        change = [0] * (len(self.first) + 1)
        for first, last in zip(self.first, self.last, strict=True):
            change[first] += 1
            change[last + 1] -= 1
        size = most = 0
        for step in change:
            size += step
            most = max(most, size)
        return most - 1


def path_decomposition(
    neighbours: Sequence[Sequence[int]], orders: Iterable[Sequence[int]], width_limit: int | None = None
) -> PathDecomposition | None:
    """Return the narrowest of the decompositions that ``orders`` and the narrowest-next heuristic give, or None.

    An order gives bag i its i-th node and those before it with a neighbour at i or later.

    Args:
        width_limit: The width must be below this (claim 5); None for no limit.
    """
    found = [_along(neighbours, order) for order in (*orders, _narrowest_next(neighbours))]
    best = min(found, key=lambda path: path.width)
    return None if width_limit is not None and best.width >= width_limit else best


def _along(neighbours: Sequence[Sequence[int]], order: Sequence[int]) -> PathDecomposition:
    place = [0] * len(order)
    for number, node in enumerate(order):
        place[node] = number
    last = tuple(max([place[node], *(place[other] for other in neighbours[node])]) for node in range(len(order)))
    return PathDecomposition(tuple(place), last)


def _narrowest_next(neighbours: Sequence[Sequence[int]]) -> list[int]:
    """Return the order that always takes the node after which the fewest taken ones wait for a neighbour.

    Among equals one next to the last taken comes first, then the one with the fewest neighbours.
    """
    waiting = [len(others) for others in neighbours]
    taken: dict[int, None] = {}
    touched = [0] * len(neighbours)

    def change(node: int) -> int:
        finished = sum(1 for other in neighbours[node] if other in taken and waiting[other] == 1)
        return (waiting[node] > 0) - finished

    heap = [(change(node), 0, len(others), node) for node, others in enumerate(neighbours)]
    heapify(heap)
    while heap:
        growth, recent, _, node = heappop(heap)
        if node in taken or (growth, recent) != (change(node), -touched[node]):
            continue
        taken[node] = None
        stale: dict[int, None] = {}
        for other in neighbours[node]:
            waiting[other] -= 1
            touched[other] = len(taken)
            stale[other] = None
        for other in (node, *neighbours[node]):
            # Only one left to wait for: taking that one would finish it.
            if other in taken and waiting[other] == 1:
                stale.update((near, None) for near in neighbours[other])
        for other in stale:
            if other not in taken:
                heappush(heap, (change(other), -touched[other], len(neighbours[other]), other))
    return list(taken)


def path_separators(
    path: PathDecomposition,
    nodes: Sequence[int],
    neighbours: Sequence[Sequence[int]],
    cost: Callable[[Iterable[int]], int],
) -> list[tuple[int, ...]]:
    """Return balanced separators of the connected graph that ``nodes`` induce, small ones first.

    The bag in the middle leaves at most half of the nodes on its left and on its right; the cheapest bags, and what
    neighbouring ones share, that leave at most two thirds are tried, too. Of each, nodes that the balance does not need
    are given back.

    Args:
        cost: Of a separator; the least come first, ties by size.
    """
    count = len(nodes)
    cuts = _cuts(path, nodes)
    half = next(number for number, (_, _, right) in enumerate(cuts) if right <= count // 2)
    largest = 2 * count // 3
    usable = [number for number, (_, left, right) in enumerate(cuts) if max(left, right) <= largest and number != half]
    usable.sort(key=lambda number: (cost(cuts[number][0]), len(cuts[number][0]), abs(number - half), number))
    found: dict[tuple[int, ...], None] = {}
    for number in (half, *usable[:CANDIDATES]):
        bag, left, right = cuts[number]
        limit = max(left, right, 1) if number == half else max(largest, 1)
        for order in (bag, bag[::-1], sorted(bag, key=lambda node: (-cost((node,)), node))):
            smaller = shrink(order, nodes, neighbours, limit)
            if 0 < len(smaller) < count:
                found.setdefault(smaller)
    return sorted(found, key=lambda part: (cost(part), len(part), part))


def _cuts(path: PathDecomposition, nodes: Sequence[int]) -> list[tuple[tuple[int, ...], int, int]]:
    """Return each restricted bag, and what it shares with the next, with the nodes left of it and right of it."""
    first, last = path.first, path.last
    starts = sorted(nodes, key=first.__getitem__)
    ends = sorted(nodes, key=last.__getitem__)
    bag: dict[int, None] = {}
    done = 0
    result = []
    for number, node in enumerate(starts):
        gone = False
        while done < len(ends) and last[ends[done]] < first[node]:
            del bag[ends[done]]
            done += 1
            gone = True
        if gone and bag:
            result.append((tuple(sorted(bag)), done, len(nodes) - number))
        bag[node] = None
        result.append((tuple(sorted(bag)), done, len(nodes) - number - 1))
    return result
