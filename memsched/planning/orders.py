"""Orders for all graphs of a module, bodies of control flow before the graphs that execute them, each checked."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memsched.allocate.arena import allocate
from memsched.check.schedule import CheckedSchedule, check_allocation, check_schedule
from memsched.errors import ModelError
from memsched.formats.module import Body, Module
from memsched.fusion.iterate import FusedGraph
from memsched.graph.liveness import Profile, Storage, evaluate
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.joint.improve import JointProgress, improve
from memsched.joint.layout import live_bytes
from memsched.lowering.apply import apply_target, with_workspaces
from memsched.schedule.orders import file_order, reverse_post_order
from memsched.schedule.portfolio import PassRecord, Progress, ScheduleResult, schedule_graph
from memsched.search.limits import Limits
from memsched.targets.load import Target

__all__ = [
    "BASELINES",
    "SMALLER_ARENA",
    "Baseline",
    "GraphPlan",
    "Lowered",
    "baselines",
    "bodies_by_parent",
    "bottom_up",
    "known_orders",
    "lower_module",
    "plan_allocation",
    "plan_module",
    "plan_together",
    "with_bodies",
]

_ALLOCATION_ROUNDS = 3
"""What the exact search for addresses does not find in the first rounds it seldom finds later."""

SMALLER_ARENA = ", for its smaller arena"
"""Ends the method of a schedule that is one of the known orders, although its peak is not the least found."""

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


@dataclass(frozen=True, slots=True)
class Baseline:
    """The main graph in an order found without a search.

    Attributes:
        graph: With its bodies' peaks in orders of the same kind.
        footprints: Bytes per step of the order.
    """

    graph: Graph
    schedule: Schedule
    allocation: Allocation
    footprints: tuple[int, ...]


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


def bodies_by_parent(module: Module) -> Mapping[int, Sequence[Body]]:
    """Return the bodies of each graph that has any."""
    result: dict[int, list[Body]] = {}
    for body in module.bodies:
        result.setdefault(body.parent, []).append(body)
    return result


def with_bodies(lowered: Lowered, bodies: Sequence[Body], peaks: Mapping[int, int]) -> Lowered:
    """Return a graph with the peaks of its ``bodies`` as workspaces: an op needs the largest, as one runs at a time.

    Args:
        peaks: By graph, those that are known so far.
    """
    needed: dict[int, int] = {}
    for body in bodies:
        if body.graph in peaks:
            needed[body.op] = max(needed.get(body.op, 0), peaks[body.graph] - body.handed)
    return Lowered.of(with_workspaces(lowered.graph, needed)) if needed else lowered


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
    """Return a checked plan for every graph of ``module``; the limits hold for all of them together.

    Each graph may use its share, by ops, of the time that is left; the rest goes to those after it. A limit of work is
    shared by ops as well.
    """
    started = time.monotonic()
    left = total = sum(len(one.graph.ops) for one in lowered)
    peaks: dict[int, int] = {}
    plans: dict[int, GraphPlan] = {}
    bodies = bodies_by_parent(module)
    for index in bottom_up(module):
        one = with_bodies(lowered[index], bodies.get(index, ()), peaks)
        share = len(one.graph.ops) / left if left else 1.0
        left -= len(one.graph.ops)
        effort = None if limits.effort is None else limits.effort * len(one.graph.ops) / max(1, total)
        remaining = limits.remaining(started, time.monotonic())
        limit = None if limits.time_limit is None else remaining * share
        found = schedule_graph(
            one.graph,
            dataclasses.replace(limits, time_limit=limit, effort=effort),
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
    from memsched.runtimes.onnxruntime.orders import default_order

    return tuple(default_order(graph))


BASELINES = ("file_order", "reverse_post_order", "runtime_default_order")
"""Orders that one would have without a search; the last one is what the target's runtime takes by itself."""


def baselines(
    module: Module,
    lowered: tuple[Lowered, ...],
    target: Target,
    names: Sequence[str],
    *,
    stop: Callable[[], bool] | None = None,
) -> dict[str, Baseline]:
    """Return what the main graph costs in the orders ``names``, of `BASELINES`, all graphs ordered alike.

    The result is compared with these, and only the result goes through the checker.

    Args:
        stop: True ends the search for addresses with those found first.
    """
    default = _in_default_order if target.default_order == "onnxruntime" else _in_file_order
    known = {
        "file_order": _in_file_order,
        "reverse_post_order": _in_reverse_post_order,
        "runtime_default_order": default,
    }
    rules = {name: known[name] for name in names}
    peaks: dict[OrderRule, dict[int, int]] = {rule: {} for rule in rules.values()}
    found: dict[OrderRule, Baseline] = {}
    bodies = bodies_by_parent(module)
    for index in bottom_up(module):
        for rule, below in peaks.items():
            one = with_bodies(lowered[index], bodies.get(index, ()), below)
            schedule, profile = _profiled(one, rule)
            below[index] = schedule.peak
            if index == 0:
                allocation = allocate(
                    one.graph, schedule, alignment=target.alignment_bytes, storage=one.storage, stop=stop
                )
                found[rule] = Baseline(one.graph, schedule, allocation, profile.footprints)
    return {name: found[rule] for name, rule in rules.items()}


def _in_order(lowered: Lowered, rule: OrderRule) -> Schedule:
    """Return the schedule of a graph in the rule's order, with nothing proven."""
    return _profiled(lowered, rule)[0]


def _profiled(lowered: Lowered, rule: OrderRule) -> tuple[Schedule, Profile]:
    """Return the schedule of a graph in the rule's order, with nothing proven, and what each of its steps costs."""
    order = rule(lowered.graph, lowered.storage)
    profile = evaluate(lowered.storage, order)
    in_place = profile.in_place(lowered.storage, order)
    return Schedule(order, in_place, profile.peak, 0, "feasible", "", "given order"), profile


def plan_allocation(
    plan: GraphPlan,
    known: Baseline,
    alignment: int,
    limits: Limits | None = None,
    *,
    started: float | None = None,
    stop: Callable[[], bool] | None = None,
) -> Allocation:
    """Return checked addresses for ``plan``: those of ``known`` where they are optimal for the same order.

    Args:
        limits: Of the whole run, begun at ``started``: a search for addresses may take what is left, and does
            `_ALLOCATION_ROUNDS` of work at most. None for the planning and the short search that baselines get.
        stop: Asked often; True ends the search with the smallest arena so far.
    """
    same = plan.graph is known.graph and plan.schedule.order == known.schedule.order
    same = same and plan.schedule.in_place == known.schedule.in_place
    if same and (limits is None or known.allocation.status == "optimal"):
        allocation = known.allocation
    else:
        now = time.monotonic()
        if limits is not None:
            left = limits.remaining(now if started is None else started, now)
            time_limit = None if limits.time_limit is None else left
            limits = dataclasses.replace(limits, time_limit=time_limit, rounds=_ALLOCATION_ROUNDS)
            if left <= 0:
                limits = None
        allocation = allocate(plan.graph, plan.schedule, alignment=alignment, limits=limits, started=now, stop=stop)
    check_allocation(plan.graph, plan.schedule, allocation)
    return allocation


def plan_together(
    plan: GraphPlan,
    known: Mapping[str, Baseline],
    alignment: int,
    limits: Limits,
    *,
    started: float,
    reorder: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[GraphPlan, Allocation]:
    """Return ``plan`` with checked addresses, in another order where the arena is smaller for it.

    What is paid for is the arena. So where the least peak cannot be packed into as many bytes, other orders of no
    larger peak are tried, and one of ``known`` wins if its arena is smaller, although its peak is larger.

    Args:
        known: What the orders cost that need no search, "file_order" among them.
        limits: Of the whole run, begun at ``started``.
        reorder: False: the order stays.
    """
    allocation = plan_allocation(plan, known["file_order"], alignment, limits, started=started, stop=stop)
    starts = [(plan.schedule, allocation)]
    if reorder:
        starts += [one for one in known_orders(plan, known, alignment) if one[1].arena < allocation.arena]
    if len(starts) == 1 and allocation.arena <= live_bytes(allocation):
        return plan, allocation
    storage = Storage.of(plan.graph)
    found: list[tuple[Schedule, Allocation]] = []
    # The least peak comes first: whatever is packed into that many bytes ends the search.
    for schedule, addresses in starts:
        if found and found[0][1].arena <= live_bytes(addresses):
            break

        def tell(progress: JointProgress, schedule: Schedule = schedule) -> None:
            if on_progress:
                on_progress(Progress(progress.stage, schedule.peak, schedule.lower_bound, progress.seconds))

        improved = improve(
            *(plan.graph, storage, schedule, addresses),
            limits=limits,
            started=started,
            alignment=alignment,
            reorder=reorder,
            stop=stop or (lambda: False),
            on_progress=tell,
        )
        found.append(improved)
    schedule, allocation = min(found, key=lambda one: (one[1].arena, one[0].peak))
    if schedule is not plan.schedule:
        plan = dataclasses.replace(plan, schedule=schedule, checked=check_schedule(plan.graph, schedule))
    check_allocation(plan.graph, plan.schedule, allocation)
    return plan, allocation


def known_orders(plan: GraphPlan, known: Mapping[str, Baseline], alignment: int) -> list[tuple[Schedule, Allocation]]:
    """Return ``known`` as orders of the graph of ``plan``, with addresses, those with the smallest arena first."""
    result = []
    for name, one in known.items():
        schedule, allocation = one.schedule, one.allocation
        if one.graph is not plan.graph:
            # There the bodies are in other orders, too.
            schedule = _in_order(Lowered.of(plan.graph), lambda *_, order=schedule.order: order)
            allocation = allocate(plan.graph, schedule, alignment=alignment)
        schedule = dataclasses.replace(
            plan.schedule,
            order=schedule.order,
            in_place=schedule.in_place,
            peak=schedule.peak,
            status="optimal" if schedule.peak == plan.schedule.lower_bound else "feasible",
            method=f"{name.replace('_', ' ')}{SMALLER_ARENA}",
        )
        result.append((schedule, allocation))
    return sorted(result, key=lambda one: (one[1].arena, one[0].peak))
