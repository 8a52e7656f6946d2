"""Orders first, then pieces, then repetitions: what is taken under which permission and budget."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import memsched
from memsched.commands.optimize import finish
from memsched.commands.results import OutputsDifferError
from memsched.runtimes.values import Verification
from memsched.search.progress import Progress
from tests.failures import fails
from tests.small_models import branches, floats, model_of

SIDE = 32
UNIT = 4 * SIDE * SIDE


def skip_connection() -> bytes:
    """``a`` is needed at both ends while two tensors of its size come and go: computing it again saves a third."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "a"),
        helper.make_node("ReduceMean", ["a"], ["m"], "m", axes=[1, 2], keepdims=1),
        helper.make_node("Mul", ["x", "m"], ["w"], "w"),
        helper.make_node("Neg", ["w"], ["v"], "v"),
        helper.make_node("ReduceMean", ["v"], ["n"], "n", axes=[1, 2], keepdims=1),
        helper.make_node("Mul", ["a", "n"], ["y"], "y"),
    ]
    shape = [1, SIDE, SIDE]
    return model_of(nodes, [floats("x", shape)], [floats("y", shape)])


def convolutions() -> bytes:
    """Two convolutions with many channels between them."""
    values = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array(values.normal(size=shape).astype(np.float32) / 4, name)
        for name, shape in (("w1", (16, 2, 3, 3)), ("w2", (2, 16, 3, 3)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w2"], ["y"], "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    shape = [1, 2, SIDE, SIDE]
    return model_of(nodes, [floats("x", shape)], [floats("y", shape)], weights)


def test_a_value_is_computed_again_where_that_is_permitted() -> None:
    data = skip_connection()
    kept = memsched.optimize(data, effort=3)
    again = memsched.optimize(
        data, effort=3, allow=("reorder", "inplace", "remat"), max_extra_macs=50.0, order_guarantee="session"
    )
    assert kept.report["written"]["schedule"]["peak_bytes"] >= 3 * UNIT
    assert again.report["written"]["schedule"]["peak_bytes"] < 2 * UNIT + 64
    assert again.report["sections"]["recompute"]["applied"]
    assert [copy["op"] for copy in again.report["sections"]["recompute"]["copies"]] == ["a"]
    assert again.report["sections"]["verification"]["outputs_equal"]
    before, after = (
        again.report["sections"]["verification"][f"measured_peak_{when}_bytes"] for when in ("before", "after")
    )
    assert after is None or after < before
    origins = [step["origin"] for step in again.report["written"]["steps"] if step["origin"]]
    assert origins == ["a"]


@pytest.mark.parametrize("most", [15.0, 50.0])
def test_without_a_time_limit_effort_ends_the_search(most: float) -> None:
    result = memsched.optimize(
        skip_connection(), time_limit=None, allow=("reorder", "inplace", "remat"), max_extra_macs=most, verify=False
    )
    assert result.report["sections"]["recompute"]["finished"]


def test_layers_are_cut_where_that_is_permitted() -> None:
    data = convolutions()
    result = memsched.optimize(data, effort=3, level=2, order_guarantee="session")
    assert result.report["sections"]["tile"]["applied"]
    assert result.report["written"]["schedule"]["peak_bytes"] < result.report["original"]["schedule"]["peak_bytes"] / 2
    assert 0 <= result.report["verdict"]["extra_macs_percent"] <= 15
    error = result.verification.relative_error if result.verification else None
    assert error is not None
    assert error <= 1e-5


def test_pieces_cross_a_resize_whose_corners_meet() -> None:
    """From 33 rows to 65: every second one of those made is one of those given."""
    values = np.random.default_rng(6)
    weights = [
        numpy_helper.from_array(values.normal(size=shape).astype(np.float32) / 4, name)
        for name, shape in (("w1", (16, 2, 3, 3)), ("w2", (2, 16, 3, 3)))
    ]
    weights.append(numpy_helper.from_array(np.array([1, 16, 65, 65], np.int64), "sizes"))
    corners = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "a", pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["a", "", "", "sizes"], ["b"], "b", **corners),
        helper.make_node("Conv", ["b", "w2"], ["y"], "y", pads=[1, 1, 1, 1]),
    ]
    data = model_of(nodes, [floats("x", [1, 2, 33, 33])], [floats("y", [1, 2, 65, 65])], weights)
    result = memsched.optimize(data, effort=2, level=2, max_slowdown=None, order_guarantee="session")
    assert any({"a", "b"} <= set(group["ops"]) for group in result.report["sections"]["tile"]["groups"])
    assert result.report["written"]["schedule"]["peak_bytes"] < result.report["original"]["schedule"]["peak_bytes"] / 2
    assert result.verification is not None
    assert result.verification.outputs_equal


@pytest.mark.parametrize(("data", "name"), [("convolutions", "tile"), ("skip_connection", "remat")])
def test_while_layers_are_rewritten_no_bound_is_told(data: str, name: str) -> None:
    """What is proven of the given model's orders is no bound for other layers: they get below it."""
    told: list[Progress] = []
    source = {"convolutions": convolutions, "skip_connection": skip_connection}[data]()
    permitted: dict[str, Any] = {"allow": ("reorder", "inplace", name), "max_extra_macs": 50.0}
    found = memsched.optimize(
        source, effort=3, hooks=memsched.Hooks(on_progress=told.append), verify=False, **permitted
    )
    bounds = {one.lower_bound for one in told if one.lower_bound is not None}
    assert bounds
    assert any(one.lower_bound is None for one in told)
    assert all(one.lower_bound is None or one.lower_bound <= one.best_peak for one in told)
    assert found.schedule.peak < max(bounds)
    rewriting = [number for number, one in enumerate(told) if one.lower_bound is None]
    assert rewriting == list(range(rewriting[0], len(told)))


def test_with_a_budget_the_first_that_fits_is_taken() -> None:
    data = convolutions()
    file_peak = memsched.optimize(data, effort=2, verify=False).report["written"]["schedule"]["arena_bytes"]
    generous = memsched.optimize(data, effort=2, level=3, budget=file_peak, verify=False)
    assert (generous.report["sections"]["tile"], generous.report["sections"]["recompute"], generous.budget_met) == (
        None,
        None,
        True,
    )
    tight = memsched.optimize(data, effort=3, level=3, budget=file_peak // 2, verify=False)
    assert tight.budget_met
    assert tight.report["sections"]["tile"]["applied"]
    assert not tight.report["sections"]["recompute"]["applied"]
    impossible = memsched.optimize(data, effort=3, level=3, budget=100, verify=False)
    assert not impossible.budget_met
    assert impossible.report["written"]["schedule"]["arena_bytes"] < file_peak


def test_pieces_and_repetitions_go_together() -> None:
    """A network whose skip spans convolutions: pieces first, and what they leave is computed again."""
    values = np.random.default_rng(6)
    weights = [
        numpy_helper.from_array(values.normal(size=shape).astype(np.float32) / 4, name)
        for name, shape in (("w1", (16, 2, 3, 3)), ("w2", (2, 16, 3, 3)))
    ]
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "a"),
        helper.make_node("ReduceMean", ["a"], ["m"], "m", axes=[2, 3], keepdims=1),
        helper.make_node("Mul", ["x", "m"], ["b"], "b"),
        helper.make_node("Conv", ["b", "w1"], ["c"], "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w2"], ["d"], "d", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMean", ["d"], ["n"], "n", axes=[2, 3], keepdims=1),
        helper.make_node("Mul", ["a", "n"], ["y"], "y"),
    ]
    shape = [1, 2, SIDE, SIDE]
    data = model_of(nodes, [floats("x", shape)], [floats("y", shape)], weights)
    tiled = memsched.optimize(data, effort=3, level=2, max_extra_macs=60.0, order_guarantee="session")
    both = memsched.optimize(data, effort=3, level=3, max_extra_macs=60.0, order_guarantee="session")
    assert both.report["sections"]["tile"]["applied"]
    assert both.report["sections"]["recompute"]["applied"]
    assert both.report["written"]["schedule"]["arena_bytes"] < tiled.report["written"]["schedule"]["arena_bytes"]
    assert both.verification is not None
    assert both.verification.relative_error is not None
    assert both.verification.relative_error <= 1e-5
    sources = {step["origin"] for step in both.report["written"]["steps"] if step["origin"]}
    assert {"a", "c", "d"} <= sources


def test_the_same_bytes_come_out_each_time(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(convolutions())
    code = (
        "import memsched, hashlib, sys;"
        f"r = memsched.optimize({str(path)!r}, time_limit=None, level=2, verify=False);"
        "print(hashlib.sha256(r.model).hexdigest())"
    )
    seen = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        seen.add(done.stdout)
    assert len(seen) == 1


def test_outputs_that_differ_too_far_name_what_was_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Verification("onnxruntime 0", 3, False, 0.5, None, None, None, "outputs differ", relative_error=0.25)
    monkeypatch.setattr(finish, "verify_written", lambda *_, **__: (wrong, ()))
    with fails("outputs-differ", "(tile)", "onnxruntime 0", "2.5e-01", "1e-05") as caught:
        memsched.optimize(convolutions(), level=2, effort=2)
    assert isinstance(caught.value, OutputsDifferError)
    assert caught.value.report["sections"]["verification"]["relative_error"] == 0.25
    with fails("outputs-differ", "(remat)"):
        memsched.optimize(skip_connection(), allow=("reorder", "inplace", "remat"), max_extra_macs=50.0, effort=3)
    with fails("outputs-differ", "reorder") as caught:
        memsched.optimize(branches(), effort=2)
    assert isinstance(caught.value, OutputsDifferError)
    # Nothing is done to a file whose own order is the best: outputs that differ are no one's fault but its own.
    assert memsched.optimize(skip_connection(), effort=2).model == skip_connection()


@pytest.mark.parametrize("percent", [-1.0, 10_001.0, 1e308, float("inf"), float("nan")])
def test_a_limit_of_work_that_is_no_percentage(percent: float) -> None:
    with fails("option-range", "--max-extra-macs", "10,000"):
        memsched.optimize(convolutions(), level=2, max_extra_macs=percent)


def both() -> bytes:
    """`skip_connection` after `convolutions`: pieces help the one, repetitions the other."""
    values = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array(values.normal(size=shape).astype(np.float32) / 4, name)
        for name, shape in (("w1", (16, 2, 3, 3)), ("w2", (2, 16, 3, 3)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w2"], ["d"], "d", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Exp", ["d"], ["a"], "a"),
        helper.make_node("ReduceMean", ["a"], ["m"], "m", axes=[2, 3], keepdims=1),
        helper.make_node("Mul", ["d", "m"], ["w"], "w"),
        helper.make_node("Neg", ["w"], ["v"], "v"),
        helper.make_node("ReduceMean", ["v"], ["n"], "n", axes=[2, 3], keepdims=1),
        helper.make_node("Mul", ["a", "n"], ["y"], "y"),
    ]
    shape = [1, 2, SIDE, SIDE]
    return model_of(nodes, [floats("x", shape)], [floats("y", shape)], weights)


@pytest.mark.parametrize("make", [skip_connection, convolutions, both])
def test_a_larger_budget_never_costs_more(make: Callable[[], bytes]) -> None:
    data = make()
    given = memsched.optimize(data, solver="file", verify=False).report["written"]["schedule"]["arena_bytes"]
    costs = []
    for share in (20, 50, 80, 100):
        report = memsched.optimize(
            data, budget=given * share // 100, level=3, max_extra_macs=100.0, effort=0.5, verify=False
        ).report
        tiling, remat = report["sections"]["tile"], report["sections"]["recompute"]
        extra = (tiling or {}).get("extra_macs_percent", 0) + (remat or {}).get("extra_work_percent", 0)
        costs.append(extra if report["budget"]["met"] else float("inf"))
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0
    assert costs[0] > 0
