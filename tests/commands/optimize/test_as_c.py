"""C without an interpreter as an alternative of default runs for firmware."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import memsched
from memsched.commands.optimize import as_c
from memsched.report.values.verdict import AlternativeRow
from tests.outcomes import Run
from tests.runtimes.old_processor import needs_compiler

MODELS = Path(__file__).parents[3] / "models"
SPEECH = MODELS / "micro_speech_quantized.tflite"


def _named(path: Path, **options: Any) -> list[AlternativeRow]:
    words = ("optimize", str(path))
    rows = memsched.optimize(path, hooks=memsched.Hooks(words=words), **options).report.values.alternatives
    return [row for row in rows if "--emit" in row.command]


@needs_compiler
@pytest.mark.quick
def test_c_is_named_first_with_the_figures_of_its_command(run: Run, tmp_path: Path) -> None:
    (row,) = _named(SPEECH, target="tflm", effort=0.1)
    assert row.changes == ("opening",)
    assert row.time_ratio is not None
    assert row.time_ratio < 1
    words = shlex.split(row.command)
    assert words[0] == "memsched"
    made = run(*words[1:], "-o", tmp_path / "c")
    assert made.code == 0
    assert f"{row.bytes:,} B of RAM" in made.out


@needs_compiler
def test_c_is_not_named_if_it_saves_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_c, "MOST_LEFT", 0.01)
    assert not _named(SPEECH, target="tflm", effort=0.1)


@pytest.mark.parametrize(
    "options",
    [{"target": "litert-reference"}, {"target": "tflm", "verify": False}, {"target": "tflm", "budget": 8_000}],
)
def test_c_is_named_for_firmware_whose_files_are_run_alone(options: dict[str, Any]) -> None:
    assert not _named(SPEECH, effort=0.1, **options)
