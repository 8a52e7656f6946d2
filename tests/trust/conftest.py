"""Commands on hostile files: what they say, how long they take, how much memory, and what is in the folder after."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
CLI = [sys.executable, "-m", "memsched"]

SECONDS = 10.0
MEMORY = 2 * 10**9


@dataclass(frozen=True)
class Done:
    """What became of a command."""

    code: int
    out: str
    err: str
    seconds: float
    cpu: float
    memory: int


Warm = Callable[..., Done]
Hostile = Callable[..., Done]


def snapshot(folder: Path) -> dict[str, Any]:
    """Return what is in ``folder``: the size and time of files, where links lead, None for folders."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_file():
            found[name] = (path.stat().st_size, path.stat().st_mtime_ns)
        else:
            found[name] = None
    return found


def one_line(done: Done, code: int, *words: str) -> None:
    """Check a refusal: the code, one line without control characters, and the words that say what is wrong."""
    assert done.code == code, (done.code, done.err[-2000:])
    assert done.out == ""
    assert done.err.startswith("memsched: error: "), done.err[:2000]
    assert done.err.count("\n") == 1, done.err[:2000]
    assert done.err[:-1].isprintable(), done.err[:2000]
    assert len(done.err) < 2100
    assert "internal error" not in done.err, done.err
    for word in words:
        assert word in done.err, done.err


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Run a command in a fork of a process that has imported everything: ``warm(folder, "analyze", path)``."""
    command = [sys.executable, "-m", "tests.trust.warm"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def run(folder: Path, *arguments: object) -> Done:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps([str(folder), *map(str, arguments)]) + "\n")
            server.stdin.flush()
            return Done(**json.loads(server.stdout.readline()))

        yield run
        server.stdin.close()


@pytest.fixture
def hostile(warm: Warm, tmp_path: Path) -> Hostile:
    """Give a file to `analyze` and `optimize`: both refuse it with the same line, in time, and write nothing."""

    def refused(data: bytes, *words: str, name: str = "net.onnx", code: int = 1) -> Done:
        (tmp_path / name).write_bytes(data)
        before = snapshot(tmp_path)
        done = Done(0, "", "", 0.0, 0.0, 0)
        for command in (["analyze"], ["optimize", "--no-verify", "--effort", "1"]):
            done = warm(tmp_path, *command, name)
            one_line(done, code, *words)
            cheap(done)
            assert snapshot(tmp_path) == before
        return done

    return refused


@pytest.fixture
def accepted(warm: Warm, tmp_path: Path) -> Hostile:
    """Give a file that is odd but sound to `analyze`: it succeeds, in time, and prints no control character."""

    def run(data: bytes, name: str = "net.onnx") -> Done:
        (tmp_path / name).write_bytes(data)
        before = snapshot(tmp_path)
        done = warm(tmp_path, "analyze", name)
        assert done.code == 0, done.err[-2000:]
        assert done.err == ""
        assert done.out.replace("\n", "").isprintable(), ascii(done.out[:2000])
        cheap(done)
        assert snapshot(tmp_path) == before
        return done

    return run


def cheap(done: Done) -> None:
    """Check that a command took less than the time and memory that any small file may take.

    The time is the processor's: what others do on the machine is not the file's fault.
    """
    assert done.cpu < SECONDS, done.cpu
    assert done.memory < MEMORY, done.memory
