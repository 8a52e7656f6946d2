"""What sessions on the model as given and on the one written take, each measured in a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from memsched.base.errors import ModelError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.units import rounded_ratio
from memsched.formats.module import LoadOptions
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.known import SessionMaker
from memsched.runtimes.measure import Measured, Raced
from memsched.runtimes.sessions import DEFAULT, SessionPoint

__all__ = [
    "ALIKE",
    "LEAST_SHOWN",
    "GivenModel",
    "SessionFile",
    "SessionFiles",
    "alike",
    "measured_sessions",
    "raced_sessions",
    "session_files",
    "session_row",
]

LEAST_SHOWN: Final = 1 << 20
"""Bytes that a session requires: what less makes in a process is lost among what the process does by itself."""

ALIKE: Final = 0.03
"""By which processes that agree differ at most: what is said of them shall hold within 5 %."""

_ROUNDS: Final = 5
"""In which the sessions take turns in being timed."""


class SessionFile(FrozenValue, frozen=True):
    """A session to measure.

    Attributes:
        predicted: What its activations should take, bytes; None where nothing predicts it.
    """

    file: Literal["given", "written"]
    point: SessionPoint
    predicted: int | None = None


class GivenModel(FrozenValue, frozen=True):
    """The model as given, as sessions are opened on it.

    Attributes:
        data: Its bytes.
        path: Where they were read from: a file, or standard input.
        external: Whether weights lie in files of their own, in the folder of ``path``.
    """

    data: bytes
    path: str
    external: bool = False

    @property
    def folder(self) -> Path:
        """Return the folder in which external data lies; the current one for standard input."""
        return Path() if self.path == STANDARD_STREAM else Path(self.path).absolute().parent


class SessionFiles(FrozenValue, frozen=True):
    """Both models as files, and inputs of theirs.

    Attributes:
        folder: Where the external data of both lies; None where there is none.
    """

    given: Path
    written: Path
    feeds: Path
    folder: Path | None

    def path(self, one: SessionFile) -> Path:
        """Return the file that a session is opened on."""
        return self.given if one.file == "given" else self.written


_Again = Callable[[Sequence[SessionRow], Sequence[Sequence[SessionRow]]], Collection[int]]
_Told = Callable[[Sequence[int]], int]


def measured_sessions(
    maker: SessionMaker,
    given: GivenModel,
    written: bytes,
    options: LoadOptions,
    sessions: Sequence[SessionFile],
    *,
    seed: int,
    again: _Again | None = None,
    told: _Told = statistics.median_high,
) -> tuple[SessionRow, ...]:
    """Return a row per session that ran; each takes turns with one without options on the file as given.

    Args:
        options: What is stated of the sizes of inputs.
        seed: Of the inputs.
        again: Returns the places of the sessions to run in one more process, because memory and time are partly chance.
            Its arguments are the rows so far, and for each session the rows of its processes. None: one process each.
        told: What is told of the bytes of several processes.
    """
    with session_files(given, written) as files:
        try:
            maker.draw_feeds(given.data, given.folder, options, files.feeds, seed=seed)
        except (ModelError, UsageError):
            return ()

        def measure(wanted: Sequence[int]) -> list[SessionRow | None]:
            return [_measured(maker, files, sessions[place]) for place in wanted]

        return _rows(measure, len(sessions), again, told)


def raced_sessions(
    maker: SessionMaker,
    given: GivenModel,
    written: bytes,
    options: LoadOptions,
    sessions: Sequence[SessionFile],
    *,
    seed: int,
    again: _Again | None = None,
) -> tuple[SessionRow, ...]:
    """Return the same rows without the process, which says nothing of small models: all are run in a single one.

    Args:
        sessions: The first is one without options on the file as given.
    """
    with session_files(given, written) as files:
        try:
            maker.draw_feeds(given.data, given.folder, options, files.feeds, seed=seed)
        except (ModelError, UsageError):
            return ()
        pairs = [(files.path(one), one.point) for one in sessions]

        def race(wanted: Sequence[int]) -> list[SessionRow | None]:
            found = maker.race(pairs, files.feeds, rounds=_ROUNDS, folder=files.folder)
            raced = [(sessions[place], found[place]) for place in wanted]
            return [None if one is None else _raced_row(session, one) for session, one in raced]

        return _rows(race, len(sessions), again)


def _rows(
    measure: Callable[[Sequence[int]], Sequence[SessionRow | None]],
    count: int,
    again: _Again | None,
    told: _Told = statistics.median_high,
) -> tuple[SessionRow, ...]:
    """Return the rows of sessions that ran, each as all times that ``again`` had it measured show it together."""
    first = measure(range(count))
    rows = [row for row in first if row is not None]
    if len(rows) < count:
        return tuple(rows)
    seen = [[row] for row in rows]
    while again is not None and (wanted := sorted(again(rows, seen))):
        for place, row in zip(wanted, measure(wanted), strict=True):
            if row is None:
                return tuple(rows)
            seen[place].append(row)
            rows[place] = _together(seen[place], told)
    return tuple(rows)


@contextlib.contextmanager
def session_files(given: GivenModel, written: bytes) -> Iterator[SessionFiles]:
    """Give both models as files; the one given is read where it lies if it lies in a file."""
    with tempfile.TemporaryDirectory(prefix="memsched-") as held:
        folder = Path(held)
        made, path = folder / "written.onnx", Path(given.path).absolute()
        made.write_bytes(written)
        if given.path == STANDARD_STREAM:
            path = folder / "given.onnx"
            path.write_bytes(given.data)
        yield SessionFiles(path, made, folder / "feeds.npz", given.folder.absolute() if given.external else None)


def _measured(maker: SessionMaker, files: SessionFiles, one: SessionFile) -> SessionRow | None:
    beside = (files.given, DEFAULT) if (one.file, one.point) != ("given", DEFAULT) else None
    found = maker.measure(files.path(one), files.feeds, one.point, beside, rounds=_ROUNDS, folder=files.folder)
    return None if isinstance(found, str) else session_row(one.file, one.point, found, one.predicted)


def _raced_row(one: SessionFile, found: Raced) -> SessionRow:
    row = session_row(one.file, one.point, None, one.predicted)
    return msgspec.structs.replace(row, measured_bytes=found.own.requested, cpu_ratio=rounded_ratio(found.ratio))


def alike(seen: Sequence[SessionRow]) -> bool:
    """Return whether two processes of a session agree, in bytes and in time."""
    return any(_agree(*pair) for pair in itertools.combinations(seen, 2))


def _agree(one: SessionRow, other: SessionRow) -> bool:
    pairs = ((one.process_bytes, other.process_bytes), (one.cpu_ratio, other.cpu_ratio))
    return all(math.isclose(first or 0, second or 0, rel_tol=ALIKE) for first, second in pairs)


def _together(rows: Sequence[SessionRow], told: _Told) -> SessionRow:
    """Return one row of several of a session: the most that was requested, and the median of the times."""
    processes = [row.process_bytes for row in rows if row.process_bytes is not None]
    requested = [row.measured_bytes for row in rows if row.measured_bytes is not None]
    ratios = [row.cpu_ratio for row in rows if row.cpu_ratio is not None]
    return msgspec.structs.replace(
        rows[0],
        measured_bytes=max(requested, default=None),
        process_bytes=told(processes) if processes else None,
        cpu_ratio=rounded_ratio(statistics.median(ratios)) if ratios else None,
    )


def session_row(
    file: Literal["given", "written"],
    point: SessionPoint,
    found: Measured | None = None,
    predicted: int | None = None,
) -> SessionRow:
    """Return a session, and what it took in a process of its own, as reports have it."""
    return SessionRow(
        file=file,
        level=point.level,
        execution_order=point.order,
        mem_reuse=point.reuse,
        mem_pattern=point.pattern,
        disabled_optimizers=point.disabled,
        arena=point.arena,
        shrinkage=point.shrinkage,
        prepacking=point.prepacking,
        quant_qdq=point.quant_qdq,
        threads=point.threads,
        predicted_bytes=predicted,
        measured_bytes=None if found is None else found.requested,
        process_bytes=None if found is None else found.peak,
        first_run_bytes=None if found is None else found.earlier,
        cpu_ms=None if found is None else round(1000 * found.processor_seconds, 3),
        cpu_ratio=None if found is None else rounded_ratio(found.ratio),
        runs=None if found is None else found.runs,
        settled=found is None or found.settled,
    )
