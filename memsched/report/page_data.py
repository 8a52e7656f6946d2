"""What the page draws: columns of figures per step and per buffer, few enough for a browser however large the graph."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import UNSET

from memsched.base.frozen import FrozenValue
from memsched.base.shown import LABEL_COLUMNS
from memsched.report.page_cells import Rectangle, merged_cells
from memsched.report.page_curve import curve_columns
from memsched.report.page_frontier import frontier_columns
from memsched.report.page_graph import graph_columns
from memsched.report.page_parts import (
    AxisUnit,
    BufferColumns,
    GivenColumns,
    MemoryMap,
    PageFigures,
    PageValues,
    StepColumns,
)
from memsched.report.text import shortened
from memsched.report.values.graphs import BufferRow, StepRow
from memsched.report.values.optimize import OptimizeReport

__all__ = ["PageData", "as_script", "extremes", "form_of", "page_data"]

_WHOLE = 10_000
"""Steps, and buffers, at most that are drawn: of more steps, at first the least and the largest of each bucket, which
make half of them; of more buffers, as many near the peak as with most bytes and steps."""
_NEAR_PEAK = 40
"""How many steps before and after the peak are always drawn."""
_READERS = 200_000
"""Readers of all buffers together that are listed, shared evenly."""

_NAME_COLUMNS = (160, 96, 64, 40, 24, 16)
"""Columns of a name: the first that keeps all names together below `_NAME_BYTES`, or the last."""
_NAME_BYTES = 1_500_000

_TIMES = "\N{MULTIPLICATION SIGN}"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
"""What names of files are without, that are saved from the page."""

_COPY = "#again"
"""In the names of ops that are executed again."""

_FACTORS = ((1024**3, "GB"), (1024**2, "MB"), (1024, "KB"))

PLAIN, PIECE, AGAIN, ADDED = range(4)
"""What a step is: an op of the model, a piece of one, one executed again, or one that a rewrite added."""


class PageData(FrozenValue, frozen=True):
    """What the page's script gets, and what the page must say of it.

    Attributes:
        values: See `page_data`.
        tensors: Places in the report's ``buffers`` of the page's buffers that are no workspaces, which come first.
        steps_drawn: Steps that are in ``values``, fewer than there are where they are downsampled.
        buffers_drawn: Buffers and workspaces that have a rectangle of their own.
        buffers: All buffers and workspaces that have bytes of their own.
    """

    values: PageValues
    tensors: Sequence[int]
    steps: int
    steps_drawn: int
    buffers: int
    buffers_drawn: int


class _PlotBuffer(FrozenValue, frozen=True):
    """A row of the report's ``buffers`` or ``workspaces``.

    Attributes:
        order: Its place among all of them.
        drawn: It has a rectangle: it is no view, and does not consist of others.
        form: Its shape and the type of its elements, as far as they are known.
    """

    order: int
    name: str
    offset: int
    size: int
    first: int
    last: int
    made: int | None
    read: Sequence[int]
    in_place_of: str | None
    view_of: str | None
    workspace: bool
    drawn: bool
    pool: str
    form: str = ""


class _FileOrder(FrozenValue, frozen=True):
    """The file's own order; ``index`` has the steps that are drawn."""

    ops: Sequence[str]
    footprints: Sequence[int]
    index: Sequence[int]


def page_data(report: OptimizeReport) -> PageData:
    """Return what to draw of a report: the footprint of each step, and the place, step and bytes of each buffer.

    The values are columns, one list per figure, with names shortened. ``steps.index`` says which steps they are of.
    ``maps`` has one entry per memory, ``merged`` the rectangles of what is not drawn one by one.
    """
    steps = report.written.steps
    peak_step = _peak_step(report)
    buffers = _buffers(report)
    pools = list(dict.fromkeys(buffer.pool for buffer in buffers)) or [""]
    kept, rest = _largest(buffers, peak_step)
    limit = _READERS // max(1, len(kept))
    index = _kept_steps(steps, kept, limit, peak_step)
    given = _given(report)
    names = _Names(
        [buffer.name for buffer in kept],
        [steps[step].op for step in index],
        [] if given is None else [given.ops[step] for step in given.index],
    )
    values = PageValues(
        unit=_unit(report),
        figures=_figures(report, peak_step),
        steps=_step_columns(report, index, names),
        given=None if given is None else _given_columns(given, names),
        buffers=_buffer_columns(kept, pools, limit, names),
        maps=_maps(report, buffers, pools),
        merged=_merged(report, rest, pools),
        graph=graph_columns(report, peak_step),
        frontier=frontier_columns(report),
        curve=curve_columns(report),
        name=_NOT_IN_NAMES.sub("_", PurePath(report.model.path).stem)[:LABEL_COLUMNS].strip("._") or "model",
    )
    drawn = sum(buffer.drawn for buffer in kept)
    tensors = [buffer.order for buffer in kept if not buffer.workspace]
    return PageData(values, tensors, len(steps), len(index), drawn + len(rest), drawn)


def as_script(values: Any) -> str:
    """Return ``values`` as JSON that ends no script, wherever it is put into HTML."""
    text = json.dumps(msgspec.to_builtins(values), ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def extremes(values: Sequence[int], buckets: int) -> list[int]:
    """Return the places of the least and the largest of each of so many buckets of equal length, in rising order.

    First and last are always there; of equal values the first is taken.
    """
    count = len(values)
    if count <= 2 * buckets:
        return list(range(count))
    found = {0, count - 1}
    for bucket in range(buckets):
        places = range(bucket * count // buckets, (bucket + 1) * count // buckets)
        found.add(min(places, key=values.__getitem__))
        found.add(max(places, key=values.__getitem__))
    return sorted(found)


def form_of(row: BufferRow) -> str:
    """Return the shape and type of a tensor, its lengths joined by signs."""
    shape = "" if row.shape is None else _TIMES.join(map(str, row.shape)) or "scalar"
    return f"{shape} {row.dtype}".strip()


class _Names:
    """Names that are safe to show, and short enough for all of them together."""

    def __init__(self, *lists: Sequence[str]) -> None:
        for columns in _NAME_COLUMNS:
            self._columns = columns
            size = sum(len(as_script(shortened(name, columns)).encode()) for names in lists for name in names)
            if size <= _NAME_BYTES:
                break

    def __call__(self, name: str) -> str:
        return shortened(name, self._columns)


def _peak_step(report: OptimizeReport) -> int:
    """Return the first step whose footprint is the peak; -1 where there are no steps."""
    footprints = [step.footprint_bytes for step in report.written.steps]
    return footprints.index(max(footprints)) if footprints else -1


def _unit(report: OptimizeReport) -> AxisUnit:
    """Return the unit of the axes."""
    largest = max(report.written.schedule.arena_bytes, report.original.schedule.peak_bytes)
    factor, name = next(((factor, name) for factor, name in _FACTORS if largest >= 4 * factor), (1, "bytes"))
    return AxisUnit(factor=factor, name=name)


def _figures(report: OptimizeReport, peak_step: int) -> PageFigures:
    schedule, budget = report.written.schedule, report.budget
    return PageFigures(
        steps=len(report.written.steps),
        peak=schedule.peak_bytes,
        peak_step=peak_step,
        bound=report.proof.bound_bytes,
        arena=schedule.arena_bytes,
        budget=None if budget is None else budget.budget_bytes,
    )


def _buffers(report: OptimizeReport) -> list[_PlotBuffer]:
    """Return buffers and workspaces with the steps that make and read them."""
    last_step = max(0, len(report.written.steps) - 1)
    found: list[_PlotBuffer] = []
    for row in report.written.buffers:
        drawn = row.view_of is None and not row.consists_of and row.size_bytes > 0
        found.append(
            _PlotBuffer(
                order=len(found),
                name=row.tensor,
                offset=row.offset_bytes,
                size=row.size_bytes,
                first=row.first_step,
                last=min(row.last_step, last_step),
                made=row.produced_in,
                read=row.read_in,
                in_place_of=row.in_place_of,
                view_of=row.view_of,
                workspace=False,
                drawn=drawn,
                pool="" if row.pool is UNSET else row.pool,
                form=form_of(row),
            )
        )
    for space in report.written.workspaces:
        step = space.step
        found.append(
            _PlotBuffer(
                order=len(found),
                name=f"workspace of {space.op}",
                offset=space.offset_bytes,
                size=space.size_bytes,
                first=step,
                last=step,
                made=step,
                read=(),
                in_place_of=None,
                view_of=None,
                workspace=True,
                drawn=space.size_bytes > 0,
                pool="" if space.pool is UNSET else space.pool,
            )
        )
    return found


def _largest(buffers: Sequence[_PlotBuffer], peak_step: int) -> tuple[list[_PlotBuffer], list[_PlotBuffer]]:
    """Return those that get a rectangle of their own, and the others that have bytes of their own."""
    if len(buffers) <= _WHOLE:
        return list(buffers), []
    drawn = [buffer for buffer in buffers if buffer.drawn]
    low, high = peak_step - _NEAR_PEAK, peak_step + _NEAR_PEAK
    near = [buffer for buffer in drawn if buffer.first <= high and buffer.last >= low]
    near.sort(key=lambda buffer: (not buffer.first <= peak_step <= buffer.last, -buffer.size, buffer.order))
    by_area = sorted(drawn, key=lambda buffer: (-buffer.size * (buffer.last - buffer.first + 1), buffer.order))
    chosen = {buffer.order for buffer in (*near[: _WHOLE // 2], *by_area[: _WHOLE // 2])}
    kept = [buffer for buffer in drawn if buffer.order in chosen]
    return kept, [buffer for buffer in drawn if buffer.order not in chosen]


def _kept_steps(steps: Sequence[StepRow], kept: Sequence[_PlotBuffer], limit: int, peak_step: int) -> list[int]:
    """Return the steps that are on the page: all, or the extremes, those near the peak, and those that buffers name."""
    if len(steps) <= _WHOLE:
        return list(range(len(steps)))
    found = dict.fromkeys(extremes([step.footprint_bytes for step in steps], _WHOLE // 4))
    found.update(dict.fromkeys(range(max(0, peak_step - _NEAR_PEAK), min(len(steps), peak_step + _NEAR_PEAK + 1))))
    named = (step for buffer in kept for step in (buffer.made, *buffer.read[:limit]) if step is not None)
    for step in named:
        if len(found) >= _WHOLE:
            break
        found[step] = None
    return sorted(found)


def _step_columns(report: OptimizeReport, index: Sequence[int], names: _Names) -> StepColumns:
    steps = report.written.steps
    types = {name: place for place, name in enumerate(dict.fromkeys(steps[step].type for step in index))}
    given = {step.op for step in report.original.steps}
    tile, again = report.sections.tile, report.sections.recompute
    repeated = {copy.op for copy in again.copies} if again is not None and again.applied else set()
    pieces = tile is not None and tile.applied

    def mark(step: StepRow) -> int:
        if step.origin is None:
            return PLAIN if step.op in given else ADDED
        # One of a layer's pieces may have the layer's own name, and be executed again: copies have names that say so.
        is_copy = step.origin in repeated and (not pieces or _COPY in step.op)
        return AGAIN if is_copy else PIECE

    return StepColumns(
        index=list(index) if len(index) < len(steps) else None,
        op=[names(steps[step].op) for step in index],
        types=[shortened(name, LABEL_COLUMNS) for name in types],
        type=[types[steps[step].type] for step in index],
        footprint=[steps[step].footprint_bytes for step in index],
        workspace=[steps[step].workspace_bytes for step in index],
        mark=[mark(steps[step]) for step in index],
    )


def _given(report: OptimizeReport) -> _FileOrder | None:
    """Return the file's order if it is not the order shown."""
    ops = [step.op for step in report.original.steps]
    footprints = [step.footprint_bytes for step in report.original.steps]
    after = [(step.op, step.footprint_bytes) for step in report.written.steps]
    if not ops or list(zip(ops, footprints, strict=True)) == after:
        return None
    whole = len(ops) <= _WHOLE
    index = list(range(len(ops))) if whole else extremes(footprints, _WHOLE // 4)
    return _FileOrder(ops, footprints, index)


def _given_columns(given: _FileOrder, names: _Names) -> GivenColumns:
    index, footprints = given.index, given.footprints
    peak = max(footprints)
    return GivenColumns(
        total=len(footprints),
        index=index if len(index) < len(footprints) else None,
        op=[names(given.ops[step]) for step in index],
        footprint=[footprints[step] for step in index],
        peak=peak,
        peak_step=footprints.index(peak),
    )


def _buffer_columns(kept: Sequence[_PlotBuffer], pools: Sequence[str], limit: int, names: _Names) -> BufferColumns:
    place = {buffer.name: place for place, buffer in enumerate(kept) if not buffer.workspace}
    forms = {form: place for place, form in enumerate(dict.fromkeys(buffer.form for buffer in kept))}

    def places(others: Iterable[str | None]) -> list[int]:
        return [-1 if other is None else place.get(other, -1) for other in others]

    return BufferColumns(
        name=[names(buffer.name) for buffer in kept],
        offset=[buffer.offset for buffer in kept],
        size=[buffer.size for buffer in kept],
        first=[buffer.first for buffer in kept],
        last=[buffer.last for buffer in kept],
        made=[-1 if buffer.made is None else buffer.made for buffer in kept],
        read=[list(buffer.read[:limit]) for buffer in kept],
        readers=[len(buffer.read) for buffer in kept],
        in_place_of=places(buffer.in_place_of for buffer in kept),
        view_of=places(buffer.view_of for buffer in kept),
        workspace=[int(buffer.workspace) for buffer in kept],
        drawn=[int(buffer.drawn) for buffer in kept],
        map=[pools.index(buffer.pool) for buffer in kept],
        forms=[shortened(form, LABEL_COLUMNS) for form in forms],
        form=[forms[buffer.form] for buffer in kept],
    )


def _maps(report: OptimizeReport, buffers: Sequence[_PlotBuffer], pools: Sequence[str]) -> list[MemoryMap]:
    """Return per memory its name and the bytes that are used of it."""
    used = dict.fromkeys(pools, 0)
    for buffer in buffers:
        used[buffer.pool] = max(used[buffer.pool], buffer.offset + buffer.size)
    if list(pools) == [""]:
        used[""] = max(used[""], report.written.schedule.arena_bytes)
    return [MemoryMap(name=shortened(name, LABEL_COLUMNS), height=max(1, used[name])) for name in pools]


def _merged(report: OptimizeReport, rest: Sequence[_PlotBuffer], pools: Sequence[str]) -> list[list[int]]:
    """Return rectangles [map, first step, step after the last, lowest address, address after the highest]."""
    found: list[list[int]] = []
    for place, pool in enumerate(pools):
        extents = [
            Rectangle(buffer.first, buffer.last + 1, buffer.offset, buffer.offset + buffer.size)
            for buffer in rest
            if buffer.pool == pool
        ]
        cells = merged_cells(extents, max(1, len(report.written.steps)))
        found.extend([place, cell.left, cell.right, cell.bottom, cell.top] for cell in cells)
    return found
