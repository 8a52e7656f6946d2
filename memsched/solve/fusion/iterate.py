"""Fusion to a fixed point: fewer tasks, the same optimum of the peak.

Source: "Iterative Graph Optimization", IV-B, Algorithm 1 and Figure 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks, contract
from memsched.graph.dag import MOST_FOR_BITSETS
from memsched.graph.liveness import Storage
from memsched.solve.fusion.compiled_monotonic import fused_monotonic
from memsched.solve.fusion.isolated import SOURCES, Growth, fuse_group
from memsched.solve.fusion.monotonic import fuse_monotonic
from memsched.solve.fusion.quotient import Quotient

__all__ = ["FusedGraph", "fuse"]

# Downsets looked at for one inner order; groups that need more are large, and best left to the schedulers.
_MAX_STATES = 2_000


class FusedGraph(FrozenValue, frozen=True):
    """What fusion made of a graph.

    Attributes:
        tasks: The contracted graph; an optimal order of it expands to an optimal order of the ops.
        monotonic: Monotonic fusions applied.
        isolated: Isolated sub-graph fusions applied.
        iterations: Rounds over the graph until nothing more could be fused.
        ops_before: Ops of the graph.
        ops_after: Tasks left.
    """

    tasks: Tasks
    monotonic: int
    isolated: int
    iterations: int
    ops_before: int
    ops_after: int


def fuse(
    storage: Storage,
    *,
    max_members: int = 64,
    work_limit: int = 12_000_000,
    reachability_limit: int = MOST_FOR_BITSETS,
    stop: Callable[[], bool] | None = None,
) -> FusedGraph:
    """Fuse the ops of ``storage`` to tasks, round after round, until nothing more can be fused.

    Every fusion keeps the least peak over all orders exactly; the conditions and their proofs are in `monotonic` and
    `isolated`. Fused tasks fuse again. Stopping early, at any limit, is always safe.

    Args:
        max_members: Most tasks in one isolated sub-graph (the bound M of Algorithm 1).
        work_limit: Effort in elementary steps (two to three million a second), so that the result does not depend on
            the machine's speed.
        reachability_limit: On graphs of more ops than this, reachability is judged by direct edges alone.
        stop: Polled often; True ends with the fusions so far.
    """
    graph, first = fused_monotonic(storage, reachability_limit, work_limit, stop)
    monotonic, isolated, iterations = _fuse_on(graph, max_members)
    groups = [tuple(graph.members[task]) for task in graph.tasks()]
    return FusedGraph(
        contract(storage, groups), first + monotonic, isolated, iterations, len(storage.reads), len(groups)
    )


def _fuse_on(graph: Quotient, max_members: int) -> tuple[int, int, int]:
    """Fuse what no pair could be fused in; return the numbers of monotonic and isolated fusions and of rounds."""
    monotonic = isolated = iterations = 0
    rests_on: dict[int, list[int]] = {}
    entries: Iterable[int] = [SOURCES, *graph.tasks()]
    while entries and not graph.exhausted:
        iterations += 1
        changed: set[int] = set()
        for entry in entries:
            if entry != SOURCES and not graph.members[entry]:
                continue
            fused, touched = _fuse_from(graph, entry, max_members)
            for task in touched:
                rests_on.setdefault(task, []).append(entry)
            if fused is None:
                continue
            isolated += 1
            changed |= touched
            anchors = fuse_monotonic(graph, [fused])
            monotonic += len(anchors)
            for anchor in (fused, *anchors):
                changed |= {anchor, *graph.preds[anchor], *graph.succs[anchor]}
        entries = sorted({entry for task in changed for entry in rests_on.pop(task, ())} | changed)
    return monotonic, isolated, iterations


def _fuse_from(graph: Quotient, entry: int, max_members: int) -> tuple[int | None, set[int]]:
    """Fuse the first group grown from ``entry`` that may be; return its representative and all tasks looked at."""
    touched: set[int] = set()
    for with_entry in (True, False):
        if with_entry and entry == SOURCES:
            continue
        growth = Growth(graph, entry, with_entry, max_members)
        for group in growth.candidates():
            fused = fuse_group(graph, group, _MAX_STATES)
            if fused is not None:
                return fused, touched | growth.touched
        touched |= growth.touched
    return None, touched
