"""What is permitted by default and by each level: pieces that cost nothing, and only where both models agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import memsched
from memsched.commands.calls import seconds_of
from memsched.commands.levels import LONG_SEARCH
from memsched.commands.optimize import branch, finish
from memsched.commands.options import Options
from memsched.commands.verify import verify_written
from memsched.report.values.optimize import OptimizeReport
from tests.formats.tflite_builder import MODELS
from tests.outcomes import Run
from tests.small_models import floats, model_of

PERSON = MODELS / "person_detect.tflite"


def expansion(side: int = 64) -> bytes:
    """A layer that makes many times what it reads, with much work, and one that makes little of it again.

    Its sums have 126 terms: ONNX Runtime rounds longer ones of convolutions by how many rows there are.
    """
    values = np.random.default_rng(0)
    weights = values.standard_normal((256, 14, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["wide"], "expand", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["wide"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["y"], "pool", kernel_shape=[4, 4], strides=[4, 4]),
    ]
    return model_of(
        nodes,
        [floats("x", [1, 14, side, side])],
        [floats("y", [1, 256, side // 4, side // 4])],
        [numpy_helper.from_array(weights, "w")],
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "net.onnx"
    file.write_bytes(expansion())
    return file


def seen(monkeypatch: pytest.MonkeyPatch, **values: Any) -> list[float]:
    """Let verification say so of every model in pieces; return the tolerances that it was asked with."""
    known, tolerances = verify_written, []

    def said(module: Any, *args: Any, **keywords: Any) -> Any:
        tolerances.append(keywords["tolerance"])
        verification, notes = known(module, *args, **keywords)
        if verification is None or len(module.graphs[0].ops) <= 3:
            return verification, notes
        return replace(verification, **values), notes

    monkeypatch.setattr(finish, "verify_written", said)
    return tolerances


def test_pieces_that_cost_nothing_are_on_by_default(path: Path) -> None:
    report: OptimizeReport = memsched.optimize(path, order_guarantee="session").report.values
    assert report.sections.tile is not None
    assert report.sections.tile.applied
    assert report.sections.tile.extra_macs == 0
    assert report.sections.requirement is not None
    assert report.sections.requirement.bytes < 0.5 * report.sections.requirement.given_bytes
    assert report.sections.verification is not None
    assert report.sections.verification.outputs_equal
    assert report.sections.verification.max_abs_error == 0


def quantised() -> bytes:
    """`expansion` of values that are quantised in front of it."""
    model = onnx.load_model_from_string(expansion())
    step, zero = numpy_helper.from_array(np.float32(0.05), "step"), numpy_helper.from_array(np.uint8(128), "zero")
    model.graph.initializer.extend([step, zero])
    model.graph.node[0].input[0] = "again"
    for place, (kind, read, made) in enumerate((("Quantize", "x", "q"), ("Dequantize", "q", "again"))):
        model.graph.node.insert(place, helper.make_node(f"{kind}Linear", [read, "step", "zero"], [made], kind))
    return bytes(model.SerializeToString())


def test_layers_that_the_runtime_joins_with_what_quantises_them_stay_whole(path: Path) -> None:
    path.write_bytes(quantised())
    report: OptimizeReport = memsched.optimize(path, order_guarantee="session").report.values
    assert report.sections.tile is None
    # Who permits it has them in pieces all the same.
    report = memsched.optimize(path, order_guarantee="session", level=2, effort=1).report.values
    assert report.sections.tile is not None
    assert report.sections.tile.applied


@pytest.mark.parametrize("words", [{"level": 0}, {"verify": False}, {"order_guarantee": "default"}])
def test_they_are_left_out(path: Path, words: dict[str, Any]) -> None:
    report: OptimizeReport = memsched.optimize(path, **{"order_guarantee": "session"} | words).report.values
    assert report.sections.tile is None


@pytest.mark.quick
def test_they_are_left_out_where_the_bits_differ(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tolerances = seen(monkeypatch, outputs_equal=False, relative_error=1e-7)
    result = memsched.optimize(path, order_guarantee="session")
    assert len(tolerances) > 1
    assert set(tolerances) == {0.0}
    assert result.model == path.read_bytes()
    report: OptimizeReport = result.report.values
    assert report.sections.tile is None
    assert report.sections.verification is not None
    assert report.sections.verification.outputs_equal


def test_they_are_left_out_where_nobody_saw_the_bits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, outputs_equal=None)
    assert memsched.optimize(path, order_guarantee="session").model == path.read_bytes()


def test_they_are_held_back_where_sessions_without_options_need_more(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(monkeypatch, default_peak_before_bytes=50_000_000, default_peak_after_bytes=50_000_001)
    monkeypatch.setattr(branch, "_pattern_costs", lambda *_: False)
    result = memsched.optimize(path, hooks=memsched.Hooks(words=("optimize", "net.onnx")))
    report: OptimizeReport = result.report.values
    assert result.model == path.read_bytes()
    assert "memsched optimize net.onnx --order-guarantee session" in {one.command for one in report.alternatives}


def test_tiles_are_no_alternative_with_xnnpack(run: Run, tmp_path: Path) -> None:
    assert run("optimize", PERSON, "-o", tmp_path / "small.tflite", "--target", "litert").code == 0
    report = json.loads((tmp_path / "small.json").read_text())
    assert report["output"]["unchanged"]
    assert not report["alternatives"]
    assert not any("cut" in note for note in report["verdict"]["notes"])


def test_whole_arenas_gain_by_default(run: Run, tmp_path: Path) -> None:
    assert run("optimize", PERSON, "-o", tmp_path / "small.tflite", "--target", "tflm").code == 0
    report = json.loads((tmp_path / "small.json").read_text())
    assert report["verdict"]["bytes"] <= 64_956
    # What takes no more time than is permitted may add work.
    assert report["verdict"]["extra_macs_percent"] <= 10
    for one in report["alternatives"]:
        assert "--allow reorder,inplace,tile" in one["command"] or "--emit c" in one["command"]


@pytest.mark.parametrize(
    ("words", "permitted", "free"),
    [
        ({"level": 0}, {}, False),
        ({}, {"tile", "remat", "algebra"}, True),
        ({"verify": False}, {}, True),
        ({"session": "default"}, {}, True),
        ({"level": 2}, {"tile"}, False),
        ({"level": 3}, {"tile", "remat"}, False),
        ({"allow": ("reorder", "inplace")}, {}, False),
        ({"allow": ("reorder", "inplace", "tile")}, {"tile"}, False),
    ],
)
def test_levels(words: dict[str, Any], permitted: set[str], free: bool) -> None:
    options = Options(**words)
    assert set(options.permitted) == {"reorder", "inplace", *permitted}
    assert options.free is free


@pytest.mark.parametrize(
    ("words", "code", "about"),
    [
        (["-O2", "--allow", "all"], "option-conflict", "--allow"),
        (["--max-extra-macs", "5"], "no-effect", "--max-extra-macs"),
        (["-O0", "--max-slowdown", "5"], "no-effect", "--max-slowdown"),
        (["-O4"], "bad-parameter", "-O: 4"),
    ],
)
def test_what_contradicts_a_level_is_refused(run: Run, path: Path, words: list[str], code: str, about: str) -> None:
    run("optimize", path, *words).failed(code, about)


def test_long_searches_are_long(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, limits = memsched.optimize, []

    def noted(source: str, options: Options, hooks: memsched.Hooks) -> Any:
        limits.append(seconds_of(options))
        return known(source, replace(options, time_limit=0.0, verify=False), hooks)

    monkeypatch.setattr("memsched.commands.optimize.optimize.optimize", noted)
    for words in ([], ["-O3"], ["-O3", "--time-limit", "5"]):
        assert run("optimize", path, "-q", *words).code == 0
    assert limits == [60.0, LONG_SEARCH, 5.0]


def test_suggested_lists_keep_what_is_permitted_by_default(path: Path) -> None:
    words = ("optimize", "net.onnx", "-O1", "-q")
    rows = memsched.optimize(
        path, hooks=memsched.Hooks(words=words), order_guarantee="session"
    ).report.values.alternatives
    for one in rows:
        assert "-O1" not in one.command
        assert "tile" in one.command
