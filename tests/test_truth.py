"""`make truth`: the table of what is predicted and what the runtimes show, on two models, and the page made of it."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest

from tests import small_models
from tests.needs import recent_onnxruntime
from tests.tools import truth
from tests.tools.claims.__main__ import Case, Row
from tests.tools.truth import TruthRow, main, models_in

ROOT = Path(__file__).resolve().parent.parent
HELLO = "hello_world_int8.tflite"
LINE = re.compile(r"\| (\S+) \| ([\w ]+) \| ([\d,]*) \| ([\d,]*) \| ([\d,]*) \| ([\d,]*) \| (.+) \|")


@recent_onnxruntime
def test_two_models_in_all_runtimes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(ROOT / "models" / HELLO, tmp_path)
    (tmp_path / "net.onnx").write_bytes(small_models.branches(count=6))
    page = tmp_path / "truth.md"
    assert main([str(tmp_path), "--out", str(page)]) == 0
    assert re.findall(r"\d+", capsys.readouterr().out.splitlines()[-1])[:2] == ["3", "0"]
    rows = LINE.findall(page.read_text())
    assert [row[:2] for row in rows] == [
        (HELLO, "LiteRT"),
        (HELLO, "TensorFlow Lite Micro"),
        ("net.onnx", "ONNX Runtime"),
    ]
    assert all(all(row) for row in rows[:2]), "each model is predicted and measured, as given and as written"
    assert all(rows[2][3:]), "of a session without options nothing is promised"
    before, after = (int(rows[2][column].replace(",", "")) for column in (3, 5))
    assert after < before
    assert "onnxruntime" in page.read_text()


def test_what_is_off_is_red_and_no_page_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Case, name: str, options: tuple[str, ...], folder: Path) -> Row:
        claimed = 103 if self.target == "litert-reference" else 100
        verification = {"runtime": self.target, "predicted_peak_after_bytes": claimed}
        (folder / "report.json").write_text(json.dumps({"sections": {"verification": verification}}))
        return Row(self.model.name, self.target, name, 0, claimed, 100)

    monkeypatch.setattr(Case, "row", wrong)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main([str(ROOT / "models" / HELLO), "--out", str(tmp_path / "truth.md")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert ["\x1b[31m" in line for line in lines] == [False, True, False, False]
    assert re.findall(r"\d[\d.]*", lines[-1])[:3] == ["2", "1", "3.00"]
    assert not (tmp_path / "truth.md").exists()


def test_two_percent_is_the_border() -> None:
    row = TruthRow("m", "LiteRT", "litert 2", (100, 100), (102, 100), "", "")
    assert not row.red
    assert row.line() == "| m | LiteRT | 100 | 100 | 102 | 100 | 1.000, 1.020 |"
    assert dataclasses.replace(row, given=(97, 100)).red
    assert dataclasses.replace(row, wrong="outputs differ").red
    silent = dataclasses.replace(row, given=(None, 7), written=(None, 7), said="absent")
    assert not silent.red
    assert silent.line() == "| m | LiteRT |  | 7 |  | 7 | absent |"


def test_the_page_has_every_model_of_the_repository() -> None:
    rows = LINE.findall((ROOT / "docs" / "truth.md").read_text())
    models = list(models_in([str(ROOT / "models")]))
    shown = [(path.name, truth.RUNTIMES[target]) for path in models for target in truth.TARGETS[path.suffix]]
    assert [row[:2] for row in rows] == shown
    for row in rows:
        if row[:2] == ("person_detect.tflite", "LiteRT"):
            assert not re.search(r"\d", row[-1])
            continue
        assert all(row[3:6]), row
        for claimed, measured in (row[2:4], row[4:6]):
            one, other = (int(cell.replace(",", "")) for cell in (claimed or measured, measured))
            assert abs(one - other) <= 0.02 * other, row
