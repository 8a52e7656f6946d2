"""The sessions that a file is opened with: what is recommended was measured, or is not recommended.

Sessions without options are what most files are opened with: unless the user named another session, a file that they
need more for, of memory or of time, is not written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import msgspec

from memsched.base.units import format_size
from memsched.commands.optimize.finished import FinishedModel, FinishRequest, refuted
from memsched.commands.optimize.opening import (
    OpenedFile,
    any_time,
    decisive,
    in_doubt,
    opened_file,
    takes_less,
    times_in_doubt,
)
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.reserve import SESSIONS
from memsched.commands.optimize.worth import slight
from memsched.commands.session_rows import (
    LEAST_SHOWN,
    GivenModel,
    SessionBench,
    SessionFile,
    alike,
    measured_sessions,
    raced_sessions,
)
from memsched.formats.capabilities import WeightFiles
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions, Module
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.values.sessions import HeldBackSection, SessionRow
from memsched.runtimes.known import session_maker_of
from memsched.runtimes.measure import LITTLE_CHANCE, PROCESSES
from memsched.runtimes.runtime import Requirement
from memsched.runtimes.session_code import opening_lines
from memsched.runtimes.sessions import DEFAULT, LISTED, PATTERNLESS, SessionPoint
from memsched.runtimes.values import as_opened

__all__ = ["bench_of", "best_opening", "judged_sessions", "opened_alone", "opened_plainly"]
__all__ += ["session_bench"]

_NO_TIME: Final = "the time limit left no time to measure what processes take"

_OPENED: Final = frozenset({"session", "pins", "default"})
"""Guarantees that say how a session is opened."""

_UNMEASURED: Final = "how long a session with the options of --order-guarantee session takes was not measured"


def judged_sessions(
    found: FinishedModel, request: Request, asked: FinishRequest
) -> tuple[FinishedModel, HeldBackSection | None]:
    """Return a file with the sessions that it is opened with, and what speaks against writing it, if anything does."""
    slowdown = request.slowdown
    held = _held_back(found) if asked.guarded else None
    if held is not None:
        return found, msgspec.structs.replace(held, listed_cpu_ratio=_listed_ratio(found, asked, slowdown))
    found = _with_sessions(found, asked, slowdown)
    if not asked.guarded or found.written.unchanged:
        return found, None
    seen = opened_file(found.sessions, slowdown, promised=asked.budget is not None, reopens=asked.reopens)
    if seen is None or found.ended:
        return _unmeasured(found, asked, slowdown)
    if seen.worse is not None:
        return found, _held(found)
    if found.written.guarantee.kind == "session" and seen.point != LISTED:
        return _without_list(found, seen, asked, slowdown)
    return dataclasses.replace(found, sessions=_told(found.sessions, LISTED)), None


def _with_sessions(found: FinishedModel, asked: FinishRequest, slowdown: float | None) -> FinishedModel:
    """Measure sessions on both files where there is something to see: processes, of small models times alone.

    Nothing is measured if the time that is left would not do.
    """
    listed = found.written.guarantee.kind == "session"
    if found.written.guarantee.kind not in _OPENED or found.written.unchanged or not _judged(found):
        return found
    is_small = found.needed[0].total < LEAST_SHOWN
    if is_small and (not (asked.guarded and listed) or any_time(slowdown)):
        return found
    if not _time_is_left(found, asked):
        return dataclasses.replace(found, notes=(*found.notes, _NO_TIME))
    sessions = [SessionFile("given", DEFAULT), SessionFile("written", DEFAULT)]
    if asked.guarded:
        sessions.append(SessionFile("written", PATTERNLESS))
    if listed and (asked.reopens or not asked.guarded):
        sessions.append(SessionFile("written", LISTED, found.needed[1].total))
    bench, begun = bench_of(asked), asked.run.clock()

    def again(rows: Sequence[SessionRow], seen: Sequence[Sequence[SessionRow]]) -> set[int]:
        large = (rows[0].process_bytes or 0) >= LITTLE_CHANCE
        printed = decisive(rows, slowdown) if asked.guarded else set(range(len(rows)))
        more = in_doubt(rows, slowdown) if asked.guarded else set()
        undecided = set() if large else {place for place in printed if not alike(seen[place])}
        wanted = {place for place in undecided | more if len(seen[place]) < PROCESSES}
        each = (asked.run.clock() - begun) / sum(map(len, seen))
        return wanted if asked.has_time(len(wanted) * each) else set()

    def doubted(rows: Sequence[SessionRow]) -> set[int]:
        return times_in_doubt(rows, slowdown) if asked.guarded and asked.has_time() else set()

    try:
        if is_small:
            rows = raced_sessions(bench, found.written.model, sessions, doubted=doubted)
        else:
            rows = measured_sessions(bench, found.written.model, sessions, again=again, doubted=doubted)
    except KeyboardInterrupt:
        if not asked.may_end:
            raise
        return dataclasses.replace(found, ended=True)
    return dataclasses.replace(found, sessions=rows)


def _time_is_left(found: FinishedModel, asked: FinishRequest) -> bool:
    """Whether sessions can be measured within the limit."""
    return asked.has_time(SESSIONS * found.seconds)


def session_bench(module: Module, data: bytes, options: LoadOptions, seed: int) -> SessionBench:
    """Return what sessions on a model and on others made of it are measured with.

    Args:
        data: Of the model's file.
        options: What is stated of its sizes.
        seed: Of its inputs.
    """
    external = bool(capability(module, WeightFiles).external_files(module))
    return SessionBench(session_maker_of(module.format), GivenModel(data, module.path, external), options, seed)


def bench_of(asked: FinishRequest) -> SessionBench:
    """Return what sessions are measured with; where none was passed, a new one."""
    return asked.bench or session_bench(asked.module, asked.data, asked.options, asked.seed)


def opened_alone(found: FinishedModel, module: Module) -> bool:
    """Whether sessions on the file as given alone can be opened, and take enough to be seen in a process."""
    alone = module.path != STANDARD_STREAM and not capability(module, WeightFiles).external_files(module)
    return _judged(found) and alone and found.needed[0].total >= LEAST_SHOWN


def _judged(found: FinishedModel) -> bool:
    """Whether the file was run in a session without options."""
    seen = found.verification
    return seen is not None and seen.default_peak_after_bytes is not None


def _unmeasured(
    found: FinishedModel, asked: FinishRequest, slowdown: float | None
) -> tuple[FinishedModel, HeldBackSection | None]:
    """Return a file none of whose sessions could be timed: options that nobody measured are not recommended.

    Where it was not run at all, or runs with these options alone, a note says that their time is not known.
    """
    if found.written.guarantee.kind != "session" or any_time(slowdown):
        return found, None
    if _judged(found) and not found.ended:
        return _without_list(found, None, asked, slowdown)
    return dataclasses.replace(found, notes=(*found.notes, _UNMEASURED)), None


def _without_list(
    found: FinishedModel, seen: OpenedFile | None, asked: FinishRequest, slowdown: float | None
) -> tuple[FinishedModel, HeldBackSection | None]:
    """Return the same file for sessions that keep no order: the options for it take too long, or are not accepted.

    Args:
        seen: What sessions were seen to do; None if none could be measured.
    """
    shown = found.verification
    before, after = (None, None) if shown is None else (shown.default_peak_before_bytes, shown.default_peak_after_bytes)
    gains = before is not None and after is not None and slight(before, after, None) is None and after < before
    if shown is None or before is None or after is None:
        return found, _held(found)
    if not gains and (seen is None or not takes_less(seen.row, found.sessions[0])):
        return found, _held(found)
    point = DEFAULT if seen is None else seen.point
    guarantee = dataclasses.replace(
        found.written.guarantee, kind="none", session_options=opening_lines(point), requested=None
    )
    as_shown = as_opened(shown)
    if guarantee.session_options and seen is not None and seen.row.measured_bytes is not None:
        after = seen.row.measured_bytes
        as_shown = dataclasses.replace(
            as_shown, measured_peak_after_bytes=after, measured_with=guarantee.session_options
        )
    opened = dataclasses.replace(
        found,
        written=dataclasses.replace(found.written, guarantee=guarantee),
        verification=as_shown,
        needed=(Requirement(before), Requirement(after)),
        figures={**found.figures, "session": (before, after)},
        sessions=_told(found.sessions, best_opening(found.sessions, slowdown)),
        notes=(*found.notes, *([_listed_text(found.sessions)] if asked.reopens else [])),
    )
    return opened, None


def opened_plainly(found: FinishedModel) -> FinishedModel:
    """Return the same for sessions without options, whose requests are what counts then."""
    shown = found.verification
    guarantee = dataclasses.replace(found.written.guarantee, kind="none", session_options=(), requested=None)
    plain = dataclasses.replace(found, written=dataclasses.replace(found.written, guarantee=guarantee))
    if shown is None or shown.default_peak_before_bytes is None or shown.default_peak_after_bytes is None:
        return plain
    needed = shown.default_peak_before_bytes, shown.default_peak_after_bytes
    return dataclasses.replace(
        plain,
        verification=as_opened(shown),
        needed=(Requirement(needed[0]), Requirement(needed[1])),
        figures={**found.figures, "session": needed},
    )


def best_opening(rows: Sequence[SessionRow], slowdown: float | None) -> SessionPoint:
    """Return the session in which the written file was measured to need least, whether or not options are accepted."""
    seen = opened_file(rows, slowdown)
    return DEFAULT if seen is None else seen.point


def _listed_text(rows: Sequence[SessionRow]) -> str:
    """Return what a session with the options that keep the order was measured to take, and to cost."""
    listed = _listed_row(rows)
    if listed is None or listed.cpu_ratio is None:
        return f"{_UNMEASURED}: they are not recommended"
    taken = "" if listed.process_bytes is None else f"takes {format_size(listed.process_bytes)} of the process at "
    return (
        f"with the options of --order-guarantee session, this file {taken or 'takes '}{listed.cpu_ratio:.2f} x the "
        "processor time"
    )


def _listed_row(rows: Sequence[SessionRow]) -> SessionRow | None:
    return next((row for row in rows if row.execution_order == LISTED.order), None)


def _listed_ratio(found: FinishedModel, asked: FinishRequest, slowdown: float | None) -> float | None:
    """Return the processor time of a file with the options that keep its order; None: unknown, or any is permitted."""
    if any_time(slowdown) or not asked.reopens or not _time_is_left(found, asked):
        return None
    files = [SessionFile("given", DEFAULT), SessionFile("written", LISTED)]
    rows = raced_sessions(bench_of(asked), found.written.model, files)
    listed = _listed_row(rows)
    return None if listed is None else listed.cpu_ratio


def _told(rows: Sequence[SessionRow], point: SessionPoint) -> tuple[SessionRow, ...]:
    """Return the rows of sessions without options, and that of the one to recommend."""
    wanted = {(DEFAULT.order, DEFAULT.pattern), (point.order, point.pattern)}
    return tuple(row for row in rows if (row.execution_order, row.mem_pattern) in wanted)


def _held_back(found: FinishedModel) -> HeldBackSection | None:
    """Return what speaks against writing the file: a session without options was seen to need more for it."""
    seen = found.verification
    if seen is None or found.written.unchanged or refuted(seen, inexact=found.final.rewrites.inexact):
        return None
    before, after = seen.default_peak_before_bytes, seen.default_peak_after_bytes
    opened_by_options = found.written.guarantee.kind == "session"
    if not opened_by_options or before is None or after is None or after <= before:
        return None
    return HeldBackSection(
        requirement_bytes=found.needed[1].total,
        extra_macs_percent=round(float(100 * found.final.extra_work), 2),
        default_peak_before_bytes=before,
        default_peak_after_bytes=after,
    )


def _held(found: FinishedModel) -> HeldBackSection:
    """Return what speaks against writing the file: what sessions were measured to take for it."""
    seen, rows = found.verification, found.sessions
    given, plain = rows[:2] if len(rows) > 1 else (None, None)
    listed = _listed_row(rows)
    return HeldBackSection(
        requirement_bytes=found.needed[1].total,
        extra_macs_percent=round(float(100 * found.final.extra_work), 2),
        default_peak_before_bytes=0 if seen is None else seen.default_peak_before_bytes or 0,
        default_peak_after_bytes=0 if seen is None else seen.default_peak_after_bytes or 0,
        process_before_bytes=None if given is None else given.process_bytes,
        process_after_bytes=None if plain is None else plain.process_bytes,
        cpu_ratio=None if plain is None else plain.cpu_ratio,
        listed_cpu_ratio=None if listed is None else listed.cpu_ratio,
    )
