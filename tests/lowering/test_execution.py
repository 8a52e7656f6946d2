"""What the rules allow is safe: lowered, scheduled, allocated and executed byte by byte, no value is ever spoilt."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from msgspec.structs import replace as ruled

from memsched.check.schedule import check_allocation
from memsched.graph import dag
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Schedule
from memsched.lowering.apply import apply_target
from memsched.solve.allocate.arena import allocate
from memsched.targets.load import Target, load_target
from memsched.targets.model import InPlaceRule, PartViewRule
from tests.lowering.shaped_graphs import Machine, random_shaped_graph
from tests.random_graphs import random_order

TARGETS = ("ideal", "onnxruntime", "paper", "careless", "careless caller")


def target_named(name: str) -> Target:
    """A built-in target, or one whose rules permit more than any runtime: safety does not rest on the file."""
    if not name.startswith("careless"):
        return load_target(name)
    rules = (
        InPlaceRule(("Relu", "Add", "Sum", "Cast", "Equal"), elementwise=True),
        InPlaceRule(("Softmax",), inputs=(0,)),
    )
    caller = name.endswith("caller")
    return ruled(
        load_target("ideal"), in_place=rules, inputs="caller" if caller else "arena", overwrite_inputs=not caller
    )


def plan(rng: random.Random, graph: Graph) -> Schedule:
    storage, order = Storage.of(graph), random_order(rng, graph)
    profile = evaluate(storage, order)
    return Schedule(order, profile.in_place(storage, order), profile.peak, 0, "feasible", "", "")


@pytest.mark.parametrize("name", TARGETS)
def test_no_value_is_spoilt(name: str) -> None:
    rng = random.Random(14)
    target = target_named(name)
    shared = 0
    for number in range(500):
        graph = apply_target(random_shaped_graph(rng, rng.randint(1, 12)), target)
        dag.validate(graph)
        schedule = plan(rng, graph)
        allocation = allocate(graph, schedule, alignment=1)
        check_allocation(graph, schedule, allocation)
        Machine(graph, schedule, allocation, forwards=number % 2 == 0).run()
        shared += len(schedule.in_place) + sum(len(op.views) for op in graph.ops)
    assert shared > 300 or name == "paper"


@pytest.mark.parametrize(("alignment", "align_parts"), [(1, True), (4, True), (8, False)])
def test_parts_lie_where_their_values_are(alignment: int, align_parts: bool) -> None:
    rng = random.Random(16)
    parts = (
        PartViewRule(("Concat",), "concatenation"),
        PartViewRule(("Slice",), "slice"),
        PartViewRule(("Split",), "split"),
    )
    target = ruled(target_named("careless"), part_views=parts, alignment_bytes=alignment, align_parts=align_parts)
    tied = inner = 0
    for number in range(500):
        graph = apply_target(random_shaped_graph(rng, rng.randint(1, 12), parts=True), target)
        dag.validate(graph)
        schedule = plan(rng, graph)
        allocation = allocate(graph, schedule, alignment=alignment)
        check_allocation(graph, schedule, allocation)
        Machine(graph, schedule, allocation, forwards=number % 2 == 0).run()
        tied += sum(len(op.views) > 1 for op in graph.ops if op.type == "Concat")
        inner += sum(len(op.views) for op in graph.ops if op.type in {"Slice", "Split"})
    assert tied > 20
    assert inner > 100


def test_the_machine_finds_what_is_spoilt() -> None:
    rng = random.Random(15)
    target = target_named("careless")
    found = 0
    for _ in range(100):
        graph = apply_target(random_shaped_graph(rng, 8), target)
        schedule = plan(rng, graph)
        allocation = allocate(graph, schedule, alignment=1)
        crushed = replace(allocation, placements=tuple(replace(p, offset=0) for p in allocation.placements))
        try:
            Machine(graph, schedule, crushed, forwards=True).run()
        except AssertionError:
            found += 1
    assert found > 80
