"""Stages balanced by simulated time or by activation memory: against every schedule, and where not all can be tried."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.check.stages import check_stages
from memsched.features.pipeline import exact
from memsched.features.pipeline.condense import condense
from memsched.features.pipeline.priced import PricedStages
from memsched.features.pipeline.priced import solve as solve_priced
from memsched.features.pipeline.simulate import simulate
from memsched.graph.stages import Constraints, Network, Skips, StageSchedule, figures
from memsched.search.limits import Limits
from memsched.targets.load import load_target
from memsched.targets.model import PipelineRules
from scripts.networks.pipelines import keras_network, random_network
from tests.failures import fails
from tests.features.pipeline.networks import all_schedules, communication_of, constraints, networks

CORAL = load_target("coral_edgetpu").pipeline
SMALL = PipelineRules(parameter_cache_bytes=6, link_bytes_per_second=1e9, ops_per_second=1e9)
"""A byte and an operation take a nanosecond; six bytes of parameters stay."""


def nanoseconds(net: Network, stages: Sequence[int], rules: PipelineRules, skips: Skips = "once") -> int:
    count = max(stages) + 1
    given = StageSchedule(tuple(stages), count, 0, 0, 0, 0, "feasible", "", "")
    return max(round(1e9 * stage.total) for stage in simulate(net, given, rules, skips=skips).stages)


def largest(net: Network, stages: Sequence[int], skips: Skips) -> int:
    """Return a cost of stages that is no sum, and that may fall when a stage grows."""
    rows = figures(net, stages, max(stages) + 1, skips)
    made = [{value for value in row.sent_values if net.values[value].producer in row.layers} for row in rows]
    return max(cost(row.layers, sorted({*row.sent_values} - own))[0] for row, own in zip(rows, made, strict=True))


def cost(layers: Sequence[int], handed: Sequence[int]) -> tuple[int, int]:
    peak = sum(layer * layer + 1 for layer in layers) % 7 + len(layers) + sum(value % 5 for value in handed)
    return peak, peak


@settings(max_examples=120)
@given(st.data())
def test_no_schedule_is_faster(data: st.DataObject) -> None:
    net = data.draw(networks())
    rules = data.draw(constraints(len(net.layers), most=3))
    machine = data.draw(st.sampled_from([SMALL, PipelineRules(1000, 1e9, 1e9), PipelineRules(0, 1e9, 1e9)]))
    expected = min(
        (
            (nanoseconds(net, stages, machine, rules.skips), communication_of(net, stages, rules.skips))
            for stages in all_schedules(net, rules)
        ),
        default=None,
    )
    if expected is not None:
        found = exact.schedule(net, rules, balance="time", rules=machine)
        check_stages(net, found, rules)
        assert (found.objective, found.communication, found.status) == (*expected, "optimal")


@settings(max_examples=60)
@given(st.data())
def test_no_schedule_needs_less_memory(data: st.DataObject) -> None:
    net = data.draw(networks())
    rules = data.draw(constraints(len(net.layers), most=3))
    expected = min(
        (
            (largest(net, stages, rules.skips), communication_of(net, stages, rules.skips))
            for stages in all_schedules(net, rules)
        ),
        default=None,
    )
    if expected is not None:
        found = exact.schedule(net, rules, balance="memory", cost=cost)
        check_stages(net, found, rules)
        assert (found.objective, found.communication, found.status) == (*expected, "optimal")


@settings(max_examples=60)
@given(st.data())
def test_where_not_all_places_are_priced_the_claims_still_hold(data: st.DataObject) -> None:
    net = data.draw(networks())
    rules = data.draw(constraints(len(net.layers), most=3))
    reached = [nanoseconds(net, stages, SMALL, rules.skips) for stages in all_schedules(net, rules)]
    if reached:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exact, "_MOST_TIMED_PLACES", 0)
            found = exact.schedule(net, rules, balance="time", rules=SMALL)
        check_stages(net, found, rules)
        assert found.objective == nanoseconds(net, found.stages, SMALL, rules.skips)
        assert found.lower_bound <= min(reached) <= found.objective
        assert found.status == "feasible" or condense(net, rules).alike(rules.stages)


def test_time_is_proven_and_below_that_of_other_balances() -> None:
    assert CORAL is not None
    net = keras_network("Xception")
    found = exact.schedule(net, Constraints(4), balance="time", rules=CORAL)
    check_stages(net, found, Constraints(4))
    assert found.status == "optimal"
    assert found.objective == nanoseconds(net, found.stages, CORAL)
    for other in ("params", "macs"):
        assert found.objective <= nanoseconds(net, exact.schedule(net, Constraints(4), balance=other).stages, CORAL)


def test_a_wide_network_is_refined_from_better_starts() -> None:
    assert CORAL is not None
    net = random_network(100, 2, seed=0)
    found = exact.schedule(net, Constraints(4), balance="time", rules=CORAL)
    check_stages(net, found, Constraints(4))
    assert (found.status, found.communication_bound) == ("feasible", 0)
    assert 0 < found.lower_bound < found.objective
    assert "one topological" in found.proof
    assert found.objective <= nanoseconds(net, exact.schedule(net, Constraints(4)).stages, CORAL)


@pytest.mark.parametrize("net", [random_network(100, 2, seed=0), keras_network("Xception")], ids=["wide", "narrow"])
def test_starts_do_not_depend_on_the_clock(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour passes whenever it is looked at, and there is no limit of time."""
    assert CORAL is not None
    known: list[list[Sequence[int]]] = []

    def solve(*arguments: Any, **options: Any) -> PricedStages:
        known.append(list(arguments[2]))
        return solve_priced(*arguments, **options)

    monkeypatch.setattr(exact, "solve_priced", solve)
    found = exact.schedule(net, Constraints(4), balance="time", rules=CORAL, limits=Limits(None))
    hours = itertools.count(0, 3600)
    monkeypatch.setattr("time.monotonic", lambda: float(next(hours)))
    again = exact.schedule(net, Constraints(4), balance="time", rules=CORAL, limits=Limits(None))
    assert known[0] == known[1]
    assert (again.stages, again.status) == (found.stages, found.status)


def test_stages_whose_order_is_not_proven_prove_nothing() -> None:
    net = keras_network("Xception")
    few = Constraints(2, never_cut=tuple(range(20, len(net.layers))))
    for gap, status in ((0, "optimal"), (1, "feasible")):

        def known(layers: Sequence[int], _: Sequence[int], gap: int = gap) -> tuple[int, int]:
            return len(layers), len(layers) - gap

        found = exact.schedule(net, few, balance="memory", cost=known)
        check_stages(net, found, few)
        assert found.status == status
        assert (found.lower_bound == found.objective) == (status == "optimal")


def test_a_long_network_by_memory_is_cut_around_what_needs_most() -> None:
    net = keras_network("ResNet50")
    heavy = {10, 11, 12}
    found = exact.schedule(
        net, Constraints(3), balance="memory", cost=lambda layers, _: (1 + len(heavy.intersection(layers)) * 100,) * 2
    )
    check_stages(net, found, Constraints(3))
    assert (found.objective, found.lower_bound, found.status) == (101, 0, "feasible")


def test_time_needs_a_pipeline() -> None:
    with fails("no-pipeline", "--balance time", "[pipeline]"):
        exact.schedule(keras_network("Xception"), Constraints(2), balance="time")
