"""The searches: never worse than the rules, equal to brute force on tiny chains, and honest where nothing fits."""

from __future__ import annotations

import itertools
import random
import sys
from dataclasses import replace

import pytest

from memsched.features.distribute import shares as rules
from memsched.features.distribute.checking import check_plan
from memsched.features.distribute.choices import OpChoices, all_shares, few_shares
from memsched.features.distribute.fused import best_blocks
from memsched.features.distribute.genetic import Settings, evolve
from memsched.features.distribute.plan import plan_in
from memsched.features.distribute.program import choose
from memsched.features.distribute.refine import refined
from memsched.features.distribute.search import METHODS, search
from memsched.features.distribute.space import NoPlanFitsError, Space
from memsched.graph.distribution import Axis
from memsched.graph.model import Graph
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.cluster import Cluster, LinearTime, without
from tests.failures import fails
from tests.features.distribute.graphs import chain, cluster, conv, figure, network, random_cluster, random_network

FAST = (LinearTime(base=1e-6, per_mac=1e-6), LinearTime(base=1e-6, per_mac=3e-6))


def tower(rows: int = 16, layers: int = 6) -> Graph:
    """Convolutions one after the other."""
    shape = (1, 4, rows, 1)
    return network(shape, [("Conv", [place], shape, conv(4)) for place in range(layers)])


def first_axes(space: Space) -> list[Axis]:
    return [next(axis for axis in ("rows", "channels", "whole") if axis in found) for found in space.divisions]


# Exact ------------------------------------------------------------------------------------------------------------


def brute_force(space: Space, devices: Cluster) -> float:
    lists = [all_shares(space, place, len(devices.devices), 10**6)[0] for place in range(len(space.order))]
    return min(plan_in(space, shares, devices).latency for shares in itertools.product(*lists))


@pytest.mark.parametrize("seed", range(6))
def test_exact_equals_brute_force_on_a_tiny_chain(seed: int) -> None:
    pick = random.Random(seed)
    graph = chain(rows=pick.choice([2, 3, 4]))
    devices = cluster(
        2, bandwidth=10 ** pick.uniform(4, 6), latency=pick.choice([0, 1e-5]), times=FAST[: pick.randint(1, 2)],
        mode=pick.choice(["broadcast", "point-to-point"]),
    )  # fmt: skip
    plan = search(graph, devices, Run(Limits(None)), method="exact")
    assert plan.latency == pytest.approx(brute_force(Space.of(graph), devices), rel=1e-9)
    assert plan.lower_bound == plan.latency
    check_plan(graph, plan, devices)


def test_exact_equals_brute_force_where_a_tensor_is_read_twice() -> None:
    graph = network((1, 1, 3, 1), [("Relu", [0], (1, 1, 3, 1), {}), ("Conv", [1], (1, 1, 3, 1), conv(1)),
                                   ("Add", [1, 2], (1, 1, 3, 1), {})])  # fmt: skip
    devices = cluster(2, bandwidth=1e6, times=FAST)
    plan = search(graph, devices, Run(Limits(None)), method="exact")
    assert plan.latency == plan.lower_bound == pytest.approx(brute_force(Space.of(graph), devices), rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_exact_claims_nothing_that_a_plan_that_fits_contradicts(seed: int) -> None:
    pick = random.Random(seed)
    graph = chain(rows=pick.choice([2, 3]))
    devices = cluster(
        2, bandwidth=10 ** pick.uniform(4, 6), latency=pick.choice([0, 1e-5]), times=FAST[: pick.randint(1, 2)],
        mode=pick.choice(["broadcast", "point-to-point"]),
    )  # fmt: skip
    space = Space.of(graph)
    lists = [all_shares(space, place, 2, 10**6)[0] for place in range(len(space.order))]
    plans = [plan_in(space, shares, devices) for shares in itertools.product(*lists)]
    limit = pick.choice(sorted({max(plan.memory) for plan in plans}))
    small = replace(devices, devices=tuple(replace(device, memory=limit) for device in devices.devices))
    best = min(plan.latency for plan in plans if max(plan.memory) <= limit)
    try:
        found = search(graph, small, Run(Limits(None)), method="exact")
    except NoPlanFitsError:
        return
    assert max(found.memory) <= limit
    assert found.lower_bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_exact_is_not_slower_than_the_genetic_search(seed: int) -> None:
    devices = cluster(2, bandwidth=10.0 ** (4 + seed), latency=1e-6, times=FAST)
    exact = search(chain(4), devices, Run(Limits(None, seed)), method="exact")
    assert exact.lower_bound == exact.latency
    assert exact.latency <= search(chain(4), devices, Run(Limits(None, seed)), method="genetic").latency


# The program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_program_gives_the_figures_of_the_plan(seed: int) -> None:
    pick = random.Random(seed)
    space, devices = Space.of(random_network(seed)), random_cluster(pick)
    even = [1.0] * len(devices.devices)
    skewed = [float(place + 1) for place in range(len(devices.devices))]
    choices = [
        OpChoices.of(space, devices, place, few_shares(space, devices, place, [even, skewed]))
        for place in range(len(space.order))
    ]
    found = choose(space, devices, choices, width=16)
    assert found is not None
    plan = plan_in(space, found.shares, devices)
    assert found.latency == pytest.approx(plan.latency, rel=1e-9)
    assert found.memory == plan.memory
    assert found.latency <= plan_in(space, rules.even(space, first_axes(space), len(even)), devices).latency * 1.5


def test_dear_weights_make_plans_smaller() -> None:
    deep = network((1, 32, 8, 1), [("Conv", [place], (1, 32, 8, 1), conv(32)) for place in range(3)])
    space, devices = Space.of(deep), cluster(2, bandwidth=1e6, times=FAST)
    tables = [OpChoices.of(space, devices, p, few_shares(space, devices, p, [[1.0, 1.0]])) for p in range(3)]
    free, dear = (choose(space, devices, tables, width=99, price=price) for price in (0.0, 1e9))
    assert free is not None
    assert dear is not None
    assert max(dear.memory) < max(free.memory)
    assert dear.latency > free.latency


# Fused blocks and local search ------------------------------------------------------------------------------------


def test_fused_blocks_save_synchronisations() -> None:
    graph, devices = tower(), cluster(2, bandwidth=1e9, latency=1e-3, times=FAST[:1])
    space = Space.of(graph)
    shares = rules.even(space, first_axes(space), 2)
    blocks = best_blocks(space, shares, devices, longest=24)
    assert blocks == ((0, 6),)
    assert plan_in(space, shares, devices, blocks=blocks).latency < plan_in(space, shares, devices).latency - 4e-3
    quick = cluster(2, bandwidth=1e9, latency=1e-9, times=(LinearTime(per_mac=1e-3),))
    assert len(best_blocks(space, shares, quick, longest=24) or ()) == 6


@pytest.mark.parametrize("seed", range(8))
def test_fused_and_refined_plans_are_valid(seed: int) -> None:
    pick = random.Random(seed)
    graph, devices = random_network(seed), random_cluster(pick)
    space = Space.of(graph)
    shares = rules.even(space, first_axes(space), len(devices.devices))
    blocks = best_blocks(space, shares, devices, longest=5)
    before = plan_in(space, shares, devices, blocks=blocks)
    after = refined(space, shares, devices, blocks, stop=lambda: False)
    plan = plan_in(space, after, devices, blocks=blocks)
    assert plan.latency <= before.latency * (1 + 1e-9)
    check_plan(graph, plan, devices)


# GenEFlow ---------------------------------------------------------------------------------------------------------


def test_genetic_search_is_never_worse_than_its_seeds_and_repeats() -> None:
    graph, devices = tower(13, 4), cluster(3, bandwidth=1e6, latency=1e-6, times=FAST)
    space = Space.of(graph)
    axes = first_axes(space)
    seeds = [rules.even(space, axes, 3)]
    settings = Settings(size=24, generations=30, patience=30)
    first, second = (evolve(space, devices, axes, seeds, Run(Limits(None, 7)), settings=settings) for _ in range(2))
    assert first == second
    found = plan_in(space, first, devices)
    assert found.latency < plan_in(space, seeds[0], devices).latency
    check_plan(graph, found, devices)


def test_without_pymoo_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymoo.optimize", None)
    with fails("runtime-missing", "pip install pymoo"):
        search(chain(), cluster(2), Run(Limits(None)), method="genetic")


# Everything -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_auto_is_the_best_and_repeats(seed: int) -> None:
    pick = random.Random(seed)
    graph, devices = random_network(seed, layers=5), random_cluster(pick)
    found = {method: search(graph, devices, Run(Limits(None)), method=method) for method in ("single", "even", "auto")}
    assert found["auto"].latency <= min(found["single"].latency, found["even"].latency)
    assert found["auto"] == search(graph, devices, Run(Limits(None)))
    for plan in found.values():
        check_plan(graph, plan, devices)
        assert 0 < plan.lower_bound <= plan.latency


@pytest.mark.parametrize("method", METHODS)
def test_every_method_on_one_device_and_on_the_figure(method: str) -> None:
    for devices in (cluster(1), cluster(3)):
        plan = search(figure(), devices, Run(Limits(None)), method=method, home=len(devices.devices) - 1)  # type: ignore[arg-type]
        check_plan(figure(), plan, devices)
        assert plan.home == len(devices.devices) - 1


def test_several_devices_fit_what_none_of_them_does() -> None:
    deep = network((1, 32, 8, 1), [("Conv", [place], (1, 32, 8, 1), conv(32)) for place in range(4)])
    roomy = cluster(4, bandwidth=1e6, times=FAST)
    alone = max(search(deep, roomy, Run(Limits(None)), method="single").memory)
    tight = cluster(4, bandwidth=1e6, times=FAST, memory=alone // 2)
    with pytest.raises(NoPlanFitsError) as caught:
        search(deep, tight, Run(Limits(None)), method="single")
    plan = search(deep, tight, Run(Limits(None)))
    assert max(plan.memory) <= alone // 2
    assert max(plan.memory) >= caught.value.least > 0
    check_plan(deep, plan, tight)


def test_where_nothing_fits_the_least_memory_would_do() -> None:
    with pytest.raises(NoPlanFitsError) as caught:
        search(tower(), cluster(3, memory=64, times=FAST), Run(Limits(None)))
    error = caught.value
    assert error.exit_code == 3
    assert not error.proven
    assert f"({error.least} bytes)" in str(error)
    enough = cluster(3, memory=error.least, times=FAST)
    assert max(search(tower(), enough, Run(Limits(None))).memory) <= error.least


@pytest.mark.parametrize("seed", range(4))
def test_what_is_said_to_be_enough_is_enough(seed: int) -> None:
    graph, devices = random_network(seed, 5), random_cluster(random.Random(seed))

    def with_memory(size: int) -> Cluster:
        return replace(devices, devices=tuple(replace(device, memory=size) for device in devices.devices))

    with pytest.raises(NoPlanFitsError) as caught:
        search(graph, with_memory(1), Run(Limits(None)))
    assert max(search(graph, with_memory(caught.value.least), Run(Limits(None))).memory) <= caught.value.least


def test_on_one_device_the_least_memory_is_known() -> None:
    with pytest.raises(NoPlanFitsError) as caught:
        search(tower(), cluster(1, memory=64), Run(Limits(None)), least_order=True)
    assert caught.value.proven
    assert caught.value.least == search(tower(), cluster(1), Run(Limits(None))).memory[0]
    with pytest.raises(NoPlanFitsError) as caught:
        search(tower(), cluster(1, memory=64), Run(Limits(None)))
    assert not caught.value.proven


def test_replanning_without_a_device() -> None:
    devices = cluster(3, bandwidth=1e6, times=FAST)
    smaller = without(devices, 0)
    assert [device.name for device in smaller.devices] == ["d1", "d2"]
    plan = search(tower(), smaller, Run(Limits(None)))
    assert plan.devices == 2
    check_plan(tower(), plan, smaller)


def test_no_time_still_gives_a_plan() -> None:
    devices = cluster(3, bandwidth=1e6, times=FAST)
    for method in ("auto", "exact", "genetic"):
        check_plan(tower(), search(tower(), devices, Run(Limits(0.0)), method=method), devices)


def test_wrong_arguments() -> None:
    with fails("option-choice", "'magic'", "genetic"):
        search(chain(), cluster(2), Run(Limits(None)), method="magic")  # type: ignore[arg-type]
    with fails("no-such-device", "device 2"):
        search(chain(), cluster(2), Run(Limits(None)), home=2)
    with fails("order-incomplete", "3"):
        search(chain(), cluster(2), Run(Limits(None)), order=[0, 0, 1])


def test_slow_links_leave_all_to_one_device() -> None:
    devices = cluster(3, bandwidth=1.0, latency=10.0, times=FAST[:1])
    plan = search(tower(), devices, Run(Limits(None)))
    assert sum(bool(one) for one in plan.steps[0].computations) == 1
    fast = replace(devices, router=replace(devices.router, bandwidth=1e9, latency=0.0))
    assert search(tower(), fast, Run(Limits(None))).latency < plan.latency / 2
