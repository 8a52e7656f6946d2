"""Orders and addresses together: never worse, repeatable, and better where another order fragments less."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from memsched.check.schedule import check_allocation
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Allocation, Graph, Op, Schedule, Status, Tensor
from memsched.graph.packing import Block, Packing, height_of
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.allocate.arena import allocate
from memsched.solve.joint.improve import improve
from memsched.solve.joint.layout import Layout
from memsched.solve.schedule.portfolio import schedule_graph
from tests.random_graphs import random_graph, random_layered_graph
from tests.solve.joint.packing_brute_force import least_arena

FRAGMENTS = Graph(
    "fragments",
    tuple(Tensor(f"t{index}", size) for index, size in enumerate((54, 82, 78, 97, 30, 43, 33, 53, 76))),
    tuple(
        Op(f"op{index}", "Op", read, (index + 1,))
        for index, read in enumerate([(0,), (1, 0), (2,), (3, 0), (0,), (3, 5), (4, 6), (7, 3)])
    ),
    (0,),
    (8,),
)
"""Eight ops whose order in the file has the least peak, 229 bytes, but cannot be packed into less than 234."""


def improved(
    graph: Graph, order: tuple[int, ...], *, alignment: int = 1, bound: int = 0, limit: float | None = 60.0
) -> tuple[tuple[Schedule, Allocation], tuple[Schedule, Allocation]]:
    """Return order and addresses before and after."""
    storage = Storage.of(graph)
    profile = evaluate(storage, order)
    status: Status = "optimal" if bound == profile.peak else "feasible"
    schedule = Schedule(order, profile.in_place(storage, order), profile.peak, bound, status, "given", "given")
    allocation = allocate(graph, schedule, alignment=alignment, storage=storage)
    found = improve(graph, storage, schedule, allocation, run=Run(Limits(limit)), alignment=alignment)
    check_allocation(graph, *found)
    return (schedule, allocation), found


def test_another_order_of_the_same_peak_fragments_less() -> None:
    (before, _), (schedule, allocation) = improved(FRAGMENTS, tuple(range(8)), bound=229)
    assert before.peak == 229
    assert (schedule.peak, schedule.status, allocation.arena, allocation.status) == (229, "optimal", 229, "optimal")
    assert schedule.order != before.order
    alone = Graph(  # The same, held to the file's order.
        "alone", FRAGMENTS.tensors, FRAGMENTS.ops, FRAGMENTS.inputs, FRAGMENTS.outputs,
        dependencies=tuple((index, index + 1) for index in range(7)),
    )  # fmt: skip
    assert least_arena(alone, peak_limit=229) == 234
    _, (_, fixed) = improved(alone, tuple(range(8)), bound=229)
    # The program covers all orders and packings of so few ops, so that this is proven.
    assert (fixed.arena, fixed.lower_bound, fixed.status) == (234, 234, "optimal")


@pytest.mark.parametrize("seed", range(30))
def test_neither_peak_nor_arena_ever_grows(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, 20), views=False) if seed % 2 else random_layered_graph(rng, 20, width=6)
    order = tuple(range(len(graph.ops)))
    (schedule, allocation), (later, addresses) = improved(graph, order, alignment=rng.choice([1, 16]))
    assert later.peak <= schedule.peak
    assert addresses.arena <= allocation.arena
    if allocation.arena == allocation.lower_bound:
        assert later is schedule
        assert addresses is allocation


def test_the_same_input_gives_the_same_result() -> None:
    graph = random_layered_graph(random.Random(101), 20, width=8)
    storage = Storage.of(graph)
    schedule = schedule_graph(graph, Run(Limits(None)), storage=storage).schedule
    first, second = (improved(graph, schedule.order, bound=schedule.lower_bound, limit=None)[1] for _ in range(2))
    assert first == second
    assert first[1].arena == schedule.peak


def test_without_time_nothing_changes() -> None:
    (schedule, allocation), found = improved(FRAGMENTS, tuple(range(8)), limit=0.0)
    assert found == (schedule, allocation)


def test_a_limit_of_work_ends_it_without_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if no packing were ever found: then orders are tried until 150 in turn were in vain.
    asked: list[float] = []

    def fit(_: Layout, capacity: int, *, effort: float, run: Run) -> None:
        assert capacity
        assert run.limits.time_limit is None
        asked.append(effort)

    def stacked(blocks: Sequence[Block], run: Run) -> Packing:
        assert run.limits.time_limit is None
        offsets = tuple(itertools.accumulate([block.size for block in blocks], initial=0))[:-1]
        return Packing(offsets, height_of(blocks, offsets), 0, "feasible", "", "one on the other", 0, 0.0)

    monkeypatch.setattr(Layout, "fit", fit)
    monkeypatch.setattr("memsched.solve.joint.improve.pack", stacked)
    graph = random_layered_graph(random.Random(2), 60, width=10)
    storage = Storage.of(graph)
    schedule = schedule_graph(graph, Run(Limits(None, effort=0.02)), storage=storage, solver="greedy").schedule
    allocation = allocate(graph, schedule, alignment=64, storage=storage)
    tried = []
    for effort in (0.0, 0.05, 0.15, 1.0):
        asked.clear()
        improve(graph, storage, schedule, allocation, Run(Limits(None, effort=effort)), alignment=64)
        tried.append((len(asked), sum(asked)))
        assert sum(asked) <= effort
    assert tried == sorted(tried)
    assert tried[0] == (0, 0.0)
    assert 1 <= tried[1][0] < tried[3][0] < 50
