"""Consoles, progress and interruption: what a subcommand needs of the terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from memsched.report.text import shortened

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from memsched.search.progress import Progress

__all__ = [
    "InterruptHandler",
    "ProgressDisplay",
    "interruptible",
    "make_console",
    "start_live",
    "write_standard_output",
]

_CLOSED: Final = b"\0"
"""What ends the thread that listens for signals: none has this number."""

ACKNOWLEDGED: Final = b"memsched: interrupted: ending with the best so far; Ctrl-C again ends at once\n"


def make_console(*, stderr: bool, no_color: bool, quiet: bool = False) -> Console:
    """Return a console; without colours where ``no_color``, NO_COLOR or a pipe says so."""
    from rich.console import Console

    return Console(stderr=stderr, no_color=no_color or None, quiet=quiet, highlight=False, markup=False, emoji=False)


class InterruptHandler:
    """Turns the first Ctrl-C during a search into a polite request, and every later one into `KeyboardInterrupt`.

    The search may be inside native code in which no Python signal handler runs, so a thread reads the pipe into which
    Python's C-level handler writes every signal at once. It says within a moment that the search is ending, and tells
    `stop`, which may be called from any thread.
    """

    def __init__(self) -> None:
        self.requested = False
        self._searching = False
        self._handled = False
        self._told = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._listener = threading.Thread(target=self._listen, name="interrupts", daemon=True)
        self._listener.start()

    def stop(self) -> bool:
        """Return whether the search has to end with the best result so far."""
        self._searching = True
        return self.requested

    def _listen(self) -> None:
        # Signals that came just before the end are read with it.
        while not os.read(self._reader, 64).endswith(_CLOSED):
            self.requested = True
            if self._searching and not self._told:
                self._told = True
                with contextlib.suppress(OSError):
                    os.write(2, ACKNOWLEDGED)

    def search_ended(self) -> None:
        """Let an interrupt end what is running from here on."""
        self._searching = False

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """Signal handler."""
        if not self._searching or self._handled:
            raise KeyboardInterrupt
        self._handled = self.requested = True

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM while inside; this works in the main thread alone and does nothing elsewhere."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        old = {number: signal.signal(number, self.handle) for number in (signal.SIGINT, signal.SIGTERM)}
        old_writer = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(old_writer)
            for number, handler in old.items():
                signal.signal(number, handler)

    def close(self) -> None:
        """Release the pipe."""
        os.write(self._writer, _CLOSED)
        self._listener.join()
        os.close(self._reader)
        os.close(self._writer)


@contextlib.contextmanager
def interruptible() -> Iterator[InterruptHandler]:
    """Provide an installed `InterruptHandler`."""
    interrupt = InterruptHandler()
    try:
        with interrupt.installed():
            yield interrupt
    finally:
        interrupt.close()


def start_live(console: Console, render: Callable[[], Any]) -> Live:
    """Show on ``console`` what ``render`` returns, refreshed until stopped and then removed."""
    from rich.live import Live

    live = Live(console=console, get_renderable=render, transient=True)
    live.start()
    return live


class ProgressDisplay:
    """One line on standard error, where that is a terminal: stage, best peak, bound and gap if they hold, seconds."""

    def __init__(self, console: Console, *, enabled: bool, every: bool) -> None:
        self._console = console
        self._enabled = enabled and console.is_terminal
        self._every = every
        self._started = time.monotonic()
        self._last: Progress | None = None
        self._live: Any = None

    def __enter__(self) -> ProgressDisplay:
        if self._enabled:
            self._live = start_live(self._console, self._line)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, progress: Progress) -> None:
        """Take note of how far the search is."""
        self._last = progress
        if self._every and self._live is None:
            self._console.print(self._line(), soft_wrap=True)

    def _line(self) -> str:
        seconds = time.monotonic() - self._started
        last = self._last
        if last is None:
            return f"reading the model  {seconds:.1f} s"
        rest = f": {last.best_peak:,} B"
        if last.lower_bound is not None:
            gap = 100 * (last.best_peak - last.lower_bound) / last.best_peak if last.best_peak else 0.0
            rest += f", bound {last.lower_bound:,}, gap {gap:.1f} %"
        rest += f"  {seconds:.1f} s"
        return shortened(last.stage, min(28, self._console.width - 1 - len(rest))) + rest


def write_standard_output(data: bytes) -> None:
    """Write ``data`` to standard output as it is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
