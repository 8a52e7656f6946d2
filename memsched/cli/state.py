"""What every subcommand shares: the console, how much to say."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["State"]


@dataclass(slots=True)
class State:
    """What a subcommand tells the entry, and the entry it.

    Attributes:
        debug: An internal error shall show its traceback.
        words: The command line without the program's name.
    """

    debug: bool = False
    words: tuple[str, ...] = ()
