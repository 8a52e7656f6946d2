"""``--header`` of ``memsched optimize`` and ``memsched analyze``."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

import memsched
from tests.cli.conftest import Run
from tests.formats.tflite_builder import MODELS
from tests.outcomes import line_with


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copy(MODELS / "person_detect.tflite", tmp_path / "person.tflite"))


def test_a_header_beside_the_other_outputs(run: Run, model: Path) -> None:
    path = model.with_name("arena.h")
    out = model.with_name("out.tflite")
    assert run("optimize", model, "--target", "tflm", "-o", out, "--header", path, "--no-verify").code == 0
    text = path.read_text(encoding="utf-8")
    assert f"memsched {memsched.__version__}" in text.splitlines()[0]
    assert "#ifndef ARENA_H_" in text
    assert "#define PERSON_ACTIVATION_BYTES ((size_t)55296u)" in text
    assert hashlib.sha256(out.read_bytes()).hexdigest() in text
    again = model.with_name("again.h")
    run("optimize", model, "--target", "tflm", "-o", out, "--header", again, "--no-verify", "--force")
    assert again.read_text(encoding="utf-8").replace("AGAIN_H_", "ARENA_H_") == text


def test_offsets_of_a_memory_plan(run: Run, model: Path) -> None:
    path = model.with_name("arena.h")
    assert run("optimize", model, "--target", "tflm", "--tflm-plan", "--header", path, "--no-verify").code == 0
    text = path.read_text(encoding="utf-8")
    assert "PERSON_DEFINE_TENSORS" in text
    assert text.count("{((size_t)") > 20


def test_a_header_of_the_model_as_it_is(run: Run, model: Path) -> None:
    path = model.with_name("arena.h")
    outcome = run("analyze", model, "--target", "tflm", "--header", path, "-v")
    assert outcome.code == 0
    assert line_with(outcome.out, " 5: AddAveragePool2D(), AddConv2D()")
    assert line_with(outcome.out, "27,004 B on 32 ", "29,728 B on 64 ")
    assert hashlib.sha256(model.read_bytes()).hexdigest() in path.read_text(encoding="utf-8")
    assert "AddConv2D()" not in run("analyze", model, "--target", "litert").out
    assert line_with(run("analyze", model, "-v").out, " 5: AddAveragePool2D(), AddConv2D()")


@pytest.mark.parametrize(
    "header", ["-", "person.tflite", "report.json", "person_memsched.tflite", "person.tflite/arena.h"]
)
def test_a_header_that_cannot_be_written(run: Run, model: Path, header: str) -> None:
    path = header if header == "-" else model.parent / header
    for command in ("optimize", "analyze") if header != "person_memsched.tflite" else ("optimize",):
        outcome = run(command, model, "--header", path, "--report", model.with_name("report.json"))
        assert outcome.code == (1 if "/" in header else 2)
        assert len(outcome.err.strip().splitlines()) == 1
        assert [entry.name for entry in model.parent.iterdir()] == ["person.tflite"]


def test_all_outputs_or_none(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def fail(source: Path, target: str) -> Path:
        if target.endswith(".h"):
            raise OSError(28, "No space left on device")
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", fail)
    for command in (("optimize", "--no-verify"), ("analyze", "--report", model.with_name("report.json"))):
        outcome = run(command[0], model, *command[1:], "--header", model.with_name("arena.h"))
        outcome.failed("disk-full", "arena.h")
        assert [entry.name for entry in model.parent.iterdir()] == ["person.tflite"]
