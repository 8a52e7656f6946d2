"""Sizes as people write them ("256KB", "1.5MiB") to bytes and back, shares, counts. K, M and G are powers of 1024."""

from __future__ import annotations

import re
from fractions import Fraction

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue

__all__ = ["KIB", "LARGEST", "LARGEST_INT32", "LARGEST_INT64", "LONGEST", "MIB", "MOST_BYTES", "MOST_DIGITS"]
__all__ += ["Percentage", "counted", "format_change", "format_size", "parse_budget", "parse_size", "percent_of"]
__all__ += ["rounded_ratio"]

KIB = 1024
MIB = KIB**2

LARGEST = 2**62
"""No number that a file states may be larger, nor the sum of all sizes: solvers calculate with 64 bits."""

MOST_DIGITS = len(str(LARGEST)) - 1
"""A number of so many digits is no larger; longer ones are no lengths."""

MOST_BYTES = LARGEST // 4
"""Sum of all that a problem has, at most, for arrays and the compiled core: a few such sums fit into 64 bits."""

LARGEST_INT64 = 2 * LARGEST - 1
LARGEST_INT32 = 2**31 - 1

LONGEST = 1 << 24
"""Elements, as a file states them, beyond any text, signal or shape: a damaged file may state more."""

_FACTORS = {"": 1, "k": KIB, "m": MIB, "g": KIB**3, "t": KIB**4}
_PERCENTAGE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*", re.ASCII)
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes that ``text`` means; "64", "64B", "64K", "64KB" and "64KiB" are all understood.

    Raises:
        UsageError: ``text`` is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"'{text}' is not a size",
            code="bad-size",
            action="write bytes or a number with K, M or G, such as 256KB or 1.5MiB",
        )
    number, suffix = match.groups()
    factor, stated = _FACTORS[suffix.lower()], Fraction(number)
    # Where the unit was forgotten, a megabyte and a half would become a byte.
    if stated.denominator > 1 and (factor == 1 or stated * factor < 1):
        raise UsageError(
            f"'{text}' is not a whole number of bytes",
            code="fraction-of-byte",
            action=f"write a number with K, M or G, such as {number}M",
        )
    return int(stated * factor)


class Percentage(FrozenValue, frozen=True):
    """A part of something, in percent; exact."""

    percent: Fraction

    def __str__(self) -> str:
        return f"{float(self.percent):g} %"

    def of(self, size_bytes: int) -> int:
        """Return this part of ``size_bytes``, rounded down to whole bytes."""
        return int(size_bytes * self.percent / 100)


def parse_budget(text: str) -> int | Percentage:
    """Return the bytes that ``text`` means, as `parse_size` does, or the part that a number with % means.

    Raises:
        UsageError: ``text`` is neither.
    """
    match = _PERCENTAGE.fullmatch(text)
    if match is not None:
        return Percentage(Fraction(match[1]))
    if _SIZE.fullmatch(text) is None:
        raise UsageError(
            f"'{text}' is not a budget",
            code="bad-budget",
            action="write bytes, a number with K, M or G, such as 256KB, or a part of what the file as given requires, "
            "such as 50%",
        )
    return parse_size(text)


def format_size(size_bytes: int) -> str:
    """Return ``size_bytes`` for people: exact bytes below 10 KB, otherwise KB, MB or GB with one decimal."""
    if abs(size_bytes) < 10 * 1024:
        return f"{size_bytes:,} B"
    for suffix, factor in (("GB", 1024**3), ("MB", 1024**2)):
        if abs(size_bytes) >= 10 * factor:
            return f"{size_bytes / factor:,.1f} {suffix}"
    return f"{size_bytes / 1024:,.1f} KB"


def format_change(before: str, after: str) -> str:
    """Return two formatted sizes, with the unit only once if both have the same."""
    number, _, unit = before.rpartition(" ")
    return f"{number if after.endswith(f' {unit}') else before} -> {after}"


def percent_of(part: int, total: int) -> float:
    """Return ``part`` in percent of ``total``, to three places; 0 of nothing."""
    return round(100 * part / total, 3) if total else 0.0


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not 1."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def rounded_ratio(ratio: float | None) -> float | None:
    """Return a ratio of times as reports state it, with three decimals; None if there is none."""
    return None if ratio is None else round(ratio, 3)
