"""What the tables share: cells, timing, and a line about the machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TypeVar

from memsched.graph.model import Graph
from scripts.networks.catalogue import build
from scripts.networks.table import lowered

__all__ = ["best_of", "heading", "kilobytes", "line", "machine", "network", "percent", "timed"]

_Result = TypeVar("_Result")


def kilobytes(size: int | None) -> str:
    """Return bytes as KB of 1024 with one decimal."""
    return "-" if size is None else f"{size / 1024:,.1f}"


def percent(share: float) -> str:
    """Return a share as per cent with one decimal."""
    return f"{100 * share:.1f} %"


def line(cells: Iterable[object]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def heading(columns: Sequence[str]) -> tuple[str, str]:
    """Return the two lines that begin a Markdown table."""
    return line(columns), "|---" * len(columns) + "|"


def timed(action: Callable[[], _Result]) -> tuple[_Result, float]:
    """Return a result and the seconds it took."""
    started = time.perf_counter()
    result = action()
    return result, time.perf_counter() - started


def best_of(repeats: int, action: Callable[[], _Result]) -> tuple[_Result, float]:
    """Return the result and the seconds of the quickest of ``repeats`` runs."""
    return min((timed(action) for _ in range(repeats)), key=lambda run: run[1])


@cache
def network(name: str, target: str) -> Graph:
    """Return a network of the catalogue as ``target`` executes it."""
    return lowered(build(name).SerializeToString(), name, target)


def machine() -> str:
    """Return what the seconds were measured on, in words."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}, {platform.python_implementation()} {platform.python_version()}"
