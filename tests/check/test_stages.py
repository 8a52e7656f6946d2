"""Figures of stages on a network small enough to count by hand, and the checker's refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memsched.check.stages import check_rows, check_stages
from memsched.graph.stages import Constraints, Layer, LayerValue, Network, StageSchedule, figures
from tests.failures import fails

NETWORK = Network(
    "skip",
    layers=(
        Layer("a", "Conv", (0,), 10, ()),
        Layer("b", "Conv", (1,), 20, (0,)),
        Layer("c", "Conv", (1, 2), 30, (1,)),
        Layer("d", "Add", (), 0, (0, 2)),
    ),
    values=(
        LayerValue("x", 5, -1, (0,)),
        LayerValue("ya", 7, 0, (1, 3)),
        LayerValue("yb", 3, 1, (2,)),
        LayerValue("yc", 7, 2, (3,)),
        LayerValue("yd", 7, 3, (), result=True),
    ),
    constants=(100, 200, 50),
)
STAGES = (0, 0, 1, 2)


def schedule(stages: tuple[int, ...], communication: int) -> StageSchedule:
    return StageSchedule(stages, max(stages) + 1, 300, 300, communication, 0, "feasible", "", "test")


def test_figures_where_values_are_sent_once() -> None:
    first, second, third = figures(NETWORK, STAGES, 3)
    assert (first.parameters, second.parameters, third.parameters) == (300, 250, 0)
    assert (first.receives, first.sends) == (5, 7 + 3)
    assert (second.receives, second.sends) == (3, 7)
    assert (third.receives, third.sends, third.macs) == (7 + 7, 7, 0)
    assert third.received_values == (1, 3)


def test_figures_where_stages_hand_values_on() -> None:
    first, second, third = figures(NETWORK, STAGES, 3, "through")
    assert (first.receives, first.sends) == (5, 7 + 3)
    assert (second.receives, second.sends) == (7 + 3, 7 + 7)
    assert (third.receives, third.sends) == (14, 7)


def test_what_several_stages_read_is_handed_on_to_the_last_of_them() -> None:
    first, second, third = figures(NETWORK, (0, 1, 1, 2), 3, "through")
    assert (first.sent_values, second.received_values, second.sent_values) == ((1,), (1,), (1, 3))
    assert third.received_values == (1, 3)
    second_too = replace(NETWORK.values[1], readers=(1, 2, 3))
    shared = replace(NETWORK, values=(NETWORK.values[0], second_too, *NETWORK.values[2:]))
    first, second, third = figures(shared, STAGES, 3, "through")
    assert (first.sent_values, second.sent_values, third.sent_values) == ((1, 2), (1, 3), (4,))
    assert [stage.received_values for stage in (first, second, third)] == [(0,), (1, 2), (1, 3)]


def test_results_of_early_stages_are_handed_on_to_the_end() -> None:
    early = replace(NETWORK, values=(*NETWORK.values[:2], replace(NETWORK.values[2], result=True), *NETWORK.values[3:]))
    first, second, third = figures(early, STAGES, 3, "through")
    assert (first.sends, second.sends, third.sends) == (10, 7 + 3 + 7, 7 + 3)
    assert figures(early, STAGES, 3)[2].sends == 7


def test_what_is_handed_on_counts_in_every_stage() -> None:
    through = Constraints(3, skips="through")
    check_stages(NETWORK, schedule(STAGES, 7 + 3 + 7 + 7), through)
    with fails("bytes-claim", "24", "17"):
        check_stages(NETWORK, schedule(STAGES, 17), through)
    early = replace(NETWORK, values=(*NETWORK.values[:2], replace(NETWORK.values[2], result=True), *NETWORK.values[3:]))
    check_stages(early, schedule(STAGES, 24 + 3), through)


def test_rows_add_up_to_the_total() -> None:
    for skips, total in (("once", 17), ("through", 24)):
        rows = figures(NETWORK, STAGES, 3, skips)  # type: ignore[arg-type]
        check_rows(NETWORK, schedule(STAGES, total), rows)
        with fails("bytes-claim", f"{total}", f"{total - 7}"):
            check_rows(NETWORK, schedule(STAGES, total - 7), rows)
        with fails("layer-stages"):
            check_rows(NETWORK, schedule(STAGES, total), (*rows[:2], replace(rows[2], layers=())))
        with fails("bytes-claim"):
            check_rows(NETWORK, schedule(STAGES, total), (*rows[:2], replace(rows[2], receives=0)))


def test_a_valid_schedule_passes() -> None:
    check_stages(NETWORK, schedule(STAGES, 3 + 7 + 7), Constraints(3, cut_after=(1,), never_cut=()))


@pytest.mark.parametrize(
    ("stages", "communication", "constraints", "code"),
    [
        (STAGES, 16, Constraints(3), "bytes-claim"),
        (STAGES, 17, Constraints(2), "stage-count"),
        ((0, 0, 2, 2), 10, Constraints(3), "empty-stage"),
        ((1, 0, 1, 2), 17, Constraints(3), "order"),
        ((0, 0, 1, 0), 10, Constraints(2), "order"),
        (STAGES, 17, Constraints(3, cut_after=(0,)), "cut-missing"),
        (STAGES, 17, Constraints(3, never_cut=(1,)), "cut-forbidden"),
        (STAGES, 17, Constraints(3, children_together=True), "apart"),
    ],
)
def test_the_checker_refuses(stages: tuple[int, ...], communication: int, constraints: Constraints, code: str) -> None:
    with fails(code):
        check_stages(NETWORK, schedule(stages, communication), constraints)


def test_the_checker_refuses_claims() -> None:
    valid = schedule(STAGES, 17)
    for claim in (
        replace(valid, status="optimal"),
        replace(valid, lower_bound=301),
        replace(valid, communication_bound=18),
    ):
        with fails("bound"):
            check_stages(NETWORK, claim, Constraints(3))
    shared = replace(NETWORK, together=((0, 3),))
    with fails("apart"):
        check_stages(shared, valid, Constraints(3))


def test_the_checker_counts_layers_and_stages() -> None:
    valid = schedule(STAGES, 17)
    for claim in (replace(valid, count=2), replace(valid, stages=(*STAGES, 2)), replace(valid, stages=STAGES[:3])):
        with fails("stage-count"):
            check_stages(NETWORK, claim, Constraints(3))


def test_either_statement_of_an_edge_counts() -> None:
    """What a layer needs is refused in a later stage, whether its predecessors or the values' readers say so."""
    backwards = schedule((1, 0), 0)
    layers = (Layer("a", "Conv", (), 1, ()), Layer("b", "Conv", (), 1, (0,)))
    with fails("order", "'b'"):
        check_stages(Network("preds", layers, (), ()), backwards, Constraints(2))
    unrelated = (layers[0], replace(layers[1], preds=()))
    with fails("order", "'v'"):
        check_stages(Network("values", unrelated, (LayerValue("v", 4, 0, (1,)),), ()), backwards, Constraints(2))
    given = Network("given", unrelated, (LayerValue("x", 4, -1, (0, 1)),), ())
    check_stages(given, backwards, Constraints(2, children_together=True))


def test_what_the_checker_lets_pass() -> None:
    check_stages(replace(NETWORK, together=((0, 1),)), schedule(STAGES, 17), Constraints(3))
    check_stages(NETWORK, replace(schedule(STAGES, 17), communication_bound=17), Constraints(3))
    check_stages(NETWORK, schedule((0, 1, 1, 1), 7), Constraints(2, children_together=True))


def test_one_reader_behind_a_cut_is_enough() -> None:
    with fails("cut-forbidden", "'a'"):
        check_stages(NETWORK, schedule(STAGES, 17), Constraints(3, never_cut=(0,)))
    with fails("apart"):
        check_stages(NETWORK, schedule((0, 1, 1, 2), 14), Constraints(3, children_together=True))
