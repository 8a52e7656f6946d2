"""The checker of distributions finds what is wrong with a plan."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from memsched.check.distribution import Needs, check_distribution
from memsched.features.distribute.checking import check_plan
from memsched.graph.distribution import Computation, Distribution, Share, Step, Transfer
from memsched.graph.model import Graph, Op, Region, Tensor
from tests.distributed_nets import plan_of
from tests.failures import fails
from tests.features.distribute.graphs import channels, cluster, figure, rows

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


EXPECTED = {
    "a transfer is missing": ("part-missing", "step 1", "device 1", "'conv1'", "op 'conv2'"),
    "a transfer comes twice": ("held-already", "step 1", "device 1", "'conv1'"),
    "the sender does not hold it": ("not-held", "step 1", "device 2", "'conv1'"),
    "it is no input": ("no-such-input", "step 1", "'conv1'"),
    "there is no such sender": ("not-held", "step 1", "device 9", "'conv1'"),
    "there is no such target": ("device-outside-plan", "step 1", "device 9"),
    "it is sent to nobody": ("part-targets", "step 1", "'conv1'", "[]"),
    "the size is wrong": ("part-size", "step 1", "'conv1'", "1 bytes"),
    "the region is none": ("no-part", "step 1", "((0, 1), (0, 2), (0, 9), (0, 1))", "'conv1'"),
    "a device computes too little": ("share-differs", "step 0", "device 0", "op 'conv1'"),
    "a device computes nothing": ("share-differs", "step 0", "device 0", "op 'conv1'"),
    "an op comes too early": ("not-its-turn", "step 0", "device 0", "op 1"),
    "a device too few": ("device-count", "step 0", "2 devices, not 3"),
    "a step is missing": ("op-count", "3 of 4"),
    "results are missing": ("output-incomplete", "device 0", "'add4'"),
    "outputs end elsewhere": ("output-incomplete", "device 1", "'add4'"),
    "the home does not exist": ("device-outside-plan",),
    "memory is wrong": ("memory-claim", "device 0", "216 bytes", "not 215"),
    "latency is wrong": ("latency-claim", "22.0 s", f"{PLAN.latency * 1.001} s"),
    "the bound is above it": ("bound", "22.0 s", f"{PLAN.latency * 1.001} s"),
    "bounds fall": ("share-falls", "op 'conv1'", "[0, 4, 2, 6]"),
    "bounds end early": ("share-end", "op 'conv1'", "at 5"),
    "a share is missing": ("share-count",),
    "the order is impossible": ("order", "op 'add4'"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_plan_does_not(what: str) -> None:
    with fails(*EXPECTED[what]):
        check_plan(figure(), BROKEN[what], cluster())


def test_memory_of_the_devices_counts() -> None:
    with fails("too-little-memory", "64"):
        check_plan(figure(), PLAN, cluster(memory=64))


def test_the_cluster_must_be_the_plan_s() -> None:
    with fails("device-count", "2"):
        check_plan(figure(), PLAN, cluster(2))


# By hand: f makes a and a scalar from x, g makes y from both; every element of x, a and y has 2 bytes.

HAND = Graph(
    "hand",
    (
        Tensor("x", 16, (2, 4), "int16"),
        Tensor("a", 16, (2, 4), "int16"),
        Tensor("s", 4, (), "int32"),
        Tensor("y", 16, (2, 4), "int16"),
    ),
    (Op("f", "F", (0,), (1, 2)), Op("g", "G", (1, 2), (3,))),
    (0,),
    (3,),
)


def box(*ranges: tuple[int, int]) -> Region:
    return Region(ranges)


LEFT, RIGHT = box((0, 2), (0, 2)), box((0, 2), (2, 4))
UPPER, LOWER, ALL = box((0, 1), (0, 4)), box((1, 2), (0, 4)), box((0, 2), (0, 4))
CORNER, OTHER_CORNER = box((0, 1), (2, 4)), box((1, 2), (0, 2))

GIVEN = Step(
    (Transfer(0, LEFT, -1, (0,), 8), Transfer(0, RIGHT, -1, (1,), 8)),
    ((Computation(0, LEFT),), (Computation(0, RIGHT),)),
)
EXCHANGED = Step(
    (Transfer(1, CORNER, 1, (0,), 4), Transfer(1, OTHER_CORNER, 0, (1,), 4)),
    ((Computation(1, UPPER),), (Computation(1, LOWER),)),
)
TWO = Distribution(
    devices=2,
    shares=(Share(0, "rows", (0, 2, 4)), Share(1, "channels", (0, 1, 2))),
    steps=(GIVEN, EXCHANGED),
    results=(Transfer(3, LOWER, 1, (0,), 8),),
    home=0,
    latency=1.0,
    lower_bound=1.0,
    memory=(38, 38),
    method="by hand",
)
FUSED = replace(
    TWO,
    steps=(
        Step(
            (Transfer(0, ALL, -1, (0, 1), 16),),
            ((Computation(0, UPPER), Computation(1, UPPER)), (Computation(0, LOWER), Computation(1, LOWER))),
        ),
    ),
    # x, a's row, the scalar, y's row, constants of 4 elements of f and of g; the results come when x is gone.
    memory=(16 + 8 + 4 + 14, 16 + 8 + 4 + 14),
)
ALONE = Distribution(
    devices=1,
    shares=(Share(0, "whole", (0, 1)), Share(1, "rows", (0, 4))),
    steps=(
        Step((Transfer(0, ALL, -1, (0,), 16),), ((Computation(0, ALL),),)),
        Step((), ((Computation(1, ALL),),)),
    ),
    results=(),
    home=0,
    latency=2.0,
    lower_bound=0.0,
    memory=(8 + 10 + 16 + 16 + 4,),
    method="by hand",
)


def hand_needs(op: int, region: Region) -> list[Region | None]:
    return [region] if op == 0 else [region, box()]


def hand_constants(op: int, region: Region) -> int:
    """One byte for every element of f, ten for g."""
    (top, bottom), (left, right) = region.ranges
    return (bottom - top) * (right - left) if op == 0 else 10


def reading(*regions: Region | None, first: int = 1) -> Needs:
    """Return needs of ``regions``, whatever is computed; ops before ``first`` need what they compute."""
    return lambda op, region: regions if op >= first else [region]


def check(plan: Distribution, graph: Graph = HAND) -> None:
    check_distribution(graph, plan, hand_needs, hand_constants)


def given(**changes: object) -> Distribution:
    """Return `TWO` with another first transfer of the first step."""
    first = replace(GIVEN.transfers[0], **changes)  # type: ignore[arg-type]
    return replace(TWO, steps=(replace(GIVEN, transfers=(first, GIVEN.transfers[1])), EXCHANGED))


def exchanged(**changes: object) -> Distribution:
    """Return `TWO` with another first transfer of the second step."""
    first = replace(EXCHANGED.transfers[0], **changes)  # type: ignore[arg-type]
    return replace(TWO, steps=(GIVEN, replace(EXCHANGED, transfers=(first, EXCHANGED.transfers[1]))))


def first_computes(*mine: Computation) -> Distribution:
    """Return `TWO` where device 0 computes ``mine`` in the second step."""
    return replace(TWO, steps=(GIVEN, replace(EXCHANGED, computations=(mine, EXCHANGED.computations[1]))))


def shares(first: Share) -> Distribution:
    return replace(TWO, shares=(first, TWO.shares[1]))


def test_plans_by_hand_pass() -> None:
    for plan in (TWO, FUSED, ALONE, replace(TWO, lower_bound=0.0), replace(TWO, lower_bound=1 + 1e-9)):
        check(plan)


def test_memory_is_what_is_held_at_once() -> None:
    for plan in (TWO, FUSED, ALONE):
        for device in range(plan.devices):
            for wrong in (-1, 1):
                memory = tuple(size + wrong * (number == device) for number, size in enumerate(plan.memory))
                with fails("memory-claim", f"device {device}", f"{plan.memory[device]} bytes"):
                    check(replace(plan, memory=memory))


def test_what_goes_ahead_was_there_before() -> None:
    made = replace(TWO, steps=(replace(GIVEN, ahead=EXCHANGED.transfers), replace(EXCHANGED, transfers=())))
    with fails("not-held", "step 0", "'a'"):
        check(made)
    # An input of the network does not go ahead, and what goes ahead comes too late for the step itself.
    with fails("no-such-input", "step 0"):
        check(replace(TWO, steps=(replace(GIVEN, transfers=(), ahead=GIVEN.transfers), EXCHANGED)))
    late = replace(EXCHANGED, transfers=(), ahead=EXCHANGED.transfers)
    with fails("part-missing", "step 1", "'a'"):
        check(replace(TWO, steps=(GIVEN, late)))


def test_one_device_may_compute_all_of_an_op() -> None:
    whole = replace(
        TWO,
        shares=(Share(0, "whole", (0, 0, 1)), Share(1, "whole", (0, 1, 1))),
        steps=(
            Step((Transfer(0, ALL, -1, (1,), 16),), ((), (Computation(0, ALL),))),
            Step((Transfer(1, ALL, 1, (0,), 16), Transfer(2, box(), 1, (0,), 4)), ((Computation(1, ALL),), ())),
        ),
        results=(),
        memory=(16 + 4 + 16 + 10, 16 + 16 + 4 + 8),
    )
    check(whole)
    part = replace(whole.steps[0], computations=((), (Computation(0, LEFT),)))
    with fails("share-differs", "step 0", "device 1", "'f'"):
        check(replace(whole, steps=(part, whole.steps[1])))


def test_what_is_used_up_within_a_step_may_be_computed_anywhere() -> None:
    """Nobody needs a and s after the step, so no device has to make its share of them."""
    check(FUSED)
    read_later = replace(HAND, outputs=(3, 1))
    with fails("share-differs", "step 0", "device 0", "'f'"):
        check(FUSED, read_later)


def test_what_is_not_read_need_not_be_sent() -> None:
    plan = replace(TWO, steps=(GIVEN, replace(EXCHANGED, transfers=())), memory=(34, 34))
    with fails("part-missing", "step 1", "device 0", "'a'", "'g'"):
        check(plan)
    for unread in (None, box((0, 0), (0, 4)), box((0, 2), (3, 3))):
        check_distribution(HAND, plan, reading(unread, box()), hand_constants)


def guillotine(rng: random.Random, region: Region) -> list[Region]:
    """Cut a region into boxes."""
    axis = rng.randrange(2)
    start, stop = region.ranges[axis]
    if stop - start < 2 or rng.random() < 0.3:
        return [region]
    at = rng.randint(start + 1, stop - 1)
    sides = [list(region.ranges), list(region.ranges)]
    sides[0][axis], sides[1][axis] = (start, at), (at, stop)
    return [piece for side in sides for piece in guillotine(rng, Region(tuple(side)))]


def cells(region: Region) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(*span) for span in region.ranges)))


def test_what_is_read_is_covered_by_what_was_sent_cell_by_cell() -> None:
    rng = random.Random(17)
    tensors = (Tensor("x", 30, (5, 6), "int8"), Tensor("y", 30, (5, 6), "int8"))
    graph = Graph("one", tensors, (Op("f", "F", (0,), (1,)),), (0,), (1,))
    everything, lacking = box((0, 5), (0, 6)), 0
    for _ in range(400):
        pieces = guillotine(rng, everything)
        rng.shuffle(pieces)
        sent = pieces[: rng.randint(max(0, len(pieces) - 3), len(pieces))]
        spans = [sorted(rng.sample(range(size + 1), 2)) for size in (5, 6)]
        read = Region(tuple((start, stop) for start, stop in spans))
        plan = Distribution(
            devices=1,
            shares=(Share(0, "rows", (0, 5)),),
            steps=(
                Step(
                    tuple(Transfer(0, piece, -1, (0,), len(cells(piece))) for piece in sent),
                    ((Computation(0, everything),),),
                ),
            ),
            results=(),
            home=0,
            latency=1.0,
            lower_bound=0.0,
            memory=(30 + sum(len(cells(piece)) for piece in sent),),
            method="random",
        )
        needs = reading(read, first=0)
        if cells(read) <= {cell for piece in sent for cell in cells(piece)}:
            check_distribution(graph, plan, needs, lambda _op, _region: 0)
        else:
            lacking += 1
            with fails("part-missing", "device 0", "'x'", "'f'"):
                check_distribution(graph, plan, needs, lambda _op, _region: 0)
    assert 100 < lacking < 300


def test_a_piece_is_as_large_as_whole_bytes_hold_it() -> None:
    """Four-bit elements: three of eight are 2 bytes; a tensor without elements is as large as it says."""
    tensors = (Tensor("x", 4, (8,), "int4"), Tensor("e", 3, (0,), "string"), Tensor("y", 4, (8,), "int4"))
    graph = Graph("halves", tensors, (Op("f", "F", (0, 1), (2,)),), (0, 1), (2,))
    three, five, none = box((0, 3)), box((3, 8)), box((0, 0))
    plan = Distribution(
        devices=2,
        shares=(Share(0, "rows", (0, 3, 8)),),
        steps=(
            Step(
                (Transfer(0, three, -1, (0,), 2), Transfer(0, five, -1, (1,), 3), Transfer(1, none, -1, (0, 1), 3)),
                ((Computation(0, three),), (Computation(0, five),)),
            ),
        ),
        results=(Transfer(2, five, 1, (0,), 3),),
        home=0,
        latency=1.0,
        lower_bound=0.0,
        memory=(2 + 3 + 2, 3 + 3 + 3),
        method="by hand",
    )
    check_distribution(graph, plan, lambda _op, region: [region, none], lambda _op, _region: 0)


REFUSED = {
    "no device": (replace(ALONE, devices=0, home=0, memory=()), ("device-outside-plan",)),
    "a home below 0": (replace(TWO, home=-1), ("device-outside-plan",)),
    "memory of one device": (replace(TWO, memory=(38,)), ("device-outside-plan",)),
    "a bound below 0": (replace(TWO, lower_bound=-0.5), ("bound", "1.0 s", "-0.5 s")),
    "a bound above it": (replace(TWO, lower_bound=1.1), ("bound", "1.0 s", "1.1 s")),
    "no end": (replace(TWO, latency=float("inf")), ("bound", "inf s", "1.0 s")),
    "an op twice": (replace(TWO, shares=(*TWO.shares, TWO.shares[0])), ("share-count",)),
    "a bound too few": (
        shares(Share(0, "rows", (0, 4))),
        ("share-start", "op 'f'"),
    ),
    "it begins at 1": (
        shares(Share(0, "rows", (1, 2, 4))),
        ("share-start", "op 'f'"),
    ),
    "it falls": (shares(Share(0, "rows", (0, 5, 4))), ("share-falls", "op 'f'", "[0, 5, 4]")),
    "all of 2": (
        shares(Share(0, "whole", (0, 2, 2))),
        ("share-end", "op 'f'", "at 2"),
    ),
    "rows of 1": (
        shares(Share(0, "rows", (0, 1, 1))),
        ("share-end", "op 'f'", "at 1"),
    ),
    "the other way round": (replace(TWO, shares=TWO.shares[::-1]), ("order", "op 'g'")),
    "a device too many": (
        replace(TWO, steps=(replace(GIVEN, computations=(*GIVEN.computations, ())), EXCHANGED)),
        ("device-count", "step 0", "3 devices, not 2"),
    ),
    "nothing is computed": (replace(TWO, steps=()), ("op-count", "0 of 2")),
    "results that nobody holds": (
        replace(TWO, results=(Transfer(3, LOWER, 0, (1,), 8),)),
        ("not-held", "results", "device 0", "'y'"),
    ),
    "outside": (
        given(region=box((0, 2), (0, 5)), size=20),
        ("no-part", "step 0", "((0, 2), (0, 5))", "'x'"),
    ),
    "before the first": (
        given(region=box((0, 2), (-1, 2)), size=12),
        ("no-part", "step 0", "((0, 2), (-1, 2))", "'x'"),
    ),
    "nothing of it": (
        given(region=box((0, 2), (1, 1)), size=0),
        ("no-part", "step 0", "((0, 2), (1, 1))", "'x'"),
    ),
    "an axis too few": (given(region=box((0, 2)), size=4), ("no-part", "step 0", "'x'")),
    "larger": (given(size=9), ("part-size", "step 0", "'x'", "9 bytes")),
    "smaller": (given(size=7), ("part-size", "step 0", "'x'", "7 bytes")),
    "no input": (exchanged(source=-1), ("no-such-input", "step 1", "'a'")),
    "a sender below -1": (
        exchanged(source=-2),
        ("not-held", "step 1", "device -2", "'a'"),
    ),
    "a sender too many": (
        exchanged(source=2),
        ("not-held", "step 1", "device 2", "'a'"),
    ),
    "it has not all of it": (
        exchanged(region=UPPER, size=8),
        ("not-held", "step 1", "device 1", "'a'"),
    ),
    "to nobody": (exchanged(targets=()), ("part-targets", "step 1", "'a'", "[]")),
    "to one twice": (exchanged(targets=(0, 0)), ("part-targets", "step 1", "'a'", "[0, 0]")),
    "to itself": (exchanged(targets=(0, 1)), ("part-targets", "step 1", "'a'", "[0, 1]")),
    "to device 2": (exchanged(targets=(2,)), ("device-outside-plan", "step 1", "device 2")),
    "to device -1": (exchanged(targets=(-1,)), ("device-outside-plan", "step 1", "device -1")),
    "what it was sent before": (
        given(targets=(0, 1), region=ALL, size=16),
        ("held-already", "step 0", "device 1", "'x'"),
    ),
    "a part outside": (
        first_computes(Computation(1, box((0, 3), (0, 4)))),
        ("no-part", "step 1", "((0, 3), (0, 4))", "'y'"),
    ),
    "more than it has": (
        first_computes(Computation(1, ALL)),
        ("part-missing", "step 1", "device 0", "'a'", "op 'g'"),
    ),
    "an op again": (
        first_computes(Computation(0, LEFT), Computation(1, UPPER)),
        ("not-its-turn", "step 1", "device 0", "op 0"),
    ),
    "an op twice in a step": (
        first_computes(Computation(1, UPPER), Computation(1, UPPER)),
        ("order", "step 1", "device 0"),
    ),
    "the second op first": (
        replace(
            FUSED,
            steps=(replace(FUSED.steps[0], computations=(
                FUSED.steps[0].computations[0][::-1], FUSED.steps[0].computations[1],
            )),),
        ),
        ("order", "step 0", "device 0"),
    ),
    "not its share": (
        first_computes(Computation(1, CORNER)),
        ("share-differs", "step 1", "device 0", "op 'g'"),
    ),
    "not its share of the last op of a step": (
        replace(
            FUSED,
            steps=(
                replace(
                    FUSED.steps[0],
                    computations=((Computation(0, UPPER), Computation(1, CORNER)), FUSED.steps[0].computations[1]),
                ),
            ),
        ),
        ("share-differs", "step 0", "device 0", "op 'g'"),
    ),
    "nothing of its share": (first_computes(), ("share-differs", "step 1", "device 0", "op 'g'")),
    "the results stay": (replace(TWO, results=()), ("output-incomplete", "device 0", "'y'")),
    "the results are elsewhere": (replace(TWO, home=1), ("output-incomplete", "device 1", "'y'")),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_plan_by_hand_may_not_be(what: str) -> None:
    plan, expected = REFUSED[what]
    with fails(*expected):
        check(plan)
