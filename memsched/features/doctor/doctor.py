"""The pipeline behind ``memsched doctor``: sessions measured in fresh processes, and which of them to choose."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from memsched import __version__
from memsched.base.errors import ModelError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.commands.calls import NO_HOOKS, Hooks, limits_of
from memsched.commands.optimize.reading import assumed_sizes
from memsched.commands.optimize.report import assumed_rows
from memsched.commands.options import DoctorOptions
from memsched.commands.results import Report
from memsched.commands.session_rows import session_row
from memsched.formats.files import read_source
from memsched.formats.known import format_in
from memsched.formats.module import LoadOptions
from memsched.formats.staging import STANDARD_STREAM
from memsched.formats.stated_sizes import stated
from memsched.report.session_code import cpp_lines, csharp_lines, options_text, python_lines
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.doctor import DoctorReport, DoctorRow, SessionChoice, SplitSection
from memsched.runtimes.known import SessionMaker, session_maker_of
from memsched.runtimes.measure import Measured
from memsched.runtimes.race import most_times
from memsched.runtimes.sessions import DEFAULT, EXECUTED, LISTED, MemorySplit, SessionPoint
from memsched.runtimes.values import CLOSE
from memsched.search.run import Run

__all__ = ["choices_of", "diagnose", "pareto"]

_File = Literal["given", "written"]
ON_PARETO_SET: Final = "on the Pareto set, too"

_BARE: Final = SessionPoint(reuse=False, pattern=False)
_DEFAULTS: Final = DoctorOptions()


class _RanSession(FrozenValue, frozen=True):
    """A session, and what it took."""

    file: _File
    point: SessionPoint
    found: Measured

    def ratio(self) -> float:
        """Return processor time beside a session without options on the file as given."""
        return 1.0 if self.found.ratio is None else self.found.ratio

    def split(self, maker: SessionMaker) -> SplitSection | None:
        """Return where the memory lies; None where the runtime does not show it."""
        found = maker.split(self.found, self.point)
        return None if found is None else _split(found)


def diagnose(
    given: str, written: str | None = None, options: DoctorOptions = _DEFAULTS, hooks: Hooks = NO_HOOKS
) -> Report[DoctorReport]:
    """Return where the memory of a process with a model goes in sessions of several kinds, and which to choose.

    Sessions without options on both files are always measured; then options are tried one after another, each beside
    the best so far.

    Args:
        given: Path of an ONNX model.
        written: Path of a model that memsched made of it.
        options: What is measured.
        hooks: Asked before each session whether to stop.

    Raises:
        ModelError: A file cannot be read, or a session without options does not run it.
        UsageError: A file is no ONNX model, or cannot be run on random inputs.
        RuntimeUnavailableError: onnxruntime is not installed.
    """
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
    run = Run.of(limits_of(options), stop=hooks.stop)
    sizes = assumed_sizes(data, given, stated(options.input_shapes, options.dims), seed=options.seed)
    measured = _measured(data, files, sizes, options, run)
    best = pareto([(one.found.peak, one.ratio()) for one in measured.found])
    rows = tuple(
        DoctorRow(
            session=session_row(one.file, one.point, one.found),
            cpu_ratio=round(one.ratio(), 3),
            pareto=number in best,
            split=one.split(maker),
        )
        for number, one in enumerate(measured.found)
    )
    return Report(
        DoctorReport(
            schema_version=SCHEMA_VERSION,
            memsched_version=__version__,
            command="doctor",
            given=given,
            written=written,
            max_slowdown_percent=options.max_slowdown,
            finished=measured.finished,
            seconds=round(run.elapsed(), 3),
            seed=options.seed,
            sessions=rows,
            choices=choices_of(rows, options.max_slowdown),
            failed=measured.failed,
            assumed=assumed_rows(sizes.assumed),
        )
    )


class _MeasuredSessions(FrozenValue, frozen=True):
    """Sessions that were measured, and those that failed, in words; whether no more were to be tried."""

    found: tuple[_RanSession, ...]
    failed: tuple[str, ...]
    finished: bool


def _measured(
    data: bytes, files: Mapping[_File, Path], sizes: LoadOptions, options: DoctorOptions, run: Run
) -> _MeasuredSessions:
    """Measure sessions until the time is up, or so many were opened."""
    maker = session_maker_of(format_in(data).name)
    found: list[_RanSession] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="memsched-") as folder:
        feeds = Path(folder, "feeds.npz")
        maker.draw_feeds(data, files["given"].absolute().parent, sizes, feeds, seed=options.seed)
        walk = _walk(found, tuple(files), most_times(options.max_slowdown))
        for number, (file, point) in enumerate(walk):
            required = number < len(files)
            spent = run.late() or run.stop() or (options.effort is not None and number >= options.effort)
            if spent and not required:
                return _MeasuredSessions(tuple(found), tuple(failed), finished=False)
            shown = maker.measure(files[file], feeds, point, (files["given"], DEFAULT), split=True)
            if not isinstance(shown, str):
                found.append(_RanSession(file, point, shown))
            elif required:
                raise ModelError(
                    f"a session without options does not run: {shown}", code="session-fails", location=str(files[file])
                )
            else:
                failed.append(f"{options_text(session_row(file, point))}, file {file}: {shown}")
    return _MeasuredSessions(tuple(found), tuple(failed), finished=True)


def _walk(found: Sequence[_RanSession], files: Sequence[_File], slowest: float) -> Iterator[tuple[_File, SessionPoint]]:
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


def _best(found: Sequence[_RanSession], file: _File, slowest: float) -> SessionPoint:
    of_file = [one for one in found if one.file == file]
    return min(of_file, key=lambda one: (one.ratio() > slowest, one.found.peak)).point


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
        (ON_PARETO_SET, lambda row: row.pareto),
        ("needs less than a session without options", lambda row: (1 + CLOSE) * _process(row) < _process(rows[0])),
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


def _least(rows: Sequence[DoctorRow], numbers: Sequence[int]) -> int | None:
    """Return the row with the least process; of those alike, one that keeps all threads, as each run waits for them."""
    least = min((_process(rows[number]) for number in numbers), default=0)
    alike = [number for number in numbers if _process(rows[number]) <= (1 + CLOSE) * least]
    # What chance alone may give is no reason to change a file or its session.
    if 0 in alike:
        return 0
    return min(alike, key=lambda number: (rows[number].session.threads != 0, _process(rows[number])), default=None)


def _process(row: DoctorRow) -> int:
    return row.session.process_bytes or 0


def _split(found: MemorySplit) -> SplitSection:
    parts = {f"{name}_bytes": size for name, size in dataclasses.asdict(found).items()}
    return SplitSection(**parts, sum_bytes=found.total)
