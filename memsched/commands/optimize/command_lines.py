"""Command lines that reports suggest: the user's own, with other options."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Final

__all__ = ["slowdown_for", "with_options", "without_options"]

_MARGIN: Final = 5
"""Percentage by which two measurements may differ."""


def with_options(words: Sequence[str], *options: str) -> str:
    """Return a command line with further options, which come before "--".

    Args:
        words: The command line without the program's name.
    """
    end = list(words).index("--") if "--" in words else len(words)
    return shlex.join(["memsched", *words[:end], *options, *words[end:]])


def without_options(words: Sequence[str], *names: str) -> list[str]:
    """Return the words without these options and their values."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in names:
            skip = True
        elif not any(word.startswith(f"{name}=") or (len(name) == 2 and word.startswith(name)) for name in names):
            kept.append(word)
    return kept


def slowdown_for(ratio: float) -> int:
    """Return the value of `--max-slowdown` that permits a ratio of times, with a margin for noise."""
    return math.ceil(100 * (ratio - 1)) + _MARGIN
