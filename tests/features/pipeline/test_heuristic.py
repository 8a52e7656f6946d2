"""The vendor's even split: nearest to even shares, whatever is demanded is honoured."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.base.errors import UsageError
from memsched.check.stages import check_stages
from memsched.features.pipeline import exact, heuristic
from memsched.features.pipeline.possible import explain
from memsched.graph.stages import Constraints
from scripts.networks.pipelines import NETWORKS, keras_network
from tests.features.pipeline.networks import constraints, network, networks

CHAIN = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


@pytest.mark.parametrize(
    ("parameters", "count", "stages"),
    [
        ([1, 1, 1, 1, 1, 1], 3, (0, 0, 1, 1, 2, 2)),
        # Sums 5, 6, 7, 8, 9, 10: 5 is nearest to 3.33, and 7 to 6.67.
        ([5, 1, 1, 1, 1, 1], 3, (0, 1, 1, 2, 2, 2)),
        ([0, 0, 0, 0, 0, 9], 3, (0, 1, 2, 2, 2, 2)),
        ([9, 0, 0, 0, 0, 0], 2, (0, 1, 1, 1, 1, 1)),
        # 2 and 4 are equally near to 3: the earlier.
        ([2, 2, 0, 0, 0, 2], 2, (0, 1, 1, 1, 1, 1)),
        ([3, 1, 4, 1, 5, 9], 6, (0, 1, 2, 3, 4, 5)),
    ],
)
def test_by_hand(parameters: list[int], count: int, stages: tuple[int, ...]) -> None:
    found = heuristic.schedule(network(CHAIN, parameters), Constraints(count))
    assert found.stages == stages
    assert found.method == "heuristic"


@settings(max_examples=150)
@given(st.data())
def test_whatever_is_demanded_is_honoured(data: st.DataObject) -> None:
    net = data.draw(networks(most=8))
    rules = data.draw(constraints(len(net.layers), most=5))
    if explain(net, rules) is not None:
        with pytest.raises(UsageError):
            heuristic.schedule(net, rules)
        return
    found = heuristic.schedule(net, rules)
    check_stages(net, found, rules)
    best = exact.schedule(net, rules)
    assert found.lower_bound <= best.objective <= found.objective
    assert found.status == "feasible"


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_never_below_the_proven_peak(name: str) -> None:
    net = keras_network(name)
    for stages in (4, 6):
        assert (
            heuristic.schedule(net, Constraints(stages)).objective >= exact.schedule(net, Constraints(stages)).objective
        )
