"""The report of ``memsched optimize --emit c`` for a model that streams."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Section
from memsched.report.values.ladder import LadderRow
from memsched.report.values.shared import ModelSection
from memsched.report.values.verdict import BudgetSection

__all__ = ["StreamReport", "StreamResult", "StreamRunSection", "StreamSegmentRow"]


class StreamResult(Section, frozen=True, kw_only=True):
    """What the C needs, in bytes.

    Attributes:
        input: Where the model's input lies: "held" in the arena, where a run destroys it; "elsewhere", with the caller;
            "rows": the caller pushes it row by row.
        ram_bytes: The arena and the state, without the stack.
        arena_bytes: All maps.
        state_bytes: How far each layer is.
        flash_bytes: Weights and tables, without the code.
        input_bytes: The whole input; part of the arena only where it is held.
        macs: Multiply-accumulates, as many as the model's.
        files: Names in the folder.
    """

    folder: str
    input: Literal["held", "elsewhere", "rows"]
    ram_bytes: Count
    arena_bytes: Count
    state_bytes: Count
    flash_bytes: Count
    input_bytes: Count
    macs: Count
    files: tuple[str, ...]


class StreamSegmentRow(Section, frozen=True, kw_only=True):
    """Layers that stream together.

    Attributes:
        first: Name of the first layer.
        last: Name of the last layer.
        layers: How many there are.
        bytes: What they write, their input left out.
    """

    first: str
    last: str
    layers: Count
    bytes: Count


class StreamRunSection(Section, frozen=True, kw_only=True):
    """What the C computed on the machine that made it, beside the model's own runtime.

    Attributes:
        runtime: Name and version.
        runs: Random inputs, each run twice; both ends of the range come on top.
        outputs_vary: The model's outputs vary from input to input.
        time_ratio: Processor time of a call to that of the interpreter's; null if it was not measured.
    """

    runtime: str
    runs: Count
    outputs: Literal["bit_equal", "not_run"]
    outputs_vary: bool
    time_ratio: Amount | None


class StreamReport(Section, frozen=True, kw_only=True):
    """A model as C that streams pixel by pixel.

    Attributes:
        run: null if it was not run; the notes then say why.
        budget: null without one.
        ladder: What memsched optimize tried to meet the budget, one file first; empty for --emit c.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["optimize --emit c"]
    model: ModelSection
    result: StreamResult
    run: StreamRunSection | None
    segments: tuple[StreamSegmentRow, ...]
    notes: tuple[str, ...]
    seed: int
    seconds: float
    budget: BudgetSection | None = None
    ladder: tuple[LadderRow, ...] = ()
