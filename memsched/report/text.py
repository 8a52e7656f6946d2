"""Names and messages from models, made safe to print."""

from __future__ import annotations

__all__ = ["counted", "one_line", "printable", "shortened"]

_LEAST = 16
"""Columns that are left of a name however narrow the terminal."""


def printable(text: str) -> str:
    """Return ``text`` with everything that a terminal would act on written as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def one_line(text: str) -> str:
    """Return ``text`` as one printable line: runs of white space become one space."""
    return printable(" ".join(text.split()))


def shortened(text: str, columns: int) -> str:
    """Return ``text`` printable and in so many columns at most, its middle left out: names differ at their ends."""
    shown, most = printable(text), max(columns, _LEAST)
    if len(shown) <= most:
        return shown
    end = (most - 3) * 2 // 3
    return f"{shown[: most - 3 - end]}...{shown[len(shown) - end :]}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
