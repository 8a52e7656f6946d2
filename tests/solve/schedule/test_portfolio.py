"""The portfolio: its solvers, limits, progress and proofs."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace

import pytest

from memsched.check.schedule import check_schedule
from memsched.graph.model import Graph, Op, Schedule, Tensor
from memsched.search.limits import Limits
from memsched.search.progress import Progress
from memsched.search.run import Run
from memsched.solve.schedule import portfolio, refine
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.solve.schedule.solvers import SOLVERS
from scripts.networks.randwire import random_cell
from scripts.networks.table import lowered
from tests.failures import fails
from tests.random_graphs import random_graph, random_layered_graph
from tests.solve.schedule.test_exact import chains


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_solver_is_worse_than_the_file(solver: str) -> None:
    rng = random.Random(7)
    for _ in range(25):
        graph = random_graph(rng, rng.randint(1, 10))
        result = schedule_graph(graph, Run(Limits(None)), solver=solver)
        checked = check_schedule(graph, result.schedule)
        assert checked.peak <= result.baselines["file"][1]
        if checked.peak == result.baselines["file"][1]:
            assert result.schedule.order == tuple(range(len(graph.ops)))


@pytest.mark.parametrize("solver", ["auto", "file"])
def test_a_file_order_that_is_known_is_not_evaluated_again(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(9)
    for _ in range(25):
        graph = random_graph(rng, rng.randint(1, 10))
        found = schedule_graph(graph, Run(Limits(None)), solver=solver).schedule
        given = schedule_graph(graph, Run(Limits(None)), solver="file").schedule
        with monkeypatch.context() as patched:
            if solver == "file":
                patched.setattr(portfolio, "evaluate", None)
            again = schedule_graph(graph, Run(Limits(None)), solver=solver, given=given).schedule
        assert replace(again, seconds=0.0) == replace(found, seconds=0.0)


def test_the_solvers_that_prove_agree() -> None:
    graph = chains(4, 4, (7, 1, 9, 3))
    peaks = {
        name: schedule_graph(graph, Run(Limits(None)), solver=name).schedule for name in ("auto", "exact", "cpsat")
    }
    assert {schedule.status for schedule in peaks.values()} == {"optimal"}
    assert len({schedule.peak for schedule in peaks.values()}) == 1


def test_a_time_limit_of_zero_keeps_the_best_cheap_order() -> None:
    graph = random_layered_graph(random.Random(3), 400, width=40)
    schedule = schedule_graph(graph, Run(Limits(0.0))).schedule
    assert schedule.status == "feasible"
    assert schedule.lower_bound < schedule.peak
    check_schedule(graph, schedule)


def test_stopping_keeps_the_best_order() -> None:
    graph = random_layered_graph(random.Random(3), 400, width=40)
    schedule = schedule_graph(graph, Run(Limits(None), stop=lambda: True)).schedule
    assert schedule.status == "feasible"
    check_schedule(graph, schedule)


def test_the_time_limit_is_kept() -> None:
    graph = random_layered_graph(random.Random(3), 2_000, width=300)
    # Of the processor: what others do meanwhile is not counted, and one process cannot spend more than passes.
    started = time.process_time()
    schedule = schedule_graph(graph, Run(Limits(3.0))).schedule
    assert time.process_time() - started < 6.0
    check_schedule(graph, schedule)


def test_time_says_only_when_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever has hardly enough time finds the same, in the same way, as whoever has far more.
    graph = lowered(random_cell(48, 1).SerializeToString(), "cell", "paper")
    monkeypatch.setattr(refine, "_FIRST_WORK", 0.005)

    def search(limit: float) -> tuple[Schedule, list[tuple[str, int, int | None]], int]:
        ticks, told = itertools.count(), list[Progress]()
        run = Run(Limits(limit), 0.0, clock=lambda: float(next(ticks)), on_progress=told.append)
        found = schedule_graph(graph, run).schedule
        return replace(found, seconds=0.0), [(p.stage, p.best_peak, p.lower_bound) for p in told], next(ticks)

    schedule, told, ticks = search(1e9)
    assert schedule.status == "optimal"
    assert search(ticks + 1)[:2] == (schedule, told)
    assert search(ticks // 2)[0].status == "feasible"


def test_rounds_of_growing_work_go_on_where_the_search_was() -> None:
    graph = lowered(random_cell(48, 1).SerializeToString(), "cell", "paper")
    alone = schedule_graph(graph, Run(Limits(None)), solver="exact").schedule
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refine, "_FIRST_WORK", 0.005)
        in_rounds = schedule_graph(graph, Run(Limits(1e6)), solver="exact").schedule
    assert (in_rounds.status, in_rounds.peak) == ("optimal", alone.peak)
    # Windows and dives are tried in between.
    assert in_rounds.states < 4 * alone.states


def test_dives_improve_what_cannot_be_proven() -> None:
    graph = random_layered_graph(random.Random(5), 120, width=14)
    result = schedule_graph(graph, Run(Limits(None, effort=1.0)), solver="exact")
    assert result.schedule.peak < min(peak for _, peak in result.baselines.values())


def test_progress_only_ever_improves() -> None:
    told: list[Progress] = []
    schedule_graph(chains(6, 5, (7, 1, 9, 3, 2)), Run(Limits(None), on_progress=told.append))
    assert [p.best_peak for p in told] == sorted((p.best_peak for p in told), reverse=True)
    bounds = [p.lower_bound for p in told if p.lower_bound is not None]
    assert len(bounds) == len(told)
    assert bounds == sorted(bounds)
    assert told[-1].best_peak == told[-1].lower_bound


def test_same_input_same_order() -> None:
    graph = chains(5, 5, (7, 1, 9, 3, 2))
    first = schedule_graph(graph, Run(Limits(None)))
    second = schedule_graph(graph, Run(Limits(None, workers=2)))
    assert first.schedule.order == second.schedule.order


def test_bad_arguments() -> None:
    graph = chains(2, 2, (3, 4))
    with fails("option-choice", "--solver magic"):
        schedule_graph(graph, Run(Limits(1.0)), solver="magic")
    backwards = Graph("bad", (Tensor("x", 1), Tensor("y", 1)), (Op("a", "Op", (1,), (1,)),), (0,), (1,))
    with fails("read-too-early", "'y'"):
        schedule_graph(backwards, Run(Limits(1.0)))


def test_graphs_without_ops() -> None:
    schedule = schedule_graph(Graph("empty", (Tensor("x", 4),), (), (0,), (0,)), Run(Limits(1.0))).schedule
    assert schedule.order == ()
    assert (schedule.peak, schedule.status) == (4, "optimal")
    nothing = schedule_graph(Graph("nothing", (Tensor("x", 0),), (), (0,), (0,)), Run(Limits(1.0))).schedule
    assert (nothing.peak, nothing.status) == (0, "optimal")
    assert nothing.proof


@pytest.mark.parametrize("partitions", [1, 2, 3, 6])
def test_partitioned_orders_are_valid_and_no_worse(partitions: int) -> None:
    rng = random.Random(partitions)
    for _ in range(20):
        graph = random_graph(rng, rng.randint(4, 12))
        result = schedule_graph(graph, Run(Limits(None)), partitions=partitions)
        assert check_schedule(graph, result.schedule).peak <= result.baselines["file"][1]
    whole = schedule_graph(chains(4, 5, (7, 1, 9, 3)), Run(Limits(None)))
    assert schedule_graph(chains(4, 5, (7, 1, 9, 3)), Run(Limits(None)), partitions=partitions).schedule.peak >= (
        whole.schedule.peak
    )


def test_no_partition_is_no_number() -> None:
    with fails("option-range", "--partitions 0"):
        schedule_graph(chains(2, 2, (3, 4)), Run(Limits(1.0)), partitions=0)
