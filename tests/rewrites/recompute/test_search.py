"""The search as a whole: its frontier, its budgets, and what it may not do."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.cost import PROOFS, judge
from memsched.rewrites.recompute.search import RematResult, search
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.load import load_target
from tests.rewrites.recompute.tiny_graphs import PLAIN, layered, unet

IDEAL = load_target("ideal")
PAPER = load_target("paper")


NO_TIME_LIMIT = Limits(None, effort=1.0)


def run(graph: Graph, part: float | None = None) -> RematResult:
    schedule = schedule_graph(apply_target(graph, IDEAL), Run(NO_TIME_LIMIT)).schedule
    budget = None if part is None else int(schedule.peak * part)
    return search(graph, schedule.order, IDEAL, PLAIN, Run(NO_TIME_LIMIT), budget=budget)


@pytest.mark.parametrize("part", [0.9, 0.75, None])
def test_the_frontier_falls_and_every_point_is_true(part: float | None) -> None:
    graph = layered(1, 40)
    found = run(graph, part)
    assert not found.frontier[0].cost
    for cheaper, dearer in pairwise(found.frontier):
        assert (cheaper.peak > dearer.peak, cheaper.cost < dearer.cost) == (True, True)
    for point in found.frontier[1:]:
        judged = judge(graph, point.sequence, IDEAL, PLAIN)
        assert (judged.peak, judged.cost, judged.extra_macs, judged.extra_bytes) == (
            *(point.peak, point.cost, point.extra_macs, point.extra_bytes),
        )
        assert point.peak >= found.lower_bound
    assert found.best in found.frontier
    if part is None:
        assert found.best == found.at_most(0.2)
    elif found.met:
        assert found.best == found.within(int(found.frontier[0].peak * part))
    else:
        assert found.best == found.frontier[-1]


def test_the_least_work_is_proven_where_the_graph_is_small() -> None:
    order = range(6)
    found = search(unet(), order, PAPER, PLAIN, Run(NO_TIME_LIMIT), budget=62)
    assert found.met
    assert (found.best.sequence, found.best.cost, found.best.status) == ((0, 1, 2, 3, 4, 1, 5), 20, "optimal")


def test_what_other_methods_found_is_proven_too() -> None:
    found = run(layered(8, 30, width=4), 0.93)
    assert found.met
    assert found.best.method != "CP-SAT"
    assert 0 < found.best.cost_bound <= found.best.cost
    assert found.best.proof == PROOFS["order"]


def test_no_work_where_none_is_needed() -> None:
    found = search(unet(), range(6), PAPER, PLAIN, Run(NO_TIME_LIMIT), budget=72)
    assert (found.best.cost, found.best.sequence, found.best.peak) == (0, (0, 1, 2, 3, 4, 5), 72)


def test_a_budget_that_nothing_meets_gives_the_least_peak() -> None:
    found = search(unet(), range(6), PAPER, PLAIN, Run(NO_TIME_LIMIT), budget=10)
    assert not found.met
    assert found.best.peak == found.frontier[-1].peak < 72


def test_never_worse_than_no_repetition() -> None:
    graph = layered(2, 30)
    order = tuple(range(len(graph.ops)))
    peak = evaluate(Storage.of(apply_target(graph, IDEAL)), order).peak
    none = search(graph, order, IDEAL, PLAIN, Run(NO_TIME_LIMIT), most_extra=0.0)
    assert none.best.peak <= peak
    assert none.best.cost == 0
    no_time = search(graph, order, IDEAL, PLAIN, Run(Limits(0)), budget=1)
    assert no_time.best.sequence == order
    stopped = search(graph, order, IDEAL, PLAIN, Run(NO_TIME_LIMIT, stop=lambda: True))
    assert stopped.best.peak <= peak


def test_the_limit_of_time_is_kept() -> None:
    """In seconds of the processor, which other processes do not spend."""
    graph = layered(4, 120, width=10)
    order = range(len(graph.ops))
    budget = evaluate(Storage.of(apply_target(graph, IDEAL)), order).peak * 7 // 10
    started = time.process_time()
    search(graph, order, IDEAL, PLAIN, Run(Limits(1.0)), budget=budget)
    assert time.process_time() - started < 8


def test_the_same_input_gives_the_same_result() -> None:
    graph = layered(6, 12, width=4)
    one, two = (run(graph, 0.85) for _ in range(2))
    assert (one.finished, two.finished) == (True, True)
    assert one.frontier == two.frontier


def test_multiply_accumulates_are_limited_by_themselves() -> None:
    graph = layered(3, 12, width=3)
    order = schedule_graph(apply_target(graph, IDEAL), Run(NO_TIME_LIMIT)).schedule.order
    free = search(graph, order, IDEAL, PLAIN, Run(NO_TIME_LIMIT))
    most = free.best.extra_macs - 1
    found = search(graph, order, IDEAL, PLAIN, Run(NO_TIME_LIMIT), most_macs=most)
    assert 0 <= max(point.extra_macs for point in found.frontier) <= most
    assert found.best.peak > free.best.peak
    # A complete search over work alone has not looked at all that this permits.
    assert (free.settled, found.settled) == (True, False)
