"""``memsched pipeline`` on the command line: files, the report, refusals, and what people read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import onnxruntime
import pytest

from memsched.report.schema import json_schema
from tests.cli.conftest import Run
from tests.features.pipeline.test_pipeline import residual

SCHEMA = jsonschema.Draft202012Validator(json_schema("pipeline"))
MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(residual())
    return path


def test_segments_report_and_annotated_model(run: Run, model: Path) -> None:
    result = run("pipeline", str(model), "--stages", "3")
    assert result.code == 0, result.err
    written = sorted(path.name for path in model.parent.iterdir())
    assert written == [
        "net.onnx",
        "net_pipeline.json",
        "net_pipeline.onnx",
        "net_segment_1_of_3.onnx",
        "net_segment_2_of_3.onnx",
        "net_segment_3_of_3.onnx",
    ]
    report = json.loads((model.parent / "net_pipeline.json").read_text())
    SCHEMA.validate(report)
    assert report["verification"]["outputs_equal"]
    assert report["result"]["peak_parameters_bytes"] == max(stage["parameters_bytes"] for stage in report["stages"])
    assert [stage["path"] for stage in report["stages"]] == [
        str(model.parent / f"net_segment_{number}_of_3.onnx") for number in (1, 2, 3)
    ]
    for stage in report["stages"]:
        session = onnxruntime.InferenceSession(stage["path"], providers=["CPUExecutionProvider"])
        assert [value.name for value in session.get_inputs()] == [value["tensor"] for value in stage["receives"]]
        assert [value.name for value in session.get_outputs()] == [value["tensor"] for value in stage["sends"]]
    assert "bit-equal" in result.out
    assert "proven" in result.out


def test_json_and_another_folder(run: Run, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "segments"
    folder.mkdir()
    result = run("pipeline", str(model), "--stages", "2", "-o", str(folder), "--json", "--skips", "through")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    SCHEMA.validate(report)
    assert report["request"]["skips"] == "through"
    assert "handed through" in result.err
    assert sorted(path.name for path in folder.iterdir()) == [
        "net_pipeline.json",
        "net_pipeline.onnx",
        "net_segment_1_of_2.onnx",
        "net_segment_2_of_2.onnx",
    ]


def test_tflite_without_verification(run: Run, tmp_path: Path) -> None:
    source = str(MODELS / "person_detect.tflite")
    result = run("pipeline", source, "--stages", "4", "-o", str(tmp_path), "--no-verify", "--report", "-", "-q")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    SCHEMA.validate(report)
    assert report["verification"] is None
    assert report["annotated"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"person_detect_segment_{number}_of_4.tflite" for number in (1, 2, 3, 4)
    ]


def test_a_model_from_standard_input(tmp_path: Path) -> None:
    data = (MODELS / "micro_speech_quantized.tflite").read_bytes()
    command = [sys.executable, "-m", "memsched", "pipeline", "-", "--stages", "2", "-o", str(tmp_path), "--no-verify"]
    subprocess.run(command, input=data, check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model_pipeline.json",
        "model_segment_1_of_2.tflite",
        "model_segment_2_of_2.tflite",
    ]


def test_the_same_bytes_twice(run: Run, model: Path, tmp_path: Path) -> None:
    found = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        assert run("pipeline", str(model), "--stages", "3", "-o", str(folder), "--no-verify", "-q").code == 0
        found.append([path.read_bytes() for path in sorted(folder.glob("*.onnx"))])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("arguments", "code", "about"),
    [
        (["--stages", "0"], "bad-parameter", "--stages"),
        (["--stages", "99"], "too-many-stages", "99"),
        (["--stages", "2", "--cut-at", "add9"], "no-such-operator", "'add9'"),
        (["--stages", "2", "-o", __file__], "needs-folder", "-o"),
        (["--stages", "2", "--target", "litert"], "no-pipeline", "'litert'"),
        (["--stages", "2", "--max-extra-macs", "5"], "no-effect", "--max-extra-macs"),
        ([], "missing-parameter", "--stages"),
    ],
)
def test_refusals(run: Run, model: Path, arguments: list[str], code: str, about: str) -> None:
    run("pipeline", str(model), *arguments).failed(code, about)
    assert [path.name for path in model.parent.iterdir()] == ["net.onnx"]


def test_the_report_must_not_be_the_model(run: Run, model: Path) -> None:
    before = model.read_bytes()
    result = run("pipeline", str(model), "--stages", "2", "--report", str(model))
    result.failed("would-overwrite", "net.onnx")
    assert model.read_bytes() == before


@pytest.mark.parametrize("annotate", [True, False])
def test_the_format_is_told_by_the_content_and_not_by_the_name(run: Run, tmp_path: Path, annotate: bool) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(residual())
    result = run("pipeline", path, "--stages", "2", *([] if annotate else ["--no-annotate"]))
    assert result.code == 0, result.err
    assert "None" not in result.out
    assert (str(tmp_path / "net_pipeline.tflite") in result.out) == annotate
    assert (tmp_path / "net_pipeline.tflite").exists() == annotate


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_widths(run: Run, model: Path, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = run("pipeline", str(model), "--stages", "3", "-v")
    assert result.code == 0
    table = [line for line in result.out.split("\n") if line.lstrip()[:2] in {"1 ", "2 ", "3 "}]
    assert len(table) == 3
    assert all(len(line) <= columns for line in table)
