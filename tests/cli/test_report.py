"""``memsched report``, and ``--html`` of ``memsched optimize`` and ``memsched analyze``."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

import memsched
from tests import small_models
from tests.cli.conftest import Run
from tests.cli.test_tiling import ALL, net


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(small_models.branches())
    return path


@pytest.fixture
def report(run: Run, model: Path) -> Path:
    path = model.with_name("r.json")
    assert run("analyze", model, "--report", path).code == 0
    return path


def test_analyze_prints_the_same_without_rows_for_steps_buffers_and_layers(run: Run, report: Path, model: Path) -> None:
    for path in (model, Path("models/micro_speech_quantized.tflite"), Path("models/person_detect.tflite")):
        bare = run("analyze", path)
        told = run("analyze", path, "--report", report)
        assert (bare.code, bare.err) == (0, "")
        assert bare.out == told.out.replace(f"report: {report}\n", "") != ""
    rows = memsched.analyze(str(model)).report.values
    peak = memsched.analyze(str(model), hooks=memsched.Hooks(rows=False)).report.values
    assert (
        peak.written.steps
        == tuple(step for step in rows.written.steps if step.footprint_bytes == rows.written.schedule.peak_bytes)[:1]
    )
    assert (peak.written.buffers, peak.sections.layers, peak.written.workspaces) == ((), (), ())
    assert (peak.verdict, peak.written.at_fault) == (rows.verdict, rows.written.at_fault)


def test_a_page_beside_the_report(run: Run, report: Path) -> None:
    outcome = run("report", report)
    assert outcome.code == 0
    assert re.fullmatch(rf"page: {re.escape(str(report.with_suffix('.html')))} \([\d,.]+ KB\)\n", outcome.out)
    text = report.with_suffix(".html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    peak = json.loads(report.read_text(encoding="utf-8"))["proof"]["bytes"]
    assert f"{peak:,} B" in text
    assert run("report", report, "-q", "-o", report.with_name("x.html")).out == ""
    assert report.with_name("x.html").read_text(encoding="utf-8") == text


def test_streams(run: Run, report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = report.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert run("report", "-", "-o", report.with_name("s.html")).code == 0
    run("report", report)
    assert report.with_name("s.html").read_bytes() == report.with_suffix(".html").read_bytes()
    outcome = run("report", "-")
    outcome.failed("no-output-name", "-o")


def test_the_page_of_a_command_is_that_of_its_report(run: Run, model: Path) -> None:
    for command, options in (("optimize", ("--no-verify",)), ("analyze", ())):
        report, page = model.with_name("made.json"), model.with_name("made.html")
        outcome = run(command, model, *options, "--report", report, "--html", page)
        assert outcome.code == 0
        assert f"page:   {page}" in " ".join(outcome.out.split("\n")).replace("\xa0", " ")
        made = page.read_bytes()
        assert run("report", report).code == 0
        assert page.read_bytes() == made


def test_before_and_after(run: Run, model: Path) -> None:
    page = model.with_name("p.html")
    assert run("optimize", model, "--no-verify", "--html", page, "--budget", "3KB").code == 0
    text = page.read_text(encoding="utf-8")
    assert "It fits: " in text
    report = json.loads(model.with_name(f"{model.stem}_memsched.json").read_text())
    assert f" peak {report['original']['schedule']['peak_bytes']:,} B" in text
    assert '"given":{"total":9' in text


def test_layers_in_pieces(run: Run, tmp_path: Path) -> None:
    model, page = net(tmp_path), tmp_path / "p.html"
    assert run("optimize", model, "--allow", ALL, "--effort", 2, "--no-verify", "--html", page).code == 0
    text = page.read_text(encoding="utf-8")
    for part in ('id="rewrites"', 'id="given"', '<i class="piece">'):
        assert part in text


@pytest.mark.parametrize("page", ["-", "model.onnx", "r.json", "model_memsched.onnx", "model.onnx/p.html", "a.h"])
def test_a_page_that_cannot_be_written(run: Run, model: Path, page: str) -> None:
    path = page if page == "-" else model.parent / page
    for command in ("optimize", "analyze") if page != "model_memsched.onnx" else ("optimize",):
        outcome = run(
            *(command, model, "--html", path, "--report", model.with_name("r.json")),
            *("--header", model.with_name("a.h")),
        )
        assert outcome.code == (1 if "/" in page else 2)
        assert len(outcome.err.strip().splitlines()) == 1
        assert [entry.name for entry in model.parent.iterdir()] == ["model.onnx"]


def test_all_outputs_or_none(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def fail(source: Path, target: str) -> Path:
        if target.endswith(".html"):
            raise OSError(28, "No space left on device")
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", fail)
    for command in (("optimize", "--no-verify"), ("analyze", "--report", model.with_name("report.json"))):
        outcome = run(command[0], model, *command[1:], "--html", model.with_name("p.html"))
        outcome.failed("disk-full", "p.html")
        assert [entry.name for entry in model.parent.iterdir()] == ["model.onnx"]


def test_nothing_is_searched_where_pages_cannot_be_made(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, report: Path
) -> None:
    monkeypatch.setattr("memsched.report.page.util.find_spec", lambda _: None)
    monkeypatch.setattr("memsched.commands.optimize.optimize.optimize", lambda *_, **__: pytest.fail("it was searched"))
    for arguments in (("optimize", model, "--html", model.with_name("p.html")), ("report", report)):
        outcome = run(*arguments)
        outcome.failed("not-installed", "pip install bokeh jinja2")
    assert run("analyze", model).code == 0


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("missing.json", None, "no-such-report"),
        ("empty.json", "", "not-json"),
        ("cut.json", '{"schema_version": 2, "comm', "not-json"),
        ("other.json", '{"a": 1}', "not-a-report"),
        ("newer.json", '{"schema_version": 7}', "report-version"),
        ("hand.json", '{"schema_version": 2, "command": "analyze", "model": 3}', "report-field"),
        (".", None, "report-is-folder"),
    ],
)
def test_what_is_no_report(run: Run, tmp_path: Path, name: str, content: str | None, code: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content, encoding="utf-8")
    outcome = run("report", path, "-o", tmp_path / "page.html")
    outcome.failed(code, str(path))
    assert len(outcome.err.strip().splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_the_report_is_not_overwritten(run: Run, report: Path) -> None:
    before = report.read_bytes()
    outcome = run("report", report, "-o", report)
    outcome.failed("would-overwrite", str(report), "-o")
    page = Path(shutil.copy(report, report.with_suffix(".html")))
    run("report", page).failed("would-overwrite", str(page), "-o")
    assert (report.read_bytes(), page.read_bytes()) == (before, before)
    assert run("report", report, "-o", report / "p.html").code == 1
