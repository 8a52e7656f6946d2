"""Lines that say which of a model's operators TensorFlow Lite Micro refuses."""

from __future__ import annotations

from memsched.base.shown import LABEL_COLUMNS
from memsched.report.text import shortened
from memsched.report.values.optimize import OptimizeReport

__all__ = ["plan_lines", "refusal_lines", "refusal_reason", "unknown_lines"]


def refusal_reason(report: OptimizeReport) -> str | None:
    """Return that the runtime refuses the model, and why; None if it does not."""
    lines = refusal_lines(report)
    return lines[0][0] if lines else None


def refusal_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    """Return a line on the first operator refused, the reason included, with its style; empty where none is.

    Where the model was run, the runtime's own words are there as well, or alone.
    """
    if report.sections.tflm is None:
        return []
    refused, words = report.sections.tflm.refused, report.sections.tflm.refusal
    if not refused:
        return [] if words is None else [(f"TensorFlow Lite Micro refuses this model: {words}", "red")]
    one = refused[0]
    where = f"operator {one.operator}" + (f" of subgraph {one.subgraph}" if one.subgraph else "")
    name = shortened(one.name, LABEL_COLUMNS)
    rest = "" if len(refused) == 1 else f" (and {len(refused) - 1} more operators, see the report)"
    text = f"TensorFlow Lite Micro refuses this model: {where}, {one.type} '{name}': {one.reason}{rest}"
    return [(text if words is None else f"{text}; in its own words: {words}", "red")]


def plan_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    """Return a warning of a memory plan that the file brings and that is wrong; empty where none is."""
    if report.sections.tflm is None or report.sections.tflm.plan_fault is None:
        return []
    fault, target = report.sections.tflm.plan_fault, report.target.name
    return [(f"warning: as the file brings it, {fault} (by the rules of {target})", "yellow")]


def unknown_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    """Return a warning that names the operators whose needs no figure counts; empty where there are none."""
    if report.sections.tflm is None or report.sections.firmware is None or not report.sections.firmware.unknown_kernels:
        return []
    names = ", ".join(report.sections.firmware.unknown_kernels)
    return [
        (f"warning: what the kernels of {names} need in the arena is not known: the figures are without it", "yellow")
    ]
