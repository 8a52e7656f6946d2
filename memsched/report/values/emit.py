"""The report of ``memsched optimize --emit c``."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Positive, Section
from memsched.report.values.rewrites import OnChipSection
from memsched.report.values.shared import ModelSection

__all__ = ["EmitReport", "EmitResult", "EmitTarget"]


class EmitTarget(Section, frozen=True, kw_only=True):
    """The accelerator."""

    name: str
    description: str
    on_chip_bytes: Positive
    bandwidth_bytes_per_second: Amount
    flops_per_second: Amount


class EmitResult(Section, frozen=True, kw_only=True):
    """What the program needs.

    Attributes:
        chip_bytes: On-chip memory that is used, places for a second input included.
        dram_bytes: DRAM for what goes from group to group.
        weights_bytes: The file of weights.
        files: Names in the folder.
    """

    folder: str
    chip_bytes: Count
    dram_bytes: Count
    weights_bytes: Count
    files: tuple[str, ...]


class EmitReport(Section, frozen=True, kw_only=True):
    """A model as C for an accelerator with on-chip memory."""

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["optimize --emit c"]
    model: ModelSection
    target: EmitTarget
    result: EmitResult
    on_chip: OnChipSection
    seed: int
    seconds: Amount
