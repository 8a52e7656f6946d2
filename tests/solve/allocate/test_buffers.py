"""Which tensors share a buffer, and from when to when: against the checker's own intervals."""

from __future__ import annotations

import random
from dataclasses import replace

from memsched.check.schedule import check_schedule
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, InPlace, Op, Schedule
from memsched.solve.allocate.buffers import Buffer, buffers
from tests.graph.examples import graph_of, schedule_of
from tests.random_graphs import random_graph, random_order


def planned(rng: random.Random, graph: Graph) -> Schedule:
    storage, order = Storage.of(graph), random_order(rng, graph)
    profile = evaluate(storage, order)
    return schedule_of(order, profile.peak, profile.in_place(storage, order))


def test_views_and_in_place_chains_are_one_buffer() -> None:
    ops = [
        Op("f", "Conv", (0,), (1,), workspace=7),
        Op("v", "Reshape", (1,), (2,), views=((2, 1),)),
        Op("relu", "Relu", (2,), (3,), in_place=((3, 2),)),
        Op("tanh", "Tanh", (3,), (4,), in_place=((4, 3),)),
        Op("g", "Conv", (4,), (5,)),
    ]
    graph = graph_of({"x": 1, "a": 8, "v": 8, "r": 8, "t": 8, "y": 2}, ops, ["x"], ["y"])
    schedule = schedule_of(range(5), 16, (InPlace(2, 3, 1), InPlace(3, 4, 3)))
    assert buffers(graph, schedule) == (
        Buffer(7, 0, 0, ()),
        Buffer(1, 0, 0, (0,)),
        Buffer(8, 0, 4, (1, 2, 3, 4)),
        Buffer(2, 4, 4, (5,)),
    )
    apart = schedule_of(range(5), 16)
    assert [buffer.tensors for buffer in buffers(graph, apart)] == [(), (0,), (1, 2), (3,), (4,), (5,)]


def test_what_costs_nothing_needs_no_address() -> None:
    sizes = {"x": 4, "unread": 4, "caller": 4, "s": 3, "empty": 0, "y": 2}
    ops = [Op("f", "Conv", (0, 2, 3), (4, 5))]
    graph = graph_of(sizes, ops, ["x", "unread", "caller"], ["y"], variables=["s"])
    tensors = [replace(t, external=t.name == "caller") for t in graph.tensors]
    found = buffers(replace(graph, tensors=tuple(tensors)), schedule_of((0,), 9))
    assert found == (Buffer(4, 0, 0, (0,)), Buffer(3, 0, 0, (3,)), Buffer(2, 0, 0, (5,)))


def test_a_concatenation_lies_with_its_own_part() -> None:
    ops = [
        Op("a", "Conv", (0,), (1,)),
        Op("b", "Conv", (0,), (2,)),
        Op("c", "Concat", (1, 2), (3,), views=((3, 1), (3, 2))),
    ]
    whole = graph_of({"x": 1, "a": 2, "b": 3, "c": 5}, ops, ["x"], ["c"])
    assert [buffer.tensors for buffer in buffers(whole, schedule_of(range(3), 6))] == [(0,), (1,), (2,)]
    with_constant = graph_of({"x": 1, "a": 2, "b": 3, "c": 9}, ops, ["x"], ["c"])
    found = buffers(with_constant, schedule_of(range(3), 9))
    assert found[-1] == Buffer(4, 2, 2, (3,), group=0, distance=5)
    assert [(buffer.group, buffer.distance) for buffer in found] == [(None, 0), (0, 0), (0, 2), (0, 5)]


def test_buffers_hold_what_the_checker_counts() -> None:
    rng = random.Random(17)
    for _ in range(800):
        graph = random_graph(rng, rng.randint(0, 14), layable=True)
        schedule = planned(rng, graph)
        checked = check_schedule(graph, schedule)
        found = buffers(graph, schedule)
        live = [0] * max(len(graph.ops), 1)
        for buffer in found:
            owners = [tensor for tensor in buffer.tensors if checked.bytes_of[tensor]]
            if buffer.tensors:
                assert {checked.bytes_of[tensor] for tensor in owners} == {buffer.size}
                assert min(checked.first_step[tensor] for tensor in owners) == buffer.first_step
                assert max(checked.last_step[tensor] for tensor in owners) == buffer.last_step
            for step in range(buffer.first_step, buffer.last_step + 1):
                live[step] += buffer.size
        assert max(live) == schedule.peak
        assert not graph.ops or tuple(live) == checked.footprints
