"""Lines on the budget: met with bytes to spare, or missed by how much, and what would meet it."""

from __future__ import annotations

from msgspec import UNSET

from memsched.report.blocks import curve_answer
from memsched.report.outputs import was_rewritten
from memsched.report.predicted import within_without_options
from memsched.report.refusals import refusal_lines
from memsched.report.requirement import needed_memory
from memsched.report.sessions import memory_named
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.verdict import BudgetSection

__all__ = ["budget_lines", "budget_verdict"]


def budget_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    """Return whether the budget is met, and by how much; no line without one."""
    budget = report.budget
    # The largest size that fits is the headline of a curve.
    if budget is None or report.sections.curve is not None:
        return []
    required, available = budget.required_bytes, budget.budget_bytes
    if budget.met and not refusal_lines(report):
        spare = f"{available - required:,} B to spare ({100 * (available - required) / max(available, 1):.1f} %)"
        return [(f"budget met: {memory_named(report)} takes {required:,} of {available:,} B, {spare}", "green")]
    return [(budget_verdict(report, budget), "red")]


def budget_verdict(report: OptimizeReport, budget: BudgetSection) -> str:
    """Return in a line by how much what is required exceeds the budget, and whether another order could meet it."""
    if report.sections.curve is not None:
        return curve_answer(report.sections.curve, budget.budget_bytes)[0]
    if refusal_lines(report):
        return f"budget of {budget.budget_bytes:,} B not met: the runtime refuses the model, whatever memory there is"
    missed = (
        f"budget exceeded: {memory_named(report)} requires {budget.required_bytes:,} B, "
        f"{budget.budget_bytes:,} B are available, {budget.exceeded_bytes:,} B too many"
    )
    kept = _kept(report)
    bound = report.proof.bound_bytes
    available = budget.budget_bytes - kept
    within = within_without_options(report, budget)
    if within is not None:
        verdict = within
    elif was_rewritten(report):
        verdict = "no rewrite that was tried meets it"
    elif needed_memory(report).noun == "process":
        # The bound is one of activations alone.
        return missed
    elif bound > available:
        beside = f", and {kept:,} B stay beside it" if kept else ""
        verdict = f"no order can meet it, as each has a peak of {bound:,} B or more{beside}"
    elif report.command == "analyze":
        verdict = f"another order may meet it, as the bound is {bound:,} B: see memsched optimize"
    else:
        verdict = "it is not proven that no order can meet it"
    return f"{missed}; {verdict}"


def _kept(report: OptimizeReport) -> int:
    """Return the bytes that are required beside the activations, whatever the order."""
    kept = report.sections.requirement.parts.persistent_bytes
    return 0 if kept is UNSET else kept
