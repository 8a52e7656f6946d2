"""What commands return where no error was raised; an error's own code is in `memsched.base.errors`."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """The command's status for whoever called it."""

    DONE = 0
    MISSED = 3
    """What was asked for was not met: a budget, a capacity, no regression."""
    DIFFERENT = 4
    """Two models' outputs differ."""
    INTERRUPTED = 130
    """As shells have it: 128, and the number of SIGINT."""
