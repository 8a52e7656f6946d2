"""Synthetic graphs with exact labels as arrays, made once and kept in a file."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memsched.features.pipeline.respect_embedding import PARENTS, WIDTH, embed
from scripts.respect.graphs import random_graph
from scripts.respect.labels import exact_stages

__all__ = ["COUNTS", "Dataset", "load_or_make"]

COUNTS = (4, 5, 6)
"""Numbers of stages that labels are made for."""

NODES = 30
DEGREES = (2, 3, 4, 5, 6)
MOST_SETS = 6000
"""Graphs with more closed sets are not labelled; another is drawn."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Graphs of ``NODES`` nodes.

    Attributes:
        embeddings: [graph, node, column].
        parents: [graph, node, slot], -1 where there is none.
        memory: [graph, node].
        sizes: [graph, node].
        stages: [graph, number of stages, node]: exact labels for each of ``COUNTS``.
        drawn: How many graphs were drawn to get these; the others had too many closed sets.
    """

    embeddings: NDArray[np.float32]
    parents: NDArray[np.int8]
    memory: NDArray[np.int32]
    sizes: NDArray[np.int32]
    stages: NDArray[np.int8]
    drawn: int

    def __len__(self) -> int:
        """Return how many graphs there are."""
        return len(self.memory)


def load_or_make(path: Path, graphs: int, seed: int) -> Dataset:
    """Return ``graphs`` labelled graphs, equal shares of each degree; read from ``path`` if it is there."""
    if not path.exists():
        made = _make(graphs, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **{name: getattr(made, name) for name in Dataset.__slots__})
    with np.load(path) as arrays:
        return Dataset(
            **{name: arrays[name] for name in Dataset.__slots__ if name != "drawn"}, drawn=int(arrays["drawn"])
        )


def _make(graphs: int, seed: int) -> Dataset:
    rng = random.Random(seed)
    embeddings = np.zeros((graphs, NODES, WIDTH), np.float32)
    parents = np.full((graphs, NODES, PARENTS), -1, np.int8)
    memory = np.zeros((graphs, NODES), np.int32)
    sizes = np.zeros((graphs, NODES), np.int32)
    stages = np.zeros((graphs, len(COUNTS), NODES), np.int8)
    made = drawn = 0
    while made < graphs:
        graph = random_graph(rng, NODES, DEGREES[made % len(DEGREES)])
        drawn += 1
        found = exact_stages(graph, COUNTS, MOST_SETS)
        if found is None:
            continue
        embeddings[made] = embed(graph.parents, graph.memory)
        for node, before in enumerate(graph.parents):
            parents[made, node, : len(before)] = before
        memory[made], sizes[made], stages[made] = graph.memory, graph.sizes, found
        made += 1
    return Dataset(embeddings, parents, memory, sizes, stages, drawn)
