"""The sizes that a report holds for and nobody stated, in one line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from memsched.report.text import printable
from memsched.report.values.verdict import AssumedRow

__all__ = ["assumed_lines", "assumed_text"]


def assumed_text(rows: Sequence[AssumedRow]) -> str:
    """Return the sizes that nobody stated, with the reason for each, and how to state others; "" if there are none."""
    told = [f"{printable(one.dimension)} = {one.sizes[0]:,} ({one.reason})" for one in rows if one.reason]
    return f"assumed: {', '.join(told)}; --dim and --shape state others" if told else ""


def assumed_lines(rows: Sequence[AssumedRow], path: str) -> Iterator[str]:
    """Yield the line on sizes that nobody stated, and for a decoder the command that is for its caches.

    Args:
        path: The model's.
    """
    text = assumed_text(rows)
    if text:
        yield text
    if any(one.decoder for one in rows):
        command = shlex.join(["memsched", "decoder", path])
        yield f"a decoder with past keys and values: {command} writes them in place, at every length"
