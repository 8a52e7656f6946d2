"""What sessions on the model as given and on the one written take, each measured in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from memsched.errors import ModelError, UsageError
from memsched.formats.module import LoadOptions
from memsched.frozen import FrozenValue
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.onnxruntime.session_maker import OnnxRuntimeSessions
from memsched.runtimes.onnxruntime.session_points import DEFAULT, MeasuredSession, SessionPoint

__all__ = ["LEAST_SHOWN", "SessionFile", "measured_sessions", "session_row"]

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


def measured_sessions(
    maker: OnnxRuntimeSessions,
    given: Path,
    written: bytes,
    options: LoadOptions,
    sessions: Sequence[SessionFile],
    *,
    seed: int,
    again: Callable[[Sequence[SessionRow], int], bool] | None = None,
) -> tuple[SessionRow, ...]:
    """Return a row per session that ran; each takes turns with one without options on the file as given.

    Args:
        options: What is stated of the sizes of inputs.
        seed: Of the inputs.
        again: Tells of the rows, after so many processes of each, whether one more is run: the least counts, as what a
            process takes, and how long it computes, is partly chance. None: one of each.
    """
    rows = []
    with tempfile.TemporaryDirectory(prefix="memsched-") as held:
        feeds, made = Path(held, "feeds.npz"), Path(held, "written.onnx")
        made.write_bytes(written)
        try:
            maker.draw_feeds(given.read_bytes(), given.absolute().parent, options, feeds, seed=seed)
        except (ModelError, UsageError):
            return ()
        for one in sessions:
            found = _measured(maker, given, made, one, feeds)
            if not isinstance(found, str):
                rows.append(session_row(one.file, one.point, found, one.predicted))
        done = 1
        while again is not None and len(rows) == len(sessions) and again(rows, done):
            for place, one in enumerate(sessions):
                found = _measured(maker, given, made, one, feeds)
                if not isinstance(found, str):
                    rows[place] = _with_less(rows[place], session_row(one.file, one.point, found))
            done += 1
    return tuple(rows)


def _measured(
    maker: OnnxRuntimeSessions, given: Path, made: Path, one: SessionFile, feeds: Path
) -> MeasuredSession | str:
    beside = (given, DEFAULT) if (one.file, one.point) != ("given", DEFAULT) else None
    return maker.measure(given if one.file == "given" else made, feeds, one.point, beside, rounds=_ROUNDS)


def _with_less(row: SessionRow, other: SessionRow) -> SessionRow:
    """Return a row with the least process and the least time of two processes."""
    process, ratio = (
        min((one for one in pair if one is not None), default=None)
        for pair in ((row.process_bytes, other.process_bytes), (row.cpu_ratio, other.cpu_ratio))
    )
    return msgspec.structs.replace(row, process_bytes=None if process is None else round(process), cpu_ratio=ratio)


def session_row(
    file: Literal["given", "written"],
    point: SessionPoint,
    found: MeasuredSession | None = None,
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
        process_bytes=None if found is None else max(0, found.process),
        first_run_bytes=None if found is None else max(0, found.first_run),
        cpu_ms=None if found is None else round(1000 * found.cpu_seconds, 3),
        cpu_ratio=None if found is None or found.ratio is None else round(found.ratio, 3),
        runs=None if found is None else found.runs,
        settled=found is None or found.settled,
    )
