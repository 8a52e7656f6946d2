"""Tree decompositions of the undirected counterpart of a DAG, and the balanced separators that they give.

A tree decomposition has bags of nodes, joined by a tree: each node is in a bag, the two ends of each edge are together
in one, and the bags of a node are connected. Its width is the size of its largest bag less one. What is removed by
taking a bag, or what two neighbouring bags share, out of the graph separates the rest.

Source: "Scheduling Operations on a Computation Graph", Figures 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.graph import dag

__all__ = ["TreeDecomposition", "components", "shrink", "tree_decomposition", "tree_separators", "undirected"]

_MIN_FILL_NODES: Final = 3000
"""Above this size the search for the least fill takes too long; the least degree alone is tried."""

_BAGS_AROUND: Final = 2
"""How far from the middle of the tree separators are looked for, in bags."""

CANDIDATES: Final = 4
"""Separators that a graph is divided at in turn, the cheapest ones."""


class TreeDecomposition(FrozenValue, frozen=True):
    """Bags joined by a rooted tree.

    Attributes:
        bags: Per bag its nodes, ascending. Parents come before their children.
        parent: Per bag the bag above it; -1 for a root, one per connected part of the graph.
        bags_of: Per node the bags that it is in, ascending: the first is the one closest to the root.
        width: Size of the largest bag less one; -1 without nodes.
    """

    bags: tuple[tuple[int, ...], ...]
    parent: tuple[int, ...]
    bags_of: tuple[tuple[int, ...], ...]
    width: int

    @staticmethod
    def of(nodes: int, bags: Sequence[Sequence[int]], parent: Sequence[int]) -> TreeDecomposition:
        """Return the decomposition of ``nodes`` nodes with these bags, parents before children."""
        bags_of: list[list[int]] = [[] for _ in range(nodes)]
        for number, bag in enumerate(bags):
            for node in bag:
                bags_of[node].append(number)
        width = max((len(bag) for bag in bags), default=0) - 1
        return TreeDecomposition(
            tuple(tuple(sorted(bag)) for bag in bags), tuple(parent), tuple(map(tuple, bags_of)), width
        )


def undirected(preds: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return, per node, its neighbours, ascending: the edges without their directions."""
    succs = dag.successors_of(preds)
    return [tuple(sorted({*befores, *afters})) for befores, afters in zip(preds, succs, strict=True)]


def tree_decomposition(preds: Sequence[Sequence[int]], width_limit: int | None = None) -> TreeDecomposition | None:
    """Return the narrower of the decompositions by least degree and by least fill-in, or None.

    Both are heuristics: the width is an upper bound on the treewidth, which is NP-hard to compute.

    Args:
        width_limit: The width must be below this (claim 5); None for no limit.

    Returns:
        None when no decomposition found is as narrow as ``width_limit`` asks.
    """
    from networkx import Graph
    from networkx.algorithms.approximation import treewidth_min_degree, treewidth_min_fill_in

    neighbours = undirected(preds)
    given = Graph()
    given.add_nodes_from(range(len(preds)))
    given.add_edges_from((node, other) for node, others in enumerate(neighbours) for other in others if node < other)
    methods = [treewidth_min_degree]
    if len(preds) <= _MIN_FILL_NODES:
        methods.append(treewidth_min_fill_in)
    found = []
    for method in methods if preds else ():
        width, tree = method(given)
        found.append((width, tree))
    if not found:
        return TreeDecomposition.of(0, (), ())
    width, tree = min(found, key=lambda pair: pair[0])
    if width_limit is not None and width >= width_limit:
        return None
    return _rooted(len(preds), tree)


def _rooted(nodes: int, tree: object) -> TreeDecomposition:
    """Number the bags of a networkx tree from its roots on."""
    adjacency: dict[tuple[int, ...], list[tuple[int, ...]]] = {
        tuple(sorted(bag)): sorted(tuple(sorted(other)) for other in others)
        for bag, others in tree.adjacency()  # type: ignore[attr-defined]
    }
    bags: list[tuple[int, ...]] = []
    parent: list[int] = []
    seen: set[tuple[int, ...]] = set()
    for root in sorted(adjacency):
        if root in seen:
            continue
        seen.add(root)
        queue = [(root, -1)]
        for bag, above in queue:
            bags.append(bag)
            parent.append(above)
            for other in adjacency[bag]:
                if other not in seen:
                    seen.add(other)
                    queue.append((other, len(bags) - 1))
    return TreeDecomposition.of(nodes, bags, parent)


def components(nodes: Iterable[int], neighbours: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the connected components of the graph that ``nodes`` induce, each in the order of ``nodes``."""
    part: dict[int, int] = dict.fromkeys(nodes, -1)
    count = 0
    for node, known in part.items():
        if known >= 0:
            continue
        part[node] = count
        stack = [node]
        while stack:
            for other in neighbours[stack.pop()]:
                if part.get(other, 0) < 0:
                    part[other] = count
                    stack.append(other)
        count += 1
    result: list[list[int]] = [[] for _ in range(count)]
    for node, number in part.items():
        result[number].append(node)
    return result


def shrink(
    separator: Iterable[int], nodes: Sequence[int], neighbours: Sequence[Sequence[int]], largest: int
) -> tuple[int, ...]:
    """Return a part of ``separator`` that still leaves no component of more than ``largest`` nodes (claim 11).

    Args:
        separator: Nodes are given back to the rest in this order.
        nodes: The connected graph that is separated.
    """
    wanted = list(separator)
    inside = set(wanted)
    sizes: list[int] = []
    part: dict[int, int] = {}
    for number, members in enumerate(components((node for node in nodes if node not in inside), neighbours)):
        sizes.append(len(members))
        part.update(dict.fromkeys(members, number))
    alias = list(range(len(sizes)))

    def root(number: int) -> int:
        while alias[number] != number:
            alias[number] = number = alias[alias[number]]
        return number

    kept = []
    for node in wanted:
        joined = sorted({root(part[other]) for other in neighbours[node] if other in part})
        size = 1 + sum(sizes[number] for number in joined)
        if size > largest:
            kept.append(node)
            continue
        sizes.append(size)
        alias.append(len(alias))
        part[node] = len(alias) - 1
        for number in joined:
            alias[number] = len(alias) - 1
    return tuple(sorted(kept))


def tree_separators(
    tree: TreeDecomposition,
    nodes: Sequence[int],
    neighbours: Sequence[Sequence[int]],
    cost: Callable[[Iterable[int]], int],
) -> list[tuple[int, ...]]:
    """Return balanced separators of the connected graph that ``nodes`` induce, small ones first.

    They come from the bag in the middle of the tree, restricted to ``nodes``: none of the parts that its removal leaves
    has more than half of them. Bags near it and what neighbouring bags share are taken where they leave at most two
    thirds. Of each, nodes that the balance does not need are given back, in three orders.

    Args:
        cost: Of a separator; the least come first, ties by size.
    """
    restricted = _SubgraphDecomposition.of(tree, nodes)
    largest = 2 * len(nodes) // 3
    found: dict[tuple[int, ...], None] = {}
    half = restricted.bag(restricted.middle())
    pool = {half: len(nodes) // 2}
    for part, left in restricted.around(_BAGS_AROUND):
        if left <= largest:
            pool.setdefault(part, largest)
    ranked = sorted(pool, key=lambda part: (cost(part), len(part), part))[:CANDIDATES]
    for part in dict.fromkeys((half, *ranked)):
        for order in (part, part[::-1], sorted(part, key=lambda node: (-cost((node,)), node))):
            smaller = shrink(order, nodes, neighbours, max(pool[part], 1))
            # A separator of everything or nothing would lead back to where it began.
            if 0 < len(smaller) < len(nodes):
                found.setdefault(smaller)
    return sorted(found, key=lambda part: (cost(part), len(part), part))


class _SubgraphDecomposition(FrozenValue, frozen=True):
    """A tree decomposition without the nodes that are not in a connected graph, which is one of that graph.

    Attributes:
        bags: Those that have a node left: their numbers, parents first, with what is left.
        children: Per such bag those below it.
        below: Per such bag how many nodes are only in it and below it.
        count: Nodes in all.
    """

    bags: dict[int, tuple[int, ...]]
    parent: dict[int, int]
    children: dict[int, list[int]]
    below: dict[int, int]
    count: int

    @staticmethod
    def of(tree: TreeDecomposition, nodes: Sequence[int]) -> _SubgraphDecomposition:
        members: dict[int, list[int]] = {}
        for node in sorted(nodes):
            for number in tree.bags_of[node]:
                members.setdefault(number, []).append(node)
        order = sorted(members)
        below = dict.fromkeys(order, 0)
        for node in nodes:
            below[tree.bags_of[node][0]] += 1
        children: dict[int, list[int]] = {number: [] for number in order}
        parent = {number: tree.parent[number] for number in order}
        for number in reversed(order[1:]):
            below[parent[number]] += below[number]
            children[parent[number]].append(number)
        return _SubgraphDecomposition(
            {number: tuple(members[number]) for number in order}, parent, children, below, len(nodes)
        )

    def bag(self, number: int) -> tuple[int, ...]:
        return self.bags[number]

    def middle(self) -> int:
        """Return the bag whose removal leaves at most half of the nodes in any branch."""
        number = next(iter(self.bags))
        while True:
            heavy = [child for child in self.children[number] if self.below[child] > self.count // 2]
            if not heavy:
                return number
            number = heavy[0]

    def around(self, distance: int) -> list[tuple[tuple[int, ...], int]]:
        """Return bags near the middle, and what they share with their neighbours, with the largest rest each leaves."""
        queue = [self.middle()]
        reached = {queue[0]: 0}
        for number in queue:
            if reached[number] == distance:
                continue
            for other in (*self.children[number], self.parent[number]):
                if other in self.bags and other not in reached:
                    reached[other] = reached[number] + 1
                    queue.append(other)
        result = []
        for number in queue:
            bag = self.bags[number]
            above = self.count - self.below[number] - sum(1 for node in bag if self._is_above(number, node))
            result.append((bag, max([above, *(self.below[child] for child in self.children[number])])))
            upper = self.parent[number]
            if upper in self.bags:
                shared = tuple(node for node in bag if node in set(self.bags[upper]))
                if shared:
                    result.append((shared, max(self.below[number], self.count - self.below[number] - len(shared))))
        return result

    def _is_above(self, number: int, node: int) -> bool:
        """Say whether ``node``, which is in a bag, is in the bag above as well."""
        upper = self.parent[number]
        return upper in self.bags and node in self.bags[upper]
