"""Questions that users come with, answered by ``memsched MODEL`` and ``--help`` alone, and commands that then run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from memsched.base.units import format_size
from tests import small_models
from tests.cli.conftest import Run
from tests.commands.optimize.test_choose import convolutions
from tests.formats.tflite_builder import O, Sub, T, branches, build, int32s, options
from tests.formats.tflite_networks import audio
from tests.outcomes import line_with


class Answer:
    """What ``memsched MODEL`` says, as its lines and as its rows."""

    def __init__(self, run: Run, path: Path, data: bytes, *words: str) -> None:
        path.write_bytes(data)
        self._run, self.path = run, path
        done = run(path, "--json", "--effort", "0.5", *words)
        assert done.code == 0, done.err
        self.text = done.err
        self.rows: dict[str, Any] = {row["target"]: row for row in json.loads(done.out)["rows"]}

    def command_runs(self, command: str, target: str) -> int:
        """Run a command that the text has; return the bytes that its file takes."""
        assert command in self.text
        program, *words = shlex.split(command)
        out = self.path.with_name("out").with_suffix(self.path.suffix)
        assert program == "memsched"
        limit = () if "--effort" in words else ("--effort", "0.5")
        assert self._run(*words, "-o", out, "-q", *limit).code == 0
        report = json.loads(out.with_suffix(".json").read_text())
        assert report["target"]["name"] == target
        section = report["sections"]["interpreter"]
        found: int = report["verdict"]["bytes"] if section is None else section["written"]["private_bytes"]
        return found

    @property
    def not_measured(self) -> str:
        return line_with(self.text, "not measured")


def int8_branches(count: int = 4, size: int = 2048) -> bytes:
    """Branches whose wide values are each reduced: in int8, as microcontrollers run them."""
    scale = (0.1,)
    tensors = [T("x", (1, size), "INT8", scales=scale), T("axis", (1,), "INT32", int32s(1))]
    ops = []
    for branch in range(count):
        tensors.append(T(f"wide{branch}", (1, size), "INT8", scales=scale))
        ops.append(O("RELU", [0], [2 + branch]))
    for branch in range(count):
        tensors.append(T(f"sum{branch}", (1, 1), "INT8", scales=scale))
        ops.append(O("MEAN", [2 + branch, 1], [2 + count + branch], options("ReducerOptions", keepDims=True)))
    tensors.append(T("y", (1, count), "INT8", scales=scale))
    sums = list(range(2 + count, 2 + 2 * count))
    ops.append(O("CONCATENATION", sums, [len(tensors) - 1], options("ConcatenationOptions", axis=1)))
    return build(Sub(tensors, ops, [0], [len(tensors) - 1]))


def test_does_it_help_my_esp32(run: Run, tmp_path: Path) -> None:
    answer = Answer(run, tmp_path / "net.tflite", int8_branches())
    row = answer.rows["tflm"]
    assert "tflm" in answer.text.splitlines()[0]
    assert row["reachable"]["bytes"] < row["original_bytes"]
    assert answer.command_runs(row["reachable"]["command"], "tflm") <= row["reachable"]["bytes"]
    assert all(word in answer.not_measured for word in ("kernels", "microcontrollers"))
    assert "tflm-esp-nn-s3" in run("targets").out


def test_does_it_help_my_phone_app(run: Run, tmp_path: Path) -> None:
    answer = Answer(run, tmp_path / "net.tflite", audio(8_000, 8), "--target", "litert")
    row = answer.rows["litert"]
    assert "litert" in answer.text.splitlines()[0]
    assert "phones" in answer.not_measured
    assert row["measured"]
    assert row["reachable"]["bytes"] < row["original_bytes"] / 2
    assert answer.command_runs(row["reachable"]["command"], "litert") < row["original_bytes"] / 2
    line_with(answer.text, row["runtime"], format_size(row["reachable"]["bytes"]))


def test_does_it_help_my_server(run: Run, tmp_path: Path) -> None:
    answer = Answer(run, tmp_path / "net.onnx", small_models.branches())
    [row] = answer.rows.values()
    reached = row["reachable"]
    assert reached["bytes"] < row["original_bytes"]
    line_with(answer.text, row["runtime"], f"{row['original_bytes']:,}", f"{reached['bytes']:,}", "time")
    assert answer.command_runs(reached["command"], "onnxruntime") <= reached["bytes"]


@pytest.mark.parametrize("name", ["net.onnx", "net.tflite"])
def test_does_it_help_my_browser(run: Run, tmp_path: Path, name: str) -> None:
    data = small_models.branches() if name.endswith("onnx") else build(branches())
    answer = Answer(run, tmp_path / name, data, "--target", "onnxruntime" if name.endswith("onnx") else "litert")
    assert "browsers" in answer.not_measured


def test_what_changes_if_i_accept_rounding(run: Run, tmp_path: Path) -> None:
    answer = Answer(run, tmp_path / "net.onnx", convolutions())
    [row] = answer.rows.values()
    more = row["with_changes"]
    assert "rounding" in more["changes"]
    assert more["bytes"] < row["reachable"]["bytes"]
    assert "1e-5" in line_with(answer.text, "--may-change", "rounding")
    assert answer.command_runs(more["command"], "onnxruntime") <= more["bytes"]
    text = run("optimize", "--help-all").out
    assert all(word.partition("=")[0] in text for word in shlex.split(more["command"]) if word.startswith("--"))
