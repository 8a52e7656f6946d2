"""The exact scheduler: against every schedule there is, on both of its methods, and on RESPECT's ten networks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.base.errors import UsageError
from memsched.check.stages import check_stages
from memsched.features.pipeline import boundaries, exact
from memsched.features.pipeline.boundaries import Boundaries
from memsched.graph.stages import Constraints, Network, StageSchedule
from memsched.search.limits import Limits
from scripts.networks.pipelines import NETWORKS, keras_network, random_network
from tests.features.pipeline.networks import (
    all_schedules,
    communication_of,
    constraints,
    network,
    networks,
    parameters_of_stages,
)


def best(net: Network, rules: Constraints) -> tuple[int, int] | None:
    """Return the least peak and the least communication at it, of all schedules."""
    return min(
        (
            (max(parameters_of_stages(net, stages)), communication_of(net, stages, rules.skips))
            for stages in all_schedules(net, rules)
        ),
        default=None,
    )


def checked(net: Network, rules: Constraints, **options: object) -> StageSchedule:
    found = exact.schedule(net, rules, **options)  # type: ignore[arg-type]
    check_stages(net, found, rules)
    return found


def test_a_diamond_by_hand() -> None:
    # 0 -> 1 -> 3 and 0 -> 2 -> 3; the even halves of 12 are {0, 1} and {2, 3}, or {0, 2} and {1, 3}: the value that
    # crosses is 0's (4 bytes), and 1's (7) or 2's (2).
    net = network([(0, 1), (0, 2), (1, 3), (2, 3)], [3, 3, 3, 3], [4, 7, 2, 1])
    found = checked(net, Constraints(2))
    assert found.stages == (0, 1, 0, 1)
    assert (found.objective, found.lower_bound, found.communication, found.status) == (6, 6, 6, "optimal")
    assert " 6 places" in found.proof


def test_a_value_is_received_once_by_each_stage_that_reads_it() -> None:
    net = network([(0, 1), (0, 2), (1, 2), (2, 3), (0, 3)], [2, 2, 2, 2], [10, 1, 1, 1])
    assert checked(net, Constraints(2)).communication == 11
    assert checked(net, Constraints(4)).communication == 32


def test_a_value_that_is_handed_through_counts_in_every_stage_up_to_its_last_reader() -> None:
    # 0's 10 bytes are read by 1, 2 and 3: three stages receive them, whoever reads them; 3's output ends where it is.
    net = network([(0, 1), (0, 2), (1, 2), (2, 3), (0, 3)], [2, 2, 2, 2], [10, 1, 1, 1])
    assert checked(net, Constraints(4, skips="through")).communication == 32
    # 1 is read by 4 alone, and costs 7 bytes in every stage behind its own: it comes as late as it can.
    late = network([(0, 2), (2, 3), (3, 4), (0, 1), (1, 4)], [1, 1, 1, 1, 1], [1, 7, 1, 1, 1])
    for most in (100_000, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exact, "_MOST_BOUNDARIES", most)
            found = checked(late, Constraints(5, skips="through"))
        assert found.stages == (0, 3, 1, 2, 4)
        assert (found.communication, found.communication_bound, found.status) == (3 + 1 + 2 + 7, 13, "optimal")


def test_constants_that_a_stage_shares_count_once() -> None:
    net = network([(0, 1), (1, 2), (2, 3)], [1, 6, 6, 1])
    shared = Network("shared", tuple(
        layer if number not in {1, 2} else type(layer)(layer.name, layer.type, (1,), 0, layer.preds)
        for number, layer in enumerate(net.layers)
    ), net.values, net.constants)  # fmt: skip
    found = checked(shared, Constraints(2))
    assert (found.stages, found.objective) == ((0, 1, 1, 1), 7)


@settings(max_examples=250)
@given(st.data())
def test_nothing_is_better_whatever_is_demanded(data: st.DataObject) -> None:
    net = data.draw(networks())
    rules = data.draw(constraints(len(net.layers)))
    expected = best(net, rules)
    if expected is None:
        with pytest.raises(UsageError):
            exact.schedule(net, rules)
        return
    found = checked(net, rules)
    assert (found.objective, found.communication, found.status) == (*expected, "optimal")


@settings(max_examples=40)
@given(st.data())
def test_cp_sat_agrees(data: st.DataObject) -> None:
    net = data.draw(networks())
    rules = data.draw(constraints(len(net.layers)))
    expected = best(net, rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_MOST_BOUNDARIES", 1)
        if expected is not None:
            found = checked(net, rules)
            assert (found.objective, found.communication, found.status) == (*expected, "optimal")


def test_cp_sat_honours_cuts_that_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_MOST_BOUNDARIES", 1)
    net = network([(0, 1), (1, 2), (2, 3)], [1, 1, 9, 9])
    assert checked(net, Constraints(3)).objective == 9
    assert checked(net, Constraints(3, cut_after=(0,))).stages == (0, 1, 1, 2)


@settings(max_examples=60)
@given(st.data())
def test_ceilings_on_communication_change_nothing(data: st.DataObject) -> None:
    net = data.draw(networks())
    rules = data.draw(constraints(len(net.layers)))
    if best(net, rules) is None:
        return
    plain = exact.schedule(net, rules)
    with pytest.MonkeyPatch.context() as patch:
        search = Boundaries.least_communication
        patch.setattr(Boundaries, "least_communication", lambda *asked: search(*asked[:-1]))
        assert exact.schedule(net, rules).stages == plain.stages


@settings(max_examples=60)
@given(st.data())
def test_multiply_accumulates_are_balanced_in_the_same_way(data: st.DataObject) -> None:
    net = data.draw(networks())
    rules = data.draw(constraints(len(net.layers), most=3))

    def largest(stages: tuple[int, ...]) -> int:
        return max(
            sum(layer.macs for layer, home in zip(net.layers, stages, strict=True) if home == stage)
            for stage in range(rules.stages)
        )

    expected = min(
        ((largest(stages), communication_of(net, stages, rules.skips)) for stages in all_schedules(net, rules)),
        default=None,
    )
    if expected is not None:
        found = checked(net, rules, balance="macs")
        assert (found.objective, found.communication, found.status) == (*expected, "optimal")


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_ten_networks_are_proven(monkeypatch: pytest.MonkeyPatch, name: str, together: bool) -> None:
    """In little work: the dynamic program, which takes some seconds for as many pairs as it may look at."""
    monkeypatch.setattr(boundaries, "_MOST_PAIRS", boundaries._MOST_PAIRS // 5)
    net = keras_network(name)
    for stages in (4, 5, 6):
        found = checked(net, Constraints(stages, children_together=together), limits=Limits(None))
        assert found.status == "optimal"
        assert "CP-SAT" not in found.proof


def test_a_search_that_takes_too_long_is_left_to_cp_sat(monkeypatch: pytest.MonkeyPatch) -> None:
    net = random_network(16, 2, seed=3)
    by_program = checked(net, Constraints(3))
    monkeypatch.setattr(boundaries, "_MOST_PAIRS", 10)
    by_cpsat = checked(net, Constraints(3))
    assert "dynamic program" in by_program.proof
    assert "CP-SAT" in by_cpsat.proof
    assert by_cpsat.status == by_program.status == "optimal"
    assert (by_cpsat.objective, by_cpsat.communication) == (by_program.objective, by_program.communication)


def test_without_time_there_is_still_a_schedule() -> None:
    found = checked(random_network(200, 4, seed=1), Constraints(4), limits=Limits(0.0))
    assert found.status == "feasible"
    assert found.lower_bound <= found.objective


def test_hash_seeds_and_workers_change_nothing() -> None:
    code = (
        "from memsched.search.limits import Limits\n"
        "from memsched.graph.stages import Constraints\n"
        "from memsched.features.pipeline import exact\n"
        "from scripts.networks.pipelines import keras_network, random_network\n"
        "for net in (keras_network('InceptionResNetV2'), random_network(30, 3, seed=5)):\n"
        "    for workers in (1, 2):\n"
        "        found = exact.schedule(net, Constraints(4), limits=Limits(60.0, workers=workers))\n"
        "        print(found.stages, found.communication)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    lines = outputs.pop().splitlines()
    assert lines[0] == lines[1]
    assert lines[2] == lines[3]
