"""What sessions that a user names would need, where the file found is not written as none was named, or none was."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import msgspec

from memsched.base.errors import MemschedError
from memsched.base.units import rounded_ratio
from memsched.commands.levels import BY_NAME
from memsched.commands.optimize.executed import SessionSource, executed_start
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.opening import any_time, is_quick
from memsched.commands.optimize.place import Request, required_as_given
from memsched.commands.optimize.session import written_for_session
from memsched.commands.optimize.trials import TrialRequest
from memsched.commands.optimize.worth import LEAST_GAIN
from memsched.commands.session_rows import SessionBench, SessionFile, measured_sessions, raced_sessions
from memsched.report.values.sessions import HeldBackSection, SessionRow
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.known import session_maker_of
from memsched.runtimes.measure import LITTLE_CHANCE, PROCESSES
from memsched.runtimes.race import most_times
from memsched.runtimes.runtime import Opening
from memsched.runtimes.sessions import DEFAULT, EXECUTED
from memsched.search.limits import Limits

__all__ = ["executed_in_less", "named_sessions"]

_EFFORT: Final = 0.25
"""Work of the search for an order, as `Limits.effort` counts it."""

_LESS: Final = 0.95
"""Share of the process that a session may take at most to be named for it, of the least that several processes took."""

_MAYBE: Final = 1.1
"""The same after one process each, whose sizes are partly chance: 94 to 104 MB were seen of one session."""

_SECONDS: Final = 10.0
"""Seconds of the run that must be left for a process of both to be measured."""


def named_sessions(
    held: HeldBackSection,
    given: int,
    asked: TrialRequest,
    request: Request,
    source: SessionSource,
    bench: SessionBench,
    *,
    trusted: bool = True,
) -> tuple[AlternativeRow, ...]:
    """Return the commands that name a session which gains by a file of its own, the one that needs least first.

    Args:
        given: Bytes that a session with the options of ``--order-guarantee session`` requires for the file as given.
        source: The model, and the session that is tried.
        bench: What its sessions are measured with.
        trusted: Whether what was measured speaks for the figures predicted.
    """
    with_options = AlternativeRow(
        command=asked.command(options=("--order-guarantee", "session")),
        what="a file for sessions that are opened with the options it lists",
        bytes=held.requirement_bytes,
        saving_bytes=given - held.requirement_bytes,
        extra_macs_percent=held.extra_macs_percent,
        time_ratio=rounded_ratio(held.listed_cpu_ratio),
        changes=("rounding", "opening"),
    )
    # A session without options may need less for the file as given, by what it rewrites itself.
    less = held.requirement_bytes < held.default_peak_before_bytes
    listed = [with_options] if trusted and less and is_quick(held.listed_cpu_ratio, request.slowdown) else []
    rows = [*listed, *(row for row in (_executed(asked, request, source, bench),) if row is not None)]
    worth = [row for row in rows if row.saving_bytes >= LEAST_GAIN * (row.bytes + row.saving_bytes) > 0]
    return tuple(sorted(worth, key=lambda row: row.bytes))


def executed_in_less(
    asked: TrialRequest, request: Request, source: SessionSource, bench: SessionBench
) -> AlternativeRow | None:
    """Return the command that writes what sessions without options execute, where that takes less of the process.

    What opening a session rewrites lies beside what it was rewritten from, so that a file of it takes less even where
    activations are the same. Both are measured in fresh processes; None where nothing is gained, or it does not run,
    is slower than permitted, or the time does not suffice to tell.
    """
    if request.remaining() < _SECONDS:
        return None
    found = _ordered(request, source)
    if found is None or request.stopped():
        return None
    maker = session_maker_of(source.format)
    predicted = found.placed.required
    try:
        written = written_for_session(found, source, maker)
    except MemschedError:
        return None
    files = [SessionFile("given", DEFAULT), SessionFile("written", EXECUTED, predicted)]
    slowest = most_times(request.slowdown)
    late = False

    def again(rows: Sequence[SessionRow], seen: Sequence[Sequence[object]]) -> range:
        nonlocal late
        given, less = rows[0].process_bytes, rows[1].process_bytes
        if given is None or less is None or len(seen[0]) == PROCESSES or given >= LITTLE_CHANCE:
            return range(0)
        if less > _MAYBE * given or (rows[1].cpu_ratio or 0.0) > slowest:
            return range(0)
        late = request.remaining() < _SECONDS
        return range(0 if late else len(rows))

    # Two sessions are compared that execute the same: what their processes take beyond the least is noise.
    rows = measured_sessions(bench, written.model, files, again=again, told=min)
    if late or len(rows) < len(files):
        return None
    given, less = rows[0].process_bytes, rows[1].process_bytes
    ratio = rows[1].cpu_ratio
    if given is None or less is None or ratio is None or less > _LESS * given or ratio > slowest:
        return None
    row = _row(found, asked, source)
    return msgspec.structs.replace(
        row,
        time_ratio=rounded_ratio(ratio),
        process_bytes=less,
        process_saving_bytes=given - less,
    )


def _executed(
    asked: TrialRequest, request: Request, source: SessionSource, bench: SessionBench
) -> AlternativeRow | None:
    """Return the graph that the session executes, ordered; None where that cannot be done, or takes too long."""
    found = _ordered(request, source)
    if found is None or any_time(request.slowdown):
        return None if found is None else _row(found, asked, source)
    maker = session_maker_of(source.format)
    try:
        written = written_for_session(found, source, maker)
    except MemschedError:
        return None
    files = [SessionFile("given", DEFAULT), SessionFile("written", EXECUTED)]
    rows = raced_sessions(bench, written.model, files)
    ratio = rows[-1].cpu_ratio if rows else None
    if not is_quick(ratio, request.slowdown):
        return None
    return msgspec.structs.replace(_row(found, asked, source), time_ratio=rounded_ratio(ratio))


def _ordered(request: Request, source: SessionSource) -> FinalModel | None:
    """Order the graph that the session executes, with little work; None where that cannot be done."""
    if request.stopped():
        return None
    run = request.run.again(Limits(0.0, source.seed, effort=_EFFORT)).quiet()
    quick = dataclasses.replace(request, run=run, end=math.inf, free_ops=0, opening=Opening("session"))
    try:
        return executed_start(source, "", quick)
    except MemschedError:
        return None


def _row(found: FinalModel, asked: TrialRequest, source: SessionSource) -> AlternativeRow:
    needed = found.placed.required
    asked = dataclasses.replace(asked, allow=tuple(name for name in asked.allow if name not in BY_NAME))
    return AlternativeRow(
        command=asked.command(options=("--session", source.session)),
        what="the graph that sessions without options execute, ordered, for processors such as this one",
        bytes=needed,
        saving_bytes=max(0, required_as_given(found.module, found.prepared, Opening("none")).total - needed),
        extra_macs_percent=0.0,
        time_ratio=None,
        changes=("opening",),
    )
