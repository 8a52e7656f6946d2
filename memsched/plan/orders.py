"""Orders for all graphs of a module, bodies of control flow before the graphs that execute them, each checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.check.schedule import check_allocation, check_schedule
from memsched.formats.module import Module
from memsched.graph.liveness import Profile, Storage, evaluate
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph, bodies_by_parent, bottom_up, with_bodies
from memsched.runtimes.known import default_orders_of
from memsched.search.limits import QUICK, SHORT_ROUNDS
from memsched.search.progress import Progress
from memsched.search.run import Run
from memsched.solve.allocate.arena import Packed, allocate, packed
from memsched.solve.joint.improve import improve
from memsched.solve.joint.layout import live_bytes
from memsched.solve.schedule.orders import file_order, reverse_post_order
from memsched.solve.schedule.portfolio import ScheduleResult, schedule_graph
from memsched.targets.load import Target

__all__ = [
    "BASELINES",
    "ORDER_SHARE",
    "SMALLER_ARENA",
    "Baseline",
    "baselines",
    "known_orders",
    "plan_allocation",
    "plan_module",
    "plan_together",
]

ORDER_SHARE = 0.1
"""Share of the time, or of the work, of a search that begins with an order, which is usually proven within a second."""

SMALLER_ARENA = ", for its smaller arena"
"""Ends the method of a schedule that is one of the known orders, although its peak is not the least found."""

_Order = tuple[int, ...]
OrderRule = Callable[[Graph, Storage], _Order]
"""What gives a graph's order: its own, or one of the baselines."""


class Baseline(FrozenValue, frozen=True):
    """The main graph in an order found without a search.

    Attributes:
        graph: With its bodies' peaks in orders of the same kind.
        packed: At addresses found without a search.
        footprints: Bytes per step of the file's order; empty for others, of which nobody asks.
    """

    graph: Graph
    schedule: Schedule
    packed: Packed
    footprints: tuple[int, ...]

    @property
    def arena(self) -> int:
        """Return the bytes of the arena."""
        return self.packed.arena

    @property
    def allocation(self) -> Allocation:
        """Return the addresses, which are made once they are asked for."""
        return self.packed.allocation


def plan_module(
    module: Module,
    lowered: tuple[LoweredGraph, ...],
    run: Run,
    *,
    solver: str = "auto",
    partitions: int | Literal["auto"] = "auto",
    known: Baseline | None = None,
) -> tuple[GraphPlan, ...]:
    """Return a checked plan for every graph of ``module``; ``run`` is for all of them together.

    Each graph may use its share, by ops, of the time that is left; the rest goes to those after it. A limit of work is
    shared by ops as well.

    Args:
        known: The main graph in the file's order, where the caller has it already.
    """
    limits = run.limits
    left = total = sum(len(one.graph.ops) for one in lowered)
    peaks: dict[int, int] = {}
    plans: dict[int, GraphPlan] = {}
    bodies = bodies_by_parent(module)
    for index in bottom_up(module):
        one = with_bodies(lowered[index], bodies.get(index, ()), peaks)
        share = len(one.graph.ops) / left if left else 1.0
        left -= len(one.graph.ops)
        part = run.within(len(one.graph.ops) / max(1, total)) if limits.time_limit is None else run
        limit = None if limits.time_limit is None else run.remaining() * share
        found = schedule_graph(
            one.graph,
            part.anew(limit),
            solver=solver,
            partitions=partitions,
            storage=one.storage,
            given=known.schedule if known is not None and known.graph is one.graph else None,
        )
        plans[index] = _plan(one, found)
        peaks[index] = plans[index].checked.peak
    return tuple(plans[index] for index in range(len(lowered)))


def _plan(lowered: LoweredGraph, found: ScheduleResult) -> GraphPlan:
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


def _default_rule(target: Target) -> OrderRule:
    keeper = default_orders_of(target)
    if keeper is None:
        return _in_file_order
    order = keeper.default_order
    return lambda _, storage: order(storage)


BASELINES = ("file_order", "reverse_post_order", "runtime_default_order")
"""Orders that one would have without a search; the last one is what the target's runtime takes by itself."""


def baselines(
    module: Module,
    lowered: tuple[LoweredGraph, ...],
    target: Target,
    names: Sequence[str],
    *,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Baseline]:
    """Return what the main graph costs in the orders ``names``, of `BASELINES`, all graphs ordered alike.

    The result is compared with these, and only the result goes through the checker.

    Args:
        stop: True ends the search for addresses with those found first.
    """
    default = _default_rule(target)
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
                quick = Run(QUICK, stop=stop)
                addresses = packed(
                    one.graph, schedule, alignment=target.alignment_bytes, storage=one.storage, run=quick
                )
                asked = profile.footprints if rule is _in_file_order else ()
                found[rule] = Baseline(one.graph, schedule, addresses, asked)
    return {name: found[rule] for name, rule in rules.items()}


def _in_order(lowered: LoweredGraph, rule: OrderRule) -> Schedule:
    """Return the schedule of a graph in the rule's order, with nothing proven."""
    return _profiled(lowered, rule)[0]


def _profiled(lowered: LoweredGraph, rule: OrderRule) -> tuple[Schedule, Profile]:
    """Return the schedule of a graph in the rule's order, with nothing proven, and what each of its steps costs."""
    order = rule(lowered.graph, lowered.storage)
    profile = evaluate(lowered.storage, order)
    in_place = profile.in_place(lowered.storage, order)
    return Schedule(order, in_place, profile.peak, 0, "feasible", "", "given order"), profile


def plan_allocation(
    plan: GraphPlan,
    known: Baseline,
    alignment: int,
    run: Run | None = None,
) -> Allocation:
    """Return checked addresses for ``plan``: those of ``known`` where they are optimal for the same order.

    Args:
        run: The whole run: a search for addresses may take what is left, and does `SHORT_ROUNDS` of work at
            most. None for the planning and the short search that baselines get.
    """
    same = plan.graph is known.graph and plan.schedule.order == known.schedule.order
    same = same and plan.schedule.in_place == known.schedule.in_place
    if same and (run is None or known.allocation.status == "optimal"):
        allocation = known.allocation
    else:
        if run is not None:
            rounds = dataclasses.replace(run.limits, rounds=SHORT_ROUNDS)
            run = dataclasses.replace(run, limits=QUICK if run.late() or run.effort() == 0 else rounds).quiet()
        allocation = allocate(plan.graph, plan.schedule, alignment=alignment, run=run)
    check_allocation(plan.graph, plan.schedule, allocation, plan.checked)
    return allocation


def plan_together(
    plan: GraphPlan,
    known: Mapping[str, Baseline],
    alignment: int,
    run: Run,
    *,
    reorder: bool = True,
) -> tuple[GraphPlan, Allocation]:
    """Return ``plan`` with checked addresses, in another order where the arena is smaller for it.

    What is paid for is the arena. So where the least peak cannot be packed into as many bytes, other orders of no
    larger peak are tried, and one of ``known`` wins if its arena is smaller, although its peak is larger.

    Args:
        known: What the orders cost that need no search, "file_order" among them.
        reorder: False: the order stays.
    """
    allocation = plan_allocation(plan, known["file_order"], alignment, run)
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

        def tell(progress: Progress, schedule: Schedule = schedule) -> None:
            run.on_progress(dataclasses.replace(progress, best_peak=schedule.peak, lower_bound=schedule.lower_bound))

        improved = improve(
            plan.graph,
            storage,
            schedule,
            addresses,
            dataclasses.replace(run, on_progress=tell),
            alignment=alignment,
            reorder=reorder,
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
            schedule = _in_order(LoweredGraph.of(plan.graph), lambda *_, order=schedule.order: order)
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
