"""A graph as a runtime is given it: with a target's rules, and with the order found for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.check.schedule import CheckedSchedule
from memsched.formats.module import Body, Module
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Schedule
from memsched.lowering.apply import apply_target, with_workspaces
from memsched.search.progress import PassRecord
from memsched.solve.fusion.iterate import FusedGraph
from memsched.targets.load import Target

__all__ = ["GraphPlan", "LoweredGraph", "bodies_by_parent", "bottom_up", "lower_module", "with_bodies"]


class GraphPlan(FrozenValue, frozen=True):
    """One graph with the order found for it.

    Attributes:
        graph: With the target's rules, and its bodies' peaks in their new orders as workspaces.
        schedule: The best order; the file's own when none is better.
        checked: The checker's figures for it.
        file_peak: Peak of the file's order on ``graph``, bytes.
        stored: The order in which the file must store the ops for that order to run; None where it is the same.
    """

    graph: Graph
    schedule: Schedule
    checked: CheckedSchedule
    file_peak: int
    fused: FusedGraph | None
    passes: tuple[PassRecord, ...]
    stored: tuple[int, ...] | None = None

    @property
    def stored_order(self) -> tuple[int, ...]:
        """The order in which the file stores the ops."""
        return self.schedule.order if self.stored is None else self.stored

    @property
    def reordered(self) -> bool:
        """Whether the stored order differs from the given file's."""
        return self.stored_order != tuple(range(len(self.graph.ops)))


def bottom_up(module: Module) -> list[int]:
    """Return the graphs' indices so that each comes after those that its ops execute.

    Raises:
        ModelError: A graph executes itself, directly or through others.
    """
    waiting = [0] * len(module.graphs)
    parents: list[list[int]] = [[] for _ in module.graphs]
    for body in module.bodies:
        waiting[body.parent] += 1
        parents[body.graph].append(body.parent)
    ready = [index for index, count in enumerate(waiting) if not count]
    for graph in ready:
        for parent in parents[graph]:
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
    if len(ready) != len(module.graphs):
        name = next(module.graphs[index].name for index, count in enumerate(waiting) if count)
        problem = f"graph '{name}' executes itself, so its memory has no bound"
        raise ModelError(problem, code="calls-itself", location=f"'{module.path}'")
    return ready


class LoweredGraph(FrozenValue, frozen=True):
    """A graph with a target's rules applied, and its buffers."""

    graph: Graph
    storage: Storage

    @staticmethod
    def of(graph: Graph) -> LoweredGraph:
        """Lower ``graph``, to which the target's rules were applied, to buffers."""
        return LoweredGraph(graph, Storage.of(graph))


def lower_module(module: Module, target: Target) -> tuple[LoweredGraph, ...]:
    """Return the module's graphs with the target's rules applied."""
    return tuple(LoweredGraph.of(apply_target(graph, target)) for graph in module.graphs)


def bodies_by_parent(module: Module) -> Mapping[int, Sequence[Body]]:
    """Return the bodies of each graph that has any."""
    result: dict[int, list[Body]] = {}
    for body in module.bodies:
        result.setdefault(body.parent, []).append(body)
    return result


def with_bodies(lowered: LoweredGraph, bodies: Sequence[Body], peaks: Mapping[int, int]) -> LoweredGraph:
    """Return a graph with the peaks of its ``bodies`` as workspaces: an op needs the largest, as one runs at a time.

    Args:
        peaks: By graph, those that are known so far.
    """
    needed: dict[int, int] = {}
    for body in bodies:
        if body.graph in peaks:
            needed[body.op] = max(needed.get(body.op, 0), peaks[body.graph] - body.handed)
    return LoweredGraph.of(with_workspaces(lowered.graph, needed)) if needed else lowered
