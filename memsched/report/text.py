"""Names and messages from models, made safe to print."""

from __future__ import annotations

__all__ = ["one_line", "printable"]


def printable(text: str) -> str:
    """Return ``text`` with everything that a terminal would act on written as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def one_line(text: str) -> str:
    """Return ``text`` as one printable line: runs of white space become one space."""
    return printable(" ".join(text.split()))
