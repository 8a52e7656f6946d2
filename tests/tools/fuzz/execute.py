"""One case executed: a result, a refusal in one line, or a defect."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from memsched.base.errors import InternalError, MemschedError
from memsched.report.text import error_line
from tests.tools.fuzz.kinds import KINDS, case

__all__ = ["HANG_SECONDS", "Outcome", "execute", "work"]

HANG_SECONDS = 10

Outcome = tuple[str, str]
"""("accepted" | "refused" | "defect", its message)."""


class _HangError(BaseException):
    """The case took too long; no `except Exception` swallows it."""


def _alarm(_number: int, _frame: FrameType | None) -> None:
    raise _HangError


@contextlib.contextmanager
def _within(seconds: int) -> Iterator[None]:
    # Of the processor, not of a clock on the wall: other processes may want it too. Who sleeps is found from outside.
    old = signal.signal(signal.SIGPROF, _alarm)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def execute(name: str, data: bytes, number: int = 0) -> Outcome:
    """Read ``data`` as a file of kind ``name`` and say what became of it."""
    try:
        with _within(HANG_SECONDS):
            KINDS[name].read(data, number)
    except InternalError:
        return "defect", traceback.format_exc()
    except MemschedError as error:
        message = error_line(str(error))
        if not message:
            return "defect", "a refusal without a word"
        return "refused", message
    except _HangError:
        return "defect", f"longer than {HANG_SECONDS} s\n{traceback.format_exc()}"
    except BaseException:
        return "defect", traceback.format_exc()
    return "accepted", ""


def work(name: str, first: int, last: int, progress: Path) -> None:
    """Execute cases [first, last) of a kind, writing to ``progress`` which one is next and what was found.

    The lines are "start N", and for every case "accepted", "refused" or "defect N" with the traceback on stderr.
    """
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    with progress.open("a", buffering=1) as log:
        for number in range(first, last):
            log.write(f"start {number}\n")
            outcome, message = execute(name, case(name, number), number)
            log.write(f"{outcome} {number}\n")
            if outcome == "defect":
                print(f"--- {name} {number}\n{message}", file=sys.stderr, flush=True)
