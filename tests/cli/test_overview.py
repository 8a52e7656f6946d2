"""``memsched MODEL``: each runtime that takes it, what less memory takes, and commands that then run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import jsonschema
import pytest

from memsched.report.schema import json_schema
from tests import small_models
from tests.cli.conftest import Run
from tests.formats import tflite_builder

LINES = 12
"""Lines that a screenful of an answer may have."""

SCHEMA = jsonschema.Draft202012Validator(json_schema("overview"))


@pytest.fixture
def tflite(tmp_path: Path) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(tflite_builder.build(tflite_builder.branches()))
    return path


def test_a_tflite_model_has_a_row_for_each_runtime(run: Run, tflite: Path) -> None:
    before = sorted(tflite.parent.iterdir())
    done = run(tflite, "--effort", "0.3")
    assert (done.code, sorted(tflite.parent.iterdir())) == (0, before)
    lines = done.out.splitlines()
    assert len(lines) <= LINES
    assert all(any(line.startswith(title) for line in lines) for title in ("TensorFlow Lite Micro", "LiteRT"))
    assert all("measured" in line or "predicted" in line for line in lines if line.startswith(("TensorFlow", "LiteRT")))


def test_the_rows_as_json_agree_with_the_commands_that_they_name(run: Run, model: Path) -> None:
    done = run(model, "--json", "--effort", "0.3")
    report = json.loads(done.out)
    SCHEMA.validate(report)
    [row] = report["rows"]
    assert row["target"] == report["usual"] == "onnxruntime"
    assert row["reachable"]["bytes"] < row["original_bytes"]
    program, *words = shlex.split(row["reachable"]["command"])
    assert program == "memsched"
    assert run(*words, "-q", "--no-verify", "-o", model.with_name("out.onnx")).code == 0
    written = json.loads(model.with_name("out.json").read_text())
    assert written["verdict"]["bytes"] <= row["reachable"]["bytes"]


def test_one_target_alone_and_sizes_that_the_model_leaves_open(run: Run, tflite: Path) -> None:
    report = json.loads(run(tflite, "--target", "litert-reference", "--json", "--effort", "0.3").out)
    assert [row["target"] for row in report["rows"]] == ["litert-reference"]
    open_model = tflite.with_name("open.onnx")
    open_model.write_bytes(small_models.branches(side="height"))
    report = json.loads(run(open_model, "--dim", "height=16", "--json", "--effort", "0.3").out)
    assert "--dim=height=16" in report["rows"][0]["reachable"]["command"]


def test_quiet_prints_nothing(run: Run, tflite: Path) -> None:
    done = run(tflite, "-q", "--target", "litert-reference", "--effort", "0.3")
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("gone.onnx", None, "no-such-file"),
        ("half.tflite", tflite_builder.build(tflite_builder.branches())[:200], None),
        ("notes.txt", b"Ask for the model again.\n", None),
    ],
)
def test_a_bad_file_is_one_line(run: Run, tmp_path: Path, name: str, data: bytes | None, code: str | None) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    done = run(path)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert name in done.err
    assert code is None or (done.error is not None and done.error.code == code)
