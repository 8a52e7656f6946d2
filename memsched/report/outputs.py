"""Whether a model written computes what the one given computes: one verdict and one wording for all that shows it."""

from __future__ import annotations

import math
from typing import Final, Literal

from memsched.base.shown import NAME_COLUMNS
from memsched.base.units import counted, format_size
from memsched.report.requirement import needed_memory
from memsched.report.text import one_line, shortened
from memsched.report.values.optimize import OptimizeReport, Sections
from memsched.runtimes.values import EXECUTED_TOLERANCE

__all__ = [
    "NOT_ASKED",
    "OUT_OF_TIME",
    "TOLERANCE",
    "compared",
    "compared_in",
    "kept_why",
    "may_differ",
    "outputs_of",
    "time_ratio",
    "was_rewritten",
    "why_not_run",
]

_EQUAL: Final = "bit-equal"

NOT_ASKED: Final = "verification was not asked for"
"""A note if the models were not run because nobody wanted that; others begin with it."""

OUT_OF_TIME: Final = "the time limit ended"
"""How the note begins if no time was left to run the models."""

TOLERANCE = 1e-5
"""Error of outputs that rewritten layers may have, relative to the largest magnitude: a piece may add up its products
in another order."""


def was_rewritten(report: OptimizeReport) -> bool:
    """Whether layers were rewritten: then bounds hold for the rewritten model, not for the one given."""
    return may_differ(report.sections) or (report.sections.border is not None and report.sections.border.applied)


def kept_why(report: OptimizeReport) -> str:
    """Return why the file as given is the result."""
    if report.sections.held_back is not None:
        return "the better one needs session options"
    saved = None if report.output is None else report.output.slight_bytes
    if report.sections.open_loops is not None and report.sections.open_loops.ended:
        return "the time ended before everything was tried"
    if saved is None:
        return "nothing better was found"
    percent = 100 * saved / max(needed_memory(report).given, 1)
    return f"the best file found saves {format_size(saved)}, {percent:.2f} %: below 1 % none is written"


def may_differ(sections: Sections) -> bool:
    """Whether layers compute in another way, so that their outputs may differ in the last bits."""
    if sections.open_loops is not None and sections.open_loops.way is not None:
        return True
    rewrites = (sections.chains, sections.algebra, sections.tile, sections.recompute)
    return any(section is not None and section.applied for section in rewrites)


def outputs_of(sections: Sections) -> Literal["bit_equal", "close", "different", "not_run"]:
    """Return what the verdict says of outputs."""
    good, words = compared(sections)
    if good is None:
        return "not_run"
    return ("bit_equal" if words == _EQUAL else "close") if good else "different"


def time_ratio(sections: Sections) -> float | None:
    """Return the time of the model written to that of the original; None if it was not measured."""
    loops, interpreter = sections.open_loops, sections.interpreter
    if sections.mapped is not None:
        return sections.mapped.time_ratio
    if loops is not None:
        return loops.measured[0].time_ratio if loops.measured else None
    if interpreter is not None:
        return interpreter.time_ratio
    ratios = (row.cpu_ratio for row in sections.sessions if row.file == "written")
    verified = None if sections.verification is None else sections.verification.time_ratio
    return next((ratio for ratio in ratios if ratio is not None), verified)


def compared(sections: Sections) -> tuple[bool | None, str]:
    """Return whether the outputs are as they should be, None where that is not known, and the same in words."""
    verification, mapped = sections.verification, sections.mapped
    if mapped is not None and mapped.original:
        return True, _EQUAL
    if verification is None or verification.outputs_equal is None:
        return None, "not compared"
    if verification.outputs_equal:
        return True, _EQUAL
    error, own = verification.relative_error, verification.own_error
    if own is not None and may_differ(sections):
        return True, _explained(verification.max_abs_error or 0.0, own, error)
    if may_differ(sections) and error is not None and error <= TOLERANCE:
        return True, f"equal within {TOLERANCE:g} (largest relative error {error:.1e})"
    if sections.executed is not None and error is not None and error <= EXECUTED_TOLERANCE:
        return True, f"equal within {EXECUTED_TOLERANCE:g} (largest relative error {error:.1e})"
    return False, "different"


def _explained(apart: float, own: float, relative: float | None) -> str:
    """Return how far outputs are apart, which the distance between two sets of kernels explains."""
    # Of integers that differ there is no relative error.
    levels = relative is None or math.isinf(relative)
    far = [counted(round(one), "level") if levels else f"{one:.2g}" for one in (apart, own)]
    return f"within {far[0]} (the original with and without delegates: {far[1]})"


def compared_in(report: OptimizeReport) -> str:
    """Return in which sessions outputs were compared, to follow what was found; empty where there is one kind."""
    if report.sections.open_loops is not None:
        return ", in a session without options"
    verification = report.sections.verification
    apart = None if verification is None else verification.default_apart
    if verification is None or apart is None or report.sections.executed is not None:
        return ""
    plain = " (in a session without options, too)"
    if apart:
        plain = f" (in a session without options apart by {apart:.1e} of their largest magnitude)"
    return plain


def why_not_run(report: OptimizeReport) -> str:
    """Return why outputs were not compared, in a few words; "" if they were, or nobody knows."""
    shown = report.sections.verification
    if shown is not None:
        reason = shortened(one_line(shown.reason or ""), NAME_COLUMNS)
        return "" if shown.outputs_equal is not None else f"not run in {shown.runtime}: {reason}"
    reasons = {NOT_ASKED: "not asked for", OUT_OF_TIME: OUT_OF_TIME}
    notes = report.verdict.notes
    return next((told for begin, told in reasons.items() if any(note.startswith(begin) for note in notes)), "")
