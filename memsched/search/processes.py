"""Starting Python child processes, and reporting how one that gave no answer died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, Any

from memsched.base.frozen import FrozenValue
from memsched.search.messages import Channel, LostError

__all__ = ["Death", "end_with_parent", "start_process"]


def start_process(
    module: str,
    *words: str,
    folder: Path,
    log: IO[bytes],
    own_group: bool = False,
) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start ``python -m module words number`` that finds the modules that this process finds.

    No worker of multiprocessing: those run the main module again, which may be a script that calls memsched.

    Args:
        folder: Where it works. ``-m`` puts that first in the search path: nothing in it may be named like a module.
        log: Where its standard output and standard error go.
        own_group: Ctrl-C in the terminal is for this process alone, and what the new one starts can be ended with it.

    Returns:
        The process and the conversation with it, whose other end it opens by ``number`` with `Channel.inherited`.
    """
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words, str(theirs.fileno())],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": _search_path()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=own_group,
            pass_fds=(theirs.fileno(),),
        )
    return process, Channel(ours)


def end_with_parent(channel: Channel, heard: Callable[[Any], None] = lambda _: None, *, group: bool = False) -> None:
    """End this process as soon as the one that started it is gone.

    Args:
        heard: Told what else the parent says.
        group: End what this process has started as well, if it has a group of its own.
    """

    def listen() -> None:
        try:
            while True:
                heard(channel.hear())
        except LostError:
            if group and hasattr(os, "killpg") and os.getpgid(0) == os.getpid():
                os.killpg(os.getpgid(0), signal.SIGKILL)
            os._exit(1)

    threading.Thread(target=listen, name="end with parent", daemon=True).start()


def _search_path() -> str:
    """Return where this process finds modules, as absolute folders."""
    return os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)


class Death(FrozenValue, frozen=True):
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

    def how(self) -> str:
        """Return how it ended, such as "was killed by SIGKILL"."""
        return f"ended with exit code {self.code}" if self.signal is None else f"was killed by {self.signal}"

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
