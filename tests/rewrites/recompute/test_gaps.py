"""What dropping values costs at least, against every sequence of tiny graphs, and on graphs of hundreds of ops."""

from __future__ import annotations

import random

import pytest

from memsched.rewrites.recompute.gaps import crowded, dropping_cost
from memsched.rewrites.recompute.greedy import reduce_to
from memsched.rewrites.recompute.nodes import Nodes
from memsched.rewrites.recompute.rewrite import rematerialise
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.rewrites.recompute.tiny_graphs import PLAIN, every_sequence, layered, tiny, tracer_of, unet

RUN = Run(Limits(None))


@pytest.mark.parametrize("target", ["paper", "ideal"])
def test_no_sequence_costs_less(target: str) -> None:
    bounds = []
    for seed in range(25):
        graph = tiny(random.Random(seed), 5)
        tracer = tracer_of(graph, load_target(target))
        nodes = Nodes(tracer, [(op,) for op in range(tracer.count)])
        kept = {tuple(tracer.needed(one, firsts=True)) for one in set(every_sequence(graph, 2))}
        all_ = {(tracer.run(one).peak, tracer.cost(one)) for one in kept}
        for budget in {peak for peak, _ in all_}:
            bounds.append(dropping_cost(nodes, budget, RUN))
            assert bounds[-1] <= min(cost for peak, cost in all_ if peak <= budget), (seed, budget)
    assert any(bounds)


def test_the_upsampling_is_what_must_be_dropped() -> None:
    tracer = tracer_of(unet(), load_target("paper"))
    nodes = Nodes(tracer, [(op,) for op in range(tracer.count)])
    assert [[gap for gap, _ in gaps] for _, gaps in crowded(nodes, 62)] == [[(1, 2, 5)]]
    assert dropping_cost(nodes, 62, RUN) == 20
    assert dropping_cost(nodes, 1_000, RUN) == 0


def test_hundreds_of_ops_are_bounded_within_a_limit_of_work() -> None:
    graph = layered(3, 300)
    tracer = tracer_of(graph, load_target("paper"))
    budget = int(0.8 * tracer.run(range(tracer.count)).peak)
    known = reduce_to(tracer, range(tracer.count), budget)
    assert known.peak <= budget
    # The greedy moves first executions, too: the bound is for their order.
    tracer = tracer_of(rematerialise(graph, tuple(dict.fromkeys(known.sequence)), PLAIN).graph, load_target("paper"))
    nodes = Nodes(tracer, [(op,) for op in range(tracer.count)])
    assert 0 < dropping_cost(nodes, budget, Run(Limits(None, effort=1.0))) <= known.cost
