"""The search as a whole: its frontier, and what it may not do."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.cost import judge
from memsched.rewrites.recompute.search import RematResult, search
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.load import load_target
from tests.rewrites.recompute.tiny_graphs import PLAIN, layered, unet

IDEAL = load_target("ideal")
PAPER = load_target("paper")


NO_TIME_LIMIT = Limits(None, effort=1.0)


def run(graph: Graph, most_extra: float) -> RematResult:
    schedule = schedule_graph(apply_target(graph, IDEAL), Run(NO_TIME_LIMIT)).schedule
    return search(graph, schedule.order, IDEAL, PLAIN, Run(NO_TIME_LIMIT), most_extra=most_extra)


@pytest.mark.parametrize("most_extra", [0.05, 0.2, 1.0])
def test_the_frontier_falls_and_every_point_is_true(most_extra: float) -> None:
    graph = layered(1, 40)
    found = run(graph, most_extra)
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
    assert found.best == [point for point in found.frontier if point.cost <= most_extra * found.total][-1]


def test_the_least_work_is_proven_where_the_graph_is_small() -> None:
    found = search(unet(), range(6), PAPER, PLAIN, Run(NO_TIME_LIMIT), most_extra=100.0)
    first, second = found.frontier[:2]
    assert (first.cost, first.sequence, first.peak) == (0, (0, 1, 2, 3, 4, 5), 72)
    assert (second.cost, second.sequence, second.status) == (20, (0, 1, 2, 3, 4, 1, 5), "optimal")
    assert second.peak <= 62


def test_never_worse_than_no_repetition() -> None:
    graph = layered(2, 30)
    order = tuple(range(len(graph.ops)))
    peak = evaluate(Storage.of(apply_target(graph, IDEAL)), order).peak
    none = search(graph, order, IDEAL, PLAIN, Run(NO_TIME_LIMIT), most_extra=0.0)
    assert none.best.peak <= peak
    assert none.best.cost == 0
    no_time = search(graph, order, IDEAL, PLAIN, Run(Limits(0)), most_extra=1.0)
    assert no_time.best.sequence == order
    stopped = search(graph, order, IDEAL, PLAIN, Run(NO_TIME_LIMIT, stop=lambda: True), most_extra=1.0)
    assert stopped.best.peak <= peak


def test_the_limit_of_time_is_kept() -> None:
    """In seconds of the processor, which other processes do not spend."""
    graph = layered(4, 120, width=10)
    order = range(len(graph.ops))
    started = time.process_time()
    search(graph, order, IDEAL, PLAIN, Run(Limits(1.0)), most_extra=1.0)
    assert time.process_time() - started < 8


def test_the_same_input_gives_the_same_result() -> None:
    graph = layered(6, 12, width=4)
    one, two = (run(graph, 0.2) for _ in range(2))
    assert (one.finished, two.finished) == (True, True)
    assert one.frontier == two.frontier


def test_multiply_accumulates_are_limited_by_themselves() -> None:
    graph = layered(3, 12, width=3)
    order = schedule_graph(apply_target(graph, IDEAL), Run(NO_TIME_LIMIT)).schedule.order
    free = search(graph, order, IDEAL, PLAIN, Run(NO_TIME_LIMIT), most_extra=0.2)
    most = free.best.extra_macs - 1
    found = search(graph, order, IDEAL, PLAIN, Run(NO_TIME_LIMIT), most_extra=0.2, most_macs=most)
    assert 0 <= max(point.extra_macs for point in found.frontier) <= most
    assert found.best.peak > free.best.peak
    # A complete search over work alone has not looked at all that this permits.
    assert (free.settled, found.settled) == (True, False)
