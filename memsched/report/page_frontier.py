"""The page's picture of what less memory costs, each point with the command that asks for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from math import ceil

from msgspec import UNSET

from memsched.base.shown import LONGEST_TEXT
from memsched.report.page_parts import FrontierColumns
from memsched.report.requirement import frontier_column
from memsched.report.text import printable
from memsched.report.values.optimize import OptimizeReport
from memsched.targets.load import builtin_targets

__all__ = ["frontier_columns"]

_Point = tuple[int, float, str]
"""Bytes, percent of multiply-accumulates that are added, and how: order, tile, remat or both."""

_HOW = {
    "order": "the order alone",
    "tile": "layers in pieces",
    "remat": "values computed again",
    "both": "both together",
}
_ALLOWED = {"order": "reorder,inplace", "tile": "reorder,inplace,tile", "remat": "all", "both": "all"}


def frontier_columns(report: OptimizeReport) -> FrontierColumns | None:
    """Return the points; None where there are less than two, which say nothing."""
    arenas = frontier_column(report) == "arena"
    found: list[_Point]
    if report.sections.frontier is not None:
        found = [(one.peak_bytes, max(0.0, one.extra_macs_percent), one.how) for one in report.sections.frontier]
    else:
        found = list(_tried(report, arenas=arenas))
        if arenas and not found:
            arenas, found = False, list(_tried(report, arenas=False))
    points = _best(found)
    if len(points) < 2:
        return None
    limits = "--budget-for activations" if frontier_column(report) == "arena" and not arenas else ""
    return FrontierColumns(
        what="arena" if arenas else "peak of activations",
        size=[size for size, _, _ in points],
        work=[work for _, work, _ in points],
        how=[_HOW[how] for _, _, how in points],
        command=[_command(report, point, limits) for point in points],
    )


def _best(found: Iterable[_Point]) -> list[_Point]:
    """Return the points of which none needs more than another for as much work, by falling size."""
    kept: list[_Point] = []
    for point in sorted(found, key=lambda one: (one[1], one[0])):
        if not kept or point[0] < kept[-1][0]:
            kept.append(point)
    return kept


def _tried(report: OptimizeReport, *, arenas: bool) -> Iterator[_Point]:
    """Yield what the searches for rewrites found possible: whole arenas, or peaks."""
    if report.sections.tile is not None:
        if not arenas:
            yield report.sections.tile.untiled.peak_bytes, 0.0, "order"
        for one in report.sections.tile.frontier:
            size = one.whole_arena_bytes_estimate if arenas else one.peak_bytes
            if size is not UNSET:
                yield size, max(0.0, one.extra_macs_percent), "tile"
    if report.sections.recompute is not None and not arenas:
        for again in report.sections.recompute.frontier:
            yield again.peak_bytes, again.extra_macs_percent, "remat"


def _command(report: OptimizeReport, point: _Point, limits: str) -> str:
    """Return what asks for a point; empty where the model or its target cannot be named."""
    size, work, how = point
    path, target = report.model.path, report.target.name
    if path == "-" or path != printable(path) or len(path) > LONGEST_TEXT or target not in builtin_targets():
        return ""
    words = ["memsched", "optimize", path, "--target", target, "--budget", str(size), *limits.split()]
    words += ["--allow", _ALLOWED[how]]
    if how != "order":
        words += ["--max-extra-macs", str(ceil(work))]
    return shlex.join(words)
