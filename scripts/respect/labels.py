"""Exact stage schedules of small DAGs: labels for the learned scheduler.

The closed sets of a DAG (every member's parents are members) are enumerated as bit masks; a stage boundary is one of
them. Functions are plain Python on arrays; ``compiled`` runs them through numba where that is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.respect.graphs import Graph

__all__ = ["compiled", "exact_stages", "masks"]

Integers = NDArray[np.int64]


def masks(graph: Graph) -> tuple[Integers, Integers]:
    """Return per node its parents and its children as bit masks."""
    parents = np.zeros(len(graph.parents), np.int64)
    children = np.zeros(len(graph.parents), np.int64)
    for node, before in enumerate(graph.parents):
        for parent in before:
            parents[node] |= 1 << parent
            children[parent] |= 1 << node
    return parents, children


def exact_stages(graph: Graph, counts: tuple[int, ...], most_sets: int) -> list[list[int]] | None:
    """Return, per number of stages, the schedule of least peak parameters, then least communication.

    None where the DAG has more than ``most_sets`` closed sets. Of equals, the first that is found is returned: the
    same on every run.
    """
    search = compiled()
    parents, children = masks(graph)
    memory = np.array(graph.memory, np.int64)
    sizes = np.array(graph.sizes, np.int64)
    sets, edges = search["closed_sets"](parents, most_sets)
    if len(sets) > most_sets:
        return None
    weights = search["set_weights"](sets, memory)
    found = []
    for count in counts:
        peak = search["least_peak"](edges, memory, len(sets), count)
        stages = search["least_communication"](sets, weights, children, sizes, count, peak)
        found.append([int(stage) for stage in stages])
    return found


@cache
def compiled() -> dict[str, Callable[..., Any]]:
    """Return this module's searches, compiled where numba is installed."""
    searches: dict[str, Callable[..., Any]] = {
        function.__name__: function for function in (closed_sets, set_weights, least_peak, least_communication)
    }
    try:
        from numba import njit
    except ImportError:
        return searches
    return {name: njit(cache=True)(function) for name, function in searches.items()}


def closed_sets(parents: Integers, most: int) -> tuple[Integers, Integers]:
    """Return the closed sets by size, and (set, node, set with the node) for every step between them.

    Stops after more than ``most`` sets.
    """
    nodes = len(parents)
    sets = np.zeros(most + nodes + 2, np.int64)
    edges = np.zeros(((most + nodes + 2) * nodes, 3), np.int64)
    place = {np.int64(0): np.int64(0)}
    known, steps, current = 1, 0, 0
    while current < known <= most:
        members = sets[current]
        for node in range(nodes):
            bit = np.int64(1) << np.int64(node)
            if members & bit == 0 and parents[node] & members == parents[node]:
                larger = members | bit
                if larger not in place:
                    place[larger] = np.int64(known)
                    sets[known] = larger
                    known += 1
                edges[steps, 0] = current
                edges[steps, 1] = node
                edges[steps, 2] = place[larger]
                steps += 1
        current += 1
    return sets[:known], edges[:steps]


def set_weights(sets: Integers, memory: Integers) -> Integers:
    """Return the parameters of each set."""
    weights = np.zeros(len(sets), np.int64)
    for index in range(len(sets)):
        for node in range(len(memory)):
            if (sets[index] >> np.int64(node)) & np.int64(1):
                weights[index] += memory[node]
    return weights


def least_peak(edges: Integers, memory: Integers, known: int, count: int) -> int:
    """Return the least peak of ``count`` stages: bisection, each question answered over all closed sets.

    A set is reached best with few stages, then with little in the last one; what is better there is better everywhere
    after. More stages than are needed cost nothing, as long as there are as many nodes.
    """
    total = memory.sum()
    low = max(memory.max(), -(-total // count))
    high = total
    wide = total + 1
    best = np.zeros(known, np.int64)
    while low < high:
        peak = (low + high) // 2 if high < total else min(low + low // 8, (low + high) // 2)
        best[:] = wide * (count + 2)
        best[0] = wide
        for step in range(len(edges)):
            at = best[edges[step, 0]]
            weight = memory[edges[step, 1]]
            after = at + weight if at % wide + weight <= peak else (at // wide + 1) * wide + weight
            best[edges[step, 2]] = min(best[edges[step, 2]], after)
        if best[known - 1] < wide * (count + 1):
            high = peak
        else:
            low = peak + 1
    return int(low)


def least_communication(
    sets: Integers, weights: Integers, children: Integers, sizes: Integers, count: int, peak: int
) -> Integers:
    """Return the stages of least communication among those of at most ``peak``, all of them used."""
    known = len(sets)
    nodes = len(sizes)
    total = weights[known - 1]
    unknown = np.int64(1) << np.int64(60)
    cost = np.full((count + 1, known), unknown)
    came = np.zeros((count + 1, known), np.int64)
    cost[0, 0] = 0
    for stage in range(1, count + 1):
        for end in range(known):
            if weights[end] > stage * peak or total - weights[end] > (count - stage) * peak:
                continue
            if (end == known - 1) != (stage == count):
                continue
            for begin in range(end):
                before = cost[stage - 1, begin]
                if before >= cost[stage, end] or weights[end] - weights[begin] > peak:
                    continue
                if sets[begin] & sets[end] != sets[begin]:
                    continue
                inside = sets[end] ^ sets[begin]
                for node in range(nodes):
                    if (sets[begin] >> np.int64(node)) & np.int64(1) and children[node] & inside:
                        before += sizes[node]
                if before < cost[stage, end]:
                    cost[stage, end] = before
                    came[stage, end] = begin
    stages = np.zeros(nodes, np.int64)
    end = known - 1
    for stage in range(count, 0, -1):
        begin = came[stage, end]
        inside = sets[end] ^ sets[begin]
        for node in range(nodes):
            if (inside >> np.int64(node)) & np.int64(1):
                stages[node] = stage - 1
        end = begin
    return stages
