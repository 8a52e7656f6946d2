"""What repetitions need, as the tracer and as liveness have it; the greedy and the local search."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.check.rewrite import check_rewrite
from memsched.graph.effects import Effects
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.rewrites.recompute.cost import judge, least_peak, work_of
from memsched.rewrites.recompute.greedy import GreedyResult, reduce_to
from memsched.rewrites.recompute.local import improve, prune
from memsched.rewrites.recompute.rewrite import rematerialise, repeatable
from memsched.rewrites.recompute.trace import Tracer
from memsched.targets.load import load_target
from tests.random_graphs import random_graph
from tests.rewrites.recompute.tiny_graphs import PLAIN, every_sequence, layered, tiny, tracer_of, unet

IDEAL = load_target("ideal")
PAPER = load_target("paper")


def repeated(rng: random.Random, graph: Graph, most: int) -> list[int]:
    """Return a random sequence with repetitions."""
    may = repeatable(graph)
    sequence = list(range(len(graph.ops)))
    for _ in range(rng.randint(0, most)):
        place = rng.randint(0, len(sequence))
        choices = [op for op in sequence[:place] if may[op]]
        if choices:
            sequence.insert(place, rng.choice(choices))
    return sequence


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_the_tracer_is_liveness_of_the_rewritten_graph(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(2, 12))
    # A second concatenation of one piece is laid out anew by the lowering.
    ops = [replace(op, views=op.views[:1] if not op.in_place else (), effects=Effects()) for op in graph.ops]
    graph = replace(graph, ops=tuple(ops))
    sequence = repeated(rng, graph, 4)
    tracer = Tracer(graph, work_of(graph).costs, repeatable(graph))
    found = rematerialise(graph, sequence, PLAIN)
    assert tuple(tracer.needed(sequence)) == found.sequence
    check_rewrite(graph, found.graph)
    if any(graph.tensors[o].size > graph.tensors[s].size for op in graph.ops for o, s in op.views):
        return
    ops = []
    for copy, number in zip(found.graph.ops, found.sequence, strict=True):
        op = graph.ops[number]
        now = {**dict(zip(op.inputs, copy.inputs, strict=True)), **dict(zip(op.outputs, copy.outputs, strict=True))}
        views = tuple((now[output], now[source]) for output, source in op.views)
        ops.append(replace(copy, views=views, in_place=tuple((now[o], now[s]) for o, s in op.in_place)))
    storage = Storage.of(replace(found.graph, ops=tuple(ops)))
    expected = evaluate(storage, range(len(ops))).footprints
    assert tuple(tracer.run(found.sequence).footprints) == expected


def test_cost_counts_repetitions_and_no_others() -> None:
    graph = unet()
    point = judge(graph, [0, 1, 2, 3, 4, 1, 5], PAPER, PLAIN)
    assert (point.extra_macs, point.extra_bytes, point.cost) == (0, 20, 20)
    assert judge(graph, [0, 1, 2, 3, 4, 0, 5], PAPER, PLAIN).sequence == (0, 1, 2, 3, 4, 5)


def test_the_skip_is_upsampled_again_where_it_is_read_again() -> None:
    graph = unet()
    tracer = tracer_of(graph, PAPER)
    assert tracer.run(range(6)).peak == 72
    found = reduce_to(tracer, range(6), 62)
    assert (found.sequence, found.cost) == ((0, 1, 2, 3, 4, 1, 5), 20)
    assert judge(graph, found.sequence, PAPER, PLAIN).peak == found.peak <= 62


@pytest.mark.parametrize("part", [0.95, 0.85, 0.7])
def test_what_is_claimed_holds_in_liveness(part: float) -> None:
    for seed in range(6):
        graph = layered(seed, 40)
        tracer = tracer_of(graph, IDEAL)
        budget = int(tracer.run(range(tracer.count)).peak * part)
        greedy = reduce_to(tracer, range(tracer.count), budget)
        better = improve(tracer, greedy, budget, most_steps=20_000)
        for found in (greedy, better):
            point = judge(graph, found.sequence, IDEAL, PLAIN)
            assert (point.peak, point.cost, point.sequence) == (found.peak, found.cost, found.sequence)
        assert better.peak <= max(budget, greedy.peak)
        assert better.cost <= greedy.cost or better.peak < greedy.peak


def test_what_may_not_be_repeated_is_not() -> None:
    graph = unet()
    ops = list(graph.ops)
    ops[1] = replace(ops[1], type="RandomUniformLike", effects=Effects(random=True))
    tracer = tracer_of(replace(graph, ops=tuple(ops)), PAPER)
    found = reduce_to(tracer, range(6), 62)
    assert Counter(found.sequence)[1] == 1
    assert found.peak > 62


def test_useless_repetitions_are_pruned() -> None:
    graph = unet()
    tracer = tracer_of(graph, PAPER)
    assert prune(tracer, (0, 1, 2, 3, 0, 4, 1, 5), 62) == (0, 1, 2, 3, 4, 1, 5)
    assert prune(tracer, (0, 1, 2, 3, 4, 1, 5), 72) == (0, 1, 2, 3, 4, 5)


def test_searches_are_repeatable() -> None:
    graph = layered(3, 60)
    runs = []
    for _ in range(2):
        tracer = tracer_of(graph, IDEAL)
        budget = int(tracer.run(range(tracer.count)).peak * 0.8)
        start = reduce_to(tracer, range(tracer.count), budget)
        runs.append((start, improve(tracer, start, budget, seed=7, most_steps=40_000)))
    assert runs[0] == runs[1]


def test_stop_ends_both() -> None:
    graph = layered(3, 60)
    tracer = tracer_of(graph, IDEAL)
    whole = tuple(range(tracer.count))
    peak = tracer.run(whole).peak
    assert reduce_to(tracer, whole, peak // 2, stop=lambda: True).sequence == whole
    start = GreedyResult(whole, peak, 0)
    assert improve(tracer, start, peak // 2, stop=lambda: True) == start


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_no_sequence_is_below_the_bound(seed: int) -> None:
    graph = tiny(random.Random(seed), 4)
    tracer = tracer_of(graph, IDEAL)
    bound = least_peak(tracer.graph, tracer.repeat)
    assert all(tracer.run(tracer.needed(sequence)).peak >= bound for sequence in every_sequence(graph, 2))
