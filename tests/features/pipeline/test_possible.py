"""Which demands can be met: exactly as trying everything says, with reasons that name what would do."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.features.pipeline.possible import NEVER_CUT, READERS, STATES, explain
from memsched.graph.stages import Constraints, Network
from tests.failures import check_failure
from tests.features.pipeline.networks import all_schedules, constraints, network, networks


def possible(net: Network, rules: Constraints) -> bool:
    return next(all_schedules(net, rules), None) is not None


@settings(max_examples=300)
@given(st.data())
def test_a_reason_is_given_exactly_where_nothing_is_possible(data: st.DataObject) -> None:
    net = data.draw(networks(most=5))
    rules = data.draw(constraints(len(net.layers), most=7))
    error = explain(net, rules)
    assert (error is None) == possible(net, rules)
    if error is None:
        return
    assert "\n" not in str(error)
    beyond = {"too-many-stages": 1, "too-few-stages": -1}.get(error.code)
    if beyond is not None:
        nearest = int(re.findall(r"\d+", error.problem)[-1])
        assert possible(net, replace(rules, stages=nearest))
        assert not possible(net, replace(rules, stages=nearest + beyond))
    else:
        assert not any(possible(net, replace(rules, stages=stages)) for stages in range(1, 6))


CHAIN = network([(0, 1), (1, 2), (2, 3)], [1, 1, 1, 1])
DIAMOND = network([(0, 1), (0, 2), (1, 3), (2, 3)], [1, 1, 1, 1])
SHORTCUT = network([(0, 1), (1, 2), (0, 2), (2, 3)], [1, 1, 1, 1])
STATE = replace(CHAIN, together=((0, 2),))


@pytest.mark.parametrize(
    ("net", "rules", "about"),
    [
        (CHAIN, Constraints(0), ("no-stages-asked", "0 stages")),
        (Network("none", (), (), ()), Constraints(1), ("no-layers",)),
        (CHAIN, Constraints(5), ("too-many-stages", "5 stages", "4 layers", "4 stages")),
        (CHAIN, Constraints(4, never_cut=(0, 1)), ("too-many-stages", "4 layers", NEVER_CUT, "2 groups", "2 stages")),
        (SHORTCUT, Constraints(4, children_together=True), ("too-many-stages", READERS, "3 groups", "3 stages")),
        (STATE, Constraints(3), ("too-many-stages", "3 stages", STATES, "2 groups", "2 stages")),
        (CHAIN, Constraints(2, cut_after=(0, 2)), ("too-few-stages", "2 stages", "'l0' -> 'l2'", "3 stages")),
        (CHAIN, Constraints(2, cut_after=(1,), never_cut=(1,)), ("cut-never-cut", "'l1'")),
        (SHORTCUT, Constraints(2, cut_after=(1,), never_cut=(3, 0)), ("cut-joins-reader", "'l1'", "after 'l0':")),
        (SHORTCUT, Constraints(2, cut_after=(1,), children_together=True), ("cut-parts-readers", "'l1'")),
        (STATE, Constraints(2, cut_after=(0,)), ("cut-shares-state", "'l0'")),
    ],
)
def test_reasons(net: Network, rules: Constraints, about: tuple[str, ...]) -> None:
    check_failure(explain(net, rules), *about)


def test_incomparable_groups_may_share_a_stage_or_have_their_own() -> None:
    assert explain(DIAMOND, Constraints(4)) is None
    assert explain(DIAMOND, Constraints(3, cut_after=(0, 1))) is None
    assert explain(DIAMOND, Constraints(2, cut_after=(1, 2))) is None
    assert explain(DIAMOND, Constraints(2, cut_after=(0, 1))) is not None
