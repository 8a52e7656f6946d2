"""The full search over held values, against games and sequences that are tried out one by one."""

from __future__ import annotations

import math
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.graph.liveness import Storage
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute import cost
from memsched.rewrites.recompute.cost import PROOFS, RematPoint, judge, work_of
from memsched.rewrites.recompute.exact import cheapest, least_peak
from memsched.rewrites.recompute.holding import Game, relaxed
from memsched.rewrites.recompute.rewrite import repeatable
from memsched.rewrites.recompute.search import RematResult, search
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.load import load_target
from memsched.targets.model import Target
from tests.rewrites.recompute.moccasin import least_cost
from tests.rewrites.recompute.pebbles import least_points, mixed, sequences
from tests.rewrites.recompute.tiny_graphs import PLAIN, graph_of, tiny, tracer_of, unet

EXACT = [load_target(name) for name in ("ideal", "paper", "onnxruntime")]
"""Targets whose rules the game has exactly."""
GENEROUS = [load_target(name) for name in ("litert", "tflm-reference")]
MANY = 1_000_000
seeds = st.integers(0, 2**32)


def game_of(graph: Graph, target: Target, groups: tuple[tuple[int, ...], ...] | None = None) -> Game:
    return Game(relaxed(graph, target), work_of(graph).costs, repeatable(graph), groups)


def frontier(graph: Graph, target: Target) -> list[tuple[int, int]]:
    """Return (peak, cost) as the search has them, each sequence judged."""
    game = game_of(graph, target)
    points: list[tuple[int, int]] = []
    budget = sum(tensor.size for tensor in graph.tensors) + sum(op.workspace for op in graph.ops) + 1
    while True:
        found = cheapest(game, budget, most_moves=MANY)
        assert found.ended
        if found.sequence is None:
            assert found.bound == math.inf
            break
        point = judge(graph, [game.members[task][0] for task in found.sequence], target, PLAIN)
        assert point.cost == found.cost == found.bound
        assert point.peak <= found.peak <= budget
        while points and points[-1][1] >= point.cost:
            points.pop()
        points.append((point.peak, point.cost))
        budget = point.peak - 1
    least, _ = least_peak(game, 0, 10**6, most_moves=MANY)
    assert least == points[-1][0]
    return points


def graph_from(seed: int, most: int) -> Graph:
    rng = random.Random(seed)
    make = rng.choice([mixed, mixed, tiny])
    return make(rng, rng.randint(2, most))


@pytest.mark.parametrize("target", EXACT, ids=lambda target: target.name)
@settings(max_examples=60, deadline=None)
@given(seeds)
def test_every_least_cost_and_peak_is_that_of_a_game_of_single_drops(target: Target, seed: int) -> None:
    graph = graph_from(seed, 7)
    assert frontier(graph, target) == least_points(graph, target)


@pytest.mark.parametrize("target", EXACT, ids=lambda target: target.name)
@settings(max_examples=15, deadline=None)
@given(seeds)
def test_no_sequence_as_it_is_executed_is_better(target: Target, seed: int) -> None:
    graph = graph_from(seed, 4)
    found = sequences(graph, target, 7)
    least = [one for one in found if not any(p <= one[0] and c <= one[1] for p, c in found - {one})]
    assert sorted(least, reverse=True) == frontier(graph, target)


@pytest.mark.parametrize("target", GENEROUS, ids=lambda target: target.name)
@settings(max_examples=15, deadline=None)
@given(seeds)
def test_what_is_proven_holds_where_the_game_is_generous(target: Target, seed: int) -> None:
    rng = random.Random(seed)
    graph = mixed(rng, rng.randint(3, 4), tflite=True)
    game = game_of(graph, target)
    found = sequences(graph, target, 7)
    least, _ = least_peak(game, 0, 10**6, most_moves=MANY)
    assert least <= min(peak for peak, _ in found)
    for peak in {peak for peak, _ in found}:
        bound = cheapest(game, peak, most_moves=MANY).bound
        assert bound <= min(cost for other, cost in found if other <= peak)


def searched(graph: Graph, target: Target, most_extra: float) -> RematResult:
    """Search without any time."""
    order = schedule_graph(apply_target(graph, target), Run(Limits(rounds=2))).schedule.order
    return search(graph, order, target, PLAIN, Run(Limits(0), started=time.monotonic() - 1), most_extra=most_extra)


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_240_graphs_without_a_miss_or_a_false_claim_however_little_time_there_is(first: int) -> None:
    for seed in range(first, first + 40):
        rng = random.Random(seed)
        graph = (mixed if seed % 3 else tiny)(rng, rng.randint(5, 8))
        target = EXACT[seed % 2]
        true = least_points(graph, target)
        whole = searched(graph, target, most_extra=100.0)
        assert (whole.settled, whole.finished) == (True, True)
        assert [(point.peak, point.cost) for point in whole.frontier] == true, seed
        assert all(point.status == "optimal" for point in whole.frontier if point.cost)
        assert whole.lower_bound == whole.best.peak == true[-1][0]
        capped = searched(graph, target, most_extra=0.3)
        assert capped.best.peak == min(peak for peak, dearest in true if dearest <= 0.3 * capped.total)
        for point in (*whole.frontier, *capped.frontier):
            if point.status == "optimal":
                assert point.cost == min(dearest for peak, dearest in true if peak <= point.peak)


def test_first_executions_may_come_in_another_order() -> None:
    graph = tiny(random.Random(861), 6)
    target = load_target("paper")
    true = least_points(graph, target)
    peak, dearest = true[-1]
    fixed = least_cost(tracer_of(graph, target), peak, Run(Limits(20)))
    assert (fixed.status, fixed.cost, dearest) == ("optimal", 70, 12)
    found = search(graph, range(6), target, PLAIN, Run(Limits(0)), most_extra=100.0)
    assert (found.best.peak, found.best.cost, found.best.status) == (peak, 12, "optimal")
    # What is proven for groups of ops is not called optimal.
    point = RematPoint(peak, 70, 0, 0, (), cost_bound=70, scope="groups")
    assert (point.status, point.proof) == ("least_for_groups", PROOFS["groups"])


def test_a_limit_of_effort_ends_the_search_with_a_true_bound() -> None:
    rng = random.Random(3)
    graph = tiny(rng, 8)
    target = load_target("paper")
    true = least_points(graph, target)
    for moves in (0, 1, 5, 20, 100, 400):
        game = game_of(graph, target)
        for peak, least in true:
            found = cheapest(game, peak, most_moves=moves)
            assert found.bound <= least
            assert found.ended == (found.sequence is not None)
        bound, sequence = least_peak(game, 1, true[0][0], most_moves=moves)
        assert bound <= true[-1][0]
        assert sequence is None or bound == true[-1][0]
    stopped = cheapest(game_of(graph, target), true[-1][0] - 1, most_moves=MANY, stop=lambda: True)
    assert (stopped.sequence, stopped.ended) == (None, False) or stopped.ended


def test_groups_are_executed_as_one_and_proven_as_such() -> None:
    graph = unet()
    target = load_target("paper")
    game = game_of(graph, target, ((0,), (1,), (2,), (3, 4), (5,)))
    found = cheapest(game, 62, most_moves=MANY)
    assert found.sequence is not None
    assert [op for task in found.sequence for op in game.members[task]] == [0, 1, 2, 3, 4, 1, 5]
    assert found.cost == 20
    # With its reader the upsampling is dearer.
    game = game_of(graph, target, ((0,), (1, 2), (3,), (4,), (5,)))
    assert cheapest(game, 62, most_moves=MANY).cost > 20


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_whole_groups_never_cost_less_than_their_ops(seed: int) -> None:
    rng = random.Random(seed)
    graph = mixed(rng, rng.randint(4, 8))
    target = EXACT[seed % 3]
    lowered = relaxed(graph, target)
    groups = fuse(Storage.of(lowered)).tasks.members
    whole, single = game_of(graph, target, groups), game_of(graph, target)
    budget = 10**6
    while True:
        found = cheapest(whole, budget, most_moves=MANY)
        if found.sequence is None:
            break
        sequence = [op for task in found.sequence for op in whole.members[task]]
        point = judge(graph, sequence, target, PLAIN)
        assert point.peak <= found.peak
        assert point.cost <= found.cost
        assert cheapest(single, budget, most_moves=MANY).cost <= found.cost
        budget = found.peak - 1


def test_the_bound_without_a_search_is_one() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        graph = mixed(rng, rng.randint(2, 6))
        for target in EXACT:
            bound = cost.least_peak(apply_target(graph, target), repeatable(graph))
            assert bound <= least_points(graph, target)[-1][0], (seed, target.name)


def test_what_must_not_be_repeated_is_executed_once() -> None:
    ops = [("RandomNormalLike", (0,), 1), ("Conv", (1,), 1), ("Conv", (2,), 1), ("Conv", (1, 3), 1)]
    game = game_of(graph_of([2, 9, 3, 9, 3], ops), load_target("paper"))
    budget = 40
    while (found := cheapest(game, budget, most_moves=MANY)).sequence is not None:
        assert found.sequence.count(0) == 1
        budget = found.peak - 1
    assert found.bound == math.inf
