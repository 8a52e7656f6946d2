"""Budgets: what decides is what the runtime requires, and a larger one is never met less often than a smaller one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memsched
from memsched.commands.optimize.candidates import Lookout, fewest, one_meets, try_points
from memsched.formats.module import OrderGuarantee
from memsched.report.values.optimize import OptimizeReport
from tests.runtimes.tflm.test_arena import random_model
from tests.tiling.random_nets import onnx_net, tflite_net

STEPS = 13


@dataclass(frozen=True)
class Point:
    peak: int
    required: int
    at_most: int


@st.composite
def frontiers(draw: st.DrawFn) -> list[Point]:
    peaks = sorted(draw(st.lists(st.integers(1, 60), unique=True, max_size=14)), reverse=True)
    points = []
    for peak in peaks:
        # Another order may even need less than the one in which the point was made.
        required = max(1, peak + draw(st.integers(-4, 30)))
        points.append(Point(peak, required, required + draw(st.integers(0, 8))))
    return points


def least_required(points: list[Point], budget: int | None, quick: bool) -> int | None:
    made: list[Point] = []

    def make(point: Point) -> int:
        assert point not in made
        made.append(point)
        return point.required

    try_points(points, budget, make, at_most=(lambda point: point.at_most) if quick else None)
    met = [point for point in made if budget is not None and point.required <= budget]
    assert met in ([], made[-1:])
    return min((point.required for point in made), default=None)


@given(frontiers(), st.booleans())
def test_a_larger_budget_is_met_where_a_smaller_one_is(points: list[Point], quick: bool) -> None:
    met = [(least_required(points, budget, quick) or 1000) <= budget for budget in range(100)]
    assert met == sorted(met)
    assert not points or met[-1]


@given(frontiers())
def test_what_is_known_to_fit_is_found(points: list[Point]) -> None:
    for budget in range(0, 100, 3):
        fits = any(point.peak <= budget and point.at_most <= budget for point in points)
        assert not fits or (least_required(points, budget, True) or 1000) <= budget


def test_the_least_work_that_fits_is_taken_and_nothing_else_is_made() -> None:
    points = [Point(50, 80, 80), Point(40, 55, 60), Point(30, 31, 31), Point(20, 90, 90)]
    made: list[Point] = []

    def make(point: Point) -> int:
        made.append(point)
        return point.required

    try_points(points, 60, make, at_most=lambda point: point.at_most)
    assert made == points[1:2]


def test_out_of_time_no_more_is_asked_than_what_one_model_takes() -> None:
    points = [Point(50, 80, 80), Point(40, 55, 60), Point(30, 31, 31)]
    asked: list[Point] = []

    def at_most(point: Point) -> int:
        asked.append(point)
        return point.at_most

    try_points(points, None, lambda point: point.required, at_most=at_most, over=lambda: True)
    assert asked == [points[2]]


@given(frontiers(), st.integers(0, 99))
def test_on_the_way_of_a_search_only_what_is_sure_to_meet_the_budget_is_made(points: list[Point], budget: int) -> None:
    made: list[Point] = []

    def make(point: Point) -> int:
        made.append(point)
        return point.required

    met = one_meets(points, budget, make, at_most=lambda point: point.at_most)
    fitting = [point for point in points if point.peak <= budget][:4]
    assert made == [point for point in fitting if point.at_most <= budget][:1]
    assert met == bool(made)


def test_a_budget_is_looked_for_a_few_times_each_at_a_lower_peak() -> None:
    asked: list[int] = []

    def meets(points: Sequence[Point]) -> bool:
        asked.append(points[-1].peak)
        return False

    lookout = Lookout[Point](100, meets)
    for peak in range(120, 80, -1):
        assert not lookout.sees([Point(120, 120, 120), Point(peak, peak, peak)])
    assert asked == [100, 98, 96, 94]
    assert lookout.at is None
    assert Lookout[Point](100, lambda _: True).sees([Point(100, 100, 100)])


def required(data: bytes, target: str, budget: int | None) -> tuple[int, bool]:
    result = memsched.optimize(
        data, target=target, budget=budget, level=2, max_extra_macs=50.0, verify=False, time_limit=None, solver="greedy"
    )
    section = result.report["budget"]
    if section is not None:
        return section["required_bytes"], section["met"]
    return result.report["tflm"]["head_bytes"], True


@pytest.mark.parametrize(
    ("data", "target", "differ"),
    [
        (tflite_net(20), "tflm", True),
        (random_model(22), "tflm", True),
        (tflite_net(0), "litert", False),
    ],
    ids=["pieces", "branches", "litert"],
)
def test_budgets_of_real_models_are_met_monotonically(data: bytes, target: str, differ: bool) -> None:
    given_report = memsched.analyze(data, target=target, budget=0).report
    as_given, peak = given_report["budget"]["required_bytes"], given_report["result"]["peak_bytes"]
    assert (as_given > 1.04 * peak) is differ
    rows = [required(data, target, as_given * step // STEPS) for step in range(1, STEPS + 1)]
    met = [one for _, one in rows]
    assert met == sorted(met)
    assert met[-1]
    assert max(needed for needed, _ in rows) <= as_given
    # What is written where nothing fits is no worse than what a budget leads to.
    assert not met[0]
    assert rows[0][0] <= min(needed for needed, _ in rows) * 1.02


def test_between_the_peak_and_what_the_planner_requires_pieces_are_found() -> None:
    """The peak as given is within the budget, and so is a model in pieces; the file's head is not."""
    data = tflite_net(20)
    report = memsched.analyze(data, target="tflm", budget=0).report
    between = (report["result"]["peak_bytes"] + report["budget"]["required_bytes"]) // 2
    needed, met = required(data, "tflm", between)
    assert met
    assert needed <= between


def in_onnxruntime(
    data: bytes, guarantee: OrderGuarantee, budget: int, *, verify: bool = False
) -> memsched.Report[OptimizeReport]:
    return memsched.optimize(
        data,
        budget=budget,
        level=2,
        max_extra_macs=50.0,
        max_slowdown=None,
        order_guarantee=guarantee,
        verify=verify,
        time_limit=None,
        solver="greedy",
    ).report


@pytest.mark.parametrize(("number", "guarantee"), [(0, "pins"), (2, "session"), (3, "default")])
def test_budgets_are_met_monotonically_where_sessions_and_arenas_differ(number: int, guarantee: OrderGuarantee) -> None:
    """Sessions align nothing, and those without options hand dead buffers on: they need less than arenas, or more."""
    data = onnx_net(number)
    least = in_onnxruntime(data, guarantee, 0)
    as_given, needed = (least["result"]["session_bytes"][when] for when in ("before", "after"))
    assert needed != least["result"]["arena_bytes"]
    steps = 4
    rows = [in_onnxruntime(data, guarantee, as_given * step // steps)["budget"] for step in range(1, steps + 1)]
    met = [row["met"] for row in rows]
    assert met == sorted(met)
    assert met[-1]
    assert max(row["required_bytes"] for row in rows) <= as_given
    assert in_onnxruntime(data, guarantee, needed)["budget"]["met"]


def test_what_decides_is_what_the_session_shows() -> None:
    """The arena of this model in pieces is nine times as large as what is requested: small tensors, each aligned."""
    report = in_onnxruntime(onnx_net(2), "session", 1840, verify=True)
    budget = {"budget_bytes": 1840, "required_bytes": 1840, "exceeded_bytes": 0, "met": True, "withheld": False}
    assert report["budget"] == budget
    assert report["verification"]["measured_peak_after_bytes"] == report["result"]["required_bytes"] == 1840
    assert report["result"]["arena_bytes"] > 9 * 1840


def test_a_file_that_stays_as_it_is_meets_a_budget_with_the_options_that_are_printed() -> None:
    needed = in_onnxruntime(onnx_net(1), "session", 0)["result"]["session_bytes"]["before"]
    report = memsched.optimize(onnx_net(1), budget=needed).report
    assert report["output"]["unchanged"]
    assert report["budget"]["met"]
    assert report["order_guarantee"]["session_options"] == report["verification"]["measured_with"]
    assert len(report["order_guarantee"]["session_options"]) > 1
    assert report["verification"]["measured_peak_after_bytes"] == report["budget"]["required_bytes"] == needed
    # Without a budget nothing is claimed of such a session, and nothing has to be done.
    assert memsched.optimize(onnx_net(1)).report["order_guarantee"]["session_options"] == []


def test_a_session_that_needs_more_than_was_predicted_does_not_meet_the_budget() -> None:
    """Without options the runtime lays convolutions out anew, which no prediction of a file's order knows."""
    given = in_onnxruntime(onnx_net(0), "none", 0)["result"]["session_bytes"]["before"]
    predicted = in_onnxruntime(onnx_net(0), "none", given)
    report = in_onnxruntime(onnx_net(0), "none", given, verify=True)
    assert predicted["budget"]["met"]
    shown = report["verification"]["default_peak_after_bytes"]
    assert report["budget"]["required_bytes"] == max(shown, predicted["budget"]["required_bytes"])
    assert report["budget"]["met"] == (report["budget"]["required_bytes"] <= given)


def test_no_more_is_kept_than_a_limit_needs() -> None:
    """Each part brings down what it needs itself, the further the finer it is; the most needed one decides."""
    whole = {"a": 100, "b": 90, "c": 40}

    def requires(parts: Sequence[tuple[str, int]]) -> float:
        pieces = dict(parts)
        return max(whole[name] / pieces.get(name, 1) for name in whole)

    def coarser(part: tuple[str, int]) -> list[tuple[str, int]]:
        return [(part[0], part[1] // 2)] if part[1] > 2 else []

    finest = [("a", 16), ("b", 16), ("c", 16)]
    assert fewest(finest, 6, requires, coarser) == finest
    assert fewest(finest, 45, requires, coarser) == [("a", 4), ("b", 2)]
    assert fewest(finest, 95, requires, coarser) == [("a", 2)]
    assert fewest(finest, 200, requires, coarser) == [("c", 2)]
