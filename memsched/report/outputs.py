"""Whether a model written computes what the one given computes: one verdict and one wording for all that shows it."""

from __future__ import annotations

from memsched.base.units import format_size
from memsched.report.requirement import needed_memory
from memsched.report.values.optimize import OptimizeReport
from memsched.runtimes.values import EXECUTED_TOLERANCE

__all__ = ["TOLERANCE", "compared", "compared_in", "kept_why", "may_differ", "was_rewritten"]

TOLERANCE = 1e-5
"""Error of outputs that rewritten layers may have, relative to the largest magnitude: a piece may add up its products
in another order."""


def was_rewritten(report: OptimizeReport) -> bool:
    """Whether layers were rewritten: then bounds hold for the rewritten model, not for the one given."""
    return may_differ(report) or (report.io is not None and report.io.applied)


def kept_why(report: OptimizeReport) -> str:
    """Return why the file as given is the result."""
    if report.held_back is not None:
        return "the better one needs session options"
    saved = None if report.output is None else report.output.slight_bytes
    if saved is None:
        return "nothing better was found"
    percent = 100 * saved / max(needed_memory(report).given, 1)
    return f"the best file found saves {format_size(saved)}, {percent:.2f} %: below 1 % none is written"


def may_differ(report: OptimizeReport) -> bool:
    """Whether layers compute in another way, so that their outputs may differ in the last bits."""
    if report.blocks is not None and report.blocks.way is not None:
        return True
    sections = (report.chains, report.algebra, report.tiling, report.remat)
    return any(section is not None and section.applied for section in sections)


def compared(report: OptimizeReport) -> tuple[bool | None, str]:
    """Return whether the outputs are as they should be, None where that is not known, and the same in words."""
    verification = report.verification
    if verification is None or verification.outputs_equal is None:
        return None, "not compared"
    if verification.outputs_equal:
        return True, "bit-equal"
    error = verification.relative_error  # which older reports lack
    if may_differ(report) and error is not None and error <= TOLERANCE:
        return True, f"equal within {TOLERANCE:g} (largest relative error {error:.1e})"
    if report.executed is not None and error is not None and error <= EXECUTED_TOLERANCE:
        return True, f"equal within {EXECUTED_TOLERANCE:g} (largest relative error {error:.1e})"
    return False, "different"


def compared_in(report: OptimizeReport) -> str:
    """Return in which sessions outputs were compared, to follow what was found; empty where there is one kind."""
    if report.blocks is not None:
        return ", in a session without options"
    verification = report.verification
    apart = None if verification is None else verification.default_apart
    if verification is None or apart is None or report.executed is not None:
        return ""
    plain = " (in a session without options, too)"
    if apart:
        plain = f" (in a session without options apart by {apart:.1e} of their largest magnitude)"
    return plain
