"""``--allow branch``: large values in a branch, where sessions without options were seen to take less so.

See `memsched.formats.onnx.patternless` for the reason. What such a file is worth shows in the process alone: files are
written, opened and run in fresh processes, and outputs are compared bit by bit with those of the file without a branch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import msgspec

from memsched.base.errors import UsageError
from memsched.base.units import format_size
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.finish import finish
from memsched.commands.optimize.finished import FinishedModel, FinishRequest, refuted
from memsched.commands.optimize.judged_sessions import bench_of, opened_alone, opened_plainly
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.reserve import SESSIONS
from memsched.commands.optimize.weight_order import in_best_order
from memsched.commands.session_rows import SessionFile, alike, measured_sessions
from memsched.commands.verify import verify_written
from memsched.formats.capabilities import WeightFiles, WeightPlacement
from memsched.formats.known import capability, format_of
from memsched.formats.module import Module, OrderGuarantee
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.applied import IN_BRANCH
from memsched.report.outputs import TOLERANCE
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.known import has_sessions
from memsched.runtimes.measure import PROCESSES
from memsched.runtimes.race import most_times
from memsched.runtimes.sessions import DEFAULT, PATTERNLESS
from memsched.runtimes.values import Verification

__all__ = ["finished", "guarantee_of"]

NO_BRANCH: Final = "large values stay where they are: no branch took less of the process, with the same bits"

_GAIN: Final = 0.97
"""Share of the process that a file may take at most of what it takes without a branch."""

_GIVEN: Final = (SessionFile("given", DEFAULT),)
_PLAIN: Final = (SessionFile("written", DEFAULT),)

_HINTED: Final = 1.2
"""What a session without options takes of the process, as a multiple of one with them, for a branch to be named."""

_LEAST_HINTED: Final = 4 << 20
"""Bytes that it takes more, for the same."""


def guarantee_of(named: OrderGuarantee | None, module: Module, *, branch: bool, verify: bool) -> OrderGuarantee:
    """Return what makes the runtime keep the order: what was named, or what goes with a branch or without one.

    Raises:
        UsageError: A branch cannot be tried.
    """
    if not branch:
        return named or "session"
    if format_of(module).traits.order_binds:
        raise UsageError("--allow branch is for models that ONNX Runtime runs", code="other-format")
    if named == "session":
        action = "leave --order-guarantee session out"
        raise UsageError("--allow branch is for sessions without options", code="option-conflict", action=action)
    if not verify:
        action = "leave --no-verify out"
        raise UsageError("--allow branch measures what sessions take", code="option-conflict", action=action)
    return named or "default"


def finished(final: FinalModel, request: Request, asked: FinishRequest) -> FinishedModel:
    """Return what `finish` does, with large values in a branch where that is permitted and was seen to take less.

    Where it is not permitted and sessions without options take much more than those with options, a note names it.
    """
    found = finish(final, request, asked)
    if "branch" not in asked.command.permitted:
        return in_best_order(_unasked(found, request, asked), asked)
    seen = found.verification
    if found.ended:
        return found
    if seen is None or seen.outputs_equal is None:
        return _noted(found, "large values were not put into a branch: the models could not be run")
    if refuted(seen, inexact=found.final.rewrites.inexact):
        return found
    if asked.module.path == STANDARD_STREAM or capability(asked.module, WeightFiles).external_files(asked.module):
        return _noted(found, "large values were not put into a branch: the model is not one file")
    try:
        best = in_best_order(_best(found, asked, request.slowdown), asked)
        return dataclasses.replace(best, sessions=()) if best.written.unchanged else best
    except KeyboardInterrupt:
        if not asked.may_end:
            raise
        return dataclasses.replace(found, ended=True)


def _unasked(found: FinishedModel, request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the same with large values in a branch if that costs nothing: sessions without options take less so."""
    if not has_sessions(asked.module.format) or not asked.command.free or not asked.guarded:
        return _hinted(found)
    if found.ended or not opened_alone(found, asked.module) or not asked.has_time(SESSIONS * found.seconds):
        return found
    try:
        best = _best(found, asked, request.slowdown) if _pattern_costs(found, asked) else found
    except KeyboardInterrupt:
        if not asked.may_end:
            raise
        return dataclasses.replace(found, ended=True)
    return found if best.written.model == found.written.model else opened_plainly(best)


def _pattern_costs(found: FinishedModel, asked: FinishRequest) -> bool:
    """Whether sessions take less of the process without a memory pattern, which a branch has none of."""
    sessions = found.sessions
    if found.refused is not None:
        sessions = (*sessions, *found.refused.sessions)
    plain = [row.process_bytes for row in sessions if _is_plain(row) and row.process_bytes is not None]
    without = [row.process_bytes for row in sessions if not row.mem_pattern and row.process_bytes is not None]
    if not plain or not without:
        points = [SessionFile("given", DEFAULT), SessionFile("given", PATTERNLESS)]
        rows = _memory_of(found.written.model, asked, points)
        plain, without = ([row.process_bytes or 0 for row in rows[place : place + 1]] for place in (0, 1))
    return bool(plain and without) and min(without) < _GAIN * min(plain)


def _best(found: FinishedModel, asked: FinishRequest, slowdown: float | None) -> FinishedModel:
    """Return the file that takes least of the process, of what was found and of what sessions took more for.

    A branch has no memory pattern, which is why pieces may take more than they save.
    """
    best, refused = _in_branch(found, asked, slowdown), found.refused
    if refused is None or not asked.has_time(refused.seconds):
        return best
    other = _in_branch(refused, asked, slowdown)
    branched = other.written.model != refused.written.model
    return other if branched and _taken(other) < _taken(best) else best


def _taken(found: FinishedModel) -> float:
    """Return the bytes of the process with the file; infinite if they were not measured."""
    taken = found.sessions[-1].process_bytes if found.sessions else None
    return math.inf if taken is None else taken


def _in_branch(found: FinishedModel, asked: FinishRequest, slowdown: float | None) -> FinishedModel:
    """Return the file that takes least of the process, with large values in a branch or without one.

    Args:
        slowdown: Time that may be added to the model's as given, in percent; None for any.
    """
    files = list(capability(asked.module, WeightPlacement).in_branches(found.final.module, found.written.model))
    if not files:
        return _noted(found, "large values were not put into a branch: there are none")
    given, plain = _plain_rows(found, asked)
    if given is None or plain is None or given.process_bytes is None or plain.process_bytes is None:
        return _noted(found, "large values were not put into a branch: sessions could not be measured")
    most = _GAIN * min(given.process_bytes, plain.process_bytes)
    best = _least(files, most, most_times(slowdown), found, asked)
    if best is None:
        return _noted(dataclasses.replace(found, sessions=(given, plain)), NO_BRANCH)
    model, row, verification = best
    written = dataclasses.replace(found.written, model=model, unchanged=False)
    told = (
        f"{IN_BRANCH}, for which ONNX Runtime keeps no memory pattern: without it, this "
        f"file takes {format_size(plain.process_bytes)} of the process"
    )
    return _noted(dataclasses.replace(found, written=written, verification=verification, sessions=(given, row)), told)


def _least(
    files: Sequence[bytes], most: float, limit: float, found: FinishedModel, asked: FinishRequest
) -> tuple[bytes, SessionRow, Verification] | None:
    """Return the file whose sessions take least of the process, what they take, and its outputs; None if none gains.

    Args:
        most: Bytes below which a file gains.
        limit: Time that a file may take, as a multiple of the original's.
    """
    bench = bench_of(asked)
    taken = [
        (row.process_bytes, data)
        for data in files
        for row in measured_sessions(bench, data, _PLAIN, timed=False)
        if _within(row, most, limit)
    ]
    for _, data in sorted(taken, key=lambda one: one[0] or 0):
        # The least of several is partly chance: another process must agree before outputs and times are compared.
        confirmed = measured_sessions(bench, data, _PLAIN, again=_again, timed=False)
        if not confirmed or not _within(confirmed[0], most, limit):
            continue
        seen = _verified(found, data, asked)
        if seen is None:
            continue
        timed = measured_sessions(bench, data, _PLAIN, again=_again)
        if timed and _within(timed[0], most, limit):
            return data, timed[0], seen
    return None


def _within(row: SessionRow, most: float, limit: float) -> bool:
    return row.process_bytes is not None and row.process_bytes < most and (row.cpu_ratio or 0.0) <= limit


def _plain_rows(found: FinishedModel, asked: FinishRequest) -> tuple[SessionRow | None, SessionRow | None]:
    """Return what sessions without options take on the file as given and on the one found, measured if it was not."""
    if found.written.unchanged:
        row = next(iter(_memory_of(found.written.model, asked, _GIVEN)), None)
        return row, None if row is None else msgspec.structs.replace(row, file="written")
    known = {row.file: row for row in found.sessions if _is_plain(row)}
    if len(known) < len(_GIVEN + _PLAIN):
        known = {row.file: row for row in _memory_of(found.written.model, asked, _GIVEN + _PLAIN)}
    return known.get("given"), known.get("written")


def _hinted(found: FinishedModel) -> FinishedModel:
    """Return the same, with a note that names the branch where sessions without options take much more than others."""
    match [row.process_bytes for row in found.sessions if row.file == "written"]:
        case [int(plain), int(listed)] if plain >= max(_HINTED * listed, listed + _LEAST_HINTED):
            told = (
                f"without the options a session takes {format_size(plain - listed)} more of the process: "
                "--allow reorder,inplace,branch tries a file for such sessions"
            )
            return _noted(found, told)
    return found


def _memory_of(model: bytes, asked: FinishRequest, sessions: Sequence[SessionFile]) -> tuple[SessionRow, ...]:
    """Return what sessions on the file as given and on ``model`` take of the process."""
    return measured_sessions(bench_of(asked), model, sessions, again=_given_again, timed=False)


def _again(rows: Sequence[SessionRow], seen: Sequence[Sequence[SessionRow]]) -> set[int]:
    """Return the places of sessions until two processes agree in memory: some need a quarter less by chance."""
    del rows
    return {place for place, found in enumerate(seen) if not alike(found) and len(found) < PROCESSES}


def _given_again(rows: Sequence[SessionRow], seen: Sequence[Sequence[SessionRow]]) -> set[int]:
    """Return the same of sessions on the original alone."""
    return {place for place in _again(rows, seen) if rows[place].file == "given"}


def _is_plain(row: SessionRow) -> bool:
    return (row.execution_order, row.mem_pattern) == (DEFAULT.order, DEFAULT.pattern)


def _verified(found: FinishedModel, model: bytes, asked: FinishRequest) -> Verification | None:
    """Return how a file compares with the one given; None if it does not run, or changes more than is permitted.

    Sessions without options decide, because the file is for them: they may use other kernels inside a branch.
    """
    tolerance = TOLERANCE if found.final.rewrites.inexact and not asked.exact else 0.0
    seen, _ = verify_written(
        found.final.module,
        asked.data,
        dataclasses.replace(found.written, model=model, unchanged=False),
        asked.options,
        found.final.prepared.target,
        seed=asked.seed,
        tolerance=tolerance,
    )
    if seen is None or seen.outputs_equal is None or seen.default_apart is None or seen.default_apart > tolerance:
        return None
    return None if refuted(seen, inexact=tolerance > 0) else seen


def _noted(found: FinishedModel, text: str) -> FinishedModel:
    return dataclasses.replace(found, notes=(*found.notes, text))
