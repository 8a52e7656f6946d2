"""The cut of an order into stages, against every cut there is."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from memsched.features.pipeline.condense import condense, parameters_of
from memsched.features.pipeline.possible import explain
from memsched.features.pipeline.respect import cut_order
from memsched.features.pipeline.respect_cut import best_cut
from memsched.graph.stages import Constraints, Network, Skips
from tests.features.pipeline.networks import communication_of, constraints, network, networks, parameters_of_stages


def test_a_chain_by_hand() -> None:
    # 5 3 | 4 2 1 | 6 has a peak of 8; so have 5 3 | 4 2 | 1 6: which of them depends on what crosses.
    edges = [(node, node + 1) for node in range(5)]
    for sizes, stages in (([9, 1, 9, 9, 1, 9], [0, 0, 1, 1, 1, 2]), ([9, 1, 9, 1, 9, 9], [0, 0, 1, 1, 2, 2])):
        net = network(edges, [5, 3, 4, 2, 1, 6], sizes)
        condensed = condense(net, Constraints(3))
        assert best_cut(condensed, parameters_of(net, condensed), range(6), 3) == stages


def test_what_is_handed_on_to_the_end_counts() -> None:
    # 1's 9 bytes are an output: sent once they cost nothing, handed through they go over every cut behind 1.
    net = network([(0, 1), (0, 2), (2, 3), (3, 4)], [0] * 5, [5, 9, 4, 4, 4])
    for skips, stages in (("once", [0, 0, 0, 1, 1]), ("through", [0, 1, 1, 1, 1])):
        condensed = condense(net, Constraints(2, skips=skips))  # type: ignore[arg-type]
        assert best_cut(condensed, parameters_of(net, condensed), range(5), 2) == stages


@given(st.data())
def test_no_cut_of_the_order_is_better(data: st.DataObject) -> None:
    net = data.draw(networks(most=7))
    rules = data.draw(constraints(len(net.layers)))
    if explain(net, rules) is not None:
        return
    condensed = condense(net, rules)
    loads = parameters_of(net, condensed)
    order = list(range(len(condensed.groups)))
    found = best_cut(condensed, loads, order, rules.stages)
    cuts = [
        cut_at(places, len(order))
        for places in combinations(range(1, len(order)), rules.stages - 1)
        if not forbidden(condensed.strict, cut_at(places, len(order)))
    ]
    if found is None:
        assert not cuts
        assert not forbidden(condensed.strict, cut_order(condensed, loads, order, rules.stages))
        return
    assert found in cuts
    costs = [figures(net, condensed.spread(cut), rules.skips) for cut in cuts]
    assert figures(net, condensed.spread(found), rules.skips) == min(costs)


def cut_at(places: tuple[int, ...], length: int) -> list[int]:
    return [sum(place <= position for place in places) for position in range(length)]


def forbidden(strict: tuple[tuple[int, int], ...], stages: list[int]) -> bool:
    return any(stages[before] >= stages[after] for before, after in strict)


def figures(net: Network, stages: tuple[int, ...], skips: Skips) -> tuple[int, int]:
    return max(parameters_of_stages(net, stages)), communication_of(net, stages, skips)
