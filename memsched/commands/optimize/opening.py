"""How the file that is written is opened where the user named no session: what was measured decides.

Most files are opened without session options: a file that then needs more of the process, or more time than permitted,
is not written. If callers accept another way of opening, options are recommended that need less of the process within
the permitted time; ``enable_mem_pattern = False`` alone precedes a longer list that needs no less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from memsched.base.frozen import FrozenValue
from memsched.commands.session_rows import LEAST_SHOWN
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.race import most_times
from memsched.runtimes.sessions import DEFAULT, LISTED, PATTERNLESS, SessionPoint

__all__ = [
    "POINTS",
    "OpenedFile",
    "any_time",
    "decisive",
    "in_doubt",
    "is_quick",
    "opened_file",
    "takes_less",
    "times_in_doubt",
]

POINTS: Final = (DEFAULT, PATTERNLESS, LISTED)
"""Sessions on the written file that are measured, the one with the fewest options first."""

_CHANCE: Final = 0.05
"""Share of a process by which another one may exceed it by chance, but at least `LEAST_SHOWN`."""

_DOUBT: Final = 0.25
_FEWEST: Final = 3
_GAIN: Final = 0.97
"""Share of the process that further options must leave at most."""


class OpenedFile(FrozenValue, frozen=True):
    """What sessions on a written file were seen to do.

    Attributes:
        worse: In which respect a session without options is worse than on the file as given; None: in none.
        point: The session to recommend.
        row: What it took.
    """

    worse: Literal["process", "time"] | None
    point: SessionPoint
    row: SessionRow


def any_time(slowdown: float | None) -> bool:
    """Whether sessions may take any time, so that it need not be known."""
    return math.isinf(most_times(slowdown))


def is_quick(ratio: float | None, slowdown: float | None) -> bool:
    """Whether a session was measured to take no more than is permitted; None: it was not measured."""
    return any_time(slowdown) or (ratio is not None and ratio <= most_times(slowdown))


def opened_file(
    rows: Sequence[SessionRow], slowdown: float | None, *, promised: bool = False, reopens: bool = True
) -> OpenedFile | None:
    """Return what rows say: that of the file as given, then those of `POINTS` or of the first of them; None: too few.

    What sessions take is their process, or what they request where a process does not show it.

    Args:
        slowdown: As `most_times` has it.
        promised: A budget was compared with what the longest list of options requires: it is recommended where it is
            quick enough, whatever a process takes without it.
        reopens: Session options may be recommended.
    """
    if len(rows) < _FEWEST or any(_taken(row) is None for row in rows):
        return None
    given, plain, *_ = rows
    most = most_times(slowdown)
    worse: Literal["process", "time"] | None = None
    if _bytes(plain) > _bytes(given) + max(LEAST_SHOWN, _CHANCE * _bytes(given)):
        worse = "process"
    elif _times(plain) > most:
        worse = "time"
    best = plain
    for row in rows[2:] if reopens else ():
        asked = promised and _point_of(row) == LISTED
        if _times(row) <= most and (asked or takes_less(row, best)):
            best = row
    return OpenedFile(worse, _point_of(best), best)


def in_doubt(rows: Sequence[SessionRow], slowdown: float | None) -> set[int]:
    """Return the places of rows whose memory may have spoken against the written file by chance."""
    found = opened_file(rows, slowdown)
    return {0, 1} if found is not None and found.worse == "process" else set()


def times_in_doubt(rows: Sequence[SessionRow], slowdown: float | None) -> set[int]:
    """Return the places of rows whose time may have spoken against a session by chance."""
    most = most_times(slowdown)
    return {place for place, row in enumerate(rows) if place and most < _times(row) <= most + _DOUBT}


def decisive(rows: Sequence[SessionRow], slowdown: float | None) -> set[int]:
    """Return the places of rows that are printed: of sessions without options, and of the one to recommend."""
    found = opened_file(rows, slowdown)
    return set(range(len(rows))) if found is None else {0, 1, rows.index(found.row)}


def takes_less(row: SessionRow, other: SessionRow) -> bool:
    """Whether a session takes less of the process than another one, by more than chance."""
    return _bytes(row) < _GAIN * _bytes(other)


def _point_of(row: SessionRow) -> SessionPoint:
    """Return the session of `POINTS` that a row is of: rows of sessions that did not run are missing."""
    opened = row.level, row.execution_order, row.mem_pattern
    return next(one for one in POINTS if (one.level, one.order, one.pattern) == opened)


def _taken(row: SessionRow) -> int | None:
    return row.measured_bytes if row.process_bytes is None else row.process_bytes


def _bytes(row: SessionRow) -> int:
    return _taken(row) or 0


def _times(row: SessionRow) -> float:
    return 1.0 if row.cpu_ratio is None else row.cpu_ratio
