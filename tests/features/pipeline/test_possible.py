"""Which demands can be met: exactly as trying everything says, with reasons that name what would do."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.features.pipeline.possible import explain
from memsched.graph.stages import Constraints, Network
from tests.features.pipeline.networks import all_schedules, constraints, network, networks


def possible(net: Network, rules: Constraints) -> bool:
    return next(all_schedules(net, rules), None) is not None


@settings(max_examples=300)
@given(st.data())
def test_a_reason_is_given_exactly_where_nothing_is_possible(data: st.DataObject) -> None:
    net = data.draw(networks(most=5))
    rules = data.draw(constraints(len(net.layers), most=7))
    reason = explain(net, rules)
    assert (reason is None) == possible(net, rules)
    if reason is None:
        return
    assert "\n" not in reason
    most, fewest = (
        re.search(r"so that (\d+) stages? (?:is|are) the most", reason),
        re.search(r"so that (\d+) stages? are the fewest", reason),
    )
    if most or fewest:
        nearest = int((most or fewest).group(1))  # type: ignore[union-attr]
        assert possible(net, replace(rules, stages=nearest))
        assert not possible(net, replace(rules, stages=nearest + (1 if most else -1)))
    else:
        assert not any(possible(net, replace(rules, stages=stages)) for stages in range(1, 6))


CHAIN = network([(0, 1), (1, 2), (2, 3)], [1, 1, 1, 1])
DIAMOND = network([(0, 1), (0, 2), (1, 3), (2, 3)], [1, 1, 1, 1])
SHORTCUT = network([(0, 1), (1, 2), (0, 2), (2, 3)], [1, 1, 1, 1])
STATE = replace(CHAIN, together=((0, 2),))


@pytest.mark.parametrize(
    ("net", "rules", "reason"),
    [
        (CHAIN, Constraints(0), "0 stages are not possible: ask for 1 or more"),
        (Network("none", (), (), ()), Constraints(1), "the network has no layers"),
        (CHAIN, Constraints(5), "5 stages are not possible: the network has 4 layers, so that 4 stages are the most"),
        (
            CHAIN,
            Constraints(4, never_cut=(0, 1)),
            (
                "4 stages are not possible: the network has 4 layers, which layers never to cut after bind to 2 groups "
                "that cannot be cut, so that 2 stages are the most"
            ),
        ),
        (
            SHORTCUT,
            Constraints(4, children_together=True),
            (
                "4 stages are not possible: the network has 4 layers, which readers of one layer in one stage bind to "
                "3 groups that cannot be cut, so that 3 stages are the most"
            ),
        ),
        (
            STATE,
            Constraints(3),
            (
                "3 stages are not possible: the network has 4 layers, which shared states bind to 2 groups that cannot "
                "be cut, so that 2 stages are the most"
            ),
        ),
        (
            CHAIN,
            Constraints(2, cut_after=(0, 2)),
            (
                "2 stages are not possible: cuts were asked for after 'l0' -> 'l2', which come one after the other, so "
                "that 3 stages are the fewest"
            ),
        ),
        (
            CHAIN,
            Constraints(2, cut_after=(1,), never_cut=(1,)),
            "there cannot be a cut after 'l1': it is also named as one never to cut after; leave out either",
        ),
        (
            SHORTCUT,
            Constraints(2, cut_after=(1,), never_cut=(3, 0)),
            (
                "there cannot be a cut after 'l1' and none after 'l0': a reader of 'l1' would then be in its stage; "
                "leave out either"
            ),
        ),
        (
            SHORTCUT,
            Constraints(2, cut_after=(1,), children_together=True),
            (
                "there cannot be a cut after 'l1' while all readers of a layer must be in one stage: some of what lies "
                "before and behind 'l1' would have to be both before and after the cut; leave out this cut or the rule "
                "for readers"
            ),
        ),
        (
            STATE,
            Constraints(2, cut_after=(0,)),
            "there cannot be a cut after 'l0': it shares a state with a layer that reads it; leave out this cut",
        ),
    ],
)
def test_reasons(net: Network, rules: Constraints, reason: str) -> None:
    found = explain(net, rules)
    assert found is not None
    assert found.startswith(reason)


def test_incomparable_groups_may_share_a_stage_or_have_their_own() -> None:
    assert explain(DIAMOND, Constraints(4)) is None
    assert explain(DIAMOND, Constraints(3, cut_after=(0, 1))) is None
    assert explain(DIAMOND, Constraints(2, cut_after=(1, 2))) is None
    assert explain(DIAMOND, Constraints(2, cut_after=(0, 1))) is not None
