"""Large weights before all others in the file, where sessions were seen to take less of the process so.

What opening a session frees is used again while it is opened, or is not: that shows in the process alone. Bits are the
same, as the order of weights in a file says nothing of what is computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from memsched.base.units import format_size
from memsched.commands.optimize.finished import FinishedModel, FinishRequest
from memsched.commands.optimize.judged_sessions import bench_of
from memsched.commands.options import VerifyOptions
from memsched.commands.session_rows import SessionFile, measured_sessions
from memsched.commands.verify import compare
from memsched.formats.capabilities import WeightPlacement
from memsched.formats.known import capability
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.sessions import DEFAULT, LISTED, PATTERNLESS, SessionPoint

__all__ = ["in_best_order"]

_RowsByPoint = Mapping[SessionPoint, SessionRow]
"""What sessions took, by how they are opened."""

WEIGHTS_FIRST: Final = "large weights are first in the file"

_GAIN: Final = 0.97
"""Share of the process that a file may take at most of what it takes in the order that it has."""


def in_best_order(found: FinishedModel, asked: FinishRequest) -> FinishedModel:
    """Return the same with large weights first where sessions without options take less so, and no other more."""
    before = _by_point(found.sessions)
    if found.ended or not before:
        return found
    data = capability(asked.module, WeightPlacement).weights_first(found.written.model)
    if data == found.written.model:
        return found
    try:
        after = _measured(data, before, asked)
    except KeyboardInterrupt:
        if not asked.may_end:
            raise
        return dataclasses.replace(found, ended=True)
    gain = _gain(before, _by_point(after))
    if gain is None or not compare(found.written.model, data, asked.options, VerifyOptions(runs=1)).same:
        return found
    told = f"{WEIGHTS_FIRST}: ONNX Runtime then takes {format_size(gain)} less to open it"
    given = [row for row in found.sessions if row.file == "given"]
    written = dataclasses.replace(found.written, model=data, unchanged=False)
    return dataclasses.replace(found, written=written, sessions=(*given, *after), notes=(*found.notes, told))


def _by_point(rows: Sequence[SessionRow]) -> dict[SessionPoint, SessionRow]:
    kinds = {(one.order, one.pattern): one for one in (DEFAULT, PATTERNLESS, LISTED)}
    return {kinds[row.execution_order, row.mem_pattern]: row for row in rows if row.file == "written"}


def _measured(data: bytes, before: _RowsByPoint, asked: FinishRequest) -> tuple[SessionRow, ...]:
    """Return what the sessions that were measured on the file take on the same in another order."""
    files = [SessionFile("written", point, row.predicted_bytes) for point, row in before.items()]
    return measured_sessions(bench_of(asked), data, files)


def _gain(before: _RowsByPoint, after: _RowsByPoint) -> int | None:
    """Return by how many bytes less a session without options takes; None where it or another gains nothing."""
    if before.keys() != after.keys() or DEFAULT not in before:
        return None
    taken = {name: (row.process_bytes, after[name].process_bytes) for name, row in before.items()}
    if any(old is None or new is None or _GAIN * new > old for old, new in taken.values()):
        return None
    old, new = taken[DEFAULT]
    if old is None or new is None or new > _GAIN * old:
        return None
    return old - new
