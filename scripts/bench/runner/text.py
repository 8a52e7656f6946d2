"""How figures and tables are written."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator

from scripts.bench.runner.declare import Heading, Part, Verdict

__all__ = ["kilobytes", "line", "machine", "megabytes", "milliseconds", "percent", "printed"]


def kilobytes(size: float | None) -> str:
    """Return bytes as KB of 1024 with one decimal."""
    return "-" if size is None else f"{size / 1024:,.1f}"


def megabytes(size: float | None, digits: int = 1) -> str:
    """Return bytes as MB of 1024 x 1024."""
    return "-" if size is None else f"{size / 2**20:,.{digits}f}"


def milliseconds(seconds: float | None) -> str:
    """Return seconds as ms with one decimal."""
    return "-" if seconds is None else f"{1000 * seconds:,.1f}"


def percent(share: float, digits: int = 1) -> str:
    """Return a share as per cent."""
    return f"{100 * share:.{digits}f} %"


def line(cells: Iterable[object]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def printed(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the lines in which a benchmark's parts are printed."""
    for part in parts:
        if isinstance(part, Heading):
            yield line(part.columns)
            yield "|" + "|".join("--:" if right else "---" for right in part.right) + "|"
        elif isinstance(part, tuple):
            yield line(part)
        else:
            yield part.text if isinstance(part, Verdict) else part


def machine() -> str:
    """Return what the seconds were measured on, in words."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}, {platform.python_implementation()} {platform.python_version()}"
