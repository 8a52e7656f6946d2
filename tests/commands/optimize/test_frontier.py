"""What less memory costs: order, pieces and repetitions on one frontier."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memsched
from memsched.commands.optimize.frontier import FrontierStep, least
from tests.commands.optimize.test_choose import UNIT, convolutions, skip_connection
from tests.failures import fails
from tests.tools.dominance import judge
from tests.tools.mixed_models import onnx_model


def rewrites() -> st.SearchStrategy[FrontierStep]:
    work = st.integers(0, 6)
    return st.builds(FrontierStep, st.integers(0, 12), work, work, st.sampled_from(["tile", "remat"]))


@given(st.integers(0, 12), st.lists(rewrites(), max_size=8))
def test_no_step_is_undercut_and_every_one_given_is_covered(peak: int, others: list[FrontierStep]) -> None:
    steps = least([FrontierStep(peak, 0, 0, "order"), *others])
    assert steps[0] == FrontierStep(peak, 0, 0, "order")
    assert all(one.peak > other.peak for one, other in itertools.pairwise(steps))
    assert all(one.extra_work <= other.extra_work for one, other in itertools.pairwise(steps))
    assert set(steps[1:]) <= set(others)
    for budget in range(13):
        # A larger budget never costs more, and what is known to fit is never dearer than any step that was given.
        known = [step.extra_work for step in steps if step.peak <= budget]
        given_ = [step.extra_work for step in others if step.peak <= budget]
        assert min(known, default=99) <= min(given_, default=99)


def frontier(data: bytes, **more: Any) -> list[dict[str, Any]]:
    report = memsched.analyze(data, frontier=True, effort=2, **more).report
    steps: list[dict[str, Any]] = report["sections"]["frontier"]
    assert steps[0]["how"] == "order"
    peaks, work = ([step[key] for step in steps] for key in ("peak_bytes", "extra_work_percent"))
    assert peaks == sorted(set(peaks), reverse=True)
    assert work == sorted(work)
    return steps


def test_a_value_computed_again() -> None:
    steps = frontier(skip_connection(), allow=("reorder", "inplace", "remat"))
    assert [step["how"] for step in steps] == ["order", "remat"]
    assert steps[0]["peak_bytes"] >= 3 * UNIT > steps[1]["peak_bytes"]
    assert steps[1]["extra_work_percent"] > 0
    # Optimising reaches what the frontier says.
    done = memsched.optimize(
        skip_connection(), effort=2, allow=("reorder", "inplace", "remat"), max_extra_macs=50.0, verify=False
    )
    assert done.report["written"]["schedule"]["peak_bytes"] == steps[1]["peak_bytes"]
    assert done.report["sections"]["recompute"]["extra_work_percent"] == steps[1]["extra_work_percent"]


def test_layers_in_pieces() -> None:
    steps = frontier(convolutions(), allow=("reorder", "inplace", "tile"), max_extra_macs=10.0)
    assert {step["how"] for step in steps} == {"order", "tile"}
    assert steps[-1]["peak_bytes"] < steps[0]["peak_bytes"] / 2
    assert max(step["extra_macs_percent"] for step in steps) <= 10
    # Slices move what they make: were each to read all of its input, the work would be 151 % more.
    assert 0 < steps[-1]["extra_work_percent"] < 130


def test_only_what_is_permitted() -> None:
    data = skip_connection()
    assert [step["how"] for step in frontier(data, allow=("reorder", "inplace"))] == ["order"]
    assert [step["how"] for step in frontier(data, allow=("reorder", "inplace", "remat"), max_extra_macs=0.0)] == [
        "order"
    ]
    plain = memsched.analyze(data).report
    assert plain["sections"]["frontier"] is None
    assert frontier(data, allow=("inplace",))[0]["peak_bytes"] == plain["written"]["schedule"]["peak_bytes"]
    with fails("option-range", "--max-extra-macs -1"):
        memsched.analyze(data, frontier=True, max_extra_macs=-1.0)


def test_a_frontier_that_is_stopped_has_the_order() -> None:
    report = memsched.analyze(convolutions(), frontier=True, hooks=memsched.Hooks(stop=lambda: True)).report
    assert [step["how"] for step in report["sections"]["frontier"]] == ["order"]
    assert report["verdict"]["interrupted"]
    assert any("ended early" in note for note in report["verdict"]["notes"])


@pytest.mark.parametrize("seed", [1, 12])
def test_both_together_need_less_than_either_alone(seed: int) -> None:
    found, wrong = judge(onnx_model(seed), effort=0.1, max_extra_macs=100.0)
    assert wrong == []
    least = {name: steps[-1][0] for name, steps in found.items()}
    assert least["both"] < min(least["pieces"], least["repetitions"])
