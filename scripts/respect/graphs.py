"""Random DAGs that mimic networks (RESPECT, section III-B, "Synthetic training dataset")."""

from __future__ import annotations

import random
from dataclasses import dataclass

__all__ = ["Graph", "random_graph"]

_REACH = 6
"""How far behind a node its further parents lie on average, in nodes."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A DAG in a topological order.

    Attributes:
        parents: Per node, ascending.
        memory: Bytes of parameters per node, scaled to small integers.
        sizes: Size of each node's output.
    """

    parents: tuple[tuple[int, ...], ...]
    memory: tuple[int, ...]
    sizes: tuple[int, ...]


def random_graph(rng: random.Random, nodes: int, degree: int) -> Graph:
    """Return a connected DAG of one sink whose largest in-degree is ``degree`` (where ``nodes`` allow).

    Most nodes follow the one before them, as in networks; others start a branch from a node shortly before, and
    some join up to ``degree`` nodes. What nobody has read when it falls far behind is joined as well.
    """
    branch = rng.uniform(0.0, 0.6)
    join = rng.uniform(0.05, 0.4)
    parents: list[tuple[int, ...]] = [()]
    unread = {0}
    widest = rng.randrange(degree + 1, nodes) if degree + 1 < nodes else nodes - 1
    for node in range(1, nodes):
        chosen = {max(0, node - 1 - _behind(rng)) if rng.random() < branch else node - 1}
        wanted = degree if node == widest else rng.randint(2, degree) if rng.random() < join else 1
        chosen.update(sorted(unread - {node - 1})[: max(0, wanted - 1)] if wanted > 1 else ())
        while len(chosen) < min(wanted, node):
            chosen.add(max(0, node - 1 - _behind(rng)))
            if len(chosen) < wanted and rng.random() < 0.2:
                chosen.add(rng.randrange(node))
        if node == nodes - 1:
            chosen.update(sorted(unread)[: degree - len(chosen)])
        parents.append(tuple(sorted(chosen)))
        unread -= chosen
        unread.add(node)
    return Graph(tuple(parents), _memory(rng, nodes), _sizes(rng, nodes))


def _behind(rng: random.Random) -> int:
    return min(int(rng.expovariate(1 / _REACH)), 100)


def _memory(rng: random.Random, nodes: int) -> tuple[int, ...]:
    """Return parameters: a share of the nodes has none, the others spread over decades and grow along the network."""
    without = rng.uniform(0.0, 0.7)
    spread = rng.uniform(0.3, 1.5)
    growth = rng.uniform(0.0, 3.0)
    drawn = [
        0.0 if rng.random() < without else rng.lognormvariate(growth * node / nodes, spread) for node in range(nodes)
    ]
    scale = 1000 / max(*drawn, 1e-9)
    return tuple(round(value * scale) for value in drawn)


def _sizes(rng: random.Random, nodes: int) -> tuple[int, ...]:
    shrink = rng.uniform(0.0, 3.0)
    return tuple(max(1, round(1000 * rng.lognormvariate(-shrink * node / nodes, 0.5))) for node in range(nodes))
