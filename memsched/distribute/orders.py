"""The order in which a network is shared out: that of its file, or the one that needs least memory.

An order decides which tensors live at the same time, so how much every device holds of them. Source: "MemoriaNova",
whose scheduler's order (BTSearch) is what its shares (GenEFlow) are looked for in. Here shares are looked for in the
file's order as well, and the better plan is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from memsched.distribute.bounds import latency_bound
from memsched.distribute.search import Method, search
from memsched.distribute.space import NoPlanFitsError, Space
from memsched.graph.distribution import Distribution
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Schedule
from memsched.schedule.portfolio import schedule_graph
from memsched.search.run import Run
from memsched.targets.cluster import Cluster

__all__ = ["OrderAttempt", "OrderedPlan", "plan_in_best_order"]

_ORDER_SHARE = 0.1
"""Share of the time, or of the work, for the order, which is usually proven within a second."""

_STEPS_PER_SECOND = 100
"""Steps of the searches for a plan that an idle machine does per second; each asks first whether to go on."""

_FIRST_SHARE = 0.55
"""Share of the work for the plan in the file's order, where there is another order to plan in."""

_SECOND_SHARE = 0.25
"""Least share of the time for the order found, where no plan in the file's order fits."""


@dataclass(frozen=True, slots=True)
class OrderAttempt:
    """What became of one order of execution.

    Attributes:
        peak: Most bytes of activations that are live at one time where one device computes everything.
        plan: The best found; None where none fits.
    """

    peak: int
    plan: Distribution | None


@dataclass(frozen=True, slots=True)
class OrderedPlan:
    """A plan, and the order that it is for.

    Attributes:
        order: "given" for the file's, "found" for the one that needs least.
        found: None where no order was found that needs less than the file's.
        proven: Whether no order needs less than the best of both.
    """

    plan: Distribution
    order: Literal["given", "found"]
    given: OrderAttempt
    found: OrderAttempt | None
    proven: bool


def plan_in_best_order(
    graph: Graph,
    cluster: Cluster,
    run: Run,
    *,
    method: Method = "auto",
    weights: Mapping[int, Mapping[int, int]] | None = None,
    home: int = 0,
) -> OrderedPlan:
    """Return the better of the plans that `search` finds in the file's order and in the one that needs least memory.

    A plan that fits is better than none, then the faster, then the one with fewer steps, then the smaller; the file's
    order wins ties. It is searched first, with all the time that it takes: the result is never worse than its plan.

    Args:
        graph: The graph as read; no tensor shares bytes with another on a device.
        method: As for `search`, like the arguments after it.

    Raises:
        DistributionError: The network cannot be distributed.
        NoPlanFitsError: No plan found fits, in neither order; the one of the order that needs less.
        UsageError: There is no device ``home``, or no such method.
    """
    given_peak, schedule = _least(graph, run)
    better = schedule.peak < given_peak
    proven = schedule.status == "optimal"

    def attempt(found: Schedule | None, run: Run) -> Distribution | NoPlanFitsError:
        try:
            return search(
                *(graph, cluster, run),
                method=method,
                order=None if found is None else found.order,
                weights=weights,
                home=home,
                least_order=proven and (found is not None or not better),
            )
        except NoPlanFitsError as error:
            return error

    def paying(run: Run) -> Run:
        return run if run.limits.effort is None else run.paying(1 / _STEPS_PER_SECOND)

    first = attempt(None, paying(run.until(_FIRST_SHARE) if better and run.limits.time_limit is None else run))
    second = None
    if better:
        left, limit = run.remaining(), run.limits.time_limit
        if isinstance(first, NoPlanFitsError) and limit is not None:
            left = max(left, _SECOND_SHARE * limit)
        second = attempt(schedule, paying(run.anew(None if limit is None else left)))
    plans = [one for one in (first, second) if isinstance(one, Distribution)]
    if not plans:
        raise min([one for one in (first, second) if isinstance(one, NoPlanFitsError)], key=lambda one: one.least)
    best = min(plans, key=_rank)
    bounds = [one.lower_bound for one in plans]
    if better and len(plans) < 2:
        # What was proven about one order says nothing about the other.
        bounds.append(latency_bound(Space.of(graph, None, weights), cluster))
    return OrderedPlan(
        plan=replace(best, lower_bound=min(*bounds, best.latency)),
        order="given" if best is first else "found",
        given=OrderAttempt(given_peak, first if isinstance(first, Distribution) else None),
        found=OrderAttempt(schedule.peak, second if isinstance(second, Distribution) else None) if better else None,
        proven=proven,
    )


def _rank(plan: Distribution) -> tuple[float, int, int]:
    """Return what plans are compared by; plans whose latencies differ only by rounding are equally fast."""
    return float(f"{plan.latency:.9e}"), len(plan.steps), max(plan.memory)


def _least(graph: Graph, run: Run) -> tuple[int, Schedule]:
    """Return the peak of the graph's own order, and the order that needs least, every tensor with bytes of its own."""
    ops = tuple(replace(op, views=(), view_offsets=(), in_place=(), workspace=0) for op in graph.ops)
    plain = replace(graph, ops=ops)
    storage = Storage.of(plain)
    limit = run.limits.time_limit
    share = run.within(_ORDER_SHARE).anew(None if limit is None else _ORDER_SHARE * limit)
    schedule = schedule_graph(plain, share.quiet(), storage=storage).schedule
    return evaluate(storage, range(len(ops))).peak, schedule
