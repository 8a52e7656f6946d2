"""``memsched optimize --emit c``: the folder, the report, and what is refused with nothing written."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import jsonschema
import pytest

from memsched.base.errors import ModelError
from memsched.codegen.streaming.emit import StreamCode, stream_code
from memsched.codegen.streaming.plan import StreamPlan
from memsched.commands.optimize import emit
from memsched.report.schema import json_schema
from tests.cli.conftest import Run
from tests.codegen.harness import COMPILER
from tests.codegen.networks import quantised_net
from tests.rewrites.tile.random_nets import onnx_net, tflite_net
from tests.runtimes.tflm.interpreter import needs_tflm

HELLO = Path(__file__).resolve().parents[2] / "models" / "hello_world_int8.tflite"

CHIP = 'extends = "diannao"\nname = "mychip"\non_chip_bytes = "4KB"\n'


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    path = tmp_path / "mychip.toml"
    path.write_text(CHIP)
    return path


def test_a_folder_of_c_and_a_report(tmp_path: Path, chip: Path, run: Run) -> None:
    model = tmp_path / "net.tflite"
    model.write_bytes(quantised_net(8, 4))
    done = run("optimize", model, "--target", chip, "--emit", "c")
    assert done.code == 0, done.err
    folder = tmp_path / "net_c"
    report = json.loads((folder / "report.json").read_text())
    jsonschema.Draft202012Validator(json_schema("emit")).validate(report)
    assert sorted([*report["result"]["files"], "report.json"]) == sorted(path.name for path in folder.iterdir())
    assert report["result"]["chip_bytes"] <= 4096
    assert "DRAM traffic: " in done.out
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "report.json"}
    again = run("optimize", model, "--target", chip, "--emit", "c", "-o", tmp_path / "again", "--json", "-q")
    assert json.loads(again.out)["on_chip"] == report["on_chip"]
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir() if path.suffix != ".json"}


def test_without_memory_on_chip_the_c_streams(tmp_path: Path, run: Run) -> None:
    model = tmp_path / "net.tflite"
    model.write_bytes(quantised_net(8, 4))
    ram = {}
    for place in ("held", "elsewhere", "rows"):
        folder = tmp_path / place
        done = run("optimize", model, "--emit", "c", "--input", place, "-o", folder)
        assert done.code == 0, done.err
        report = json.loads((folder / "report.json").read_text())
        jsonschema.Draft202012Validator(json_schema("stream")).validate(report)
        result = report["result"]
        assert sorted(path.name for path in folder.iterdir()) == ["model.c", "model.h", "report.json"]
        assert f"{result['ram_bytes']:,} B" in done.out
        assert f"MODEL_RAM_BYTES {result['ram_bytes']}u" in (folder / "model.h").read_text()
        ram[place] = result["ram_bytes"]
    assert ram["elsewhere"] < ram["held"]


@needs_tflm
@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
@pytest.mark.parametrize("place", ["held", "elsewhere", "rows"])
def test_the_c_is_run_beside_the_interpreter(place: str, tmp_path: Path, run: Run) -> None:
    done = run("optimize", HELLO, "--emit", "c", "--input", place, "-o", tmp_path / "made")
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "made" / "report.json").read_text())
    assert report["run"]["outputs"] == "bit_equal"
    assert report["run"]["outputs_vary"]
    assert 0 < report["run"]["time_ratio"] < 1
    assert report["notes"] == []


@needs_tflm
@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_c_that_computes_something_else_is_not_written(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(plan: StreamPlan, model: str) -> StreamCode:
        code = stream_code(plan, model)
        files = dict(code.files)
        changed = re.sub(rb"(bias0_\d+\[\d+\] = \{)(-?\d+)", lambda one: one[1] + b"9999", files["model.c"])
        assert changed != files["model.c"]
        return dataclasses.replace(code, files={**files, "model.c": changed})

    monkeypatch.setattr(emit, "stream_code", wrong)
    done = run("optimize", HELLO, "--emit", "c", "-o", tmp_path / "made")
    done.failed("outputs-differ", "tflite-micro")
    assert not (tmp_path / "made").exists()


@needs_tflm
def test_without_a_compiler_a_note_says_that_nothing_was_run(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    done = run("optimize", HELLO, "--emit", "c", "-o", tmp_path / "made")
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "made" / "report.json").read_text())
    assert report["run"] is None
    assert any("compiler" in note for note in report["notes"])


def test_the_place_of_an_input_is_of_c(tmp_path: Path, run: Run) -> None:
    model = tmp_path / "net.tflite"
    model.write_bytes(quantised_net(8, 4))
    run("optimize", model, "--input", "rows", "-o", tmp_path / "out.tflite").failed("option-conflict", "--input")
    assert not (tmp_path / "out.tflite").exists()


@pytest.mark.parametrize(
    ("given", "more", "code", "about"),
    [
        (onnx_net(3), (), "not-emittable", ("'t1'", "ConvTranspose")),
        (quantised_net(8, 4), ("--target", "diannao", "--header", "net.h"), "option-conflict", ("--header",)),
        (quantised_net(8, 4), ("--budget-for", "arena"), "option-conflict", ("--emit c", "--budget-for arena")),
        (tflite_net(7, 4), ("--target", "tflm"), "not-streamable", ("float32",)),
        (quantised_net(8, 4), ("--input", "rows"), "option-conflict", ("--input",)),
        (quantised_net(8, 4), ("-o", "-"), "needs-folder", ("-o",)),
    ],
)
def test_nothing_is_written_where_it_is_refused(
    given: bytes, more: tuple[str, ...], code: str, about: tuple[str, ...], tmp_path: Path, chip: Path, run: Run
) -> None:
    model = tmp_path / "net"
    model.write_bytes(given)
    done = run("optimize", model, "--emit", "c", "--target", chip, "-o", tmp_path / "made", *more)
    done.failed(code, *about)
    assert done.err.count("\n") <= 3
    assert not (tmp_path / "made").exists()


def test_nothing_is_emitted_of_a_model_that_was_cut_off(tmp_path: Path, chip: Path, run: Run) -> None:
    model = tmp_path / "net"
    model.write_bytes(quantised_net(8, 4)[:999])
    done = run("optimize", model, "--emit", "c", "--target", chip, "-o", tmp_path / "made")
    assert isinstance(done.error, ModelError)
    done.failed(done.error.code, str(model))
    assert not (tmp_path / "made").exists()
