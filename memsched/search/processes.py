"""Python processes of our own: how one is started, and how one that ended without a word died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["Death", "start_process"]


def start_process(
    module: str,
    *words: str,
    folder: Path,
    output: IO[bytes] | int,
    errors: IO[bytes] | int = subprocess.STDOUT,
    spoken_to: bool = False,
    own_group: bool = False,
) -> subprocess.Popen[bytes]:
    """Start ``python -m module words`` that finds the modules that this process finds.

    Args:
        folder: Where it works. ``-m`` puts that first in the search path: nothing in it may be named like a module.
        output: Where its standard output goes; a pipe with `subprocess.PIPE`.
        spoken_to: Its standard input is a pipe, which ends when this process does; otherwise it is empty.
        own_group: Ctrl-C in the terminal is for this process alone, and what the new one starts can be ended with it.
    """
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": _search_path()},
        stdin=subprocess.PIPE if spoken_to else subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=own_group,
    )


def _search_path() -> str:
    """Return where this process finds modules, as absolute folders."""
    return os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended that gave no answer.

    Attributes:
        code: What `subprocess.Popen.returncode` says: a negative one is that of a signal.
        log: What it has written to standard output and standard error.
    """

    code: int
    log: Path

    @property
    def signal(self) -> str | None:
        """The signal that ended it, such as "SIGKILL" or "signal 99"; None where it left by itself."""
        if self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"

    def out_of_memory(self) -> bool:
        """Whether it may be that the system ended it for want of memory."""
        return self.code == -signal.SIGKILL

    def last_words(self, most: int | None = None) -> str:
        """Return the last ``most`` characters that it has written, or all."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return text if most is None else text[-most:]

    def last_line(self, most: int) -> str:
        """Return the beginning of the last line that it has written; empty where there is none."""
        lines = self.last_words().strip().splitlines()
        return lines[-1][:most] if lines else ""
