"""The simulation of ONNX Runtime's planner: by hand, against liveness, and against a naive second statement."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse
from tests.random_graphs import random_graph, random_order


def shaped(
    shapes: Mapping[str, tuple[int, ...]], ops: Sequence[tuple[str, list[str]]], outputs: Sequence[str]
) -> Graph:
    """Return a graph over bytes of these shapes; the first tensor is the caller's."""
    number = {name: index for index, name in enumerate(shapes)}
    tensors: list[Tensor] = []
    for name, shape in shapes.items():
        size = 1
        for dim in shape:
            size *= dim
        tensors.append(Tensor(name, size, shape, "uint8", external=not tensors))
    steps = tuple(Op(name, "Op", tuple(number[read] for read in reads), (number[name],)) for name, reads in ops)
    return Graph("g", tuple(tensors), steps, (0,), tuple(number[name] for name in outputs))


def test_worked_example() -> None:
    # a dies in b; c has a's shape and takes its bytes, so these are held through step 2 as well.
    shapes = {"x": (1,), "a": (4,), "b": (9,), "w": (8,), "v": (2,), "c": (4,), "y": (1,)}
    ops = [("a", ["x"]), ("b", ["a"]), ("w", ["b"]), ("v", ["w"]), ("c", ["v"]), ("y", ["c"])]
    graph = shaped(shapes, ops, ["y"])
    planned = PlannerGraph.of(graph)
    found = simulate_reuse(planned, range(6))
    assert found.footprints == (4, 13, 21, 14, 6, 5)
    assert [[graph.tensors[planned.storage.tensor_of[b]].name for b in pair] for pair in found.handed_on] == [
        ["c", "a"]
    ]
    assert simulate_reuse(planned, range(6), reuse=False).footprints == (4, 13, 17, 10, 6, 5)
    assert (found.peak, found.requested_peak) == (21, 21)


def test_the_buffer_that_died_last_is_taken() -> None:
    shapes = {"x": (1,), "a": (4,), "b": (4,), "c": (1,), "d": (1,), "e": (4,), "y": (1,)}
    ops = [("a", ["x"]), ("b", ["x"]), ("c", ["a"]), ("d", ["b"]), ("e", ["c", "d"]), ("y", ["e"])]
    planned = PlannerGraph.of(shaped(shapes, ops, ["y"]))
    named = planned.storage.tensor_of
    taken = simulate_reuse(planned, range(6)).handed_on
    assert (named.index(5), named.index(2)) in taken


@pytest.mark.parametrize(("shape", "outputs"), [((), ["y"]), ((4,), ["b", "y"])])
def test_scalars_and_graph_outputs_take_nothing(shape: tuple[int, ...], outputs: list[str]) -> None:
    shapes = {"x": (1,), "a": shape, "m": (3,), "b": shape, "y": (5,)}
    ops = [("a", ["x"]), ("m", ["a"]), ("b", ["m"]), ("y", ["b"])]
    assert not simulate_reuse(PlannerGraph.of(shaped(shapes, ops, outputs)), range(4)).handed_on


def test_an_unread_value_stays_to_the_end() -> None:
    shapes = {"x": (1,), "lost": (7,), "a": (4,), "y": (2,)}
    planned = PlannerGraph.of(shaped(shapes, [("lost", ["x"]), ("a", ["x"]), ("y", ["a"])], ["y"]))
    assert simulate_reuse(planned, range(3)).footprints == (7, 11, 13)


def test_only_whole_values_of_a_known_shape_have_a_kind() -> None:
    shapes = {"x": (4,), "a": (4,), "s": (), "e": (0, 3), "b": (4,), "c": (6,), "u": (4,), "d": (2, 2), "y": (4,)}
    ops = [("a", ["x"]), ("s", ["x"]), ("e", ["x"]), ("b", ["x"]), ("c", ["b", "s"]), ("u", ["x"]), ("d", ["x"])]
    graph = shaped(shapes, [*ops, ("y", ["a", "e", "c", "u", "d", "a"])], ["y"])
    # c consists of b and two bytes of its own; nothing says how large u is.
    views = tuple(replace(op, views=((5, 4),)) if op.name == "c" else op for op in graph.ops)
    tensors = tuple(replace(t, size=0, sized=False) if t.name == "u" else t for t in graph.tensors)
    planned = PlannerGraph.of(replace(graph, ops=views, tensors=tensors))
    named = [graph.tensors[tensor].name for tensor in planned.storage.tensor_of]
    assert dict(zip(named, planned.kind, strict=True)) == {
        "x": -1, "a": 0, "s": -1, "e": -1, "b": 0, "c": -1, "u": -1, "d": 1, "y": 0,
    }  # fmt: skip
    released = [[named[buffer] for buffer in buffers] for buffers in planned.released]
    assert released == [["x"], ["x"], ["x"], ["x"], ["b", "s"], ["x"], ["x"], ["e", "b", "c", "u", "d", "a"]]


def test_what_is_written_in_place_takes_no_dead_buffer() -> None:
    # p and q are dead when r is written over b: b has q's bytes, c takes p's, which are held meanwhile.
    shapes = {"x": (1,), "p": (4,), "q": (4,), "m": (9,), "b": (4,), "r": (4,), "c": (4,), "y": (2,)}
    ops = [("p", ["x"]), ("q", ["x"]), ("m", ["p", "q"]), ("b", ["m"]), ("r", ["b"]), ("c", ["r"]), ("y", ["c"])]
    graph = shaped(shapes, ops, ["y"])
    over = tuple(replace(op, in_place=((5, 4),)) if op.name == "r" else op for op in graph.ops)
    found = simulate_reuse(PlannerGraph.of(replace(graph, ops=over)), range(7))
    assert (found.footprints, found.handed_on) == ((4, 8, 17, 17, 8, 8, 6), ((4, 2), (6, 1)))


def test_bytes_that_one_reader_had_are_given_back() -> None:
    # a takes the bytes of lost, which nobody reads; they are given back with a.
    shapes = {"x": (1,), "lost": (4,), "a": (4,), "y": (2,), "z": (1,)}
    ops = [("lost", ["x"]), ("a", ["x"]), ("y", ["a"]), ("z", ["y"])]
    found = simulate_reuse(PlannerGraph.of(shaped(shapes, ops, ["z"])), range(4))
    assert (found.footprints, found.handed_on) == ((4, 4, 6, 3), ((2, 1),))
    # The other way round: lost takes what a had.
    ops = [("a", ["x"]), ("y", ["a"]), ("lost", ["y"]), ("z", ["y"])]
    shapes = {"x": (1,), "a": (4,), "y": (2,), "lost": (4,), "z": (1,)}
    found = simulate_reuse(PlannerGraph.of(shaped(shapes, ops, ["z"])), range(4))
    assert (found.footprints, found.handed_on) == ((4, 6, 6, 3), ((3, 1),))


def all_read(graph: Graph) -> Graph:
    """Return the graph with its unread tensors as outputs, and shapes, so that equal sizes are equal shapes."""
    read = {tensor for op in graph.ops for tensor in op.inputs}
    unread = [t for op in graph.ops for t in op.outputs if t not in read and t not in graph.outputs]
    tensors = tuple(replace(tensor, shape=(tensor.size,)) for tensor in graph.tensors)
    return replace(graph, tensors=tensors, outputs=(*graph.outputs, *unread))


def test_without_reuse_it_is_liveness() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        graph = all_read(random_graph(rng, rng.randint(0, 14)))
        storage = Storage.of(graph)
        order = random_order(rng, graph)
        profile, found = evaluate(storage, order), simulate_reuse(PlannerGraph.of(graph, storage), order, reuse=False)
        assert (found.footprints, found.peak) == (profile.footprints, profile.peak), seed
        bare = [size - storage.workspace[op] for size, op in zip(profile.footprints, order, strict=True)]
        assert found.requested_peak == max(bare, default=profile.peak), seed
        assert simulate_reuse(PlannerGraph.of(graph, storage), order).peak >= profile.peak, seed


def naive(graph: Graph, order: Sequence[int]) -> list[int]:
    """Return the footprints, by the planner's rules as they are told: for graphs without views and in-place writes."""
    readers = {t: [s for s, op in enumerate(order) if t in graph.ops[op].inputs] for t in range(len(graph.tensors))}
    given = set(graph.inputs)
    place: dict[int, int] = {}
    dead: list[int] = []
    spans: dict[int, list[int]] = {}
    for step, number in enumerate(order):
        op = graph.ops[number]
        for tensor in op.outputs:
            found = None
            if tensor not in graph.outputs and graph.tensors[tensor].size:
                found = next((d for d in dead if graph.tensors[d].shape == graph.tensors[tensor].shape), None)
            if found is not None:
                dead.remove(found)
            place[tensor] = tensor if found is None else found
            spans.setdefault(place[tensor], [step, step])
            last = len(order) if tensor in graph.outputs else max(readers[tensor], default=step)
            spans[place[tensor]][1] = max(spans[place[tensor]][1], last)
        for tensor in sorted(set(op.inputs), key=lambda t: -op.inputs[::-1].index(t)):
            if tensor not in given and tensor not in graph.outputs and readers[tensor][-1] == step:
                dead.insert(0, place[tensor])
    for tensor in given:
        if readers[tensor] or tensor in graph.outputs:
            spans[tensor] = [0, len(order) if tensor in graph.outputs else readers[tensor][-1]]
    sizes = {t: 0 if graph.tensors[t].external else graph.tensors[t].size for t in spans}
    return [
        sum(sizes[t] for t, (first, last) in spans.items() if first <= step <= last) + graph.ops[op].workspace
        for step, op in enumerate(order)
    ]


def test_against_a_naive_statement() -> None:
    handed_on = 0
    for seed in range(300):
        rng = random.Random(seed)
        graph = all_read(random_graph(rng, rng.randint(1, 14), views=False, in_place=False))
        if graph.variables:
            continue
        order = random_order(rng, graph)
        found = simulate_reuse(PlannerGraph.of(graph), order)
        assert list(found.footprints) == naive(graph, order), seed
        handed_on += len(found.handed_on)
    assert handed_on > 150
