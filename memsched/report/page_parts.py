"""What the page is filled with: columns of figures for its script, and texts for its template."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = [
    "AxisUnit",
    "BarPart",
    "BufferColumns",
    "Card",
    "Cells",
    "CurveColumns",
    "FrontierColumns",
    "GivenColumns",
    "GraphColumns",
    "KeyEntry",
    "LayerCells",
    "LayerTable",
    "MemoryMap",
    "PageFigures",
    "PageValues",
    "PageWords",
    "PeakRow",
    "PeakWords",
    "PictureWords",
    "RewriteTable",
    "StepColumns",
    "StyledText",
    "SuggestedCommand",
]

Cells = Sequence[tuple[str, ...]]
"""Rows of a table."""


class _Columns(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the page's script reads, by names as it has them."""


class AxisUnit(_Columns, frozen=True):
    """The unit of the axes, and its bytes."""

    factor: int
    name: str


class PageFigures(_Columns, frozen=True):
    """Bytes, but for ``steps`` (how many there are) and ``peak_step`` (the first with the peak; -1 for none)."""

    steps: int
    peak: int
    peak_step: int
    bound: int
    arena: int
    budget: int | None


class StepColumns(_Columns, frozen=True):
    """Steps that are drawn.

    Attributes:
        index: Which they are; None for all.
        types: Of ops; ``type`` has places in it.
        mark: PLAIN, PIECE, AGAIN or ADDED of `memsched.report.page_data`.
    """

    index: Sequence[int] | None
    op: Sequence[str]
    types: Sequence[str]
    type: Sequence[int]
    footprint: Sequence[int]
    workspace: Sequence[int]
    mark: Sequence[int]


class GivenColumns(_Columns, frozen=True):
    """The steps of the file's own order that are drawn; ``index``: which they are, None for all."""

    total: int
    index: Sequence[int] | None
    op: Sequence[str]
    footprint: Sequence[int]
    peak: int
    peak_step: int


class BufferColumns(_Columns, frozen=True):
    """Buffers that are drawn.

    Attributes:
        made: The step that makes it, -1 for none.
        read: The first steps that read it; ``readers``: how many do.
        in_place_of: A place in the columns, or -1; so is ``view_of``.
        workspace: 0 or 1, as in ``drawn``.
        map: Its place among the maps.
        forms: Shapes with types; ``form`` has places in it.
    """

    name: Sequence[str]
    offset: Sequence[int]
    size: Sequence[int]
    first: Sequence[int]
    last: Sequence[int]
    made: Sequence[int]
    read: Sequence[Sequence[int]]
    readers: Sequence[int]
    in_place_of: Sequence[int]
    view_of: Sequence[int]
    workspace: Sequence[int]
    drawn: Sequence[int]
    map: Sequence[int]
    forms: Sequence[str]
    form: Sequence[int]


class GraphColumns(_Columns, frozen=True):
    """The graph as it is executed, one entry per op.

    Attributes:
        first: The step of the first op; the others follow.
        unit: So many units of ``across`` are the least distance between two ops.
        layer: How much deeper each op lies than the one before.
        across: Where it lies in its layer.
        count: How many ops' results it reads.
        reads: How many steps before it each of these is.
        bends: The place of an op, and where the line to its readers passes the layers after its own.
        types: Of ops; ``type`` has places in it.
        shade: Per op a digit: how much its step needs, 9 for the peak.
    """

    first: int
    unit: int
    layer: Sequence[int]
    across: Sequence[int]
    count: Sequence[int]
    reads: Sequence[int]
    bends: Sequence[Sequence[int]]
    types: Sequence[str]
    type: Sequence[int]
    shade: str


class MemoryMap(_Columns, frozen=True):
    """A memory, and the bytes that are used of it."""

    name: str
    height: int


class FrontierColumns(_Columns, frozen=True):
    """Points of falling size, with rising work.

    Attributes:
        what: The sizes are of.
        size: Bytes.
        work: Multiply-accumulates that are added, in percent.
        how: In words.
        command: What asks for it; empty where nothing can be named.
    """

    what: str
    size: Sequence[int]
    work: Sequence[float]
    how: Sequence[str]
    command: Sequence[str]


class CurveColumns(_Columns, frozen=True):
    """Memory against the dimension that grows most.

    Attributes:
        at: Its lengths, rising.
        size: What each is in words, other dimensions included.
        requested: Bytes of activations.
        process: Bytes of the process, or of those that are known; empty where none was run.
        budget: Bytes; None for none.
    """

    dimension: str
    at: Sequence[int]
    size: Sequence[str]
    requested: Sequence[int]
    process: Sequence[int]
    budget: int | None


class PageValues(_Columns, frozen=True):
    """All that the script gets; see `memsched.report.page_data.page_data`."""

    unit: AxisUnit
    figures: PageFigures
    steps: StepColumns
    given: GivenColumns | None
    buffers: BufferColumns
    maps: Sequence[MemoryMap]
    merged: Sequence[Sequence[int]]
    graph: GraphColumns | None
    frontier: FrontierColumns | None
    curve: CurveColumns | None
    name: str


class _Texts(msgspec.Struct, frozen=True, kw_only=True):
    """What the template shows; plain texts, not yet escaped."""


class Card(_Texts, frozen=True):
    """A figure in large letters."""

    label: str
    value: str
    more: str


class SuggestedCommand(_Texts, frozen=True):
    """What would help, and the command for it."""

    text: str
    command: str


class StyledText(_Texts, frozen=True):
    """A line and its style, empty for none."""

    text: str
    style: str


class KeyEntry(_Texts, frozen=True):
    """An entry of a picture's legend."""

    style: str
    label: str


class PictureWords(_Texts, frozen=True):
    """What stands beside the pictures; ``separate``: the file's order has a picture of its own."""

    separate: bool
    footprint_keys: Sequence[KeyEntry]
    map_keys: Sequence[KeyEntry]
    maps: Sequence[str]
    axis: str
    footprint_label: str
    downsampled: str
    merged: str
    graph: str
    frontier: str


class PeakRow(_Texts, frozen=True):
    """What is live at the peak; ``place``: among the buffers drawn, None where it is not; ``share``: percent."""

    name: str
    place: int | None
    producer: str
    steps: str
    size: str
    share: float
    percent: str


class BarPart(_Texts, frozen=True):
    """A part of the bar above the table of the peak; ``share``: percent."""

    share: float
    style: str
    label: str


class PeakWords(_Texts, frozen=True):
    """The table of what is live at the peak; ``more``: of what is left out."""

    text: str
    faults: Sequence[PeakRow]
    bar: Sequence[BarPart]
    more: str


class LayerCells(_Texts, frozen=True):
    """A layer: ``step`` is the first that computes it, None where none does; ``figures`` in pairs, before and after."""

    name: str
    step: int | None
    type: str
    form: str
    steps: str
    figures: Sequence[str]


class LayerTable(_Texts, frozen=True):
    """The layers; ``figures``: what the pairs of figures are; ``text``: of what is left out."""

    text: str
    figures: Sequence[str]
    rows: Sequence[LayerCells]


class RewriteTable(_Texts, frozen=True):
    """A table of what was rewritten; ``columns``: so many hold texts."""

    title: str
    text: str
    headings: Sequence[str]
    rows: Cells
    columns: int


class PageWords(_Texts, frozen=True):
    """All that the template shows beside the report itself; see `memsched.report.page_words.page_words`."""

    name: str
    what: str
    verdict: str
    mood: str
    lead: str
    cards: Sequence[Card]
    suggestions: Sequence[SuggestedCommand]
    pictures: PictureWords
    peak: PeakWords
    layers: LayerTable | None
    proof: str
    arena_proof: str
    findings: Sequence[StyledText]
    orders: Cells
    rewrites: Sequence[RewriteTable]
    frontier: Cells
    curve: Cells
    frontier_column: str
    arena_column: str
    verification: Cells
    passes: Cells
    bodies: Cells
    target: Cells
    session_options: Sequence[str]
    files: Cells
