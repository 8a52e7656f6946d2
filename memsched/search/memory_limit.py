"""``--memory-limit``: a search ends with the best so far when this process and its workers hold more than permitted.

What counts is resident memory, looked at ten times a second. A limit on addresses would not do: native libraries
reserve far more of them than they use.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from memsched.base.errors import MemschedError, UsageError
from memsched.base.units import format_size

__all__ = ["MemoryLimitError", "MemoryWatch", "check_memory_limit", "memory_limited", "resident_bytes"]

_INTERVAL_SECONDS: Final = 0.1

_PATIENCE_SECONDS: Final = 10.0
"""How long a search that was asked to end may go on above the limit, and how long native code may."""

_FAR: Final = 1.5
"""Times the limit, above which a search that was asked to end is not waited for any longer than that."""

_RUNTIME: Final = b"memsched.runtimes."
"""In the command line of a process that runs the model: what that needs is the model's affair."""


class MemoryLimitError(MemschedError):
    """More memory than ``--memory-limit`` was needed where there is no result to keep."""

    code = "memory-limit"


def resident_bytes(process: int | None = None) -> int:
    """Return the bytes that a process (by default this one) and its workers hold; 0 where nothing says so.

    Pages that they share count once for each, so the figure may be too large, never too small. Processes that verify a
    model do not count.
    """
    total, left, seen = 0, [os.getpid() if process is None else process], set()
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        with contextlib.suppress(OSError, ValueError, IndexError):
            if _RUNTIME in Path(f"/proc/{one}/cmdline").read_bytes():
                continue
            total += int(Path(f"/proc/{one}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError, ValueError):
                left.extend(map(int, children.read_text(encoding="ascii").split()))
    return total


class MemoryWatch:
    """Looks at the memory in use from a thread of its own.

    Attributes:
        exceeded: The search was asked to end because of the limit.
    """

    def __init__(self, limit: int | None, last_words: Callable[[MemoryLimitError], None]) -> None:
        self.limit = limit
        self.exceeded = False
        self._last_words = last_words
        self._searching = False
        self._most = 0
        self._end = threading.Event()
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="memory limit", daemon=True)

    def stop(self) -> bool:
        """Return whether the search shall end; a search asks this often."""
        self._searching = True
        return self.exceeded

    def search_ended(self) -> None:
        """Lift the limit: the result is being verified and written."""
        self._end.set()

    def error(self) -> MemoryLimitError:
        """Return the error for a run without a result."""
        held, limit = format_size(self._most), format_size(self.limit or 0)
        return MemoryLimitError(f"{held} of memory were in use, more than --memory-limit {limit}; nothing was written")

    def said(self, interrupted: bool) -> str | None:
        """Return a note for the result; None unless the limit, and no person, ended its search."""
        if not self.exceeded or interrupted:
            return None
        return f"--memory-limit {format_size(self.limit or 0)} ended the search: this is the best found so far"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch while inside.

        Raises:
            MemoryLimitError: The limit was exceeded before a search had begun.
        """
        if self.limit is None:
            yield
            return
        self._thread.start()
        try:
            yield
        except (KeyboardInterrupt, MemoryError):
            if self.exceeded:
                raise self.error() from None
            raise
        except Exception:
            # An interrupt in the middle of an import may come out as another error.
            if self.exceeded and not self._searching:
                raise self.error() from None
            raise
        finally:
            self._finish()

    def _finish(self) -> None:
        try:
            with self._ending:
                self._end.set()
            self._thread.join()
        except KeyboardInterrupt:
            # The watch's own may come when all is done.
            if not self.exceeded or self._searching:
                raise
            self._thread.join()
            raise self.error() from None

    def _watch(self) -> None:
        limit = self.limit or 0
        while not self._end.wait(_INTERVAL_SECONDS):
            held = resident_bytes()
            if held <= limit:
                continue
            self._most = max(self._most, held)
            searching, self.exceeded = self._searching, True
            with self._ending:
                if not searching and not self._end.is_set():
                    _thread.interrupt_main()
            bound = limit * _FAR if searching else limit
            while not self._end.wait(_PATIENCE_SECONDS):
                if resident_bytes() > bound:
                    self._give_up()

    def _give_up(self) -> None:
        """End the process: the main thread is inside code that nothing else ends. Nothing has been written yet."""
        try:
            self._last_words(self.error())
        finally:
            os._exit(MemoryLimitError.exit_code)


def _print_error(error: MemoryLimitError) -> None:
    os.write(2, f"memsched: error: {error}\n".encode())


def check_memory_limit(limit: int | None) -> None:
    """Refuse a limit where nothing says how much memory a process holds.

    Raises:
        UsageError: There is a limit, and this system has no ``/proc``.
    """
    if limit is not None and not resident_bytes():
        raise UsageError("--memory-limit needs /proc, which this system does not have")


@contextlib.contextmanager
def memory_limited(
    limit: int | None, last_words: Callable[[MemoryLimitError], None] = _print_error
) -> Iterator[MemoryWatch]:
    """Give a `MemoryWatch` that runs.

    Args:
        limit: Bytes; None for none.
        last_words: Called with the error just before this process is ended at once; by default prints it.

    Raises:
        UsageError: This system does not say how much memory a process holds.
    """
    check_memory_limit(limit)
    watch = MemoryWatch(limit, last_words)
    with watch.running():
        yield watch
