"""A command that is killed between two renames: new files before old ones, the one that names the others last."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.small_models import branches
from tests.trust.conftest import CLI, ROOT

KILLED_AT = """
import os, pathlib, signal
left = [{renames}]
own = pathlib.Path.replace

def replace(self, target):
    if self.name.startswith(".memsched-"):
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
    return own(self, target)

pathlib.Path.replace = replace
"""

COMMANDS = {
    "optimize": (
        ["optimize", "net.onnx", "--no-verify", "-o", "out/a.onnx", "--report", "out/b.json", "--header", "out/c.h"],
        ["a.onnx", "b.json", "c.h"],
    ),
    "pipeline": (
        ["pipeline", "net.onnx", "--stages", "2", "--no-verify", "-o", "out"],
        ["net_segment_1_of_2.onnx", "net_segment_2_of_2.onnx", "net_pipeline.onnx", "net_pipeline.json"],
    ),
    "relay": (
        ["relay", str(ROOT / "models/micro_speech_quantized.tflite"), "--no-verify", "-o", "out"],
        [
            *("micro_speech_quantized_stage_1_of_2.tflite", "micro_speech_quantized_stage_2_of_2.tflite"),
            *("micro_speech_quantized_relay.h", "micro_speech_quantized_relay.cc", "micro_speech_quantized_relay.json"),
        ],
    ),
    "distribute": (
        ["distribute", "net.onnx", "--cluster", "pi4x4", "--method", "single", "--no-run", "-o", "out"],
        ["net_device_0_step_0.onnx", "plan.json"],
    ),
}


def run(folder: Path, arguments: list[str], renames: int | None) -> int:
    (folder / "site").mkdir(exist_ok=True)
    script = "" if renames is None else KILLED_AT.format(renames=renames)
    (folder / "site/sitecustomize.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder / "site"), str(ROOT)))}
    command = [*CLI, *arguments, "--quiet"]
    done = subprocess.run(command, cwd=folder, check=False, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done.returncode


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("renames", [0, 1])
def test_killed_between_two_renames(tmp_path: Path, command: str, renames: int) -> None:
    """What is left over does not disturb the next run, which puts everything right."""
    arguments, names = COMMANDS[command]
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "net.onnx").write_bytes(branches(count=5))
    assert run(tmp_path, arguments, None) == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    before = {name: (out / name).stat().st_ino for name in names}
    (tmp_path / "net.onnx").write_bytes(branches(count=6))
    assert run(tmp_path, arguments, renames) == -signal.SIGKILL
    new = [(out / name).stat().st_ino != before[name] for name in names]
    assert new == [True] * renames + [False] * (len(names) - renames)
    left = [path.name for path in out.iterdir() if path.name not in names]
    assert len(left) == len(names) - renames
    assert all(name.startswith(".memsched-") and name.endswith(".tmp") for name in left)
    assert run(tmp_path, arguments, None) == 0
    assert all((out / name).stat().st_ino != before[name] for name in names)
    assert sorted(path.name for path in out.iterdir()) == sorted([*names, *left])


def test_the_summary_of_a_batch_comes_last(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(branches(count=5))
    arguments = ["batch", "net.onnx", "-o", "out", "--no-verify"]
    found = []
    for renames in (1, 3, 4):
        # The process of the model renames two files in a folder of its own; with one it is killed, too.
        assert run(tmp_path, arguments, renames) == -signal.SIGKILL
        found.append({path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".memsched-")})
        for path in (tmp_path / "out").iterdir():
            path.unlink()
    model = {"net_memsched.onnx", "net_memsched.json"}
    assert found == [{"batch.csv"}, {*model, "batch.csv"}, {*model, "batch.csv", "batch.html"}]
