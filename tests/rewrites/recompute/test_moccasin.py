"""Retention intervals against every sequence of tiny graphs."""

from __future__ import annotations

import random

import pytest

from memsched.rewrites.recompute.cost import judge
from memsched.rewrites.recompute.greedy import reduce_to
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.rewrites.recompute.moccasin import least_cost, with_firsts
from tests.rewrites.recompute.tiny_graphs import PLAIN, every_sequence, layered, tiny, tracer_of, unet

LIMITS = Limits(None)


@pytest.mark.parametrize("target", ["paper", "ideal"])
@pytest.mark.parametrize("copies", [2, 3])
def test_the_least_cost_of_every_budget(target: str, copies: int) -> None:
    rules = load_target(target)
    for seed in range(12):
        graph = tiny(random.Random(seed), 5 if copies == 2 else 4)
        tracer = tracer_of(graph, rules)
        kept = {tuple(with_firsts(tracer, one)) for one in set(every_sequence(graph, copies))}
        all_ = {(tracer.run(one).peak, tracer.cost(one)) for one in kept}
        peaks = sorted({peak for peak, _ in all_})
        for budget in [peaks[0] - 1, *peaks[:4]]:
            costs = [cost for peak, cost in all_ if peak <= budget]
            found = least_cost(tracer, budget, Run(LIMITS), copies=copies)
            if not costs:
                assert found.status == "infeasible"
                continue
            assert (found.status, found.cost, found.cost_bound) == ("optimal", min(costs), min(costs)), (seed, budget)
            assert found.sequence is not None
            assert judge(graph, found.sequence, rules, PLAIN).peak <= budget


def test_a_hint_is_never_made_worse_and_may_repeat_more_often() -> None:
    graph = layered(5, 20, width=4)
    tracer = tracer_of(graph, load_target("paper"))
    budget = int(tracer.run(range(tracer.count)).peak * 0.85)
    known = reduce_to(tracer, range(tracer.count), budget)
    assert known.peak <= budget
    tracer = tracer_of(graph, load_target("paper"))
    if tuple(dict.fromkeys(known.sequence)) == tuple(range(tracer.count)):
        found = least_cost(tracer, budget, Run(Limits(None, effort=1.0)), hint=known.sequence, most_cost=known.cost)
        assert found.sequence is not None
        assert found.cost <= known.cost


def test_groups_are_executed_as_one() -> None:
    graph = unet()
    tracer = tracer_of(graph, load_target("paper"))
    found = least_cost(tracer, 62, Run(LIMITS), groups=[(0,), (1,), (2,), (3, 4), (5,)])
    assert (found.sequence, found.status) == ((0, 1, 2, 3, 4, 1, 5), "optimal")
    # With the upsampling in one group with its reader, both count as repeated; what nobody reads is then left out.
    found = least_cost(tracer, 62, Run(LIMITS), groups=[(0,), (1, 2), (3,), (4,), (5,)])
    assert (found.sequence, found.cost) == ((0, 1, 2, 3, 4, 1, 5), 20)
    assert found.cost_bound > 20


def test_no_sequence_that_costs_too_much() -> None:
    tracer = tracer_of(unet(), load_target("paper"))
    assert least_cost(tracer, 62, Run(LIMITS), most_cost=19).status == "infeasible"
    assert least_cost(tracer, 62, Run(LIMITS), max_intervals=5).status == "refused"
    assert least_cost(tracer, 62, Run(LIMITS, stop=lambda: True)).status in {"unknown", "optimal"}
