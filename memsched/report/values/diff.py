"""What ``memsched diff`` reports."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Section

__all__ = ["Change", "ChangedFigure", "DiffReport", "DiffTotals", "Figure", "FigureName", "ModelDiff", "PeakTensorRow"]

Change = Literal["same", "smaller", "larger", "different", "came", "went", "fails", "recovered", "failed_before"]
FigureName = Literal[
    "required_bytes", "file_peak_bytes", "peak_bytes", "arena_bytes", "lower_bound_bytes", "extra_macs_percent"
]
"""Figures that are compared; ``required_bytes`` is what the runtime allocates: the whole arena, or a session."""
Figure = Count | Amount


class DiffTotals(Section, frozen=True, kw_only=True):
    """How many models changed in which way."""

    models: Count
    same: Count
    smaller: Count
    larger: Count
    different: Count
    came: Count
    went: Count
    fails: Count
    recovered: Count
    failed_before: Count
    regressions: Count


class ChangedFigure(Section, frozen=True, kw_only=True):
    """A figure in both reports.

    Attributes:
        percent: The growth; null where something grew out of nothing.
    """

    old: Figure
    new: Figure
    percent: float | None


class PeakTensorRow(Section, frozen=True, kw_only=True):
    """A tensor that came to the peak or left it."""

    tensor: str
    size_bytes: Count


class ModelDiff(Section, frozen=True, kw_only=True):
    """What changed for one model.

    Attributes:
        figures: Those that both sides have.
        came_to_peak: Tensors that are live at the new peak and were not at the old one; of a batch, of the largest
            twenty.
        regressions: What got worse by more than --fail-on-regression permits; at all, where that was not given.
    """

    name: str
    path: str
    change: Change
    error: str | None
    figures: dict[FigureName, ChangedFigure]
    came_to_peak: tuple[PeakTensorRow, ...]
    left_peak: tuple[PeakTensorRow, ...]
    notes: tuple[str, ...]
    regressions: tuple[str, ...]


class DiffReport(Section, frozen=True, kw_only=True):
    """What memsched diff found between two reports, or two summaries of batches.

    Sizes are bytes.

    Attributes:
        fail_percent: Of --fail-on-regression; null where it was not given.
        failed: The exit code is 3.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["diff"]
    old: str
    new: str
    kind: Literal["model", "batch"]
    fail_percent: float | None
    failed: bool
    totals: DiffTotals
    models: tuple[ModelDiff, ...]
