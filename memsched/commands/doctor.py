"""The pipeline behind ``memsched doctor``: sessions measured in fresh processes, and which of them to choose."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from memsched import __version__
from memsched.commands.options import DoctorOptions
from memsched.commands.results import Report
from memsched.commands.session_rows import session_row
from memsched.errors import ModelError, UsageError
from memsched.formats.files import read_source
from memsched.formats.known import format_in
from memsched.formats.staging import STANDARD_STREAM
from memsched.formats.stated_sizes import stated
from memsched.frozen import FrozenValue
from memsched.report.session_code import cpp_lines, csharp_lines, options_text, python_lines
from memsched.report.values.doctor import DoctorReport, DoctorRow, SessionChoice, SplitSection
from memsched.runtimes.known import session_maker_of
from memsched.runtimes.onnxruntime.session_maker import OnnxRuntimeSessions
from memsched.runtimes.onnxruntime.session_points import (
    DEFAULT,
    EXECUTED,
    LISTED,
    MeasuredSession,
    MemorySplit,
    SessionPoint,
)
from memsched.runtimes.slowdown import most_times

__all__ = ["choices_of", "diagnose", "pareto"]

_File = Literal["given", "written"]
_BARE: Final = SessionPoint(reuse=False, pattern=False)
_DEFAULTS: Final = DoctorOptions()


class _Measured(FrozenValue, frozen=True):
    """A session, and what it took."""

    file: _File
    point: SessionPoint
    found: MeasuredSession

    def ratio(self) -> float:
        """Return processor time beside a session without options on the file as given."""
        return 1.0 if self.found.ratio is None else self.found.ratio


def diagnose(
    given: str,
    written: str | None = None,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    time_limit: float | None = _DEFAULTS.time_limit,
    effort: int | None = _DEFAULTS.effort,
    max_slowdown: float = _DEFAULTS.max_slowdown,
    seed: int = _DEFAULTS.seed,
    stop: Callable[[], bool] | None = None,
) -> Report[DoctorReport]:
    """Return where the memory of a process with a model goes in sessions of several kinds, and which to choose.

    Sessions without options on both files are always measured; then options are tried one after another, each beside
    the best so far.

    Args:
        given: Path of an ONNX model.
        written: Path of a model that memsched made of it.
        time_limit: Seconds after which no further session is opened; None for no limit.
        effort: Sessions to open at most, instead.
        max_slowdown: Processor time, in percent, that a session worth choosing may take beyond one without options.
        seed: Of the inputs.
        stop: Asked before each session; True ends the search.

    Raises:
        ModelError: A file cannot be read, or a session without options does not run it.
        UsageError: A file is no ONNX model, or cannot be run on random inputs.
        RuntimeUnavailableError: onnxruntime is not installed.
    """
    maker, data, files = _files(given, written)
    started = time.monotonic()
    deadline = None if time_limit is None or effort is not None else started + time_limit

    def over(number: int) -> bool:
        late = deadline is not None and time.monotonic() > deadline
        return late or (effort is not None and number >= effort) or (stop is not None and stop())

    with tempfile.TemporaryDirectory(prefix="memsched-") as folder:
        feeds = Path(folder, "feeds.npz")
        maker.draw_feeds(data, Path(given).absolute().parent, stated(input_shapes, dims), feeds, seed=seed)
        found, failed, finished = _measured(maker, files, feeds, max_slowdown, over)
    rows = _rows(found)
    return Report(
        DoctorReport(
            schema_version=1,
            memsched_version=__version__,
            command="doctor",
            given=given,
            written=written,
            max_slowdown_percent=max_slowdown,
            finished=finished,
            seconds=round(time.monotonic() - started, 3),
            seed=seed,
            sessions=rows,
            choices=choices_of(rows, max_slowdown),
            failed=tuple(failed),
        )
    )


def _files(given: str, written: str | None) -> tuple[OnnxRuntimeSessions, bytes, dict[_File, Path]]:
    """Return what opens sessions, the model as given, and the files."""
    if STANDARD_STREAM in (given, written):
        raise UsageError(
            "sessions are measured on files, not on standard input", code="needs-file", action="give a path"
        )
    data, _ = read_source(given)
    maker = session_maker_of(format_in(data).name)
    maker.check_installed()
    files: dict[_File, Path] = {"given": Path(given)}
    if written is not None:
        session_maker_of(format_in(read_source(written)[0]).name)
        files["written"] = Path(written)
    return maker, data, files


def _rows(found: Sequence[_Measured]) -> tuple[DoctorRow, ...]:
    best = pareto([(one.found.process, one.ratio()) for one in found])
    return tuple(
        DoctorRow(
            session=session_row(one.file, one.point, one.found),
            cpu_ratio=round(one.ratio(), 3),
            pareto=number in best,
            split=None if one.found.split is None else _split(one.found.split),
        )
        for number, one in enumerate(found)
    )


def _measured(
    maker: OnnxRuntimeSessions,
    files: Mapping[_File, Path],
    feeds: Path,
    max_slowdown: float,
    over: Callable[[int], bool],
) -> tuple[list[_Measured], list[str], bool]:
    """Return the sessions that run, why others do not, and whether all were tried.

    Args:
        feeds: The file with the inputs.
        over: Whether no more than so many sessions are to be measured; those without options always are.
    """
    found: list[_Measured] = []
    failed: list[str] = []
    for number, (file, point) in enumerate(_walk(found, tuple(files), most_times(max_slowdown))):
        required = number < len(files)
        if not required and over(number):
            return found, failed, False
        shown = maker.measure(files[file], feeds, point, (files["given"], DEFAULT))
        if not isinstance(shown, str):
            found.append(_Measured(file, point, shown))
        elif required:
            raise ModelError(
                f"a session without options does not run: {shown}", code="not-run", location=str(files[file])
            )
        else:
            failed.append(f"{options_text(session_row(file, point))}, file {file}: {shown}")
    return found, failed, True


def _walk(found: Sequence[_Measured], files: Sequence[_File], slowest: float) -> Iterator[tuple[_File, SessionPoint]]:
    """Yield sessions to measure; what comes later stands on what was found, which the caller adds to."""
    known: set[tuple[_File, SessionPoint]] = set()

    def fresh(file: _File, points: Sequence[SessionPoint]) -> Iterator[tuple[_File, SessionPoint]]:
        for point in points:
            if (file, point) not in known:
                known.add((file, point))
                yield file, point

    for file in files:
        yield from fresh(file, (DEFAULT,))
    for file in reversed(files):
        yield from fresh(file, (_BARE, *([EXECUTED, LISTED] if file == "written" else [])))
    for file in reversed(files):
        yield from fresh(file, (replace(DEFAULT, pattern=False), replace(DEFAULT, reuse=False)))
    for changes in _STAGES:
        for file in reversed(files):
            base = _best(found, file, slowest)
            yield from fresh(file, [replace(base, **change) for change in changes])


_STAGES: Final[tuple[tuple[dict[str, Any], ...], ...]] = (
    ({"arena": False}, {"shrinkage": True}, {"prepacking": False}),
    ({"level": "extended"}, {"level": "basic"}, {"level": "basic", "order": "file"}),
    ({"threads": 1},),
)


def _best(found: Sequence[_Measured], file: _File, slowest: float) -> SessionPoint:
    of_file = [one for one in found if one.file == file]
    return min(of_file, key=lambda one: (one.ratio() > slowest, one.found.process)).point


def pareto(points: Sequence[tuple[float, float]]) -> frozenset[int]:
    """Return which points no other one is at least as good as in both figures, and better in one."""
    return frozenset(
        number
        for number, (first, second) in enumerate(points)
        if not any(one <= first and other <= second and (one < first or other < second) for one, other in points)
    )


def choices_of(rows: Sequence[DoctorRow], max_slowdown: float) -> tuple[SessionChoice, ...]:
    """Return three sessions worth choosing, or as many as there are: the first is the one to begin with."""
    slowest = most_times(max_slowdown)
    reasons: list[tuple[str, Callable[[DoctorRow], bool]]] = [
        (
            f"the least of the process at no more than {slowest:.2f} x the processor time",
            lambda row: row.cpu_ratio <= slowest,
        ),
        ("the least of the process, whatever it costs in time", lambda _: True),
        (
            "the least with the file as given and options that every language has, at that speed",
            lambda row: row.session.file == "given" and cpp_lines(row.session) is not None and row.cpu_ratio <= slowest,
        ),
        ("on the Pareto set, too", lambda row: row.pareto),
        ("needs less than a session without options", lambda row: _ALIKE * _process(row) < _process(rows[0])),
    ]
    chosen: dict[int, str] = {}
    for reason, fits in reasons:
        held = [number for number, row in enumerate(rows) if fits(row) and number not in chosen]
        if reason not in (reasons[0][0], reasons[1][0], reasons[2][0]) or not chosen:
            best = _least(rows, held)
        else:  # the best of all that fit, and nothing where it was chosen before
            every = [number for number, row in enumerate(rows) if fits(row)]
            best = _least(rows, every)
        if best is not None and best not in chosen and len(chosen) < _CHOICES:
            chosen[best] = reason
    return tuple(
        SessionChoice(
            reason=reason,
            row=number,
            python=python_lines(rows[number].session),
            cpp=cpp_lines(rows[number].session),
            csharp=csharp_lines(rows[number].session),
        )
        for number, reason in chosen.items()
    )


_CHOICES: Final = 3
_ALIKE: Final = 1.02
"""Ratio of what two processes take that may come from chance alone."""


def _least(rows: Sequence[DoctorRow], numbers: Sequence[int]) -> int | None:
    """Return the row with the least process; of those alike, one that keeps all threads, as each run waits for them."""
    least = min((_process(rows[number]) for number in numbers), default=0)
    alike = [number for number in numbers if _process(rows[number]) <= _ALIKE * least]
    # What chance alone may give is no reason to change a file or its session.
    if 0 in alike:
        return 0
    return min(alike, key=lambda number: (rows[number].session.threads != 0, _process(rows[number])), default=None)


def _process(row: DoctorRow) -> int:
    return row.session.process_bytes or 0


def _split(found: MemorySplit) -> SplitSection:
    parts = {f"{name}_bytes": size for name, size in dataclasses.asdict(found).items()}
    return SplitSection(**parts, sum_bytes=found.total)
