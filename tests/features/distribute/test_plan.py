"""From shares to transfers, seconds and memory: by hand, and for random networks against the independent checker."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from memsched.base.errors import UsageError
from memsched.features.distribute import shares as rules
from memsched.features.distribute.bounds import latency_bound
from memsched.features.distribute.checking import check_plan
from memsched.features.distribute.genetic import violations
from memsched.features.distribute.plan import plan_in
from memsched.features.distribute.population import Population
from memsched.features.distribute.refine import bounds_of
from memsched.features.distribute.space import Space
from memsched.graph.distribution import Axis, Share, Transfer
from memsched.graph.model import Graph, Region
from tests.distributed_nets import plan_of
from tests.failures import fails
from tests.features.distribute.graphs import (
    chain,
    channels,
    cluster,
    conv,
    figure,
    network,
    random_blocks,
    random_cluster,
    random_network,
    random_shares,
    rows,
)

PAPER = (rows(0, 0, 2, 4, 6), channels(1, 0, 1, 2, 2), rows(2, 0, 3, 6, 6), rows(3, 0, 2, 4, 6))


def moved(transfers: tuple[Transfer, ...]) -> set[tuple[int, tuple[int, ...], int, int, int, int, int, int]]:
    """Return (source, targets, tensor, channels from, to, rows from, to, bytes) of transfers."""
    return {
        (one.source, one.targets, one.tensor, *one.region.ranges[1], *one.region.ranges[2], one.size)
        for one in transfers
    }


# MemoriaNova's figure, by hand -------------------------------------------------------------------------------------


def test_figure_step_by_step() -> None:
    plan = plan_of(figure(), PAPER, cluster())
    first, second, third, fourth = plan.steps
    # Halos of the input; what two devices need leaves once.
    assert moved(first.transfers) == {
        (-1, (0,), 0, 0, 2, 0, 1, 8),
        (-1, (0, 1), 0, 0, 2, 1, 3, 16),
        (-1, (1, 2), 0, 0, 2, 3, 5, 16),
        (-1, (2,), 0, 0, 2, 5, 6, 8),
    }
    # Case (i): a channel-divided reader needs everything that it does not hold.
    assert moved(second.transfers) == {
        (0, (1,), 1, 0, 2, 0, 2, 16),
        (1, (0,), 1, 0, 2, 2, 4, 16),
        (2, (0, 1), 1, 0, 2, 4, 6, 16),
    }
    # Conv3 reads what devices 0 and 1 have by now.
    assert third.transfers == ()
    # Case (ii), rows of every channel, and case (iii), rows of rows.
    assert moved(fourth.transfers) == {
        (1, (0,), 2, 1, 2, 0, 2, 8),
        (0, (1,), 2, 0, 1, 2, 4, 8),
        (0, (2,), 2, 0, 1, 4, 6, 8),
        (1, (2,), 2, 1, 2, 4, 6, 8),
        (0, (1,), 3, 0, 2, 2, 3, 8),
        (1, (2,), 3, 0, 2, 4, 6, 16),
    }
    assert moved(plan.results) == {(1, (0,), 4, 0, 2, 2, 4, 16), (2, (0,), 4, 0, 2, 4, 6, 16)}
    check_plan(figure(), plan, cluster())


def test_figure_latency() -> None:
    # 8 bytes per second, 1 s per op. Who gives the input sends 48 bytes, of which device 2 gets the last, and computes;
    # device 0 receives 32 and computes; nothing is sent; devices 1 and 2 send and receive 32 and compute; device 0
    # receives 32.
    assert plan_of(figure(), PAPER, cluster()).latency == 7 + 5 + 1 + 5 + 4


def test_figure_point_to_point() -> None:
    plan = plan_of(figure(), PAPER, cluster(mode="point-to-point"))
    assert all(len(one.targets) == 1 for step in plan.steps for one in step.transfers)
    # The input leaves 80 bytes; device 2 sends 16 bytes twice in the second step.
    assert plan.latency == 11 + 5 + 1 + 5 + 4
    check_plan(figure(), plan, cluster(mode="point-to-point"))


def test_figure_memory() -> None:
    # Device 2 has all weights of Conv1 (2 x 2 x 3 floats) and none of the others; while Conv1 is computed 24 bytes of
    # input and 16 of its output; at the sum 32 received and 16 computed.
    assert plan_of(figure(), PAPER, cluster()).memory[2] == 48 + 48


def test_halo_is_what_the_kernel_reaches() -> None:
    shape = (1, 2, 12, 1)
    graph = network(shape, [("Conv", [0], shape, conv(2)), ("Conv", [1], shape, conv(2, kernel=7))])
    plan = plan_of(graph, [rows(0, 0, 4, 8, 12), rows(1, 0, 4, 8, 12)], cluster(mode="point-to-point"))
    received = {(one.targets, one.region.ranges[2]) for one in plan.steps[1].transfers}
    assert received == {((0,), (4, 7)), ((1,), (1, 4)), ((1,), (8, 11)), ((2,), (5, 8))}


def test_no_transfer_where_the_parts_agree() -> None:
    plan = plan_of(chain(), [rows(0, 0, 2, 4), rows(1, 0, 2, 4), channels(2, 0, 1, 3)], cluster(2))
    assert plan.steps[1].transfers == ()
    assert plan.steps[2].transfers != ()


def test_fused_block_computes_halos_twice_and_sends_nothing() -> None:
    shares = [rows(0, 0, 2, 4), rows(1, 0, 2, 4), rows(2, 0, 2, 4)]
    plan = plan_of(chain(), shares, cluster(2), blocks=((0, 3),))
    assert len(plan.steps) == 1
    parts = [[one.region.ranges[2] for one in mine] for mine in plan.steps[0].computations]
    assert parts == [[(0, 3), (0, 3), (0, 2)], [(1, 4), (1, 4), (2, 4)]]
    check_plan(chain(), plan, cluster(2))


def test_an_undivided_op_in_a_block_is_computed_by_all_who_need_it() -> None:
    shares = [Share(0, "whole", (0, 1, 1)), rows(1, 0, 2, 4), rows(2, 0, 2, 4)]
    plan = plan_of(chain(), shares, cluster(2), blocks=((0, 2), (2, 3)))
    assert [one.op for one in plan.steps[0].computations[1]] == [0, 1]
    check_plan(chain(), plan, cluster(2))


# Rules ------------------------------------------------------------------------------------------------------------


def test_axis_goes_by_memory() -> None:
    # Weights of 2 x 2 x 3 floats beside an input of 48 bytes: equal; with longer planes rows permit more parts, with
    # more channels channels do.
    planes = network((1, 2, 64, 1), [("Conv", [0], (1, 2, 64, 1), conv(2))])
    deep = network((1, 64, 4, 1), [("Conv", [0], (1, 64, 4, 1), conv(64))])
    assert rules.axis_by_memory(Space.of(planes), 0, 4096) == "rows"
    assert rules.axis_by_memory(Space.of(deep), 0, 1 << 20) == "channels"


def test_k_1_and_k_2() -> None:
    space = Space.of(network((1, 2, 64, 1), [("Conv", [0], (1, 2, 64, 1), conv(2))]))
    # 48 bytes of weights, 512 of input, 512 of output
    assert rules.most_parts(space, 0, 4096) == ((4096 - 1024) / 48, (4096 - 48 - 512) / 512)


def test_proportional_shares() -> None:
    space = Space.of(network((1, 1, 12, 1), [("Relu", [0], (1, 1, 12, 1), {})]))
    times = [dataclasses.replace(cluster().devices[0].default, base=base) for base in (1.0, 2.0, 2.0)]
    share = rules.proportional(space, ["rows"], cluster(times=times))[0]
    assert share.bounds == (0, 6, 9, 12)
    assert rules.even(space, ["rows"], 5)[0].bounds == (0, 2, 5, 7, 10, 12)


def test_violations() -> None:
    graph = figure()
    population = Population(Space.of(graph), cluster(memory=100), [share.axis for share in PAPER])
    bounds = bounds_of(PAPER)
    found = population.evaluate(bounds)
    parts, held = violations(population, bounds, found)[0]
    assert (parts, held) == (0, max(0, found.held[0].max() - 100))
    tight = Population(Space.of(graph), cluster(memory=10), [share.axis for share in PAPER])
    parts, held = violations(tight, bounds, found)[0]
    # So little memory allows no op to be divided: each has three parts.
    assert (parts, held) == (2, found.held[0].max() - 10)


# Refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "share",
    [
        rows(0, 0, 4, 2, 6),
        rows(0, 1, 2, 4, 6),
        rows(0, 0, 2, 4, 5),
        rows(0, 0, 3, 6),
        rows(1, 0, 2, 4, 6),
        Share(0, "whole", (0, 1, 1, 2)),
    ],
)
def test_bad_shares_are_refused(share: Share) -> None:
    with pytest.raises(UsageError):
        plan_of(figure(), [share, *PAPER[1:]], cluster())


def test_a_state_is_refused() -> None:
    graph = dataclasses.replace(figure(), variables=(0,))
    with fails("stateful", "'"):
        Space.of(graph)


def test_blocks_and_home_must_exist() -> None:
    with pytest.raises(UsageError):
        plan_of(figure(), PAPER, cluster(), blocks=((0, 2), (3, 4)))
    with pytest.raises(UsageError):
        plan_of(figure(), PAPER, cluster(), home=3)


# Random networks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_arrays_agree_with_the_literal_model_and_the_checker(seed: int) -> None:
    pick = random.Random(seed)
    graph = random_network(seed)
    space, devices = Space.of(graph), random_cluster(pick)
    drawn = random_shares(pick, space, len(devices.devices))
    blocks = random_blocks(pick, len(drawn)) if seed % 2 else None
    home = pick.randrange(len(devices.devices))
    overlapping = dataclasses.replace(devices, router=dataclasses.replace(devices.router, overlap=True))
    population = Population(space, devices, [share.axis for share in drawn], blocks, home)
    plans = []
    for _ in range(3):
        plan = plan_in(space, drawn, devices, blocks=blocks, home=home)
        check_plan(graph, plan, devices)
        plans.append(plan)
        ahead = plan_in(space, drawn, overlapping, blocks=blocks, home=home)
        check_plan(graph, ahead, overlapping)
        assert ahead.latency <= plan.latency
        assert (ahead.latency < plan.latency) == any(step.ahead for step in ahead.steps)
        again = random_shares(pick, space, len(devices.devices))
        drawn = tuple(new if new.axis == old.axis else old for old, new in zip(drawn, again, strict=True))
    found = population.evaluate(np.concatenate([bounds_of(plan.shares) for plan in plans]))
    for number, plan in enumerate(plans):
        assert found.latency[number] == pytest.approx(plan.latency, rel=1e-9)
        assert tuple(found.memory[number]) == plan.memory
        assert 0 < latency_bound(space, devices) <= plan.latency


def test_another_order_of_execution() -> None:
    graph = figure()
    shares = [PAPER[0], PAPER[2], PAPER[1], PAPER[3]]
    plan = plan_of(graph, shares, cluster())
    assert [share.op for share in plan.shares] == [0, 2, 1, 3]
    check_plan(graph, plan, cluster())
    with fails("order-reads-early"):
        plan_of(graph, [PAPER[1], PAPER[0], *PAPER[2:]], cluster())


def test_stated_weights_count() -> None:
    graph = figure()
    plan = plan_of(graph, PAPER, cluster(), weights={0: {1: 4800}})
    assert plan.memory[2] == 4800 + 48
    check_plan(graph, plan, cluster(), weights={0: {1: 4800}})


def test_tensors_of_half_bytes_stay_whole() -> None:
    graph = figure()
    tensors = tuple(dataclasses.replace(tensor, size=5) for tensor in graph.tensors)
    space = Space.of(Graph("net", tensors, graph.ops, graph.inputs, graph.outputs))
    assert all(set(found) == {"whole"} for found in space.divisions)


@pytest.mark.parametrize("axis", ["rows", "channels"])
def test_a_slice_in_parts_needs_only_what_it_takes(axis: Axis) -> None:
    cut = {"starts": (2, 1), "ends": (8, 4), "axes": (2, 1), "steps": (1, 1)}
    graph = network((1, 6, 10, 1), [("Slice", [0], (1, 3, 6, 1), cut)])
    bounds = {"rows": (0, 2, 6), "channels": (0, 1, 3)}[axis]
    plan = plan_of(graph, [Share(0, axis, bounds)], cluster(2))
    check_plan(graph, plan, cluster(2))
    first = [one.region.ranges[1:3] for one in plan.steps[0].transfers if one.targets == (0,)]
    assert first == [{"rows": ((1, 4), (2, 4)), "channels": ((1, 2), (2, 8))}[axis]]


def test_regions_are_whole_along_other_axes() -> None:
    plan = plan_of(figure(), PAPER, cluster())
    assert plan.steps[0].computations[1][0].region == Region(((0, 1), (0, 2), (2, 4), (0, 1)))
