"""Special values among inputs: what is drawn, how outputs are judged, and that no file is called equal that is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from memsched.commands.failures import DEFECTS
from memsched.commands.optimize.optimize import optimize
from memsched.formats.module import LoadOptions
from memsched.ops import geometry
from memsched.ops.cuts import verdict
from memsched.runtimes.compare import disagreement
from memsched.runtimes.litert.runner import LiteRtRunner
from memsched.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from memsched.runtimes.runner import CompareFiles
from memsched.runtimes.special import SPECIALS, WORDS, SpecialRuns, applying, judged, mixed
from memsched.runtimes.tflm.runner import TflmRunner
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.small_models import floats, model_of


def draw(dtype: str, kind: Any, *, quantized: bool = False) -> Any:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(4, 50)) * 3).astype(dtype)
    return mixed(values, kind, rng, quantized=quantized)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_have_special_values(dtype: str) -> None:
    info = np.finfo(dtype)
    nonfinite, tiny, extreme = (draw(dtype, kind) for kind in SPECIALS)
    assert np.isnan(nonfinite).any()
    assert {np.inf, -np.inf} <= set(nonfinite.reshape(-1).tolist())
    assert np.isfinite(nonfinite).sum() > nonfinite.size / 2
    zeros = tiny[tiny == 0]
    assert np.signbit(zeros).any()
    assert not np.signbit(zeros).all()
    assert ((np.abs(tiny) < info.tiny) & (tiny != 0)).any()
    assert {info.max, info.min} <= set(extreme.reshape(-1).tolist())
    assert np.isfinite(extreme).all()


def test_only_bytes_and_quantised_integers_have_extremes() -> None:
    assert {-128, 127} <= set(draw("int8", "extreme").reshape(-1).tolist())
    assert {-32768, 32767} <= set(draw("int16", "extreme", quantized=True).reshape(-1).tolist())
    assert np.abs(draw("int64", "extreme")).max() < 100  # it may be an index
    assert applying([("int64", False), ("bool", False)]) == ()
    assert applying([("int8", False)]) == ("extreme",)
    assert applying([("int64", False), ("float16", False)]) == SPECIALS


@pytest.mark.parametrize(
    ("first", "second", "off"),
    [
        ([1.0, np.nan], [1.0, -np.nan], None),
        ([0.0, 4.0], [-0.0, 4.0], 0.0),
        ([2.0, 4.0], [1.0, 4.0], 0.25),
        ([np.nan, 4.0], [1.0, 4.0], np.inf),
        ([np.inf, 4.0], [-np.inf, 4.0], np.inf),
    ],
)
def test_nan_is_nan_and_zeros_have_signs(first: Sequence[float], second: Sequence[float], off: float | None) -> None:
    found = disagreement([np.array(first, np.float32)], [np.array(second, np.float32)])
    assert (None if found is None else found.off) == off


def runs(found: Any, again: Sequence[Any] = (), tolerance: float = 0.0, kind: Any = "nonfinite") -> SpecialRuns:
    given = [np.array([1.0, np.nan], np.float32)]
    return SpecialRuns("", {kind: given}, {kind: found}, lambda _: again, tolerance)


def test_a_model_that_does_not_agree_with_itself_is_not_judged_by_it() -> None:
    other = [np.array([1.0, 2.0], np.float32)]
    wrong = judged([runs(other)])["wrong"]
    assert WORDS["nonfinite"] in wrong
    assert " 2 " in wrong
    assert "nan" in wrong
    assert judged([runs(other, again=[other])]) == {"tried": [], "off": None, "wrong": None}
    near = [np.array([1.000001, np.nan], np.float32)]
    assert judged([runs(other, again=[near])])["wrong"] is not None  # threads round otherwise, no more
    assert judged([runs(near, again=[near], tolerance=1e-5)])["tried"] == ["nonfinite"]
    assert "why" in judged([runs("why")])["wrong"]


def test_a_tolerance_is_for_finite_values_alone() -> None:
    near, far = [np.array([1.000001, np.nan], np.float32)], [np.array([1.0, 2.0], np.float32)]
    assert judged([runs(near)])["wrong"] is not None
    assert 0 < judged([runs(near, tolerance=1e-5)])["off"] < 1e-5
    assert judged([runs(far, tolerance=1e-5)])["wrong"] is not None
    # What is rounded otherwise may overflow.
    assert judged([runs(far, tolerance=1e-5, kind="extreme")])["off"] == 0.0


def onnx_net(*nodes: Any, **constants: float) -> bytes:
    held = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()]
    return model_of(nodes, [floats("x", [3, 20])], [floats("y", [3, 20])], held)


IDENTITY = onnx_net(helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Sub", ["a", "z"], ["y"]), z=0.0)
ONNX: Mapping[str, bytes] = {
    "nonfinite": onnx_net(
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("IsNaN", ["a"], ["n"]),
        helper.make_node("Where", ["n", "z", "a"], ["y"]),
        z=0.0,
    ),
    "tiny": onnx_net(helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Add", ["a", "z"], ["y"]), z=1e-40),
    "extreme": onnx_net(
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Mul", ["a", "two"], ["b"]),
        helper.make_node("Mul", ["b", "half"], ["y"]),
        two=2.0,
        half=0.5,
    ),
}


@pytest.mark.parametrize("kind", SPECIALS)
def test_models_of_which_only_special_values_differ_are_not_equal(kind: Any) -> None:
    compare = OnnxRuntimeRunner().compare
    same, found = compare(CompareFiles(IDENTITY, ONNX[kind], LoadOptions(), 1, 0.0, 0.0, 0))
    assert same is False
    assert WORDS[kind] in (found.special_wrong or "")
    assert found.outputs_equal is False
    same, found = compare(CompareFiles(IDENTITY, IDENTITY, LoadOptions(), 1, 0.0, 0.0, 0))
    assert same is True
    assert found.special_values == tuple(WORDS.values())


def tflite_net(kind: str, table: str, value: float) -> bytes:
    tensors = [T("x", (1, 30)), T("c", (1,), data=np.array([value], "<f4").tobytes()), T("y", (1, 30))]
    return build(Sub(tensors, [O(kind, [0, 1], [2], options(table))], [0], [2]))


@pytest.mark.parametrize("runner", [LiteRtRunner(), TflmRunner()], ids=["litert", "tflm"])
def test_tflite_models_of_which_only_special_values_differ_are_not_equal(runner: Any) -> None:
    given = tflite_net("MUL", "MulOptions", 1.0)
    same, found = runner.compare(
        CompareFiles(given, tflite_net("ADD", "AddOptions", 0.0), LoadOptions(), 1, 0.0, 0.0, 0)
    )
    assert same is False  # -0.0 + 0.0 is 0.0
    assert WORDS["tiny"] in found.special_wrong
    same, found = runner.compare(
        CompareFiles(given, tflite_net("DIV", "DivOptions", 1.0), LoadOptions(), 1, 0.0, 0.0, 0)
    )
    assert same is True
    assert found.special_values == tuple(WORDS.values())


def test_no_file_is_written_that_makes_something_else_of_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the table of cuts were wrong: pieces of this maximum lose NaN."""
    monkeypatch.delenv(DEFECTS, raising=False)
    monkeypatch.setattr(geometry, "verdict", lambda kind, *more: "exact" if kind == "MaxPool" else verdict(kind, *more))
    larger = helper.make_node(
        *("Resize", ["x", "", "by"], ["l"]),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    pool = helper.make_node("MaxPool", ["l"], ["y"], kernel_shape=[3, 3], strides=[3, 3])
    scales = [numpy_helper.from_array(np.array([1, 1, 3, 3], np.float32), "by")]
    data = model_of([larger, pool], [floats("x", [1, 32, 3, 3])], [floats("y", [1, 32, 3, 3])], scales)
    found = optimize(data, level=2, order_guarantee="session", effort=0.5, max_slowdown=None)
    assert not (found.report["sections"]["tile"] or {}).get("applied")
    (failure,) = found.report["sections"]["failures"]
    assert "NaN" in failure["reason"]
    assert found.verification is not None
    assert found.verification.special_wrong is None
