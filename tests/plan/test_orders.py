"""Plans are chosen by what is paid for: the arena."""

from __future__ import annotations

import pytest

from memsched.check.schedule import check_schedule
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Schedule, Tensor
from memsched.plan.orders import Baseline, plan_together
from memsched.runtimes.graph_plan import GraphPlan
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.allocate.arena import packed
from memsched.solve.schedule.portfolio import schedule_graph

SIZES = (52, 86, 57, 69, 48, 28, 21, 73, 35, 25, 81)
EDGES = (
    ((0,), 1), ((0, 1), 2), ((0, 2), 4), ((0,), 3), ((3,), 5),
    ((4, 5), 9), ((2, 3), 6), ((5, 3), 7), ((6, 3), 8), ((7,), 10),
)  # fmt: skip
COSTLY = Graph(
    "costly",
    tuple(Tensor(f"t{index}", size) for index, size in enumerate(SIZES)),
    tuple(Op(f"op{output}", "Op", read, (output,)) for read, output in EDGES),
    (0,),
    (8, 9, 10),
)
"""The least peak is 226 bytes, but no order that has it fits into less than 229; the file's needs 227 for both."""


def planned(graph: Graph) -> tuple[GraphPlan, dict[str, Baseline]]:
    """Return the plan of the least peak, and the file's order."""
    storage = Storage.of(graph)
    found = schedule_graph(graph, Run(Limits(None)), storage=storage)
    order = tuple(range(len(graph.ops)))
    profile = evaluate(storage, order)
    file = Schedule(order, profile.in_place(storage, order), profile.peak, 0, "feasible", "", "given order")
    baseline = Baseline(graph, file, packed(graph, file, alignment=1, storage=storage), ())
    plan = GraphPlan(graph, found.schedule, check_schedule(graph, found.schedule), profile.peak, None, ())
    return plan, {"file_order": baseline}


@pytest.mark.parametrize("limit", [None, 0.0])
def test_the_files_order_wins_where_the_least_peak_takes_a_larger_arena(limit: float | None) -> None:
    plan, known = planned(COSTLY)
    assert (plan.schedule.peak, plan.schedule.status, known["file_order"].arena) == (226, "optimal", 227)
    found, allocation = plan_together(plan, known, 1, Run(Limits(limit)))
    assert allocation.arena == found.schedule.peak == found.checked.peak == 227
    assert (found.schedule.lower_bound, found.schedule.status) == (226, "feasible")
    assert not found.reordered
    kept, allocation = plan_together(plan, known, 1, Run(Limits(limit)), reorder=False)
    assert kept.schedule is plan.schedule
    assert allocation.arena >= 229


def test_where_the_arena_is_the_peak_nothing_is_looked_for() -> None:
    graph = Graph("chain", (Tensor("x", 4), Tensor("y", 6)), (Op("op", "Op", (0,), (1,)),), (0,), (1,))
    plan, known = planned(graph)
    told: list[object] = []
    found, allocation = plan_together(plan, known, 1, Run(Limits(None), on_progress=told.append))
    assert found is plan
    assert (allocation.arena, told) == (10, [])
