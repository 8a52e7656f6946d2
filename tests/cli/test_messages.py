"""Forty complete messages, for people to read: tests/data/messages.txt holds commands, and the line that ends each.

With MEMSCHED_MESSAGES=write in the environment, the test writes the lines anew. Read them then: each is one sentence of
plain English on what is wrong, where, and what to do.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from tests import small_models
from tests.cli.conftest import Run
from tests.cli.test_bad_input import onnx_graph
from tests.cli.test_distribute import CLUSTER
from tests.formats import tflite_builder

FILE = Path(__file__).parent.parent / "data" / "messages.txt"
HOME = "/home/me"
"""What stands for the folder in which the commands run."""

TARGET = 'extends = "tflm"\nalignment = 32\n'


@pytest.fixture
def inputs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models, some of them damaged, and of reports and other files."""
    monkeypatch.chdir(tmp_path)
    net, tflite = small_models.branches(), tflite_builder.build(tflite_builder.branches())
    files = {
        "net.onnx": net,
        "net.tflite": tflite,
        "any_height.onnx": small_models.branches(side="height"),
        "empty.onnx": b"",
        "notes.txt": b"Ask for the model again.\n",
        "half.onnx": net[: len(net) // 2],
        "half.tflite": tflite[: len(tflite) // 2],
        "cycle.onnx": onnx_graph(("Add", ["x", "b"], ["a"]), ("Relu", ["a"], ["b"]), ("Neg", ["b"], ["y"])),
        "gap.onnx": onnx_graph(("Add", ["x", "nowhere"], ["y"])),
        "twice.onnx": onnx_graph(("Relu", ["x"], ["y"]), ("Neg", ["x"], ["y"])),
        "board.toml": TARGET.encode(),
        "cluster.toml": CLUSTER.replace('name = "two boards"\n', "").encode(),
        "half.json": b'{"schema_version": 2, "comm',
        "settings.json": b'{"color": "blue"}',
        "batch.json": json.dumps({"schema_version": 2, "command": "batch", "models": []}).encode(),
        "columns.csv": b"id,from,to\na,0,2\n",
        "backwards.csv": b"id,lower,upper,size\na,0,2,16\nb,3,1,16\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "models").mkdir()
    assert run("analyze", "net.onnx", "--report", "net.json", "-q").code == 0
    return tmp_path


def last_line(text: str) -> str:
    return text.splitlines()[-1] if text else ""


def test_messages(run: Run, inputs: Path) -> None:
    entries = [entry.split("\n") for entry in FILE.read_text().strip().split("\n\n")]
    before = sorted(inputs.rglob("*"))
    found = []
    for entry in entries:
        program, *words = shlex.split(entry[0].removeprefix("$ "))
        done = run(*words)
        assert program == "memsched"
        assert done.code in {1, 2, 3}, entry[0]
        found.append([entry[0], last_line(done.err).replace(str(inputs), HOME)])
    assert sorted(inputs.rglob("*")) == before
    if os.environ.get("MEMSCHED_MESSAGES") == "write":
        FILE.write_text("\n\n".join("\n".join(entry) for entry in found) + "\n")
    assert found == entries
    assert len({entry[0] for entry in entries}) == 40
    assert all(line.startswith("memsched: ") for _, line in found)
