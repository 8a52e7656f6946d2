"""What sessions on the model as given and on the one written take, each measured in a process of its own."""

from __future__ import annotations

import contextlib
import hashlib
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
from memsched.base.shown import ALIKE
from memsched.base.units import rounded_ratio
from memsched.formats.module import LoadOptions
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.known import SessionMaker
from memsched.runtimes.measure import PROCESSES, Measured, Raced
from memsched.runtimes.sessions import DEFAULT, SessionPoint

__all__ = [
    "LEAST_SHOWN",
    "GivenModel",
    "SessionBench",
    "SessionFile",
    "SessionFiles",
    "alike",
    "measured_sessions",
    "raced_sessions",
    "session_row",
]

LEAST_SHOWN: Final = 1 << 20
"""Bytes that a session requires: what less makes in a process is lost among what the process does by itself."""

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
_Doubted = Callable[[Sequence[SessionRow]], Collection[int]]
_Told = Callable[[Sequence[int]], int]


class SessionBench(FrozenValue, frozen=True):
    """Measures sessions on a model, and keeps every measurement for later questions.

    Attributes:
        options: Stated sizes of the inputs.
        seed: Seed for random inputs.
        processes: Measurements so far, by the digest of the file and the session.
        drawn: Contents of the input file. Empty before the first measurement.
    """

    maker: SessionMaker
    given: GivenModel
    options: LoadOptions
    seed: int
    processes: dict[tuple[str, SessionPoint], list[Measured | str]] = msgspec.field(default_factory=dict)
    drawn: list[bytes] = msgspec.field(default_factory=list)

    @contextlib.contextmanager
    def files(self, written: bytes) -> Iterator[SessionFiles]:
        """Store both models and their inputs in files. The original keeps its path if it has one.

        Raises:
            ModelError: The runtime does not load the model.
            UsageError: The model does not run on random inputs.
        """
        given = self.given
        with tempfile.TemporaryDirectory(prefix="memsched-") as held:
            folder = Path(held)
            made, path, feeds = folder / "written.onnx", Path(given.path).absolute(), folder / "feeds.npz"
            made.write_bytes(written)
            if given.path == STANDARD_STREAM:
                path = folder / "given.onnx"
                path.write_bytes(given.data)
            if not self.drawn:
                self.maker.draw_feeds(given.data, given.folder, self.options, feeds, seed=self.seed)
                self.drawn.append(feeds.read_bytes())
            feeds.write_bytes(self.drawn[0])
            yield SessionFiles(path, made, feeds, given.folder.absolute() if given.external else None)

    def process(self, files: SessionFiles, one: SessionFile, number: int) -> SessionRow | None:
        """Return the memory of one process of a session, or None if the session fails."""
        path = files.path(one)
        found = self.processes.setdefault((hashlib.sha256(path.read_bytes()).hexdigest(), one.point), [])
        while len(found) <= number:
            found.append(self.maker.measure(path, files.feeds, one.point, folder=files.folder))
        seen = found[number]
        return None if isinstance(seen, str) else session_row(one.file, one.point, seen, one.predicted)

    def time_ratio(self, files: SessionFiles, one: SessionFile) -> float | None:
        """Return the processor time of a session relative to a session without options on the original."""
        if (one.file, one.point) == ("given", DEFAULT):
            return None
        pair = (files.given, DEFAULT), (files.path(one), one.point)
        return self.maker.time_ratio(*pair, files.feeds, folder=files.folder)


def measured_sessions(
    bench: SessionBench,
    written: bytes,
    sessions: Sequence[SessionFile],
    *,
    again: _Again | None = None,
    doubted: _Doubted | None = None,
    told: _Told = statistics.median_high,
    timed: bool = True,
) -> tuple[SessionRow, ...]:
    """Return one row for each session: the memory of its process, and its time relative to the original's.

    Sessions that fail have no row. There are no rows at all if a session runs once and then fails.

    Args:
        again: Returns the indices of the sessions that need another process, because memory varies. Its arguments are
            the rows so far, and for each session the rows of its processes. None for one process each.
        doubted: Returns the indices of the sessions that need another timing. None for one timing each.
        told: Combines the bytes of several processes.
        timed: Whether to measure times.
    """
    with contextlib.suppress(ModelError, UsageError), bench.files(written) as files:
        first = [bench.process(files, one, 0) for one in sessions]
        rows = [row for row in first if row is not None]
        if len(rows) < len(sessions):
            return tuple(rows)
        seen = [[row] for row in rows]
        times = [[bench.time_ratio(files, one)] if timed else [] for one in sessions]
        rows = [_together(*one, told) for one in zip(seen, times, strict=True)]
        for _ in range(PROCESSES - 1):
            for place in sorted(doubted(rows)) if timed and doubted is not None else ():
                times[place].append(bench.time_ratio(files, sessions[place]))
            rows = [_together(*one, told) for one in zip(seen, times, strict=True)]
        while again is not None and (wanted := sorted(again(rows, seen))):
            for place in wanted:
                row = bench.process(files, sessions[place], len(seen[place]))
                if row is None:
                    return ()
                seen[place].append(row)
            rows = [_together(*one, told) for one in zip(seen, times, strict=True)]
        return tuple(_together(*one, told) for one in zip(seen, times, strict=True))
    return ()


def raced_sessions(
    bench: SessionBench, written: bytes, sessions: Sequence[SessionFile], *, doubted: _Doubted | None = None
) -> tuple[SessionRow, ...]:
    """Return the same rows without the process, which says nothing of small models: all are run in a single one.

    Args:
        sessions: The first is one without options on the file as given.
        doubted: Returns the indices of the sessions that need another timing. None for one timing.
    """
    with contextlib.suppress(ModelError, UsageError), bench.files(written) as files:
        pairs = [(files.path(one), one.point) for one in sessions]

        def race() -> list[SessionRow]:
            found = bench.maker.race(pairs, files.feeds, rounds=_ROUNDS, folder=files.folder)
            return [_raced_row(*one) for one in zip(sessions, found, strict=True) if one[1] is not None]

        rows = race()
        if len(rows) < len(sessions) or doubted is None or not doubted(rows):
            return tuple(rows)
        more = race()
        if len(more) < len(sessions):
            return tuple(rows)
        return tuple(_together(pair, [one.cpu_ratio for one in pair]) for pair in zip(rows, more, strict=True))
    return ()


def _raced_row(one: SessionFile, found: Raced | None) -> SessionRow:
    row = session_row(one.file, one.point, None, one.predicted)
    if found is None:
        return row
    return msgspec.structs.replace(row, measured_bytes=found.own.requested, cpu_ratio=rounded_ratio(found.ratio))


def alike(seen: Sequence[SessionRow]) -> bool:
    """Return whether two processes of a session need nearly the same memory."""
    taken = [row.process_bytes or 0 for row in seen]
    return any(math.isclose(*pair, rel_tol=ALIKE) for pair in itertools.combinations(taken, 2))


def _together(
    rows: Sequence[SessionRow], times: Sequence[float | None] = (), told: _Told = statistics.median_high
) -> SessionRow:
    """Return one row of several of a session: the most that was requested, and the median of the times."""
    processes = [row.process_bytes for row in rows if row.process_bytes is not None]
    requested = [row.measured_bytes for row in rows if row.measured_bytes is not None]
    ratios = [one for one in times if one is not None]
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
