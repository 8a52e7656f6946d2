"""The order in which a network is shared out: that of its file, or the one that needs least memory.

An order decides which tensors live at the same time, so how much every device holds of them. Source: "MemoriaNova",
whose scheduler's order (BTSearch) is what its shares (GenEFlow) are looked for in, by either of its metrics. Here
shares are looked for in the file's order as well, the better plan is kept, and its order and shares are then improved
together (`together`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.features.distribute.bounds import latency_bound
from memsched.features.distribute.search import Method, improved, search
from memsched.features.distribute.space import NoPlanFitsError, Space
from memsched.features.distribute.together import orders_for, plain, rank
from memsched.graph.contraction import single_op_tasks
from memsched.graph.distribution import Axis, Distribution, Share
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.plan.orders import ORDER_SHARE
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.solve.schedule import backtrack
from memsched.solve.schedule.backtrack import Metric
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.cluster import Cluster

__all__ = ["LeastOrder", "OrderAttempt", "OrderedPlan", "least_order", "plan_in_best_order"]

_FIRST_SHARE = 0.55
"""Share of the work for the plan in the file's order, where there is another order to plan in."""

_SECOND_SHARE = 0.25
"""Least share of the time for the order found, where no plan in the file's order fits."""

_ROUNDS = 4
"""Most times that order and shares are improved one after the other."""

_MARKED = 200_000
"""Most states that BTSearch marks where the sum is the metric: a few seconds' work."""


class OrderAttempt(FrozenValue, frozen=True):
    """What became of one order of execution.

    Attributes:
        peak: Most bytes of activations that are live at one time where one device computes everything.
        cost: Those bytes, or with the metric "sum" what is live while an op is executed, summed over the ops.
        plan: The best found; None where none fits.
    """

    peak: int
    cost: int
    plan: Distribution | None


class OrderedPlan(FrozenValue, frozen=True):
    """A plan, and the order that it is for.

    Attributes:
        order: "given" for the file's, "found" for the one that needs least, "together" for one that was improved
            together with the shares.
        found: None where no order was found that needs less than the file's.
        proven: Whether no order needs less than the best of both, by the metric.
        metric: What orders were compared by before there were shares.
    """

    plan: Distribution
    order: Literal["given", "found", "together"]
    given: OrderAttempt
    found: OrderAttempt | None
    proven: bool
    metric: Metric


class LeastOrder(FrozenValue, frozen=True):
    """The order that needs least by a metric; (peak, cost) of the file's order and of this one."""

    order: tuple[int, ...]
    given: tuple[int, int]
    found: tuple[int, int]
    proven: bool

    @property
    def better(self) -> bool:
        """Whether it costs less than the file's."""
        return self.found[1] < self.given[1]


class _SharesTask(FrozenValue, frozen=True):
    """What shares are looked for in every order."""

    graph: Graph
    cluster: Cluster
    method: Method
    weights: Mapping[int, Mapping[int, int]] | None
    refused: Collection[tuple[int, Axis]]
    home: int

    def space(self, order: Sequence[int] | None) -> Space:
        return Space.of(self.graph, order, self.weights, self.refused)

    def attempt(
        self, order: Sequence[int] | None, run: Run, *, least: bool = False, start: Sequence[Share] = ()
    ) -> Distribution | NoPlanFitsError:
        try:
            return search(
                self.graph,
                self.cluster,
                run,
                method=self.method,
                order=order,
                weights=self.weights,
                refused=self.refused,
                home=self.home,
                least_order=least,
                start=start,
            )
        except NoPlanFitsError as error:
            return error


def plan_in_best_order(
    graph: Graph,
    cluster: Cluster,
    run: Run,
    *,
    method: Method = "auto",
    metric: Metric = "peak",
    weights: Mapping[int, Mapping[int, int]] | None = None,
    refused: Collection[tuple[int, Axis]] = (),
    home: int = 0,
) -> OrderedPlan:
    """Return the best of the plans that `search` finds in the file's order and in the one that needs least memory.

    A plan that fits is better than none, then the faster, then the one with fewer steps, then the smaller; the file's
    order wins ties. It is searched first, with all the time that it takes: the result is never worse than its plan.
    With "auto" and "genetic", order and shares of the best are then improved one after the other; where neither order
    has a plan that fits, those of the smallest.

    Args:
        graph: The graph as read; no tensor shares bytes with another on a device.
        method: As for `search`, like the arguments after ``metric``.
        metric: What the order needs least of: "peak", of bytes at one time, or "sum", over all ops.

    Raises:
        DistributionError: The network cannot be distributed.
        NoPlanFitsError: No plan found fits, in no order; the one of the order that needs least.
        UsageError: There is no device ``home``, or no such method.
    """
    least = least_order(graph, run, metric)
    task = _SharesTask(graph, cluster, method, weights, refused, home)
    first, second = _apart(task, least, run, proven=least.proven and metric == "peak")
    third = None
    if method in {"auto", "genetic"}:
        third = _together(task, [one for one in (first, second) if one is not None], run)
    plans = [one for one in (first, second, third) if isinstance(one, Distribution)]
    if not plans:
        raise min(
            [one for one in (first, second, third) if isinstance(one, NoPlanFitsError)], key=lambda one: one.least
        )
    best = min(plans, key=rank)
    bounds = [one.lower_bound for one in plans]
    if least.better and len(plans) < 2:
        # What was proven about one order says nothing about the other.
        bounds.append(latency_bound(task.space(None), cluster))
    return OrderedPlan(
        plan=replace(best, lower_bound=min(*bounds, best.latency)),
        order="given" if best is first else "found" if best is second else "together",
        given=OrderAttempt(*least.given, first if isinstance(first, Distribution) else None),
        found=OrderAttempt(*least.found, second if isinstance(second, Distribution) else None)
        if least.better
        else None,
        proven=least.proven,
        metric=metric,
    )


def _apart(
    task: _SharesTask, least: LeastOrder, run: Run, *, proven: bool
) -> tuple[Distribution | NoPlanFitsError, Distribution | NoPlanFitsError | None]:
    """Return the plans in the file's order and in the one that needs least, None where that is the file's.

    Args:
        proven: The order that needs least is known to.
    """
    share = run.until(_FIRST_SHARE) if least.better and run.limits.time_limit is None else run
    first = task.attempt(None, _paying(share), least=proven and not least.better)
    if not least.better:
        return first, None
    start = first.shares if isinstance(first, Distribution) else ()
    return first, task.attempt(least.order, _paying(_rest(run, first)), least=proven, start=start)


def _paying(run: Run) -> Run:
    return run if run.limits.effort is None else run.paying(1 / MachinePace.SHARE_STEPS)


def _rest(run: Run, before: Distribution | NoPlanFitsError) -> Run:
    """Return a run of what is left; where nothing was found before, at least a share of it all."""
    limit = run.limits.time_limit
    if limit is None:
        return run.anew(None)
    least = _SECOND_SHARE * limit if isinstance(before, NoPlanFitsError) else 0.0
    return run.anew(max(run.remaining(), least))


def _together(
    task: _SharesTask, before: Sequence[Distribution | NoPlanFitsError], run: Run
) -> Distribution | NoPlanFitsError | None:
    """Return what improving order and shares one after the other makes of the best so far; None where it is nothing."""
    plans = [one for one in before if isinstance(one, Distribution)]
    if plans:
        return _faster(task, min(plans, key=rank), run)
    smallest = min((one for one in before if isinstance(one, NoPlanFitsError)), key=lambda one: one.least)
    return _fitting(task, smallest, _rest(run, smallest))


def _faster(task: _SharesTask, best: Distribution, run: Run) -> Distribution | None:
    given, share = best, run.anew(None if run.limits.time_limit is None else run.remaining())
    for _ in range(_ROUNDS):
        before = best
        if share.over():
            break
        for order in orders_for(task.graph, best, task.cluster, share.within(ORDER_SHARE)):
            if share.over():
                break
            space = task.space(order)
            found = improved(space, best.shares, task.cluster, _paying(share), home=task.home)
            if found is not None and rank(found) < rank(best):
                best = replace(found, lower_bound=latency_bound(space, task.cluster))
        if best is before:
            break
    return None if best is given else best


def _fitting(task: _SharesTask, smallest: NoPlanFitsError, run: Run) -> Distribution | NoPlanFitsError:
    """Return a plan in an order made for the smallest shares, and so on while these get smaller."""
    for _ in range(_ROUNDS):
        before = smallest
        if smallest.smallest is None or smallest.proven:
            break
        for order in orders_for(task.graph, smallest.smallest, task.cluster, run.within(ORDER_SHARE)):
            found = task.attempt(order, _paying(run), start=smallest.smallest.shares)
            if isinstance(found, Distribution):
                return found
            smallest = min(smallest, found, key=lambda one: one.least)
        if smallest is before or run.over():
            break
    return smallest


def least_order(graph: Graph, run: Run, metric: Metric) -> LeastOrder:
    """Return the order that needs least, every tensor with bytes of its own."""
    storage = Storage.of(plain(graph))
    limit = run.limits.time_limit
    share = run.within(ORDER_SHARE).anew(None if limit is None else ORDER_SHARE * limit)
    schedule = schedule_graph(plain(graph), share.quiet(), storage=storage).schedule
    own = evaluate(storage, range(len(graph.ops)))
    if metric == "peak":
        given, found = (own.peak, own.peak), (schedule.peak, schedule.peak)
        return LeastOrder(schedule.order, given, found, schedule.status == "optimal")
    starts = [tuple(range(len(graph.ops))), schedule.order]
    start = min(starts, key=lambda order: sum(evaluate(storage, order).footprints))
    result = backtrack.search(
        single_op_tasks(storage), metric="sum", start=start, max_marked=_MARKED, stop=_paying(share).over
    )
    best = evaluate(storage, result.order)
    return LeastOrder(result.order, (own.peak, sum(own.footprints)), (best.peak, sum(best.footprints)), result.complete)
