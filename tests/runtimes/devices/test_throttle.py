"""Processes held to a cluster's rates: how long they take at least, what they may take, and figures fitted to them."""

from __future__ import annotations

import itertools
import random
import sys
from dataclasses import replace

import numpy as np
import pytest

from memsched.features.distribute import distribute as distributing
from memsched.features.distribute.calibrate import calibrated, cluster_text, compared
from memsched.features.distribute.checking import StepWork
from memsched.runtimes.devices.measured import PassTimes, ThrottledRun
from memsched.runtimes.devices.parent import ClusterRunError
from memsched.targets.cluster import Cluster, Device, LinearTime, Router, parse_cluster
from tests.distributed_nets import Net, classifier, cluster_of, wide_first


def slow(count: int, *, memory: int = 1 << 30) -> Cluster:
    """Return devices so slow that a plan takes a second or so, most of it in computing and on the wire."""
    devices = cluster_of(count, memory=memory)
    line = LinearTime(0.01, 2e-8)
    slower = tuple(replace(one, default=line) for one in devices.devices)
    return replace(devices, devices=slower, router=Router(2e5, 0.01))


def test_no_step_is_faster_than_its_links_and_devices_allow() -> None:
    found = distributing.distribute(classifier(), cluster=slow(2), method="even", effort=1.0)
    ran = distributing.run_plan(found, throttled="rates")
    latency = distributing.latency_of(ran)
    assert latency is not None
    assert len(latency.measured) == len(found.plan.steps) + 1
    assert sum(latency.predicted) == pytest.approx(found.plan.latency)
    # What is late is a busy machine's; early nothing can be but by the length of the shortest sleep.
    for predicted, measured in zip(latency.predicted, latency.measured, strict=True):
        assert measured >= 0.99 * predicted - 5e-4
    assert distributing.latency_of(distributing.run_plan(found)) is None


def test_what_goes_ahead_takes_no_time_of_its_own() -> None:
    cluster = slow(2)
    cluster = replace(cluster, router=replace(cluster.router, overlap=True))
    found = distributing.distribute(wide_first(3), cluster=cluster, method="even", effort=1.0)
    assert any(step.ahead for step in found.plan.steps)
    ran = distributing.run_plan(found, throttled="rates")
    latency = distributing.latency_of(ran)
    assert latency is not None
    assert ran.executed is not None
    assert ran.executed.relative_error < 1e-5
    assert sum(latency.predicted) == pytest.approx(found.plan.latency)
    for predicted, measured in zip(latency.predicted, latency.measured, strict=True):
        assert measured >= 0.99 * predicted - 5e-4


def linear(seed: int) -> tuple[Cluster, Cluster, list[StepWork], list[list[list[str]]], ThrottledRun]:
    """Return a wrong cluster, the right one, and what a run of random steps on the right one measures."""
    draw = random.Random(seed)
    times = {"Conv": LinearTime(2e-4, 3e-9, 1e-9), "Relu": LinearTime(1e-4, 0.0, 2e-9)}
    cores = (0.5, 0.25)
    right = Cluster(
        "two",
        tuple(
            Device(
                f"board-{number}",
                1 << 30,
                LinearTime(1e-4, 0.0, 2e-9),
                {
                    kind: LinearTime(one.base / share, one.per_mac / share, one.per_byte / share)
                    for kind, one in times.items()
                },
                share,
            )
            for number, share in enumerate(cores)
        ),
        Router(1e6, 0.002),
    )
    works, names, steps, computing, nodes = [], [], [], [], []
    for step in range(40):
        ops = tuple(
            tuple(
                (kind, draw.uniform(1e4, 1e6) if kind == "Conv" else 0.0, draw.uniform(1e3, 1e6))
                for kind in draw.choices(["Conv", "Relu"], k=draw.randint(1, 4))
            )
            for _ in cores
        )
        sent = {-1: 0, 0: draw.randint(1, 10**5), 1: 0}
        work = StepWork(sent, {-1: 0, 0: 0, 1: sent[0]}, frozenset(), ops)
        works.append(work)
        names.append([[f"{step}.{device}.{place}" for place in range(len(mine))] for device, mine in enumerate(ops)])
        busy = tuple(work.computing(right, device) for device in range(2))
        computing.append(busy)
        steps.append(max(busy) + right.router.seconds(sent[0], 0))
        nodes.append(
            [
                {name: times[kind].seconds(macs, size) for name, (kind, macs, size) in zip(own, mine, strict=True)}
                for own, mine in zip(names[-1], ops, strict=True)
            ]
        )
    one = PassTimes(tuple(steps), tuple(zip(*computing, strict=True)))
    by_device = tuple(tuple(step[device] for step in nodes) for device in range(2))
    wrong = replace(right, router=Router(5e6, 0.1), devices=tuple(replace(d, operators={}) for d in right.devices))
    return wrong, right, works, names, ThrottledRun((one, one, one), 1, by_device)


@pytest.mark.parametrize("seed", range(3))
def test_calibration_finds_the_figures_that_the_measurements_were_made_from(seed: int) -> None:
    wrong, right, works, names, run = linear(seed)
    found = calibrated(works, names, wrong, run)
    assert found.router.bandwidth == pytest.approx(right.router.bandwidth, rel=0.02)
    assert found.router.latency == pytest.approx(right.router.latency, rel=0.02)
    for ours, theirs in zip(found.devices, right.devices, strict=True):
        for kind, macs, size in itertools.product(("Conv", "Relu"), (0.0, 1e6), (1e3, 1e6)):
            if kind == "Conv" or not macs:
                assert ours.time_of(kind).seconds(macs, size) == pytest.approx(
                    theirs.time_of(kind).seconds(macs, size), rel=0.02
                )
    before, after = compared(works, wrong, run), compared(works, found, run)
    assert after.total == before.total
    assert sum(after.predicted) == pytest.approx(after.total, rel=0.01)
    assert np.allclose(after.predicted, after.measured, rtol=0.05)


def test_a_calibrated_cluster_is_a_cluster_file() -> None:
    wrong, _, works, names, run = linear(0)
    found = calibrated(works, names, wrong, run)
    again = parse_cluster(cluster_text(found), "again.toml")
    assert [(one.name, one.memory, one.cores) for one in again.devices] == [
        (one.name, one.memory, one.cores) for one in found.devices
    ]
    assert sum(work.seconds(again) for work in works) == pytest.approx(sum(work.seconds(found) for work in works), 1e-4)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells, and limits, the data of a process")
def test_room_that_a_device_does_not_have_is_not_given() -> None:
    fast = replace(slow(1), router=Router(1e9))
    wide = distributing.distribute(large_activations(), cluster=fast, method="single", effort=1.0)
    assert distributing.run_plan(wide, throttled="cores").executed is not None
    without = replace(wide, cluster=replace(wide.cluster, devices=(replace(wide.cluster.devices[0], memory=1),)))
    with pytest.raises(ClusterRunError):
        distributing.run_plan(without, throttled="cores")


def large_activations() -> bytes:
    """Return a network whose activations take some 64 MB."""
    net = Net()
    x = net.given(1, 4, 1024, 1024)
    return net.model(net.head(net.same("Relu", net.same("Sigmoid", net.same("Relu", net.same("Tanh", x)))), 2))
