"""The one meaning of memory: worked examples of the definitions, and thousands of random graphs against them."""

from __future__ import annotations

import random
from dataclasses import replace

from memsched.check.schedule import check_schedule
from memsched.graph import dag
from memsched.graph.liveness import Storage, evaluate, match_in_place
from memsched.graph.model import Graph, InPlace, Op
from tests import brute_force
from tests.failures import fails
from tests.graph.examples import graph_of, schedule_of
from tests.random_graphs import random_graph, random_layered_graph, random_order
from tests.suites import Draws


def figures(graph: Graph, order: tuple[int, ...] | None = None) -> tuple[list[int], list[int]]:
    dag.validate(graph)
    profile = evaluate(Storage.of(graph), range(len(graph.ops)) if order is None else order)
    assert profile.peak == max(profile.footprints, default=profile.residues[0])
    return list(profile.footprints), list(profile.residues)


def test_a_chain_holds_input_and_output_of_each_step() -> None:
    ops = [Op("f", "Op", (0,), (1,)), Op("g", "Op", (1,), (2,))]
    assert figures(graph_of({"x": 10, "a": 30, "y": 5}, ops, ["x"], ["y"])) == ([40, 35], [10, 30, 5])


def test_branches_one_after_the_other_cost_less_than_side_by_side() -> None:
    # x -> a (100) -> c (10), x -> b (100) -> d (10), concatenated.
    sizes = {"x": 1, "a": 100, "b": 100, "c": 10, "d": 10, "y": 20}
    ops = [
        Op("a", "Op", (0,), (1,)),
        Op("b", "Op", (0,), (2,)),
        Op("c", "Op", (1,), (3,)),
        Op("d", "Op", (2,), (4,)),
        Op("y", "Op", (3, 4), (5,)),
    ]
    graph = graph_of(sizes, ops, ["x"], ["y"])
    assert figures(graph)[0] == [101, 201, 210, 120, 40]
    assert figures(graph, (0, 2, 1, 3, 4))[0] == [101, 111, 111, 120, 40]
    assert brute_force.optimal_peak(graph) == 120


def test_an_output_that_nobody_reads_lives_in_its_step_only() -> None:
    ops = [Op("f", "Op", (0,), (1, 2)), Op("g", "Op", (1,), (3,))]
    assert figures(graph_of({"x": 1, "a": 2, "mask": 50, "y": 4}, ops, ["x"], ["y"])) == ([53, 6], [1, 2, 4])


def test_an_input_that_nobody_reads_costs_nothing_and_a_kept_one_lives_to_the_end() -> None:
    ops = [Op("f", "Op", (1,), (2,)), Op("g", "Op", (2,), (3,))]
    sizes = {"unread": 70, "x": 10, "a": 20, "y": 30}
    assert figures(graph_of(sizes, ops, ["unread", "x"], ["y"])) == ([30, 50], [10, 20, 30])
    assert figures(graph_of(sizes, ops, ["unread", "x"], ["y", "x"])) == ([30, 60], [10, 30, 40])


def test_a_graph_output_that_is_read_lives_to_the_end() -> None:
    ops = [Op("f", "Op", (0,), (1,)), Op("g", "Op", (1,), (2,)), Op("h", "Op", (2,), (3,))]
    assert figures(graph_of({"x": 1, "a": 8, "b": 2, "y": 4}, ops, ["x"], ["a", "y"]))[0] == [9, 10, 14]


def test_variables_are_live_in_every_step_and_external_inputs_never() -> None:
    ops = [Op("f", "Op", (0, 1), (2,)), Op("g", "Op", (2,), (3,))]
    graph = graph_of({"x": 10, "state": 7, "a": 20, "y": 5}, ops, ["x"], ["y"], variables=["state"])
    assert figures(graph) == ([37, 32], [17, 27, 12])
    tensors = (replace(graph.tensors[0], external=True), *graph.tensors[1:])
    assert figures(replace(graph, tensors=tensors)) == ([27, 32], [7, 27, 12])


def test_workspace_counts_in_its_step_only() -> None:
    ops = [Op("f", "Op", (0,), (1,), workspace=100), Op("g", "Op", (1,), (2,))]
    assert figures(graph_of({"x": 1, "a": 2, "y": 3}, ops, ["x"], ["y"])) == ([103, 5], [1, 2, 3])


def test_a_view_is_counted_once_over_both_lifetimes() -> None:
    sizes = {"x": 1, "a": 10, "v": 10, "b": 4, "y": 4}
    ops = [
        Op("f", "Op", (0,), (1,)),
        Op("reshape", "Reshape", (1,), (2,), views=((2, 1),)),
        Op("g", "Op", (1,), (3,)),
        Op("h", "Op", (2, 3), (4,)),
    ]
    assert figures(graph_of(sizes, ops, ["x"], ["y"]))[0] == [11, 10, 14, 18]


def test_a_view_keeps_its_source_to_the_end_when_it_is_an_output() -> None:
    sizes = {"x": 1, "a": 10, "v": 10, "y": 4}
    ops = [
        Op("f", "Op", (0,), (1,)),
        Op("reshape", "Reshape", (1,), (2,), views=((2, 1),)),
        Op("g", "Op", (1,), (3,)),
    ]
    assert figures(graph_of(sizes, ops, ["x"], ["v", "y"])) == ([11, 10, 14], [1, 10, 10, 14])


def test_parts_of_a_concatenation_lie_in_it_and_its_constant_part_is_its_own() -> None:
    sizes = {"x": 1, "a": 10, "b": 20, "c": 35, "y": 2}
    ops = [
        Op("a", "Op", (0,), (1,)),
        Op("b", "Op", (0,), (2,)),
        Op("concat", "Concat", (1, 2), (3,), views=((3, 1), (3, 2))),
        Op("g", "Op", (3,), (4,)),
    ]
    graph = graph_of(sizes, ops, ["x"], ["y"])
    assert figures(graph) == ([11, 31, 35, 37], [1, 11, 30, 35, 2])
    assert Storage.of(graph).buffers_of[3] == (1, 2, 3)


def test_a_slice_keeps_all_of_its_source() -> None:
    sizes = {"x": 1, "a": 10, "part": 3, "y": 2}
    ops = [
        Op("f", "Op", (0,), (1,)),
        Op("slice", "Slice", (1,), (2,), views=((2, 1),)),
        Op("g", "Op", (2,), (3,)),
    ]
    assert figures(graph_of(sizes, ops, ["x"], ["y"]))[0] == [11, 10, 12]


def relu_graph(*, dies: bool) -> Graph:
    ops = [
        Op("f", "Op", (0,), (1,)),
        Op("relu", "Relu", (1,), (2,), in_place=((2, 1),)),
        Op("g", "Op", (2,) if dies else (1, 2), (3,)),
    ]
    return graph_of({"x": 1, "a": 10, "r": 10, "y": 2}, ops, ["x"], ["y"])


def test_in_place_needs_a_dying_input() -> None:
    assert figures(relu_graph(dies=True)) == ([11, 10, 12], [1, 10, 10, 2])
    assert figures(relu_graph(dies=False)) == ([11, 20, 22], [1, 10, 20, 2])


def test_in_place_needs_equal_sizes() -> None:
    graph = relu_graph(dies=True)
    tensors = list(graph.tensors)
    tensors[2] = replace(tensors[2], size=9)
    assert figures(replace(graph, tensors=tuple(tensors)))[0] == [11, 19, 11]


def test_in_place_waits_for_every_view_of_the_buffer() -> None:
    sizes = {"x": 1, "a": 10, "v": 10, "r": 10, "y": 2}
    ops = [
        Op("f", "Op", (0,), (1,)),
        Op("reshape", "Reshape", (1,), (2,), views=((2, 1),)),
        Op("relu", "Relu", (1,), (3,), in_place=((3, 1),)),
        Op("g", "Op", (2, 3), (4,)),
    ]
    graph = graph_of(sizes, ops, ["x"], ["y"])
    # The view is read after relu, so relu may not overwrite what it shows.
    assert figures(graph)[0] == [11, 10, 20, 22]
    with fails("in-place-live", "'a'"):
        check_schedule(graph, schedule_of(range(4), 22, [InPlace(2, 3, 1)]))
    early = replace(graph, ops=(*ops[:2], Op("g", "Op", (2,), (4,)), ops[2]), outputs=(4, 3))
    assert figures(early)[0] == [11, 10, 12, 12]


def test_only_one_output_takes_a_buffer_and_the_best_choice_is_found() -> None:
    sizes = {"x": 1, "a": 10, "p": 10, "q": 10, "y": 1}
    both = ((2, 1), (3, 1))
    ops = [
        Op("f", "Op", (0,), (1,)),
        Op("split", "Op", (1,), (2, 3), in_place=both),
        Op("g", "Op", (2, 3), (4,)),
    ]
    assert figures(graph_of(sizes, ops, ["x"], ["y"]))[0] == [11, 20, 21]


def test_what_is_written_to_a_state_needs_no_buffer() -> None:
    ops = [
        Op("assign", "Assign", (0,), (1, 2), views=((1, 0),)),
        Op("g", "Op", (1, 2), (3,), in_place=((3, 1), (3, 2))),
    ]
    graph = graph_of({"x": 4, "state": 4, "a": 6, "y": 6}, ops, ["x"], ["y"], ["state"])
    assert figures(graph) == ([14, 10], [8, 10, 10])
    storage = Storage.of(graph)
    assert storage == Storage(
        sizes=(4, 6, 6),
        creator=(-1, 0, 1),
        users=((0,), (1,), ()),
        kept=(False, False, True),
        creates=((1,), (2,)),
        reads=((0,), (1,)),
        takes=((), ((2, 1),)),
        workspace=(0, 0),
        preds=((), (0,)),
        succs=((1,), ()),
        tensor_of=(0, 2, 3),
        buffers_of=((0,), (), (1,), (2,)),
        variables=4,
    )
    assert (storage.initial_residue(), storage.remaining_uses()) == (8, [1, 1, 1])


def test_a_graph_without_ops_needs_its_kept_inputs() -> None:
    graph = graph_of({"x": 10, "unread": 5, "state": 3}, [], ["x", "unread"], ["x"], variables=["state"])
    assert figures(graph) == ([], [13])
    assert check_schedule(graph, schedule_of((), 13)).peak == 13


def test_footprints_and_residues_equal_the_definitions_on_random_graphs(draws: Draws) -> None:
    rng = random.Random(1)
    merged = 0
    for _ in range(draws(300, 1500)):
        graph = random_graph(rng, rng.randint(0, 14))
        dag.validate(graph)
        storage, order = Storage.of(graph), random_order(rng, graph)
        profile = evaluate(storage, order)
        assert list(profile.footprints) == brute_force.footprints(graph, order)
        assert list(profile.residues) == [
            brute_force.residue(graph, set(order[:step])) for step in range(len(order) + 1)
        ]
        schedule = schedule_of(order, profile.peak, profile.in_place(storage, order))
        assert check_schedule(graph, schedule).footprints == profile.footprints
        merged += len(schedule.in_place)
    assert merged > draws(200, 1000)


def test_footprints_above_the_residue_only_fall_as_more_was_executed() -> None:
    # The claim that the exact search's safe move rests on.
    rng = random.Random(2)
    for _ in range(300):
        graph = random_graph(rng, rng.randint(2, 9))
        orders = [random_order(rng, graph) for _ in range(2)]
        op = rng.randrange(len(graph.ops))
        small, large = sorted((set(order[: order.index(op)]) for order in orders), key=len)
        if not small <= large:
            small, large = small & large, small | large
        excess = [brute_force.footprint(graph, done, op) - brute_force.residue(graph, done) for done in (small, large)]
        change = [brute_force.residue(graph, done | {op}) - brute_force.residue(graph, done) for done in (small, large)]
        assert excess[1] <= excess[0]
        assert change[1] <= change[0]


def test_match_in_place_merges_the_most_bytes() -> None:
    rng = random.Random(3)
    for _ in range(2000):
        sizes = [rng.randint(1, 4) for _ in range(10)]
        every = [(created, read) for created in range(5) for read in range(5, 10) if sizes[created] == sizes[read]]
        pairs = [pair for pair in every if rng.random() < 0.7]
        rng.shuffle(pairs)
        chosen = match_in_place(pairs, sizes)
        assert set(chosen) <= set(pairs)
        assert len({created for created, _ in chosen}) == len({read for _, read in chosen}) == len(chosen)
        assert sum(sizes[created] for created, _ in chosen) == most(tuple(pairs), sizes)


def most(pairs: tuple[tuple[int, int], ...], sizes: list[int]) -> int:
    if not pairs:
        return 0
    (created, read), rest = pairs[0], pairs[1:]
    free = tuple(pair for pair in rest if pair[0] != created and pair[1] != read)
    return max(most(rest, sizes), sizes[created] + most(free, sizes))


def test_a_graph_of_100000_ops_is_evaluated() -> None:
    graph = random_layered_graph(random.Random(4), 100_000)
    dag.validate(graph)
    storage = Storage.of(graph)
    order = range(len(graph.ops))
    profile = evaluate(storage, order)
    checked = check_schedule(graph, schedule_of(order, profile.peak))
    assert checked.footprints == profile.footprints


def test_a_chain_of_views_and_in_place_writes_of_100000_ops_is_evaluated() -> None:
    count = 100_000
    sizes = {f"t{i}": 8 for i in range(count + 1)}
    ops = [
        Op(f"op{i}", "Op", (i,), (i + 1,), **({"views": ((i + 1, i),)} if i % 2 else {"in_place": ((i + 1, i),)}))  # type: ignore[arg-type]
        for i in range(count)
    ]
    graph = graph_of(sizes, ops, ["t0"], [f"t{count}"])
    assert set(figures(graph)[0]) == {8}
