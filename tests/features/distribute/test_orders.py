"""The order feeds the shares: what fits only in a better order is planned in it, and no plan is worse than without."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from memsched.features.distribute import orders
from memsched.features.distribute import search as searching
from memsched.features.distribute.checking import check_plan
from memsched.features.distribute.orders import plan_in_best_order
from memsched.features.distribute.search import Method, search
from memsched.features.distribute.space import NoPlanFitsError, Space
from memsched.graph import dag
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Schedule
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.cluster import LinearTime
from tests.features.distribute.graphs import chain, cluster, conv, network, random_cluster, random_network

FAST = (LinearTime(base=1e-6, per_mac=1e-6),)


def wide_first(branches: int = 4) -> Graph:
    """Branches of a wide layer and one that shrinks it, all wide ones first, and one that reads all the small ones."""
    wide, small = (1, 8, 8, 1), (1, 1, 8, 1)
    layers = [("Conv", [0], wide, conv(1, made=8)) for _ in range(branches)]
    layers += [("Conv", [1 + branch], small, conv(8, made=1)) for branch in range(branches)]
    return network((1, 1, 8, 1), [*layers, ("Sum", [1 + branches + branch for branch in range(branches)], small, {})])


def test_what_fits_in_a_better_order_alone_is_planned_in_it() -> None:
    graph = wide_first()
    plenty = plan_in_best_order(graph, cluster(2, bandwidth=1e6, times=FAST), Run(Limits(None)))
    assert plenty.found is not None
    assert plenty.found.peak < plenty.given.peak
    with pytest.raises(NoPlanFitsError) as caught:
        search(graph, cluster(2, memory=1, times=FAST), Run(Limits(None)))
    tight = cluster(2, bandwidth=1e6, memory=caught.value.least - 1, times=FAST)
    with pytest.raises(NoPlanFitsError):
        search(graph, tight, Run(Limits(None)))
    found = plan_in_best_order(graph, tight, Run(Limits(None)))
    assert (found.order, found.given.plan, found.proven) == ("found", None, True)
    assert max(found.plan.memory) < caught.value.least
    check_plan(graph, found.plan, tight)
    assert [share.op for share in found.plan.shares] != list(range(len(graph.ops)))


@pytest.mark.parametrize("method", ["auto", "even", "single", "exact"])
def test_no_plan_is_worse_than_in_the_order_of_the_file(method: Method) -> None:
    for seed in range(1 if method == "exact" else 3):
        graph, devices = random_network(seed, 5), random_cluster(random.Random(seed))
        alone = search(graph, devices, Run(Limits(None)), method=method)
        found = plan_in_best_order(graph, devices, Run(Limits(None)), method=method)
        assert found.plan.latency <= alone.latency * (1 + 1e-9)
        assert found.given.plan == alone
        assert 0 < found.plan.lower_bound <= found.plan.latency
        check_plan(graph, found.plan, devices)


def test_of_equal_plans_that_of_the_file_is_kept() -> None:
    found = plan_in_best_order(wide_first(), cluster(1), Run(Limits(None)))
    assert found.found is not None
    assert found.found.plan is not None
    assert found.found.plan.memory[0] < found.plan.memory[0] or found.order == "found"
    assert found.plan.latency == found.found.plan.latency


def test_where_no_order_is_better_there_is_one_search() -> None:
    found = plan_in_best_order(chain(), cluster(2), Run(Limits(None)))
    assert (found.order, found.found, found.proven) == ("given", None, True)


def test_where_nothing_fits_the_better_order_says_what_would_do() -> None:
    graph = wide_first()
    for count in (1, 2):
        with pytest.raises(NoPlanFitsError) as alone:
            search(graph, cluster(count, memory=1, times=FAST), Run(Limits(None)))
        with pytest.raises(NoPlanFitsError) as both:
            plan_in_best_order(graph, cluster(count, memory=1, times=FAST), Run(Limits(None)))
        assert both.value.least < alone.value.least
        assert not alone.value.proven
        assert both.value.proven == (count == 1)
        enough = cluster(count, memory=both.value.least, times=FAST)
        assert max(plan_in_best_order(graph, enough, Run(Limits(None))).plan.memory) <= both.value.least


def test_the_order_found_has_time_where_nothing_fits_in_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search in the file's order may use up all the time; what it leaves is not nothing."""
    seen: list[tuple[object, Run]] = []

    def recorded(_graph: Graph, _devices: object, run: Run, **options: object) -> object:
        seen.append((options["order"], run))
        raise NoPlanFitsError("no", (1,), 1, proven=False)

    monkeypatch.setattr(orders, "search", recorded)
    with pytest.raises(NoPlanFitsError):
        plan_in_best_order(wide_first(), cluster(2), Run(Limits(8.0), started=-1e9))
    assert [order is None for order, _ in seen] == [True, False]
    assert seen[1][1].limits == Limits(2.0)


def test_what_is_proven_of_one_order_is_not_said_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def sharp(*args: object, **options: object) -> object:
        found = search(*args, **options)  # type: ignore[arg-type]
        return replace(found, lower_bound=found.latency) if options["order"] is None else found

    monkeypatch.setattr(orders, "search", sharp)
    devices = cluster(2, bandwidth=1e6, times=FAST)
    found = plan_in_best_order(wide_first(), devices, Run(Limits(None)), method="even")
    assert found.given.plan is not None
    assert found.given.plan.lower_bound == found.given.plan.latency
    assert found.found is not None
    assert found.found.plan is not None
    assert found.plan.lower_bound == min(found.found.plan.lower_bound, found.given.plan.lower_bound)


def test_an_order_that_is_not_proven_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    right = schedule_graph

    def unproven(*args: object, **options: object) -> object:
        found = right(*args, **options)  # type: ignore[arg-type]
        schedule: Schedule = replace(found.schedule, status="feasible")
        return replace(found, schedule=schedule)

    monkeypatch.setattr(orders, "schedule_graph", unproven)
    with pytest.raises(NoPlanFitsError) as caught:
        plan_in_best_order(wide_first(), cluster(1, memory=1), Run(Limits(None)))
    assert not caught.value.proven


def test_the_sum_is_the_least_of_all_orders() -> None:
    """BTSearch by the metric of the paper: against every order, and the shares are searched in what it found."""
    graph = wide_first(3)
    storage = Storage.of(graph)
    preds = dag.predecessors(graph)
    sums = [
        sum(evaluate(storage, order).footprints)
        for order in itertools.permutations(range(len(graph.ops)))
        if all(order.index(before) < order.index(op) for op in order for before in preds[op])
    ]
    found = plan_in_best_order(graph, cluster(2, times=FAST), Run(Limits(None)), method="even", metric="sum")
    assert (found.metric, found.proven) == ("sum", True)
    assert found.found is not None
    assert found.found.cost == min(sums) < found.given.cost == sums[0]
    assert found.found.plan is not None
    order = [share.op for share in found.found.plan.shares]
    assert sum(evaluate(storage, order).footprints) == min(sums)


def test_a_sum_proves_nothing_about_the_memory_of_a_device() -> None:
    with pytest.raises(NoPlanFitsError) as caught:
        plan_in_best_order(wide_first(), cluster(1, memory=1), Run(Limits(None)), metric="sum")
    assert not caught.value.proven


def test_order_and_shares_are_improved_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither order found before there were shares has a plan that fits, one made for the shares does."""
    graph = wide_first()
    with pytest.raises(NoPlanFitsError) as caught:
        search(graph, cluster(2, memory=1, times=FAST), Run(Limits(None)))
    tight = cluster(2, bandwidth=1e6, memory=caught.value.least - 1, times=FAST)

    def none_better(*_: object, **__: object) -> object:
        own = tuple(range(len(graph.ops)))
        return orders.LeastOrder(own, (1, 1), (1, 1), proven=False)

    monkeypatch.setattr(orders, "least_order", none_better)
    found = plan_in_best_order(graph, tight, Run(Limits(None)))
    assert (found.order, found.given.plan, found.found) == ("together", None, None)
    check_plan(graph, found.plan, tight)


def test_order_and_shares_together_are_faster_than_one_after_the_other() -> None:
    """Branches of unlike width on unlike devices: the order for the shares leaves room for others."""
    widths = ((8, 1), (12, 3), (6, 1))
    layers = [("Conv", [0], (1, 1, 8, 1), conv(1, made=1))]
    layers += [("Conv", [1], (1, wide, 8, 1), conv(1, made=wide)) for wide, _ in widths]
    layers += [
        ("Conv", [2 + branch], (1, small, 8, 1), conv(wide, made=small)) for branch, (wide, small) in enumerate(widths)
    ]
    graph = network((1, 1, 8, 1), [*layers, ("Concat", [5, 6, 7], (1, 5, 8, 1), {"axis": 1})])
    devices = cluster(2, bandwidth=1e6, times=FAST)
    memories = zip(devices.devices, (404, 1348), strict=True)
    devices = replace(devices, devices=tuple(replace(one, memory=memory) for one, memory in memories))
    found = plan_in_best_order(graph, devices, Run(Limits(None)))
    plans = [one.plan for one in (found.given, found.found) if one is not None and one.plan is not None]
    assert found.order == "together"
    assert found.plan.latency < min(one.latency for one in plans)
    check_plan(graph, found.plan, devices)


def test_the_genetic_search_begins_with_the_shares_of_the_plan_before(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[object]] = []

    def recorded(space: Space, *rest: Any, **_: object) -> object:
        seen.append(list(rest[2]))
        return rest[2][0]

    monkeypatch.setattr(searching, "evolve", recorded)
    graph, devices = wide_first(), cluster(2, times=FAST)
    start = search(graph, devices, Run(Limits(None)), method="even").shares
    order = (0, 4, *(op for op in range(len(graph.ops)) if op not in {0, 4}))
    search(graph, devices, Run(Limits(None)), method="genetic", order=order, start=start)
    of = {share.op: share for share in start}
    # The shares of the plan lie along one of the two choices of axes.
    assert [tuple(of[op] for op in order) == seeds[2] for seeds in seen].count(True) == 1
