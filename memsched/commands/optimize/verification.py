"""What running the models showed, as reports have it."""

from __future__ import annotations

import dataclasses

from memsched.base.units import rounded_ratio
from memsched.report.values.shared import MeasuredArenaSection, OtherSizeRow, VerificationSection
from memsched.runtimes.values import MeasuredArena, Verification

__all__ = ["verification_section"]


def verification_section(verification: Verification) -> VerificationSection:
    """Return the section of a report that says what running the models showed."""
    error, relative = verification.max_abs_error, verification.relative_error
    apart, in_default = verification.default_relative_error, verification.default_apart
    return VerificationSection(
        runtime=verification.runtime,
        outputs_equal=verification.outputs_equal,
        max_abs_error=error if error is not None and error < float("inf") else None,
        relative_error=relative if relative is not None and relative < float("inf") else None,
        measured_peak_before_bytes=verification.measured_peak_before_bytes,
        measured_peak_after_bytes=verification.measured_peak_after_bytes,
        predicted_peak_before_bytes=verification.predicted_peak_before_bytes,
        predicted_peak_after_bytes=verification.predicted_peak_after_bytes,
        executed_order_matches=verification.executed_order_matches,
        own_error=verification.own_error,
        outputs_vary=verification.outputs_vary,
        feeds=verification.feeds,
        at_stated_sizes=verification.at_stated_sizes,
        time_ratio=rounded_ratio(verification.time_ratio),
        special_values=verification.special_values,
        measured_with=tuple(verification.measured_with),
        default_session=verification.default_session,
        default_peak_before_bytes=verification.default_peak_before_bytes,
        default_peak_after_bytes=verification.default_peak_after_bytes,
        default_relative_error=apart if apart is not None and apart < float("inf") else None,
        default_apart=in_default if in_default is not None and in_default < float("inf") else None,
        other_sizes=tuple(OtherSizeRow(**dataclasses.asdict(one)) for one in verification.other_sizes),
        arena_before=next(map(_arena_section, verification.arenas[:1]), None),
        arena_after=next(map(_arena_section, verification.arenas[1:]), None),
        runs=verification.runs,
        reason=verification.reason,
        notes=tuple(verification.notes),
        stated=tuple(verification.stated),
    )


def _arena_section(arena: MeasuredArena) -> MeasuredArenaSection:
    return MeasuredArenaSection(
        measured_head_bytes=arena.measured_head,
        measured_tail_bytes=arena.measured_tail,
        measured_total_bytes=arena.measured_total,
        predicted_head_bytes=arena.predicted_head,
        predicted_tail_bytes=arena.predicted_tail,
        predicted_total_bytes=arena.predicted_total,
        measured_least_bytes=arena.measured_least,
        predicted_least_bytes=arena.predicted_least,
        as_predicted=arena.as_predicted,
    )
