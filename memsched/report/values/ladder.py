"""What was tried to meet a budget, one row after the other."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Section
from memsched.report.values.verdict import CallerChange

__all__ = ["LadderRow"]


class LadderRow(Section, frozen=True, kw_only=True):
    """One result that might meet the budget.

    Attributes:
        what: A file; files that run one after the other in one arena (`memsched relay`); or C without an interpreter
            (`--emit c`).
        bytes: RAM that it requires; null if there is no result.
        flash_bytes: Of the files, or of the weights and tables of C without its code.
        time_ratio: Time of an inference to that of the original, measured on this machine with reference kernels; null
            if it was not measured.
        extra_macs_percent: Work beside that of the original.
        changes: What a caller of the original has to change.
        outputs: Compared with those of the original.
        fits: The budget is met.
        permitted: The changes are permitted.
        written: It is what was written.
        reason: Why there is no result; empty if there is one.
    """

    what: Literal["file", "stages", "c"]
    bytes: Count | None
    flash_bytes: Count | None = None
    time_ratio: Amount | None = None
    extra_macs_percent: Amount = 0.0
    changes: tuple[CallerChange, ...] = ()
    outputs: Literal["bit_equal", "close", "different", "not_run"] = "not_run"
    fits: bool = False
    permitted: bool = True
    written: bool = False
    reason: str = ""
