"""What a command prints, and what ends its search, as values that all subcommands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from memsched.base.frozen import FrozenValue

if TYPE_CHECKING:
    from rich.console import Console

    from memsched.cli.terminal import InterruptHandler, ProgressDisplay
    from memsched.search.memory_limit import MemoryWatch

__all__ = ["Display", "SearchEnd", "search_end"]


class Display(FrozenValue, frozen=True):
    """What is printed: the options that `memsched.cli.options.output_options` adds."""

    as_json: bool
    quiet: bool
    verbose: int
    no_color: bool

    @property
    def detailed(self) -> bool:
        """Whether more is to be printed than usual."""
        return self.verbose > 0

    def console(self, *, stderr: bool) -> Console:
        """Return where text goes."""
        from memsched.cli.terminal import make_console

        return make_console(stderr=stderr, no_color=self.no_color, quiet=self.quiet)

    def progress(self, *, enabled: bool = True) -> ProgressDisplay:
        """Return the line that shows how a search is going."""
        from memsched.cli.terminal import ProgressDisplay

        return ProgressDisplay(self.console(stderr=True), enabled=enabled and not self.quiet, every=self.detailed)


class SearchEnd:
    """Ctrl-C and ``--memory-limit``, either of which ends a search."""

    def __init__(self, interrupt: InterruptHandler, memory: MemoryWatch) -> None:
        self._interrupt, self._memory = interrupt, memory

    def stop(self) -> bool:
        """Return whether the search has to end with the best result so far."""
        return self._interrupt.stop() | self._memory.stop()

    def passed(self) -> None:
        """Note that the search is over: from here on both end what is running."""
        self._interrupt.search_ended()
        self._memory.search_ended()

    def by_memory(self, display: Display) -> bool:
        """Return whether the memory limit ended the search, and print that it did."""
        said = self._memory.said(self._interrupt.requested)
        if said is not None and not display.quiet:
            click.echo(f"memsched: {said}", err=True)
        return said is not None


@contextlib.contextmanager
def search_end(memory_limit: int | None) -> Iterator[SearchEnd]:
    """Provide what ends a search while it runs.

    Args:
        memory_limit: Bytes; None for none.
    """
    from memsched.cli.terminal import interruptible
    from memsched.search.memory_limit import memory_limited

    with interruptible() as interrupt, memory_limited(memory_limit) as memory:
        yield SearchEnd(interrupt, memory)
