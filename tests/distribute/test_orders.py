"""The order feeds the shares: what fits only in a better order is planned in it, and no plan is worse than without."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memsched.distribute import orders
from memsched.distribute.checking import check_plan
from memsched.distribute.orders import plan_in_best_order
from memsched.distribute.search import Method, search
from memsched.distribute.space import NoPlanFitsError
from memsched.graph.model import Graph, Schedule
from memsched.schedule.portfolio import schedule_graph
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.cluster import LinearTime
from tests.distribute.graphs import chain, cluster, conv, network, random_cluster, random_network

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
    with pytest.raises(NoPlanFitsError, match="would do") as caught:
        plan_in_best_order(wide_first(), cluster(1, memory=1), Run(Limits(None)))
    assert not caught.value.proven
