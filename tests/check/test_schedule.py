"""The checker accepts what holds and rejects every kind of result that does not, one corruption at a time."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from memsched.base.errors import InternalError
from memsched.check import schedule as checker
from memsched.check.schedule import CheckedSchedule, check_allocation, check_reordering, check_schedule
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Allocation, Graph, InPlace, Op, Placement, Schedule, Tensor
from memsched.solve.allocate.arena import allocate
from tests.failures import fails
from tests.graph.examples import graph_of, schedule_of
from tests.random_graphs import random_graph, random_order

SIZES = {"x": 10, "a": 10, "v": 10, "b": 10, "c": 20, "d": 10, "y": 10}
OPS = [
    Op("relu", "Relu", (0,), (1,), in_place=((1, 0),)),
    Op("reshape", "Reshape", (1,), (2,), views=((2, 1),)),
    Op("tanh", "Tanh", (2,), (3,), in_place=((3, 2),)),
    Op("wide", "Conv", (3,), (4,), workspace=5),
    Op("other", "Conv", (3,), (5,)),
    Op("join", "Conv", (4, 5), (6,), in_place=((6, 5),)),
]
ORDER = (0, 1, 2, 3, 4, 5)
CHOICES = (InPlace(0, 1, 0), InPlace(2, 3, 1), InPlace(5, 6, 5))
PEAK = 40


def example() -> Graph:
    return graph_of(SIZES, OPS, ["x"], ["y"])


def good_schedule() -> Schedule:
    return schedule_of(ORDER, PEAK, CHOICES, lower_bound=PEAK, status="optimal")


def good_allocation() -> Allocation:
    """x, a, v and b share bytes 0..10, c lies behind, d and y share 30..40; the workspace lies behind c."""
    placements = (
        Placement((0, 1, 2, 3), 0, 10, 0, 4),
        Placement((4,), 10, 20, 3, 5),
        Placement((5, 6), 30, 10, 4, 5),
        Placement((), 30, 5, 3, 3),
    )
    return Allocation(placements, 40, 40, 1, "optimal", "by hand")


def test_the_hand_made_example_holds() -> None:
    checked = check_schedule(example(), good_schedule())
    assert checked.footprints == (10, 10, 10, 35, 40, 30)
    assert checked.bytes_of == (10, 10, 0, 10, 20, 10, 10)
    assert (checked.first_step[1], checked.last_step[1]) == (0, 2)
    check_allocation(example(), good_schedule(), good_allocation())


BAD_SCHEDULES: dict[str, tuple[Callable[[Schedule], Schedule], tuple[str, ...]]] = {
    "a step is missing": (lambda s: replace(s, order=s.order[:-1]), ("op-count", "5", "6")),
    "a step too many": (lambda s: replace(s, order=(*s.order, 5)), ("op-count", "7")),
    "an op twice": (lambda s: replace(s, order=(0, 1, 2, 3, 3, 5)), ("op-number", "op 3")),
    "an op that does not exist": (lambda s: replace(s, order=(0, 1, 2, 3, 4, 6)), ("op-number", "op 6")),
    "a negative op": (lambda s: replace(s, order=(0, 1, 2, 3, 4, -1)), ("op-number", "op -1")),
    "a reader before its input": (lambda s: replace(s, order=(0, 1, 2, 3, 5, 4)), ("order", "'d'")),
    "a peak too low": (lambda s: replace(s, peak=39, lower_bound=39), ("peak-claim", "39")),
    "a peak too high": (lambda s: replace(s, peak=41), ("peak-claim", "41")),
    "a bound above the peak": (lambda s: replace(s, lower_bound=41, status="feasible"), ("bound", "41")),
    "optimal with a lower bound": (lambda s: replace(s, lower_bound=39), ("bound", "39")),
    "a choice that the op does not permit": (
        lambda s: replace(s, in_place=(*s.in_place, InPlace(3, 4, 3))),
        ("in-place-forbidden",),
    ),
    "a choice of the wrong op": (lambda s: replace(s, in_place=(InPlace(1, 1, 0),)), ("in-place-forbidden",)),
    "a choice that writes a view": (lambda s: replace(s, in_place=(InPlace(1, 2, 1),)), ("in-place-forbidden",)),
    "the same choice twice": (lambda s: replace(s, in_place=(s.in_place[0], s.in_place[0])), ("in-place-twice",)),
}


@pytest.mark.parametrize("name", BAD_SCHEDULES)
def test_a_corrupted_schedule_is_rejected(name: str) -> None:
    corrupt, expected = BAD_SCHEDULES[name]
    with fails(*expected):
        check_schedule(example(), corrupt(good_schedule()))


def test_a_choice_left_out_changes_the_footprint() -> None:
    # Without the last choice step 5 holds c, d and y: 40 bytes, still the peak; without the first step 0 holds 20.
    without = replace(good_schedule(), in_place=CHOICES[1:])
    assert check_schedule(example(), without).footprints[0] == 20


def test_a_choice_over_bytes_that_are_still_needed_is_rejected() -> None:
    ops = [*OPS]
    ops[4] = replace(ops[4], in_place=((5, 3),))
    graph = graph_of(SIZES, ops, ["x"], ["y"])
    over_b = InPlace(4, 5, 3)
    check_schedule(graph, replace(schedule_of(ORDER, 35), in_place=(*CHOICES, over_b)))
    with fails("in-place-live"):
        check_schedule(graph, schedule_of((0, 1, 2, 4, 3, 5), 35, (*CHOICES, over_b)))
    kept = replace(graph, outputs=(6, 3))
    with fails("in-place-live"):
        check_schedule(kept, schedule_of(ORDER, 35, (*CHOICES, over_b)))


def test_a_choice_over_another_size_or_a_variable_is_rejected() -> None:
    ops = [*OPS]
    ops[3] = replace(ops[3], in_place=((4, 3),))
    with fails("in-place-live", "'c'", "'b'"):
        check_schedule(graph_of(SIZES, ops, ["x"], ["y"]), schedule_of((0, 1, 2, 4, 3, 5), PEAK, (InPlace(3, 4, 3),)))
    state = [Op("f", "Relu", (0,), (1,), in_place=((1, 0),))]
    graph = graph_of({"s": 4, "y": 4}, state, [], ["y"], variables=["s"])
    with fails("in-place-live"):
        check_schedule(graph, schedule_of((0,), 4, (InPlace(0, 1, 0),)))


def test_two_outputs_may_not_take_one_buffer() -> None:
    ops = [Op("split", "Split", (0,), (1, 2), in_place=((1, 0), (2, 0)))]
    graph = graph_of({"x": 4, "a": 4, "b": 4}, ops, ["x"], ["a", "b"])
    check_schedule(graph, schedule_of((0,), 8, (InPlace(0, 1, 0),)))
    with fails("in-place-twice"):
        check_schedule(graph, schedule_of((0,), 4, (InPlace(0, 1, 0), InPlace(0, 2, 0))))


def test_one_output_may_not_take_two_buffers() -> None:
    ops = [Op("f", "Op", (0,), (1, 2)), Op("add", "Add", (1, 2), (3,), in_place=((3, 1), (3, 2)))]
    graph = graph_of({"x": 1, "a": 4, "b": 4, "y": 4}, ops, ["x"], ["y"])
    check_schedule(graph, schedule_of((0, 1), 9, (InPlace(1, 3, 2),)))
    with fails("in-place-twice"):
        check_schedule(graph, schedule_of((0, 1), 9, (InPlace(1, 3, 2), InPlace(1, 3, 1))))


def test_tensors_of_several_buffers_are_not_written_in_place() -> None:
    ops = [
        Op("f", "Op", (0,), (1, 2)),
        Op("concat", "Concat", (1, 2), (3,), views=((3, 1), (3, 2)), in_place=((3, 1),)),
        Op("relu", "Relu", (3,), (4,), in_place=((4, 3),)),
    ]
    graph = graph_of({"x": 1, "a": 4, "b": 4, "c": 8, "y": 8}, ops, ["x"], ["y"])
    check_schedule(graph, schedule_of((0, 1, 2), 16))
    with fails("in-place-forbidden"):
        check_schedule(graph, schedule_of((0, 1, 2), 16, (InPlace(2, 4, 3),)))
    own_part = graph_of({"x": 1, "a": 4, "b": 4, "c": 12, "y": 8}, ops, ["x"], ["y"])
    with fails("in-place-forbidden"):
        check_schedule(own_part, schedule_of((0, 1, 2), 20, (InPlace(1, 3, 1),)))


def test_an_op_may_not_read_what_it_writes() -> None:
    graph = graph_of({"x": 1, "a": 4}, [Op("f", "Op", (0, 1), (1,))], ["x"], ["a"])
    with fails("order", "'a'"):
        check_schedule(graph, schedule_of((0,), 5))


def test_what_is_written_to_a_variable_keeps_no_source_alive() -> None:
    ops = [
        Op("assign", "Assign", (0,), (1,), views=((1, 0),)),
        Op("f", "Op", (1,), (2,)),
        Op("view", "Reshape", (1,), (3,), views=((3, 1),)),
    ]
    graph = graph_of({"x": 4, "s": 4, "a": 3, "v": 4}, ops, ["x"], ["a", "v"], variables=["s"])
    assert check_schedule(graph, schedule_of((0, 1, 2), 8)).footprints == (8, 7, 7)


def test_tensors_may_follow_each_other_in_one_buffer() -> None:
    ops = [Op("f", "Op", (0,), (1,)), Op("g", "Op", (1,), (2,)), Op("h", "Op", (2,), (3,))]
    graph = graph_of({"x": 4, "a": 4, "b": 4, "y": 4}, ops, ["x"], ["y"])
    places = (Placement((0, 2), 0, 4, 0, 2), Placement((1, 3), 4, 4, 0, 2))
    check_allocation(graph, schedule_of((0, 1, 2), 8), Allocation(places, 8, 8, 1, "optimal", ""))


def test_a_dependency_must_be_honoured() -> None:
    graph = replace(example(), dependencies=((3, 4),))
    check_schedule(graph, good_schedule())
    with fails("dependency", "'wide'", "'other'"):
        check_schedule(graph, replace(good_schedule(), order=(0, 1, 2, 4, 3, 5)))
    with fails("dependency", "'wide'"):
        check_schedule(replace(example(), dependencies=((3, 3),)), good_schedule())


def moved(index: int, **changes: object) -> Callable[[Allocation], Allocation]:
    def corrupt(allocation: Allocation) -> Allocation:
        placements = list(allocation.placements)
        placements[index] = replace(placements[index], **changes)  # type: ignore[arg-type]
        return replace(allocation, placements=tuple(placements))

    return corrupt


BAD_ALLOCATIONS: dict[str, tuple[Callable[[Allocation], Allocation], tuple[str, ...]]] = {
    "overlap": (moved(1, offset=9), ("overlap",)),
    "overlap inside": (moved(3, offset=12), ("overlap",)),
    "a negative offset": (moved(0, offset=-10), ("misaligned", "-10")),
    "misaligned": (lambda a: replace(a, alignment=4), ("misaligned", "10", "4")),
    "no alignment": (lambda a: replace(a, alignment=0), ("alignment", "0")),
    "a tensor without address": (moved(1, tensors=()), ("no-address", "'c'")),
    "a tensor with two addresses": (moved(1, tensors=(4, 2)), ("two-addresses",)),
    "a tensor that does not exist": (moved(1, tensors=(4, 99)), ("tensor-outside-graph", "99")),
    "too small": (moved(1, size=19), ("outgrown-buffer",)),
    "begins too late": (moved(1, first_step=4), ("outgrown-buffer",)),
    "ends too early": (moved(0, last_step=3), ("outgrown-buffer",)),
    "a negative size": (moved(3, size=-5), ("negative-buffer",)),
    "a negative lifetime": (moved(3, first_step=4), ("negative-buffer",)),
    "workspace without address": (lambda a: replace(a, placements=a.placements[:3]), ("no-address", "op 'wide'")),
    "workspace in another step": (moved(3, first_step=0, last_step=0), ("no-address", "op 'wide'")),
    "workspace too small": (moved(3, size=4), ("no-address", "op 'wide'")),
    "the arena too small": (lambda a: replace(a, arena=39, lower_bound=39), ("arena-claim", "39")),
    "the arena too large": (lambda a: replace(a, arena=41, lower_bound=41), ("arena-claim", "41")),
    "a bound above the arena": (lambda a: replace(a, lower_bound=41, status="feasible"), ("bound", "41")),
    "optimal with a lower bound": (lambda a: replace(a, lower_bound=39), ("bound", "39")),
    "tensors together that are live together": (
        lambda a: replace(a, placements=(Placement((0, 1, 2, 3, 5), 0, 10, 0, 5), a.placements[1])),
        ("buffer-shared",),
    ),
}


@pytest.mark.parametrize("name", BAD_ALLOCATIONS)
def test_a_corrupted_allocation_is_rejected(name: str) -> None:
    corrupt, expected = BAD_ALLOCATIONS[name]
    with fails(*expected):
        check_allocation(example(), good_schedule(), corrupt(good_allocation()))


def test_an_output_may_only_lie_where_its_in_place_choice_says() -> None:
    # y is written in place of a; b dies in the same step, but the op still reads it while it writes.
    ops = [Op("f", "Op", (0,), (1, 2)), Op("add", "Add", (1, 2), (3,), in_place=((3, 1),))]
    graph = graph_of({"x": 1, "a": 4, "b": 4, "y": 4}, ops, ["x"], ["y"])
    schedule = schedule_of((0, 1), 9, (InPlace(1, 3, 1),))
    right = (Placement((0,), 8, 1, 0, 0), Placement((1, 3), 0, 4, 0, 1), Placement((2,), 4, 4, 0, 1))
    check_allocation(graph, schedule, Allocation(right, 9, 9, 1, "optimal", ""))
    wrong = (right[0], Placement((1,), 0, 4, 0, 1), Placement((2, 3), 4, 4, 0, 1))
    with fails("buffer-shared", "'b' and 'y'"):
        check_allocation(graph, schedule, Allocation(wrong, 9, 9, 1, "optimal", ""))


def test_an_input_may_be_overwritten_by_an_output_that_nobody_reads() -> None:
    # Both live in step 0 only, and the output has the smaller index.
    ops = [Op("f", "Relu", (1,), (0,), in_place=((0, 1),)), Op("g", "Op", (), (2,))]
    graph = graph_of({"unread": 4, "x": 4, "y": 1}, ops, ["x"], ["y"])
    schedule = schedule_of((0, 1), 4, (InPlace(0, 0, 1),))
    allocation = Allocation((Placement((1, 0), 0, 4, 0, 0), Placement((2,), 0, 1, 1, 1)), 4, 4, 1, "optimal", "")
    check_allocation(graph, schedule, allocation)


def test_a_variable_needs_an_address_for_the_whole_run() -> None:
    ops = [Op("f", "Op", (0, 1), (2,)), Op("g", "Op", (2,), (3,))]
    graph = graph_of({"x": 2, "s": 3, "a": 4, "y": 5}, ops, ["x"], ["y"], variables=["s"])
    schedule = schedule_of((0, 1), 12)
    places = (Placement((0,), 7, 2, 0, 0), Placement((1,), 0, 3, 0, 1), Placement((2,), 3, 4, 0, 1))
    last = Placement((3,), 7, 5, 1, 1)
    check_allocation(graph, schedule, Allocation((*places, last), 12, 12, 1, "optimal", ""))
    short = (places[0], replace(places[1], last_step=0), places[2], last)
    with fails("outgrown-buffer", "'s'"):
        check_allocation(graph, schedule, Allocation(short, 12, 12, 1, "optimal", ""))


def test_random_corruptions_of_random_results_are_rejected() -> None:
    rng = random.Random(5)
    for _ in range(400):
        graph = random_graph(rng, rng.randint(3, 12), layable=True)
        storage, order = Storage.of(graph), random_order(rng, graph)
        profile = evaluate(storage, order)
        schedule = schedule_of(order, profile.peak, profile.in_place(storage, order))
        allocation = allocate(graph, schedule, alignment=1)
        check_allocation(graph, schedule, allocation)
        for delta in (-1, 1):
            with fails("peak-claim", f"{schedule.peak}"):
                check_schedule(graph, replace(schedule, peak=schedule.peak + delta))
        index = rng.randrange(len(allocation.placements)) if allocation.placements else None
        if index is None or not allocation.placements[index].size:
            continue
        gone = (*allocation.placements[:index], *allocation.placements[index + 1 :])
        with fails("no-address"):
            check_allocation(graph, schedule, replace(allocation, placements=gone))
        with pytest.raises(InternalError):
            check_allocation(graph, schedule, moved(index, size=allocation.placements[index].size - 1)(allocation))


def test_overlaps_are_found_exactly_where_two_rectangles_meet() -> None:
    rng = random.Random(6)
    found = 0
    for _ in range(3000):
        placements = []
        for _ in range(rng.randint(1, 5)):
            first = rng.randint(0, 5)
            placements.append(Placement((), rng.randint(0, 20), rng.randint(0, 8), first, first + rng.randint(0, 3)))
        overlap = any(
            a.size
            and b.size
            and a.offset < b.offset + b.size
            and b.offset < a.offset + a.size
            and a.first_step <= b.last_step
            and b.first_step <= a.last_step
            for i, a in enumerate(placements)
            for b in placements[:i]
        )
        arena = max(p.offset + p.size for p in placements)
        allocation = Allocation(tuple(placements), arena, 0, 1, "feasible", "")
        graph = graph_of({}, [], [], [])
        if overlap:
            found += 1
            with fails("overlap"):
                check_allocation(graph, schedule_of((), 0), allocation)
        else:
            check_allocation(graph, schedule_of((), 0), allocation)
    assert 500 < found < 2500


def with_op(graph: Graph, index: int, **changes: object) -> Graph:
    ops = list(graph.ops)
    ops[index] = replace(ops[index], **changes)  # type: ignore[arg-type]
    return replace(graph, ops=tuple(ops))


def with_tensor(graph: Graph, index: int, **changes: object) -> Graph:
    tensors = list(graph.tensors)
    tensors[index] = replace(tensors[index], **changes)  # type: ignore[arg-type]
    return replace(graph, tensors=tuple(tensors))


def test_a_reordering_keeps_ops_tensors_and_interface() -> None:
    graph = example()
    swapped = replace(graph, ops=tuple(graph.ops[i] for i in (0, 1, 2, 4, 3, 5)))
    check_reordering(graph, swapped)
    check_reordering(graph, with_op(graph, 0, in_place=()))
    check_reordering(graph, with_tensor(graph, 0, external=True))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda g: replace(g, ops=g.ops[:-1]), "reordering-differs"),
        (lambda g: replace(g, ops=(*g.ops, Op("more", "Op", (), ()))), "reordering-differs"),
        (lambda g: with_op(g, 0, name="renamed"), "reordering-differs"),
        (lambda g: with_op(g, 0, type="Tanh"), "reordering-differs"),
        (lambda g: with_op(g, 5, inputs=(5, 4)), "reordering-differs"),
        (lambda g: with_op(g, 5, inputs=(4,)), "reordering-differs"),
        (lambda g: with_op(g, 5, outputs=(5,)), "reordering-differs"),
        (lambda g: replace(g, outputs=(5,)), "reordering-differs"),
        (lambda g: replace(g, outputs=(6, 5)), "reordering-differs"),
        (lambda g: replace(g, inputs=()), "reordering-differs"),
        (lambda g: with_tensor(g, 1, size=11), "tensor-differs"),
        (lambda g: with_tensor(g, 1, shape=(10,)), "tensor-differs"),
        (lambda g: with_tensor(g, 1, dtype="int8"), "tensor-differs"),
        (lambda g: with_tensor(g, 1, name="other"), "reordering-differs"),
        (lambda g: replace(g, tensors=(*g.tensors, Tensor("more", 1))), "tensor-differs"),
    ],
)
def test_a_changed_graph_is_no_reordering(change: Callable[[Graph], Graph], code: str) -> None:
    with fails(code):
        check_reordering(example(), change(example()))


def test_the_checker_shares_no_code_with_what_it_checks() -> None:
    tree = ast.parse(Path(checker.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {module for module in imported if module and module.startswith("memsched")}
    assert own == {"memsched.base.errors", "memsched.base.frozen", "memsched.graph.model"}


def test_a_tensor_behind_the_last_one_does_not_exist() -> None:
    bad = replace(good_allocation().placements[0], tensors=(0, 1, 2, 3, 7))
    with fails("tensor-outside-graph", "tensor 7"):
        check_allocation(
            example(), good_schedule(), replace(good_allocation(), placements=(bad, *good_allocation().placements[1:]))
        )


def test_the_first_op_twice() -> None:
    with fails("op-number", "op 0"):
        check_schedule(example(), replace(good_schedule(), order=(0, 0, 1, 2, 3, 4)))


def test_without_ops_what_is_given_and_kept_is_the_peak() -> None:
    graph = graph_of({"x": 10, "unread": 5, "state": 3}, [], ["x", "unread"], ["x"], ["state"])
    checked = check_schedule(graph, schedule_of((), 13))
    assert checked == CheckedSchedule((), 13, (0, -1, 0), (0, -1, 0), (10, 0, 3))


def test_a_view_beside_a_tensor_of_its_own() -> None:
    ops = [Op("f", "Op", (0,), (1, 2), views=((2, 0),)), Op("g", "Op", (1, 2), (3,))]
    graph = graph_of({"x": 4, "a": 3, "v": 4, "y": 1}, ops, ["x"], ["y"])
    checked = check_schedule(graph, schedule_of((0, 1), 8))
    assert checked == CheckedSchedule((7, 8), 8, (0, 0, -1, 1), (1, 1, -1, 1), (4, 3, 0, 1))
    places = (Placement((0, 2), 0, 4, 0, 1), Placement((1,), 4, 3, 0, 1), Placement((3,), 7, 1, 1, 1))
    check_allocation(graph, schedule_of((0, 1), 8), Allocation(places, 8, 8, 1, "optimal", ""))


@pytest.mark.parametrize("choice", [InPlace(0, 3, 0), InPlace(0, 2, 1)])
def test_what_is_permitted_is_a_pair(choice: InPlace) -> None:
    ops = [Op("f", "Op", (0, 1), (2, 3), in_place=((2, 0),))]
    graph = graph_of({"x": 4, "w": 4, "a": 4, "b": 4}, ops, ["x", "w"], ["a", "b"])
    check_schedule(graph, schedule_of((0,), 12, (InPlace(0, 2, 0),)))
    with fails("in-place-forbidden", "op 'f'"):
        check_schedule(graph, schedule_of((0,), 12, (choice,)))


def test_pieces_of_a_concatenation_are_aligned_as_a_whole() -> None:
    ops = [Op("f", "Op", (0,), (1, 2)), Op("c", "Concat", (1, 2), (3,), views=((3, 1), (3, 2)))]
    graph = graph_of({"x": 4, "a": 3, "b": 5, "c": 8}, ops, ["x"], ["c"])
    places = (Placement((0,), 8, 4, 0, 0), Placement((1,), 0, 3, 0, 1), Placement((2,), 3, 5, 0, 1))
    check_allocation(graph, schedule_of((0, 1), 12), Allocation(places, 12, 12, 4, "optimal", ""))
    moved_by_two = tuple(replace(place, offset=place.offset + 2) for place in places[1:])
    far = replace(places[0], offset=12)
    with fails("misaligned", "'c'", "2", "4"):
        check_allocation(graph, schedule_of((0, 1), 12), Allocation((far, *moved_by_two), 16, 12, 4, "feasible", ""))


def test_a_view_beside_another_output_lies_inside_what_it_shows() -> None:
    shown = Op("f", "Op", (0,), (1, 2), views=((2, 0),), view_offsets=(1,))
    graph = graph_of({"x": 4, "a": 3, "v": 4}, [shown], ["x"], ["a", "v"])
    places = (Placement((0,), 0, 4, 0, 0), Placement((1,), 4, 3, 0, 0))
    with fails("view-outside", "'v'", "'x'"):
        check_allocation(graph, schedule_of((0,), 7), Allocation(places, 7, 7, 1, "optimal", ""))


def test_a_piece_as_large_as_all_leaves_no_room_for_another() -> None:
    ops = [
        Op("f", "Op", (0,), (1, 2)),
        Op("c", "Concat", (1, 2), (3,), views=((3, 1), (3, 2)), view_offsets=(0, 2)),
    ]
    graph = graph_of({"x": 1, "a": 4, "b": 2, "c": 4}, ops, ["x"], ["c"])
    places = (Placement((0,), 6, 1, 0, 0), Placement((1,), 0, 4, 0, 1), Placement((2,), 4, 2, 0, 1))
    with fails("pieces-overlap", "'c'"):
        check_allocation(graph, schedule_of((0, 1), 7), Allocation(places, 7, 7, 1, "optimal", ""))


def test_a_slice_may_be_a_piece() -> None:
    # s is bytes 2 to 6 of x, and c is s with two bytes of its own behind it.
    ops = [
        Op("s", "Slice", (0,), (1,), views=((1, 0),), view_offsets=(2,)),
        Op("c", "Concat", (1,), (2,), views=((2, 1),)),
    ]
    graph = graph_of({"x": 6, "s": 4, "c": 6}, ops, ["x"], ["c"])
    places = (Placement((0,), 0, 6, 0, 1), Placement((2,), 6, 2, 1, 1))
    check_allocation(graph, schedule_of((0, 1), 8), Allocation(places, 8, 8, 1, "optimal", ""))
    far = (places[0], replace(places[1], offset=7))
    with fails("pieces-misplaced", "'c'"):
        check_allocation(graph, schedule_of((0, 1), 8), Allocation(far, 9, 8, 1, "feasible", ""))


@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        ((0, 5), "pieces-scattered"),
        ((1, 6), "pieces-scattered"),
        ((0, 9), "pieces-outside"),
        ((0, 3), "pieces-overlap"),
    ],
)
def test_pieces_leave_one_range_or_none(offsets: tuple[int, int], code: str) -> None:
    ops = [
        Op("f", "Op", (0,), (1, 2)),
        Op("c", "Concat", (1, 2), (3,), views=((3, 1), (3, 2)), view_offsets=offsets),
    ]
    graph = graph_of({"x": 2, "a": 4, "b": 6, "c": 12}, ops, ["x"], ["c"])
    places = [(0, 12, 2, 0), (1, offsets[0], 4, 0), (2, offsets[1], 6, 0), (3, 20, 2, 1)]
    placements = tuple(
        Placement((tensor,), at, size, first, max(first, tensor > 0)) for tensor, at, size, first in places
    )
    with fails(code, "'c'"):
        check_allocation(graph, schedule_of((0, 1), 12), Allocation(placements, 22, 0, 1, "feasible", ""))


def test_nothing_needs_no_arena() -> None:
    check_allocation(graph_of({}, [], [], []), schedule_of((), 0), Allocation((), 0, 0, 1, "optimal", ""))
