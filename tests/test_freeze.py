"""`python -m tests.tools.freeze`: what differs is named by command and file, and seconds are no difference."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.outcomes import check_lines
from tests.tools import freeze
from tests.tools.written import ROOT, Case, World, fix_time, outcome

MODEL = ROOT / "models" / "hello_world_int8.tflite"
ANALYZE = Case("analyze", ("analyze", MODEL.name, "--report", "out.json"), (MODEL,), workers=False)


def test_differences_are_named_by_command_and_file() -> None:
    report = {"r.json": "1", "r.json / passes": "1", "r.json / result": "1", "r.json / target": "1"}
    changed = {"r.json": "2", "r.json / passes": "2", "r.json / result": "1", "r.json / tiling": "1"}
    before = {"a": {"exit code": "0", "x": "1", "y": "2", **report}, "b": {}}
    after = {"a": {"exit code": "1", "x": "1", "z": "2", **changed}, "c": {}}
    assert freeze.differences(before, before) == []
    check_lines(
        freeze.differences(before, after),
        ("a: exit code ", "(0, now 1)"),
        ("a: r.json ", " passes, target, tiling"),
        ("a: y ", "gone"),
        ("a: z ", "new"),
        ("b: gone",),
        ("c: new",),
    )


def test_the_same_run_twice_is_the_same_though_not_as_long() -> None:
    first, second = (outcome(ANALYZE, World("plain"), printed=True) for _ in range(2))
    assert first.code == 0
    assert first.digests() == second.digests()
    assert set(first.files) == {"out.json", "standard output", "standard error"}
    assert b'"seconds"' not in first.files["out.json"]


def test_a_report_whose_time_is_fixed_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"seconds": 2.5, "passes": [{"name": "a", "seconds": 0.1}], "peak": 7}))
    fix_time(path)
    assert json.loads(path.read_text()) == {"seconds": 1, "passes": [{"name": "a", "seconds": 1}], "peak": 7}


def test_what_was_saved_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Case("analyze", ("analyze", "missing.onnx"), (), workers=False)
    monkeypatch.setattr(freeze, "frozen_cases", lambda _base, _world: iter([ANALYZE, refused]))
    saved = tmp_path / "new" / "frozen.json"
    monkeypatch.setattr(sys, "argv", ["freeze", "--save", str(saved), "--keep", str(tmp_path / "kept")])
    assert freeze.main() == 0
    assert (tmp_path / "kept" / "000" / "out.json").is_file()
    monkeypatch.setattr(sys, "argv", ["freeze", "--compare", str(saved)])
    assert freeze.main() == 0
    frozen = json.loads(saved.read_text())
    frozen["analyze missing.onnx"]["standard error"] = "another"
    frozen["analyze gone.onnx"] = {"exit code": "0"}
    saved.write_text(json.dumps(frozen))
    capsys.readouterr()
    assert freeze.main() == 1
    told = capsys.readouterr().out.splitlines()
    check_lines(told[:2], ("analyze missing.onnx: standard error ",), ("analyze gone.onnx: ",))
    assert told[2].endswith("2 differ")
