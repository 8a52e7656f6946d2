"""Coarsening for acyclic partitioning: vertices that belong together become one, and the graph stays acyclic.

After the rules of Herrmann et al., "Acyclic partitioning of large directed acyclic graphs" (CCGRID 2017), section 4.1:
edges are matched where contracting them cannot close a cycle.
"""

from __future__ import annotations

import random

from memsched.solve.schedule.partition_hypergraph import Hypergraph

__all__ = ["coarsen"]

_ENOUGH = 0.95


def coarsen(
    graph: Hypergraph, stages: list[int], *, vertices: int, largest: int, rng: random.Random
) -> list[tuple[Hypergraph, list[int], list[int]]]:
    """Return ever coarser hypergraphs, each with its stages and, per vertex of the one before, the vertex it is in.

    Only vertices of one stage come together, so that the cut stays what it is.

    Args:
        stages: Of ``graph``.
        vertices: Go no coarser than so many.
        largest: Most tasks in a vertex.
        rng: Decides the order in which vertices are matched.
    """
    levels: list[tuple[Hypergraph, list[int], list[int]]] = []
    while len(graph) > vertices:
        before = len(graph)
        for band in (None, 0, None, 1):
            cluster = _match(graph, stages, largest, band, rng)
            if cluster is None:
                continue
            graph, vertex_of = graph.contract(cluster)
            coarse = [0] * len(graph)
            for vertex, stage in zip(vertex_of, stages, strict=True):
                coarse[vertex] = stage
            stages = coarse
            levels.append((graph, stages, vertex_of))
        if len(graph) > _ENOUGH * before:
            break
    return levels


def _match(
    graph: Hypergraph, stages: list[int], largest: int, band: int | None, rng: random.Random
) -> list[int] | None:
    """Return the cluster of each vertex after matching along edges that share the most bytes; None without a match.

    Without ``band``, an edge may be contracted where its head has no other predecessor or its tail no other
    successor: no other path joins them, and that stays true when other edges are contracted too.

    With ``band`` 0 or 1, only edges from a level (longest path from the sources) of that parity to the next are. Each
    edge leads to a higher level, so a cycle of clusters would stay within one such pair of levels and use nothing
    but clusters of two. The tail that was matched last in it would then have a successor in the pair that was matched
    before: such tails are left alone.
    """
    level = [0] * len(graph)
    if band is not None:
        for vertex, befores in enumerate(graph.preds):
            level[vertex] = 1 + max((level[before] for before in befores), default=-1)
    cluster = list(range(len(graph)))
    matched = bytearray(len(graph))
    order = list(range(len(graph)))
    rng.shuffle(order)
    for tail in order:
        if matched[tail] or (band is not None and level[tail] % 2 != band):
            continue
        in_pair = [after for after in graph.succs[tail] if level[after] == level[tail] + 1]
        if band is not None and any(matched[after] for after in in_pair):
            continue
        best, best_bytes = -1, -1
        for head, shared in _shared_bytes(graph, tail, in_pair if band is not None else graph.succs[tail]):
            fits = not matched[head] and stages[head] == stages[tail]
            fits = fits and graph.weights[head] + graph.weights[tail] <= largest
            alone = len(graph.succs[tail]) == 1 or len(graph.preds[head]) == 1
            if fits and (alone or band is not None) and shared > best_bytes:
                best, best_bytes = head, shared
        if best < 0:
            continue
        cluster[best] = tail
        matched[tail] = matched[best] = 1
    return cluster if any(matched) else None


def _shared_bytes(graph: Hypergraph, tail: int, heads: list[int] | tuple[int, ...]) -> list[tuple[int, int]]:
    """Return per head the bytes that it reads of ``tail``, each buffer divided among its users."""
    shared = dict.fromkeys(heads, 0)
    for index in graph.creates[tail]:
        net = graph.nets[index]
        if net.kept:
            continue
        for user in net.users:
            if user in shared:
                shared[user] += net.size // len(net.users)
    return list(shared.items())
