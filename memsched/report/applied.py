"""One line for each rewrite that the model written has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

from memsched.base.shown import LABEL_COLUMNS
from memsched.base.units import counted, format_size
from memsched.report.algebra import identities_text
from memsched.report.blocks import block_lines
from memsched.report.border import end_text
from memsched.report.text import shortened
from memsched.report.values.border import BorderSection
from memsched.report.values.optimize import OptimizeReport, Sections
from memsched.report.values.rewrites import RematSection, TilingSection
from memsched.report.values.sessions import MappedSection

__all__ = ["IN_BRANCH", "applied_lines"]

IN_BRANCH: Final = "large values are made in a branch of an If"
"""How the note begins on values for which ONNX Runtime keeps no memory pattern."""

_ENDS_SHOWN: Final = 2
"""Changed inputs and outputs that get a line each; more of them get one line together."""


def applied_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    """Return a line for each rewrite of the model written, and for its order; none if it is the original."""
    if report.output is None or report.output.unchanged:
        return []
    found = report.sections
    first = (*_tile(found.tile), *_recompute(found.recompute), *_algebra(found))
    last = (*_chains(found), *_branch(report), *_open_loops(found), *_order(report))
    lines: list[tuple[str, str | None]] = [(line, None) for line in first]
    lines += [(line, "yellow") for line in _border(found.border)]
    lines += [(line, None) for line in last]
    if found.mapped is not None:
        lines.append(_mapped(found.mapped))
    if found.executed is not None:
        lines.append(_executed(found.executed.level, found.executed.block_channels, found.executed.processor))
    return lines


def _mapped(section: MappedSection) -> tuple[str, str | None]:
    """Return the name of the weight file and the processors that can use it."""
    text = (
        f"mapped weights: {format_size(section.weights_bytes)} in {section.weights}; keep it in the model's folder; a"
        " container's limit counts private memory, as the system drops mapped pages if memory is short"
    )
    if section.block_channels is None:
        return f"{text}; other processors keep private copies", None
    return f"{text}; processors without blocks of {section.block_channels} channels refuse the model", "yellow"


def _tile(section: TilingSection | None) -> Iterator[str]:
    if section is not None and section.applied:
        layers = len({op for group in section.groups for op in group.ops})
        tiles = sum(math.prod(group.pieces) for group in section.groups)
        loops = sum(group.form == "loop" for group in section.groups)
        looped = f", {counted(loops, 'loop')}" if loops else ""
        extra = _extra(section.extra_macs_percent)
        yield f"tile: {counted(layers, 'layer')} in {counted(tiles, 'tile')}{looped}, {extra}"


def _recompute(section: RematSection | None) -> Iterator[str]:
    if section is not None and section.applied:
        times = sum(copy.times for copy in section.copies)
        ops, extra = counted(len(section.copies), "operator"), _extra(section.extra_macs_percent)
        extra += f", {section.extra_work_percent:.1f}% more work with bytes moved"
        yield f"recompute: {ops} executed again, {counted(times, 'time')} in all, {extra}"


def _algebra(found: Sections) -> Iterator[str]:
    section = found.algebra
    if section is not None and section.applied:
        yield f"algebra: {identities_text(section)}"


def _border(section: BorderSection | None) -> Iterator[str]:
    if section is None or not section.applied:
        return
    if len(section.changed) > _ENDS_SHOWN:
        yield f"border: the caller has to change {len(section.changed)} inputs and outputs, see -v or the report"
        return
    for row in section.changed:
        name = shortened(row.given.tensor, LABEL_COLUMNS)
        halves = "" if row.halves is None else f"; round takes halves {row.halves}"
        form = f"{end_text(row.given)} -> {end_text(row.written)}"
        how = f"give {row.formula}{halves}" if row.side == "input" else f"it was {row.formula}"
        yield f"border: the caller has to change {row.side} {row.index} '{name}': {form}; {how}"


def _chains(found: Sections) -> Iterator[str]:
    section = found.chains
    if section is not None and section.applied:
        kinds = Counter(row.type for row in section.chains)
        what = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        yield f"fuse: {counted(len(section.chains), 'chain')} of operators written as one each ({what})"


def _branch(report: OptimizeReport) -> Iterator[str]:
    if any(note.startswith(IN_BRANCH) for note in report.verdict.notes):
        yield f"branch: {IN_BRANCH}"


def _open_loops(found: Sections) -> Iterator[str]:
    section = found.open_loops
    if section is not None and section.way is not None:
        yield f"open loops: {block_lines(section)[0][0]}"


def _order(report: OptimizeReport) -> Iterator[str]:
    """Yield what the order alone gains; over a range its gain depends on the size."""
    found, given, now = report.sections, report.original.schedule.peak_bytes, report.written.schedule.peak_bytes
    if found.open_loops is not None:
        orders = found.open_loops.orders
        if orders is not None and orders.chosen:
            yield "order: another than the file's, for the whole range"
        return
    if found.tile is not None and found.tile.applied:
        now = found.tile.untiled.peak_bytes
    elif found.recompute is not None and found.recompute.applied:
        now = found.recompute.without.peak_bytes
    if now < given:
        yield f"order: peak of activations {given:,} -> {now:,} B by itself"


def _executed(level: str, block: int | None, processor: str) -> tuple[str, str | None]:
    """Return that the file holds the graph that a session executes, in yellow if it is for some processors alone."""
    what = f"executed graph: ONNX Runtime's own at level {level}"
    if block:
        return f"{what}, for processors of blocks of {block} channels alone, as this one is: {processor}", "yellow"
    return f"{what}, for any processor", None


def _extra(percent: float) -> str:
    return f"{percent:.1f}% more MACs" if percent > 0 else "no more MACs"
