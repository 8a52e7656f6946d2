"""Processes that work for a command are killed while they do: the command goes on and writes what it would have."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from scripts.bench.allocate import generate
from tests import small_models
from tests.trust.conftest import CLI, snapshot

WORKER = b"spawn_main"
MODEL = b"memsched.commands.batch.child"


def cells(count: int, ops: int, width: int, seed: int = 4) -> bytes:
    """Return a model of random networks one after the other, each of which takes seconds to order."""
    rng = random.Random(seed)
    nodes, sizes = [], {}

    def add(name: str, sources: list[str]) -> str:
        nodes.append(helper.make_node("Any", sources, [name], name, domain="test"))
        sizes[name] = rng.randint(1, 60)
        return name

    current = "x"
    for cell in range(count):
        values = [add(f"{cell}_begin{index}", [current]) for index in range(width)]
        loose = set(values)
        for index in range(ops):
            sources = rng.sample(values[-width:], rng.choice((1, 2, 2, 3)))
            values.append(add(f"{cell}_{index}", sources))
            loose = loose - set(sources) | {values[-1]}
        while len(loose) > 1:
            sources = rng.sample(sorted(loose), 2)
            loose = loose - set(sources) | {add(f"{cell}_{len(sizes)}", sources)}
        current = loose.pop()
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name, size in sizes.items()}
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])
    graph = helper.make_graph(nodes, "cells", [given], [infos.pop(current)], value_info=list(infos.values()))
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("test", 1)]
    data: bytes = helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString()
    return data


def buffers() -> str:
    """Return buffers that take seconds to pack."""
    parts = [block.parts[0] for block in generate(150, 1, times=80)]
    rows = [f"{number},{part.begin},{part.end},{part.high - part.low}" for number, part in enumerate(parts)]
    return "\n".join(("id,lower,upper,size", *rows, ""))


COMMANDS = {
    "optimize": ("optimize", "net.onnx", "--target", "ideal", "--no-verify", "-o", "out.onnx"),
    "allocate": ("allocate", "net.csv", "-o", "out.csv"),
}


def descendants(process: int, word: bytes) -> list[int]:
    """Return the processes below one whose command line holds a word."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            try:
                own = [child] if word in Path(f"/proc/{child}/cmdline").read_bytes() else []
            except OSError:
                continue
            found += [*own, *descendants(child, word)]
    return found


def killed(folder: Path, arguments: tuple[str, ...], word: bytes, seconds: float, number: int) -> tuple[int, str]:
    """Run a command and kill ``number`` of its workers, each so many seconds after there was one to kill."""
    with subprocess.Popen(
        [*CLI, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        end = time.monotonic() + 120
        left = number
        while process.poll() is None and left:
            assert time.monotonic() < end
            time.sleep(0.01)
            if descendants(process.pid, word):
                time.sleep(seconds)
                for one in descendants(process.pid, word)[-1:]:
                    os.kill(one, signal.SIGKILL)
                    left -= 1
        assert left < number, "no worker was there to be killed"
        _, errors = process.communicate(timeout=120)
        return process.returncode, errors


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs, and what comes of them when nothing dies."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "net.onnx").write_bytes(cells(6, 60, 14))
    (folder / "net.csv").write_text(buffers())
    for arguments in COMMANDS.values():
        subprocess.run([*CLI, *arguments, "--quiet"], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(("seconds", "number"), [(0.0, 1), (0.4, 1), (0.1, 2)])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_solver_that_is_killed(whole: Path, tmp_path: Path, command: str, seconds: float, number: int) -> None:
    """Its work is done again in the process that is left; the bytes are the same."""
    arguments = COMMANDS[command]
    for name in ("net.onnx", "net.csv"):
        (tmp_path / name).write_bytes((whole / name).read_bytes())
    assert killed(tmp_path, (*arguments, "--workers", "2", "--quiet"), WORKER, seconds, number) == (0, "")
    assert (tmp_path / arguments[-1]).read_bytes() == (whole / arguments[-1]).read_bytes()


@pytest.mark.parametrize(("retries", "code"), [("1", 0), ("0", 1)])
def test_a_model_of_a_batch_that_is_killed(tmp_path: Path, retries: str, code: int) -> None:
    """It is tried again, or it is one line and the others are written; nothing temporary is left."""
    for count in (4, 5, 3000):
        (tmp_path / f"net{count}.onnx").write_bytes(small_models.branches(count=count))
    arguments = ("batch", ".", "-o", "out", "--no-verify", "--workers", "2", "--retries", retries, "--quiet")
    found, errors = killed(tmp_path, arguments, MODEL, 0.1, 1)
    assert found == code, errors
    assert errors.count("\n") == code, errors
    written = {name for name in snapshot(tmp_path / "out") if name.endswith(".onnx")}
    assert len(written) == 3 - code
    names = ["batch.csv", "batch.html", "batch.json"]
    names += [name for one in written for name in (one, one.removesuffix("onnx") + "json")]
    assert sorted(snapshot(tmp_path / "out")) == sorted(names)
