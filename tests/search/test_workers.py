"""Processes side by side: what one of them, or their parent, leaves behind when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from memsched.search.workers import submitted, worker_pool

WAITS = """
import os, time
from memsched.search.workers import worker_pool
if __name__ == "__main__":
    pool = worker_pool(1)
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


def test_work_for_a_pool_that_is_broken_is_lost_as_work_that_was_begun_is() -> None:
    pool = worker_pool(1)
    try:
        assert submitted(pool, divmod, 7, 2).result() == (3, 1)
        begun = submitted(pool, os.kill, submitted(pool, os.getpid).result(), signal.SIGKILL)
        with pytest.raises(BrokenProcessPool):
            begun.result()
        with pytest.raises(BrokenProcessPool):
            submitted(pool, divmod, 7, 2).result()
    finally:
        pool.shutdown()


def test_each_process_begins_with_what_it_is_told(tmp_path: Path) -> None:
    with worker_pool(1, os.chdir, (str(tmp_path),)) as pool:
        assert pool.submit(os.getcwd).result() == str(tmp_path)
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


@pytest.mark.quick
def test_a_parent_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as parent:
        assert parent.stdout is not None
        worker = Path("/proc") / parent.stdout.readline().decode().strip()
        assert worker.exists()
        parent.kill()
    end = time.monotonic() + 300
    while worker.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not worker.exists()


_LARGE = bytes(range(256)) * 4096


def _hold(data: bytes, number: int) -> None:
    global _held  # noqa: PLW0603
    _held = data, number


_held: tuple[bytes, int] = (b"", 0)


def _sums() -> tuple[int, int]:
    return sum(_held[0]), _held[1]


def test_what_a_worker_begins_with_is_no_larger_than_its_pipe() -> None:
    """If it is, the parent writes to a worker that was killed at its start for ever."""
    pool = worker_pool(1, _hold, (_LARGE, 7))
    assert not [one for one in pool._initargs[1] if isinstance(one, bytes)]
    assert submitted(pool, _sums).result(60) == (sum(_LARGE), 7)
    pool.shutdown()
