"""`--memory-limit` and `--time-limit`: what they end, what is left then, and what is said."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsched.cli.main import main
from memsched.commands.batch import child as batch_child
from memsched.commands.batch.process import BatchJob
from memsched.commands.options import BatchOptions
from memsched.search.memory_limit import MemoryLimitError, MemoryWatch, memory_limited, resident_bytes
from tests.small_models import branches
from tests.trust.conftest import CLI, MODELS, Warm, one_line, snapshot

PERSON = MODELS / "person_detect.tflite"
REWRITES = (
    "--target",
    "tflm",
    "--budget",
    "19353",
    "--keep-best",
    "--allow",
    "reorder,inplace,tile,remat",
    "--no-verify",
)


def wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def test_resident_memory_counts_children() -> None:
    own = resident_bytes()
    assert own > 10**7
    code = "held = bytearray(2**26); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert resident_bytes(child.pid) > 2**26
        assert resident_bytes() > own + 2**25
        child.kill()
    assert resident_bytes(2**22 + 1) == 0


def test_no_limit_watches_nothing() -> None:
    with memory_limited(None) as memory:
        assert not memory.stop()
    assert memory.said(interrupted=False) is None


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Interrupt as in the foreground: jobs in a shell's background ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_before_a_search_it_is_an_error() -> None:
    with pytest.raises(MemoryLimitError, match=r"--memory-limit 1,024\.0 KB"), memory_limited(2**20):
        wait(300.0)


def test_a_search_is_asked_to_end() -> None:
    with memory_limited(resident_bytes() - 2**20) as memory:
        end = time.monotonic() + 300
        while not memory.stop() and time.monotonic() < end:
            time.sleep(0.01)
        assert memory.exceeded
        memory.search_ended()
    assert "--memory-limit" in str(memory.said(interrupted=False))
    assert memory.said(interrupted=True) is None


def test_ctrl_c_stays_one() -> None:
    with pytest.raises(KeyboardInterrupt), memory_limited(2**50):
        raise KeyboardInterrupt


def test_the_best_so_far_is_written(warm: Warm, tmp_path: Path) -> None:
    arguments = ("optimize", PERSON, "-o", "out.tflite", *REWRITES, "--time-limit", "60", "--memory-limit", "20MB")
    done = warm(tmp_path, *arguments)
    assert done.code in {1, 3}, done.err
    if done.code == 3:
        assert "memsched: --memory-limit 20.0 MB " in done.err
        assert (tmp_path / "out.tflite").is_file()
    else:
        one_line(done, 1, "--memory-limit")
        assert snapshot(tmp_path) == {}
    assert done.cpu < 40


SEARCHES = {
    "optimize": ["optimize", "net.onnx", "-o", "out.onnx", "--no-verify"],
    "analyze": ["analyze", "net.onnx", "--frontier", "--report", "out.json"],
    "pipeline": ["pipeline", "net.onnx", "--stages", "2", "--no-verify", "--report", "out.json"],
    "distribute": ["distribute", "net.onnx", "--cluster", "pi4x4", "--no-run", "-o", "out"],
    "allocate": ["allocate", "net.csv", "-o", "out.csv"],
}
BUFFERS = "id,lower,upper,size\n" + "".join(
    f"{i},{i % 7},{i % 7 + 1 + i % 5},{64 + 8 * (i * i % 11)}\n" for i in range(40)
)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.onnx").write_bytes(branches())
    (tmp_path / "net.csv").write_text(BUFFERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", SEARCHES)
def test_every_search_ends_with_the_best_so_far(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    def exceeded(watch: MemoryWatch) -> bool:
        watch.exceeded = True
        return True

    monkeypatch.setattr(MemoryWatch, "stop", exceeded)
    assert main([*SEARCHES[command], "--memory-limit", "1000GB"]) == 0
    assert capsys.readouterr().err.splitlines()[-1].startswith("memsched: --memory-limit 1,000.0 GB ")
    assert list(inputs.glob("out*"))


@pytest.mark.parametrize("command", SEARCHES)
def test_no_command_writes_what_reading_had_no_room_for(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    def read_slowly(path: Path) -> bytes:
        if path.name in {"net.onnx", "net.csv"}:
            wait(5.0)
        return path.open("rb").read()

    before = snapshot(inputs)
    monkeypatch.setattr(Path, "read_bytes", read_slowly)
    assert main([*SEARCHES[command], "--memory-limit", "1MB"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1, errors
    assert errors.startswith("memsched: error: ")
    assert " --memory-limit 1,024.0 KB; " in errors
    assert snapshot(inputs) == before


def test_a_batch_limits_each_model(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no reason to try it again, and the others go on."""
    assert main(["batch", "net.onnx", "-o", "out", "--no-verify", "--memory-limit", "1MB"]) == 1
    row = json.loads((inputs / "out/batch.json").read_text())["models"][0]
    assert (row["status"], row["attempts"]) == ("failed", 1)
    assert " --memory-limit 1,024.0 KB" in row["error"]
    assert "failed: " in capsys.readouterr().out
    assert {path.name for path in (inputs / "out").iterdir()} == {"batch.json", "batch.csv", "batch.html"}


def test_a_model_of_a_batch_ends_with_the_best_so_far(inputs: Path) -> None:
    into = inputs / "into"
    into.mkdir()
    options = BatchOptions(verify=False, memory_limit=10**12)
    job = BatchJob("net.onnx", "net.onnx", "out", "net_memsched.onnx", "net_memsched.json", "net", options)
    with memory_limited(options.memory_limit) as memory:
        memory.exceeded = True
        answer = batch_child._answer(job, into, lambda _: None, memory)
    assert (answer.exit_code, answer.error) == (0, None)
    assert answer.saved is not None
    assert answer.saved.figures.interrupted
    assert (into / "net_memsched.onnx").is_file()


def test_native_code_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """No Python code runs in the main thread any more; the process says so in its last words."""
    code = """
import hashlib
from memsched.search import memory_limit
memory_limit._PATIENCE_SECONDS = 0.3
with memory_limit.memory_limited(2**20):
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "--memory-limit" in done.stderr


def test_reading_alone_needs_more(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(branches())
    done = subprocess.run(
        [*CLI, "analyze", "net.onnx", "--memory-limit", "1MB"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}
    if done.returncode:
        assert done.stderr.count("\n") == 1
        assert "--memory-limit 1,024.0 KB" in done.stderr


def test_a_limit_that_is_none(warm: Warm, tmp_path: Path) -> None:
    for value in ("many", "-1", ""):
        one_line(warm(tmp_path, "optimize", PERSON, "--memory-limit", value), 2, "--memory-limit")


@pytest.mark.parametrize("limit", ["0", "0.5", "3"])
def test_the_time_limit_is_kept(warm: Warm, tmp_path: Path, limit: str) -> None:
    """In seconds of the processor, so that others' work does not count: a single process cannot spend more of them."""
    done = warm(tmp_path, "optimize", PERSON, "-o", "out.tflite", *REWRITES, "--time-limit", limit)
    assert done.code in {0, 3}, done.err
    assert done.cpu < float(limit) + 2
    assert (tmp_path / "out.tflite").is_file()


def test_what_the_interrupt_of_an_import_comes_out_as_is_the_limit() -> None:
    watch = MemoryWatch(2**50, lambda _: None)

    def read() -> None:
        with watch.running():
            watch.exceeded = True
            raise ImportError("half of a module")

    with pytest.raises(MemoryLimitError):
        read()


def test_an_interrupt_when_all_is_done_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = MemoryWatch(2**50, lambda _: None)
    interrupts = iter([KeyboardInterrupt])

    def join() -> None:
        for interrupt in interrupts:
            raise interrupt

    def read() -> None:
        with watch.running():
            monkeypatch.setattr(watch._thread, "join", join)
            watch.exceeded = True

    with pytest.raises(MemoryLimitError):
        read()
