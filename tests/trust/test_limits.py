"""`--memory-limit` and `--time-limit`: what they end, what is left then, and what is said."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from memsched.cli.memory_limit import MemoryLimitError, memory_limited, resident_bytes
from tests.small_models import branches
from tests.trust.conftest import CLI, MODELS, Warm, one_line, snapshot

PERSON = MODELS / "person_detect.tflite"
REWRITES = ("--target", "tflm", "--budget", "19353", "--allow", "reorder,inplace,tile,remat", "--no-verify")


def wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def test_resident_memory_counts_children() -> None:
    own = resident_bytes()
    with subprocess.Popen(["sleep", "60"]) as child:
        assert resident_bytes(child.pid) > 0
        assert resident_bytes() >= resident_bytes(os.getpid())
        child.kill()
    assert own > 10**7
    assert resident_bytes(2**22 + 1) == 0


def test_no_limit_watches_nothing() -> None:
    with memory_limited(None) as memory:
        assert not memory.stop()
    assert memory.said(interrupted=False) is None


def test_before_a_search_it_is_an_error() -> None:
    with pytest.raises(MemoryLimitError, match=r"more than --memory-limit 1,024\.0 KB"), memory_limited(2**20):
        wait(20.0)


def test_a_search_is_asked_to_end() -> None:
    with memory_limited(resident_bytes() - 2**20) as memory:
        end = time.monotonic() + 20
        while not memory.stop() and time.monotonic() < end:
            time.sleep(0.01)
        assert memory.exceeded
        memory.search_ended()
    assert "ended the search" in str(memory.said(interrupted=False))
    assert memory.said(interrupted=True) is None


def test_ctrl_c_stays_one() -> None:
    with pytest.raises(KeyboardInterrupt), memory_limited(2**50):
        raise KeyboardInterrupt


def test_the_best_so_far_is_written(warm: Warm, tmp_path: Path) -> None:
    arguments = ("optimize", PERSON, "-o", "out.tflite", *REWRITES, "--time-limit", "60", "--memory-limit", "20MB")
    done = warm(tmp_path, *arguments)
    assert done.code in {1, 3}, done.err
    if done.code == 3:
        assert "--memory-limit 20.0 MB ended the search" in done.err
        assert (tmp_path / "out.tflite").is_file()
    else:
        one_line(done, 1, "--memory-limit")
        assert snapshot(tmp_path) == {}
    assert done.seconds < 40


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
