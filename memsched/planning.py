"""Orders for all graphs of a module, bodies of control flow before the graphs that execute them, each checked."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from memsched.allocate.greedy import allocate
from memsched.errors import ModelError
from memsched.formats.module import Module
from memsched.fusion.iterate import FusedGraph
from memsched.graph.checker import CheckedSchedule, check_allocation, check_schedule
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.lowering.apply import apply_target, with_workspaces
from memsched.schedule.limits import Limits
from memsched.schedule.orders import file_order, reverse_post_order
from memsched.schedule.portfolio import PassRecord, Progress, ScheduleResult, schedule_graph
from memsched.targets.load import Target

__all__ = [
    "Baseline",
    "GraphPlan",
    "Lowered",
    "baselines",
    "bottom_up",
    "lower_module",
    "plan_allocation",
    "plan_module",
]

_Order = tuple[int, ...]
OrderRule = Callable[[Graph, Storage], _Order]
"""What gives a graph's order: its own, or one of the baselines."""


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """One graph with the order found for it.

    Attributes:
        graph: With the target's rules, and its bodies' peaks in their new orders as workspaces.
        schedule: The best order; the file's own when none is better.
        checked: The checker's figures for it.
        file_peak: Peak of the file's order on ``graph``, bytes.
    """

    graph: Graph
    schedule: Schedule
    checked: CheckedSchedule
    file_peak: int
    fused: FusedGraph | None
    passes: tuple[PassRecord, ...]

    @property
    def reordered(self) -> bool:
        """Whether the order differs from the file's."""
        return self.schedule.order != tuple(range(len(self.graph.ops)))


@dataclass(frozen=True, slots=True)
class Baseline:
    """The main graph in an order found without a search.

    Attributes:
        graph: With its bodies' peaks in orders of the same kind.
    """

    graph: Graph
    schedule: Schedule
    allocation: Allocation


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
        raise ModelError(f"'{module.path}': graph '{name}' executes itself, so its memory has no bound")
    return ready


@dataclass(frozen=True, slots=True)
class Lowered:
    """A graph with a target's rules applied, and its buffers."""

    graph: Graph
    storage: Storage

    @staticmethod
    def of(graph: Graph) -> Lowered:
        """Lower ``graph``, to which the target's rules were applied, to buffers."""
        return Lowered(graph, Storage.of(graph))


def lower_module(module: Module, target: Target) -> tuple[Lowered, ...]:
    """Return the module's graphs with the target's rules applied."""
    return tuple(Lowered.of(apply_target(graph, target)) for graph in module.graphs)


def _workspaces(module: Module, peaks: Mapping[int, int]) -> dict[int, dict[int, int]]:
    """Return per graph the bytes that each op's bodies need: the largest of their peaks, as one runs at a time."""
    result: dict[int, dict[int, int]] = {}
    for body in module.bodies:
        if body.graph in peaks:
            of_graph = result.setdefault(body.parent, {})
            of_graph[body.op] = max(of_graph.get(body.op, 0), peaks[body.graph])
    return result


def _with_bodies(module: Module, lowered: tuple[Lowered, ...], index: int, peaks: Mapping[int, int]) -> Lowered:
    needed = _workspaces(module, peaks).get(index)
    return Lowered.of(with_workspaces(lowered[index].graph, needed)) if needed else lowered[index]


def plan_module(
    module: Module,
    lowered: tuple[Lowered, ...],
    limits: Limits,
    *,
    solver: str = "auto",
    partitions: int | Literal["auto"] = "auto",
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[GraphPlan, ...]:
    """Return a checked plan for every graph of ``module``; the time limit holds for all of them together.

    Each graph may use its share, by ops, of the time that is left; the rest goes to those after it.
    """
    started = time.monotonic()
    left = sum(len(one.graph.ops) for one in lowered)
    peaks: dict[int, int] = {}
    plans: dict[int, GraphPlan] = {}
    for index in bottom_up(module):
        one = _with_bodies(module, lowered, index, peaks)
        share = len(one.graph.ops) / left if left else 1.0
        left -= len(one.graph.ops)
        remaining = limits.remaining(started, time.monotonic())
        limit = None if limits.time_limit is None else remaining * share
        found = schedule_graph(
            one.graph,
            dataclasses.replace(limits, time_limit=limit),
            solver=solver,
            partitions=partitions,
            on_progress=on_progress,
            stop=stop,
            storage=one.storage,
        )
        plans[index] = _plan(one, found)
        peaks[index] = plans[index].checked.peak
    return tuple(plans[index] for index in range(len(lowered)))


def _plan(lowered: Lowered, found: ScheduleResult) -> GraphPlan:
    graph = lowered.graph
    file_peak = found.baselines["file"][1]
    schedule = found.schedule
    if schedule.peak >= file_peak and schedule.order != tuple(range(len(graph.ops))):
        # Nothing better was found: the file's order stays, with what was proven about it.
        kept = _in_order(lowered, _in_file_order)
        schedule = dataclasses.replace(
            schedule, order=kept.order, in_place=kept.in_place, peak=kept.peak, method="file order"
        )
    checked = check_schedule(graph, schedule)
    return GraphPlan(graph, schedule, checked, file_peak, found.fused, found.passes)


def _in_file_order(_: Graph, storage: Storage) -> _Order:
    return file_order(storage)


def _in_reverse_post_order(_: Graph, storage: Storage) -> _Order:
    return reverse_post_order(storage)


def _in_default_order(graph: Graph, _: Storage) -> _Order:
    from memsched.formats.onnx_order import default_order

    return tuple(default_order(graph))


def baselines(module: Module, lowered: tuple[Lowered, ...], target: Target) -> dict[str, Baseline]:
    """Return what the main graph costs in the orders that one would have without a search, all graphs ordered alike.

    "runtime_default_order" is the one that the target's runtime takes by itself. The result is compared with these,
    and only the result goes through the checker.
    """
    default = _in_default_order if target.default_order == "onnxruntime" else _in_file_order
    rules = {
        "file_order": _in_file_order,
        "reverse_post_order": _in_reverse_post_order,
        "runtime_default_order": default,
    }
    peaks: dict[OrderRule, dict[int, int]] = {rule: {} for rule in rules.values()}
    found: dict[OrderRule, Baseline] = {}
    for index in bottom_up(module):
        for rule, below in peaks.items():
            one = _with_bodies(module, lowered, index, below)
            schedule = _in_order(one, rule)
            below[index] = schedule.peak
            if index == 0:
                allocation = allocate(one.graph, schedule, alignment=target.alignment_bytes, storage=one.storage)
                found[rule] = Baseline(one.graph, schedule, allocation)
    return {name: found[rule] for name, rule in rules.items()}


def _in_order(lowered: Lowered, rule: OrderRule) -> Schedule:
    """Return the schedule of a graph in the rule's order, with nothing proven."""
    order = rule(lowered.graph, lowered.storage)
    profile = evaluate(lowered.storage, order)
    in_place = profile.in_place(lowered.storage, order)
    return Schedule(order, in_place, profile.peak, 0, "feasible", "", "given order")


def plan_allocation(plan: GraphPlan, known: Baseline, alignment: int) -> Allocation:
    """Return checked addresses for ``plan``: those of ``known`` where it is the same order of the same graph."""
    same = plan.graph is known.graph and plan.schedule.order == known.schedule.order
    if same and plan.schedule.in_place == known.schedule.in_place:
        allocation = known.allocation
    else:
        allocation = allocate(plan.graph, plan.schedule, alignment=alignment)
    check_allocation(plan.graph, plan.schedule, allocation)
    return allocation
