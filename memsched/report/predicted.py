"""Whether what was predicted of memory holds in the runtime, as running both models showed."""

from __future__ import annotations

from typing import Final

from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.shared import VerificationSection
from memsched.report.values.verdict import BudgetSection
from memsched.runtimes import values

__all__ = ["OTHER_SIZES", "bound_is_void", "measured_instead", "missed_by", "within_without_options"]

OTHER_SIZES: Final = "measured at the sizes of these inputs, not at those stated"
"""What is said of measured peaks where sizes follow from the inputs' data."""


def missed_by(verification: VerificationSection) -> float:
    """Return the largest share by which a measured peak misses what was predicted; 0 where nothing is known."""
    in_arena, as_stated = verification.arena_after is not None, verification.at_stated_sizes
    return values.missed_by(verification, in_arena=in_arena, at_stated_sizes=as_stated)


def measured_instead(report: OptimizeReport) -> str | None:
    """Return what was measured where the figures predicted do not hold; None where they do."""
    shown = report.sections.verification
    if shown is None or missed_by(shown) <= values.CLOSE:
        return None
    pair = (shown.measured_peak_before_bytes, shown.measured_peak_after_bytes)
    peaks = " -> ".join(f"{peak:,}" for peak in pair if peak is not None)
    return f"measured: {peaks} B; the predicted figures do not hold in this runtime"


def bound_is_void(report: OptimizeReport) -> bool:
    """Whether a memory plan takes less than the bound, as it lays tensors over each other that the peak counts apart.

    Compilers for accelerators bring such plans: the memory of an operator of theirs holds its inputs and outputs.
    """
    tflm = report.sections.tflm
    heads = () if tflm is None else (tflm.file_head_bytes, tflm.head_bytes, tflm.plan_head_bytes)
    return any(head is not None and head < report.proof.bound_bytes for head in heads)


def within_without_options(report: OptimizeReport, budget: BudgetSection) -> str | None:
    """Return that a session without options was measured to meet a budget that is missed; None where none was."""
    shown = report.sections.verification
    for_session = report.in_session and report.sections.executed is None
    if shown is None or not for_session or not shown.at_stated_sizes:
        return None
    peaks = {"the file as given": shown.default_peak_before_bytes, "this file": shown.default_peak_after_bytes}
    for file, peak in peaks.items():
        if peak is not None and peak <= budget.budget_bytes:
            return f"a session without options was measured to need {peak:,} B for {file}: see --session default"
    return None
