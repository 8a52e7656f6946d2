"""What subcommands and the entry tell each other."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["State"]


@dataclass(slots=True)
class State:
    """What a subcommand tells the entry, and what the entry tells it.

    Attributes:
        debug: Whether an internal error shows its traceback.
        words: The command line without the program's name.
    """

    debug: bool = False
    words: tuple[str, ...] = ()
