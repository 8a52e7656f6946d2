"""``analyze --dim NAME=1..N``: memory against size, and the largest size that fits."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import memsched
from memsched.cli.main import main
from memsched.commands import curve
from memsched.commands.optimize.place import prepare, required_as_given
from memsched.report.page_data import page_data
from memsched.report.page_words import page_words
from memsched.runtimes.measure import Measured
from memsched.runtimes.runtime import Opening
from memsched.targets.load import load_target
from tests.formats.onnx.blocks.layers import Layers
from tests.outcomes import Run, line_with
from tests.runtimes.onnxruntime.measured import run_at


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a layer of attention whose length is open."""
    path = tmp_path_factory.mktemp("curve") / "net.onnx"
    layers = Layers(width=32, heads=8)
    onnx.save(layers.model(layers.op("Add", "x", layers.attention("x"))), path)
    return path


def _requested(path: Path, length: int) -> int:
    module = memsched.load(path, dims={"batch": 1, "length": length})
    return required_as_given(
        module, prepare(module, load_target("onnxruntime"), in_place=True), Opening("default")
    ).total


def test_the_curve_says_what_sessions_and_processes_take(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = net.with_name("report.json")
    assert main(["analyze", str(net), "--dim", "length=16..4096", "--budget", "200MB", "--report", str(report)]) == 3
    printed = capsys.readouterr().out
    written = json.loads(report.read_text())
    found_curve, budget = written["sections"]["curve"], written["budget"]
    assert budget["met"] is False
    assert budget["required_bytes"] == found_curve["rows"][-1]["process_bytes"]
    largest = found_curve["largest_sizes"]["length"]
    assert line_with(printed, f"batch = 1, length = {largest:,} ", " 200.0 MB")
    rows = {row["sizes"]["length"]: row for row in found_curve["rows"]}
    assert {16, largest, 4096} <= rows.keys()
    assert all(
        row["requested_bytes"] == _requested(net, length) for length, row in rows.items() if length in {16, largest}
    )
    assert (
        rows[largest]["process_bytes"]
        <= 200 << 20
        < min(row["process_bytes"] for length, row in rows.items() if length > largest)
    )
    # Scores of 8 heads take 512 MiB at 4,096: all of it can be run.
    assert all(row["measured_bytes"] == row["process_bytes"] for row in found_curve["rows"])
    assert found_curve["growth"][0]["expression"] == "4 x batch x 8 x length x length"
    found = run_at(net, {"batch": 1, "length": 4096}, seed=1)
    assert isinstance(found, Measured)
    assert rows[4096]["process_bytes"] == pytest.approx(found.peak, rel=0.05)


def test_what_cannot_be_run_follows_from_what_was(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve, "_MOST_RUN", 300 << 20)
    rows = memsched.analyze(net, dims={"length": (16, 4000)}, budget="10GB").report["sections"]["curve"]["rows"]
    assert [row["measured_bytes"] is None for row in rows] == [False] * (len(rows) - 1) + [True]
    found = run_at(net, rows[-1]["sizes"], seed=1)
    assert isinstance(found, Measured)
    assert rows[-1]["process_bytes"] == pytest.approx(found.peak, rel=0.15)


def test_a_budget_is_met_if_the_whole_range_fits_and_else_the_largest_size_that_fits_is_exact(net: Path) -> None:
    def budget_of(size: int, most: int) -> tuple[bool, dict[str, int] | None, str]:
        report = memsched.analyze(net, dims={"length": (64, most)}, target="paper", budget=size).report
        words = page_words(report.values, page_data(report.values))
        return report["budget"]["met"], report["sections"]["curve"]["largest_sizes"], words.verdict

    def activations(length: int) -> int:
        report = memsched.analyze(net, dims={"batch": 1, "length": length}, target="paper").report
        return int(report["verdict"]["bytes"])

    for largest in (1000, 1777):
        size = activations(largest + 1) - 1
        met, found, headline = budget_of(size, 2048)
        assert (met, found) == (False, {"batch": 1, "length": largest})
        assert f"length = {largest:,}" in headline
    met, found, whole = budget_of(size, largest)
    assert (met, found) == (True, {"batch": 1, "length": largest})
    assert f"length = {largest:,}" in whole != headline


def test_a_machine_that_is_too_small_is_told_so(run: Run, net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve, "_memory", lambda: 1 << 10)
    run("analyze", net, "--dim", "length=64..128").failed("too-large-to-run", "length", "64")


def test_where_not_even_the_least_fits_the_exit_code_says_so(run: Run, net: Path) -> None:
    done = run("analyze", net, "--dim", "length=64..128", "--budget", "1KB")
    assert done.code == 3
    assert "batch = 1, length = 64" in done.out
    assert "1,024 B" in done.out


def test_a_target_without_sessions_has_activations_alone(net: Path) -> None:
    report = memsched.analyze(net, dims={"length": (64, 128)}, target="paper").report
    assert all(row["process_bytes"] is None for row in report["sections"]["curve"]["rows"])
    assert report["sections"]["curve"]["largest_sizes"] == {"batch": 1, "length": 128}


def test_a_dimension_without_a_name_is_named_by_its_place(net: Path, tmp_path: Path) -> None:
    model, path = onnx.load(net), tmp_path / "net.onnx"
    model.graph.input[0].type.tensor_type.shape.dim[1].ClearField("dim_param")
    onnx.save(model, path)
    found = memsched.analyze(path, dims={"x[1]": (64, 128)}, target="paper").report["sections"]["curve"]
    named = memsched.analyze(net, dims={"length": (64, 128)}, target="paper").report["sections"]["curve"]
    assert found["largest_sizes"] == {"batch": 1, "x[1]": 128}
    assert [row["requested_bytes"] for row in found["rows"]] == [row["requested_bytes"] for row in named["rows"]]


def test_a_budget_in_percent_of_a_curve_is_refused(run: Run, net: Path) -> None:
    run("analyze", net, "--dim", "length=64..128", "--budget", "50%").failed("option-conflict", "--dim", "50 %")


def test_a_picture_is_drawn(net: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    assert main(["analyze", str(net), "--dim", "length=64..256", "--target", "paper", "--plot", str(picture)]) == 0
    assert picture.stat().st_size > 5000
