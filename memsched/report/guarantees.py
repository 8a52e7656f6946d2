"""Lines on what each order guarantee gives in ONNX Runtime: predicted, and measured if the measurement differs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from memsched.report.values.optimize import OptimizeReport
from memsched.runtimes.values import CLOSE

__all__ = ["guarantee_lines", "own_operators"]

_GUARANTEES = {
    "given": "the file as given",
    "none": "none",
    "default": "default",
    "pins": "pins",
    "session_without_reuse": "session",
    "session": "session with enable_mem_reuse",
}

_WITH_OPTIONS = frozenset({"session", "session_without_reuse"})


def guarantee_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    """Return the predicted peaks of each order guarantee, the one in use first.

    Sessions without options replace operators: they fuse them, and pad channels to the processor's blocks. If one was
    measured to need another amount for the original, no line predicts what such sessions need: both figures for the
    original are named for what they are.
    """
    guarantee = report.guarantee
    if guarantee is None or guarantee.predicted_peak_bytes is None:
        return []
    peaks: Mapping[str, int] = msgspec.structs.asdict(guarantee.predicted_peak_bytes)
    measured = _measured_otherwise(report, peaks["given"])
    used = "session_without_reuse" if guarantee.kind == "session" else guarantee.kind
    shown = [name for name in _GUARANTEES if measured is None or name in _WITH_OPTIONS]
    lines: list[tuple[str, str | None]] = []
    if used in shown:
        rest = ", ".join(f"{_GUARANTEES[name]} {peaks[name]:,}" for name in shown if name != used)
        lines.append((f"peak predicted with --order-guarantee {guarantee.kind}: {peaks[used]:,} B ({rest})", None))
    if measured is not None:
        text = (
            f"a session without options requests {measured:,} B for the file as given, as measured; "
            f"{peaks['given']:,} B are predicted for the operators that the file holds, which such sessions replace"
        )
        lines.append((text, "yellow"))
    return lines


def own_operators(report: OptimizeReport) -> str:
    """Return for which operators a bound holds if a session without options, which has others, was measured above it.

    It follows a verdict; empty if no such session was measured, or it needs no more.
    """
    shown, guarantee = report.sections.verification, report.guarantee
    if shown is None or guarantee is None or guarantee.predicted_peak_bytes is None or not shown.at_stated_sizes:
        return ""
    measured = [peak for peak in (shown.default_peak_before_bytes, shown.default_peak_after_bytes) if peak is not None]
    above = any(peak > report.proof.bound_bytes for peak in measured)
    return " for the operators that the file holds, not for those of a session without options" if above else ""


def _measured_otherwise(report: OptimizeReport, predicted: int) -> int | None:
    """Return what a session without options was measured to need for the original, if that is not as predicted."""
    shown = report.sections.verification
    if shown is None or shown.default_peak_before_bytes is None or not shown.at_stated_sizes:
        return None
    measured = shown.default_peak_before_bytes
    return measured if abs(measured - predicted) > CLOSE * max(predicted, 1) else None
