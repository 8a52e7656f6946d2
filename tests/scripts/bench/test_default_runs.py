"""The table of runs without options shows what is saved, and fails where such a run breaks its promises."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from memsched.formats.module import LoadOptions
from scripts.bench import default_runs
from scripts.bench.default_runs import DefaultRun, default_run, tables
from scripts.bench.runner.declare import ROOT
from scripts.bench.runner.text import printed
from tests.commands.optimize.test_session import network

GOOD = DefaultRun(
    given=1000, required=800, ratio=1.05, process=(5 << 20, 4 << 20), equal=True, seconds=2.5, named=(8 << 20, 2 << 20)
)


@pytest.mark.parametrize(
    "broken",
    [{"required": 1001}, {"ratio": 1.17}, {"process": (5 << 20, 6 << 20)}, {"equal": False}],
)
def test_broken_promises_are_wrong(monkeypatch: pytest.MonkeyPatch, broken: dict[str, object]) -> None:
    runs = [GOOD, dataclasses.replace(GOOD, **broken)]  # type: ignore[arg-type]
    assert [run.wrong for run in runs] == [False, True]
    monkeypatch.setattr(default_runs, "default_run", lambda *_: runs.pop())
    lines = list(printed(tables([Path("bad.onnx"), Path("good.onnx")], LoadOptions())))
    assert any("wrong: bad" in line for line in lines)


def test_rows_say_what_is_saved_and_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = dataclasses.replace(GOOD, ratio=None, process=None, equal=None)
    same = dataclasses.replace(refused, required=1000)
    runs = [GOOD, refused, same]
    monkeypatch.setattr(default_runs, "default_run", lambda *_: runs.pop(0))
    lines = list(printed(tables([Path(f"{name}.onnx") for name in "abc"], LoadOptions())))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]
    equal, *unknown = (row.pop(7) for row in cells)
    assert (equal, "equal" in unknown, "" in unknown) == ("equal", False, False)
    assert cells == [
        ["a", "onnxruntime", "1,000", "800", "20.0 %", "1.05 x", "5.0 to 4.0", "2.5", "8.0 to 2.0"],
        ["b", "onnxruntime", "1,000", "800", "20.0 %", "refused", "", "2.5", "8.0 to 2.0"],
        ["c", "onnxruntime", "1,000", "1,000", "0.0 %", "same file", "", "2.5", "8.0 to 2.0"],
    ]
    assert any("2 of 3 " in line and "wrong: none" in line for line in lines)


def test_both_files_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())
    for model, target in ((path, None), (ROOT / "models" / "hello_world_int8.tflite", "tflm-reference")):
        found = default_run(model, target, LoadOptions())
        assert 0 < found.required <= found.given
        assert found.equal
        assert found.seconds > 0
        assert (found.process is None) == (found.ratio is None) or target is not None
