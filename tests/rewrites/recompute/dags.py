"""DAGs of known structure, with outputs of one byte: paths, trees, grids, series-parallel graphs, training chains."""

from __future__ import annotations

import random
from collections.abc import Sequence

from memsched.graph.model import Graph, Op, Tensor

__all__ = ["FAMILIES", "graph_of", "grid", "path", "random_dag", "series_parallel", "training", "tree"]


def graph_of(preds: Sequence[Sequence[int]]) -> Graph:
    """Return the graph of ops with one output of one byte each; what nobody reads is an output."""
    read = {before for befores in preds for before in befores}
    return Graph(
        "unit",
        tuple(Tensor(f"t{node}", 1) for node in range(len(preds))),
        tuple(Op(f"op{node}", "F", tuple(befores), (node,)) for node, befores in enumerate(preds)),
        (),
        tuple(node for node in range(len(preds)) if node not in read),
    )


def path(nodes: int) -> list[list[int]]:
    return [[node - 1] if node else [] for node in range(nodes)]


def tree(nodes: int) -> list[list[int]]:
    """Return the complete binary tree whose root is computed last."""
    return [
        [nodes - 1 - child for child in (2 * heap + 2, 2 * heap + 1) if child < nodes]
        for heap in range(nodes - 1, -1, -1)
    ]


def grid(rows: int, columns: int) -> list[list[int]]:
    """Return the grid in which each node reads the one above it and the one on its left."""
    return [
        [*([node - columns] if node >= columns else []), *([node - 1] if node % columns else [])]
        for node in range(rows * columns)
    ]


def training(nodes: int) -> list[list[int]]:
    """Return a chain forward and the chain back, each of whose nodes reads its mirror image as well."""
    result = path(nodes // 2)
    for node in range(nodes // 2 - 1, -1, -1):
        result.append([node] if node == len(result) - 1 else [node, len(result) - 1])
    return result


def series_parallel(nodes: int, seed: int = 0) -> list[list[int]]:
    """Return a graph grown from an edge by putting a node on an edge or beside one, until it has enough nodes."""
    rng = random.Random(seed)
    edges = [(0, 1)]
    count = 2
    while count < nodes:
        place = rng.randrange(len(edges))
        before, after = edges[place]
        if rng.random() < 0.5:
            edges.pop(place)
        edges += [(before, count), (count, after)]
        count += 1
    return _numbered(count, edges)


def random_dag(nodes: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [sorted(rng.sample(range(node), min(node, rng.choice([0, 1, 1, 2, 2, 3])))) for node in range(nodes)]


def _numbered(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Number the nodes topologically."""
    befores: list[set[int]] = [set() for _ in range(count)]
    for before, after in edges:
        befores[after].add(before)
    number: dict[int, int] = {}
    while len(number) < count:
        for node in range(count):
            if node not in number and befores[node] <= number.keys():
                number[node] = len(number)
    result: list[list[int]] = [[] for _ in range(count)]
    for node, place in number.items():
        result[place] = sorted(number[before] for before in befores[node])
    return result


FAMILIES = {
    "path": path(60),
    "tree": tree(63),
    "grid": grid(6, 8),
    "long grid": grid(3, 30),
    "series-parallel": series_parallel(60),
    "training": training(80),
    "random": random_dag(40),
}
