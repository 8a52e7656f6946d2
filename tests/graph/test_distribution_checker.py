"""The checker of distributions finds what is wrong with a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memsched.distribute.checking import check_plan
from memsched.distribute.plan import plan_of
from memsched.errors import InternalError
from memsched.graph.distribution import Computation, Distribution, Step
from memsched.graph.model import Region
from tests.distribute.graphs import channels, cluster, figure, rows

PLAN = plan_of(
    figure(),
    (rows(0, 0, 2, 4, 6), channels(1, 0, 1, 2, 2), rows(2, 0, 3, 6, 6), rows(3, 0, 2, 4, 6)),
    cluster(),
)


def with_step(number: int, change: Callable[[Step], Step]) -> Distribution:
    steps = [change(step) if place == number else step for place, step in enumerate(PLAN.steps)]
    return replace(PLAN, steps=tuple(steps))


def with_first_transfer(number: int, **changes: object) -> Distribution:
    def change(step: Step) -> Step:
        first, *others = step.transfers
        return replace(step, transfers=(replace(first, **changes), *others))  # type: ignore[arg-type]

    return with_step(number, change)


BROKEN = {
    "a transfer is missing": with_step(1, lambda step: replace(step, transfers=step.transfers[1:])),
    "a transfer comes twice": with_step(1, lambda step: replace(step, transfers=(*step.transfers, step.transfers[0]))),
    "the sender does not hold it": with_first_transfer(1, source=2),
    "it is no input": with_first_transfer(1, source=-1),
    "there is no such sender": with_first_transfer(1, source=9),
    "there is no such target": with_first_transfer(1, targets=(9,)),
    "it is sent to nobody": with_first_transfer(1, targets=()),
    "the size is wrong": with_first_transfer(1, size=1),
    "the region is none": with_first_transfer(1, region=Region(((0, 1), (0, 2), (0, 9), (0, 1)))),
    "a device computes too little": with_step(
        0,
        lambda step: replace(
            step,
            computations=(
                (Computation(0, Region(((0, 1), (0, 2), (0, 1), (0, 1)))),),
                *step.computations[1:],
            ),
        ),
    ),
    "a device computes nothing": with_step(0, lambda step: replace(step, computations=((), *step.computations[1:]))),
    "an op comes too early": with_step(0, lambda step: replace(step, computations=PLAN.steps[1].computations)),
    "a device too few": with_step(0, lambda step: replace(step, computations=step.computations[1:])),
    "a step is missing": replace(PLAN, steps=PLAN.steps[:-1]),
    "results are missing": replace(PLAN, results=PLAN.results[1:]),
    "outputs end elsewhere": replace(PLAN, home=1),
    "the home does not exist": replace(PLAN, home=3),
    "memory is wrong": replace(PLAN, memory=(PLAN.memory[0] - 1, *PLAN.memory[1:])),
    "latency is wrong": replace(PLAN, latency=PLAN.latency * 1.001),
    "the bound is above it": replace(PLAN, lower_bound=PLAN.latency * 1.001),
    "bounds fall": replace(PLAN, shares=(rows(0, 0, 4, 2, 6), *PLAN.shares[1:])),
    "bounds end early": replace(PLAN, shares=(rows(0, 0, 2, 4, 5), *PLAN.shares[1:])),
    "a share is missing": replace(PLAN, shares=PLAN.shares[1:]),
    "the order is impossible": replace(PLAN, shares=PLAN.shares[::-1]),
}


def test_a_good_plan_passes() -> None:
    check_plan(figure(), PLAN, cluster())


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_plan_does_not(what: str) -> None:
    with pytest.raises(InternalError):
        check_plan(figure(), BROKEN[what], cluster())


def test_memory_of_the_devices_counts() -> None:
    with pytest.raises(InternalError, match="has 64"):
        check_plan(figure(), PLAN, cluster(memory=64))


def test_the_cluster_must_be_the_plan_s() -> None:
    with pytest.raises(InternalError, match="2"):
        check_plan(figure(), PLAN, cluster(2))
