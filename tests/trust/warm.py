"""Runs command lines, each in a fork of a process that has imported everything, and says what became of each.

A line in: a list of the working folder and the arguments, as JSON. A line out: exit code, output, errors, seconds and
the largest resident memory, bytes. So a test of time and memory costs no start of Python.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 60
"""Of a processor, after which the fork is killed; far above what any test permits."""

_PATIENCE = 10
"""Times as long on the clock, in case that it waits for ever."""


def main() -> None:
    """Answer lines until there are no more."""
    import numpy  # noqa: F401
    import onnx.shape_inference  # noqa: F401

    import memsched.cli.analyze
    import memsched.cli.optimize
    import memsched.commands.optimize.optimize
    import memsched.solve.schedule.portfolio  # noqa: F401

    for line in sys.stdin:
        folder, *arguments = json.loads(line)
        print(json.dumps(_run(folder, arguments)), flush=True)  # noqa: T201


def _run(folder: str, arguments: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as answers:
        out, err = Path(answers) / "out", Path(answers) / "err"
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            _child(folder, arguments, out, err)
        _, status, usage = os.wait4(child, 0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "out": out.read_text(errors="replace") if out.exists() else "",
            "err": err.read_text(errors="replace") if err.exists() else "",
            "seconds": time.monotonic() - started,
            "cpu": usage.ru_utime + usage.ru_stime,
            "memory": usage.ru_maxrss * 1024,
        }


def _child(folder: str, arguments: list[str], out: Path, err: Path) -> None:
    from memsched.cli.main import main as command_line

    code = 70
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(_PATIENCE * SECONDS)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        gc.disable()
        os.chdir(folder)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        code = command_line(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
