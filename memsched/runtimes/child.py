"""Runs a function in a child process, so that a runtime that crashes or hangs takes nothing else with it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal

from memsched.base.errors import OutputError
from memsched.base.frozen import FrozenValue
from memsched.base.shown import LONGEST_REASON, LONGEST_TEXT
from memsched.search.limits import POLL_SECONDS
from memsched.search.messages import Channel, LostError
from memsched.search.processes import Death, start_process

__all__ = [
    "LONG_TIMEOUT",
    "TIMEOUT",
    "ChildEndedError",
    "ChildResult",
    "children_until",
    "run_in_child",
    "temporary_folder",
]

TIMEOUT: Final = 600.0
"""Seconds after which a runtime that runs a model a few times is taken to hang."""

LONG_TIMEOUT: Final = 3 * TIMEOUT
"""The same of one that runs it at several sizes."""


_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_LEAST_ROOM: Final = 16384
"""Free bytes of a disk without which a process may fail, or measure wrongly, for want of room."""


class ChildEndedError(Exception):
    """A child was ended, or not started, because `children_until` said so."""


_until: ContextVar[Callable[[], bool] | None] = ContextVar("children_until", default=None)


@contextlib.contextmanager
def children_until(over: Callable[[], bool]) -> Iterator[None]:
    """Within, end children as soon as ``over``, which another thread asks often, returns True.

    `run_in_child` then raises `ChildEndedError`: a limit of time, or a user, ends what many functions run.
    """
    before = _until.set(over)
    try:
        yield
    finally:
        _until.reset(before)


class ChildResult(FrozenValue, frozen=True):
    """What became of a function run in a child process.

    Attributes:
        status: "ok"; "error" (the function raised an exception); "crash" (the process died, by a signal or
            by leaving without an answer); "timeout" (it was killed after the given time).
        value: What the function returned; None unless ``status`` is "ok".
        reason: One line saying what went wrong; empty when ``status`` is "ok".
        error_type: Name of the exception's class; None unless ``status`` is "error".
        stderr: The last characters that the child wrote to standard output and standard error.
    """

    status: Literal["ok", "error", "crash", "timeout"]
    value: Any = None
    reason: str = ""
    error_type: str | None = None
    stderr: str = ""

    @property
    def ok(self) -> bool:
        """Whether the function returned a value."""
        return self.status == "ok"

    def explained(self) -> str:
        """Return the reason, followed by the last words that the child wrote."""
        said = " ".join(self.stderr.split())[-LONGEST_REASON:]
        return f"{self.reason}{': ' if said else ''}{said}"


def run_in_child(function_path: str, payload: Any, timeout_seconds: float | None = None) -> ChildResult:
    """Call a function of one argument in a new Python process and return what it returned.

    The child works in an empty folder of its own: paths in ``payload`` must be absolute. Ctrl-C in the parent
    kills the child and is passed on.

    Args:
        function_path: "package.module:function".
        payload: What a `Channel` takes, as the function's result must be.
        timeout_seconds: The child is killed after this time; None waits for ever.

    Raises:
        ChildEndedError: See `children_until`.
        OutputError: There is no room for the temporary files of the child.
        TypeError: ``payload`` cannot be sent.
    """
    over = _until.get()
    if over is not None and over():
        raise ChildEndedError
    with temporary_folder() as folder:
        _check_room(folder)
        log = folder / "log"
        with log.open("wb") as stream:
            process, channel = start_process("memsched.runtimes.worker", folder=folder, log=stream)
        try:
            with _watched(process, over, timeout_seconds) as killed:
                answer = _conversation(channel, function_path, payload)
                process.wait()
        finally:
            process.kill()
            process.wait()
            channel.close()
        if killed.unwanted.is_set():
            raise ChildEndedError
        death = Death(process.returncode, log)
        if killed.late.is_set():
            said = death.last_words(LONGEST_TEXT)
            return ChildResult("timeout", reason=f"not finished after {timeout_seconds:g} s", stderr=said)
        result = _result(answer, death)
        if not result.ok:
            _check_room(folder)
        return result


class _Killed:
    """Why a child was killed: it was late, or nobody waits for it any more."""

    def __init__(self) -> None:
        self.late, self.unwanted = threading.Event(), threading.Event()


@contextlib.contextmanager
def _watched(
    process: subprocess.Popen[bytes], over: Callable[[], bool] | None, timeout_seconds: float | None
) -> Iterator[_Killed]:
    """Within, kill a process that takes longer, or of which ``over`` says that its answer is not wanted any more."""
    killed, done = _Killed(), threading.Event()

    def end() -> None:
        killed.late.set()
        process.kill()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            if over is not None and over():
                killed.unwanted.set()
                process.kill()
                return

    timer = threading.Timer(timeout_seconds or 0.0, end)
    try:
        if over is not None:
            threading.Thread(target=watch, name="child watch", daemon=True).start()
        if timeout_seconds is not None:
            timer.start()
        yield killed
    finally:
        timer.cancel()
        done.set()


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give an empty folder, named memsched-*, that is removed at the end.

    Raises:
        OutputError: It cannot be made, or has no room for what was to be written into it.
    """
    try:
        made = tempfile.TemporaryDirectory(prefix="memsched-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_room(error) from None
    with made as name:
        try:
            yield Path(name)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise _no_room(error) from None


def _check_room(folder: Path) -> None:
    # Neither the model nor the runtime is to blame for a profile cut short, and most often neither can say it was.
    if shutil.disk_usage(folder).free < _LEAST_ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _no_room(error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    return OutputError(
        f"temporary files cannot be written: {reason}",
        code="disk-full",
        action="name a folder with room for them in TMPDIR",
    )


def _conversation(channel: Channel, function_path: str, payload: Any) -> dict[str, Any] | None:
    """Return the child's answer; None where it ended without one."""
    try:
        channel.tell({"function": function_path, "payload": payload})
        answer: dict[str, Any] = channel.hear()
    except LostError:
        return None
    return answer


def _result(answer: dict[str, Any] | None, death: Death) -> ChildResult:
    stderr = death.last_words(LONGEST_TEXT)
    if death.code != 0 or answer is None:
        return ChildResult("crash", reason=f"the process {death.how()}", stderr=stderr)
    if "error" in answer:
        return ChildResult("error", reason=answer["error"], error_type=answer["type"], stderr=stderr)
    return ChildResult("ok", value=answer["value"], stderr=stderr)
