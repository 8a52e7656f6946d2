"""The results that memsched tried for a budget."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Section
from memsched.report.values.verdict import CallerChange

__all__ = ["LadderRow"]


class LadderRow(Section, frozen=True, kw_only=True):
    """One result that might meet the budget.

    Attributes:
        what: One file, several files in one arena (`memsched relay`), or C without an interpreter (`--emit c`).
        bytes: Required RAM. Null if the model was refused.
        flash_bytes: Size of the files. For C, size of weights and tables without the code.
        time_ratio: Inference time relative to the original, measured on this machine with reference kernels. Null if
            memsched did not measure it.
        extra_macs_percent: Additional multiply-accumulates relative to the original.
        changes: Changes that affect callers.
        outputs: Comparison with the outputs of the original.
        fits: Whether the result meets the budget.
        permitted: Whether the user permits the changes.
        written: Whether memsched wrote this result.
        reason: Why the model was refused. Empty for a result.
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
