"""How files are opened where no session was named: what is recommended costs no more time than is permitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import onnx
import pytest

import memsched
from memsched.commands.optimize.opening import decisive, in_doubt, opened_file, times_in_doubt
from memsched.commands.session_rows import session_row
from memsched.formats.module import LoadOptions
from memsched.report.sessions import held_back_lines, measured_text, process_lines
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.sessions import SessionRow
from memsched.report.verdict import change_of
from memsched.runtimes.measure import Measured, Raced
from memsched.runtimes.onnxruntime.session_maker import SessionMaker
from memsched.runtimes.onnxruntime.session_memory import draw_feeds, measure_session, race_sessions
from memsched.runtimes.sessions import DEFAULT, LISTED, PATTERNLESS, SessionPoint
from tests.commands.optimize.test_finish import LEAST
from tests.commands.optimize.test_session import network
from tests.measured import at_ratio, took

pytestmark = pytest.mark.usefixtures("timed")

_MB = 1_000_000
_Taken = tuple[int, float]
"""Megabytes of the process, and processor time beside the file as given."""


def _rows(given: int, *written: _Taken) -> tuple[SessionRow, ...]:
    points = zip((DEFAULT, PATTERNLESS, LISTED), written, strict=True)
    rows = [session_row("written", point, took(size * _MB, 0.1, ratio)) for point, (size, ratio) in points]
    return session_row("given", DEFAULT, took(given * _MB)), *rows


def test_a_session_that_did_not_run_is_not_taken_for_the_next_one() -> None:
    given, default, _, listed = _rows(100, (80, 1.0), (60, 1.0), (40, 1.05))
    found = opened_file((given, default, listed), 10.0)
    assert found is not None
    assert found.point == LISTED


@pytest.mark.parametrize(
    ("default", "patternless", "listed", "chosen"),
    [
        ((80, 1.0), (60, 1.0), (40, 1.05), LISTED),
        ((80, 1.0), (60, 1.0), (40, 2.06), PATTERNLESS),
        ((80, 1.0), (41, 0.97), (40, 1.05), PATTERNLESS),
        ((80, 1.0), (79, 1.0), (79, 1.0), DEFAULT),
        ((80, 1.0), (60, 1.3), (40, 1.3), DEFAULT),
    ],
)
def test_options_are_recommended_that_are_worth_it_and_quick(
    default: _Taken, patternless: _Taken, listed: _Taken, chosen: SessionPoint
) -> None:
    found = opened_file(_rows(100, default, patternless, listed), 10.0)
    assert found is not None
    assert found.worse is None
    assert found.point == chosen


@pytest.mark.parametrize(
    ("default", "slowdown", "worse"),
    [((120, 1.0), 10.0, "process"), ((80, 1.38), 10.0, "time"), ((80, 1.38), None, None), ((103, 1.04), 0.0, None)],
)
def test_a_file_that_is_worse_in_a_session_without_options_is_told(
    default: _Taken, slowdown: float | None, worse: str | None
) -> None:
    found = opened_file(_rows(100, default, default, default), slowdown)
    assert found is not None
    assert found.worse == worse


@pytest.mark.parametrize(
    ("default", "patternless", "listed", "printed", "doubted", "slow"),
    [
        ((80, 1.0), (60, 1.0), (40, 1.05), {0, 1, 3}, set(), set()),
        ((80, 1.0), (41, 0.97), (40, 1.2), {0, 1, 2}, set(), {3}),
        ((120, 1.0), (119, 1.0), (119, 2.0), {0, 1}, {0, 1}, set()),
    ],
)
def test_only_sessions_that_decide_or_that_chance_spoke_against_are_run_once_more(
    default: _Taken, patternless: _Taken, listed: _Taken, printed: set[int], doubted: set[int], slow: set[int]
) -> None:
    rows = _rows(100, default, patternless, listed)
    assert decisive(rows, 10.0) == printed
    assert in_doubt(rows, 10.0) == doubted
    assert times_in_doubt(rows, 10.0) == slow


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a network whose order matters, as a file; its processes are measured, small as they are."""
    monkeypatch.setattr(LEAST, 0)
    file = tmp_path / "net.onnx"
    file.write_bytes(network().SerializeToString())
    return file


def _measured(monkeypatch: pytest.MonkeyPatch, path: Path, **taken: _Taken) -> None:
    """Let sessions on the written file take so much; the one on the file as given takes 100 MB."""
    names = {DEFAULT: "default", PATTERNLESS: "patternless", LISTED: "listed"}

    def measure(_: SessionMaker, file: Path, feeds: Path, point: SessionPoint, *__: object, **___: object) -> Measured:
        return took((100 if file == path else taken[names[point]][0]) * _MB, 0.1, requested=90_000)

    def time_ratio(
        _: SessionMaker, __: object, second: tuple[Path, SessionPoint], *___: object, **____: object
    ) -> float:
        return taken[names[second[1]]][1]

    monkeypatch.setattr(SessionMaker, "measure", measure)
    monkeypatch.setattr(SessionMaker, "time_ratio", time_ratio)


_ORDERED: Final = ("reorder", "inplace")
"""For which options are recommended: by default only where callers accept another way of opening."""


def _optimized(path: Path, allow: tuple[str, ...] | None = _ORDERED, **more: Any) -> OptimizeReport:
    report: OptimizeReport = memsched.optimize(path, effort=1.0, allow=allow, **more).report.values
    return report


def test_by_default_the_session_without_options_counts_and_another_one_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _measured(monkeypatch, path, default=(90, 1.0), patternless=(60, 0.97), listed=(50, 1.05))
    report = _optimized(path, None, hooks=memsched.Hooks(words=("optimize", str(path))))
    assert report.guarantee is not None
    assert not report.guarantee.session_options
    assert change_of(report).after == 90 * _MB
    (named,) = (row for row in report.alternatives if row.process_bytes == 60 * _MB)
    assert named.changes == ("opening",)
    assert named.process_saving_bytes == 40 * _MB
    assert "--may-change opening" in named.command


def test_options_that_take_too_long_are_not_printed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _measured(monkeypatch, path, default=(90, 1.0), patternless=(89, 1.0), listed=(60, 2.06))
    report = _optimized(path)
    assert report.guarantee is not None
    assert report.guarantee.kind == "none"
    assert not any("options" in line.split("#")[0] for line in report.guarantee.session_options)
    assert all(row.execution_order == "default" for row in report.sections.sessions or ())


def test_the_pattern_alone_is_left_out_where_that_saves_as_much(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _measured(monkeypatch, path, default=(90, 1.0), patternless=(60, 0.97), listed=(60, 1.05))
    report = _optimized(path)
    assert report.guarantee is not None
    assert report.guarantee.session_options == (
        "options = onnxruntime.SessionOptions()",
        "options.enable_mem_pattern = False",
        "session = onnxruntime.InferenceSession(path, options)",
    )
    assert [row.mem_pattern for row in report.sections.sessions or ()] == [True, True, False]


def test_options_that_are_worth_it_are_printed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _measured(monkeypatch, path, default=(90, 1.0), patternless=(89, 1.0), listed=(60, 1.05))
    report = _optimized(path)
    assert report.guarantee is not None
    assert report.guarantee.kind == "session"
    assert any("PRIORITY_BASED" in line for line in report.guarantee.session_options)


@pytest.mark.parametrize("default", [(120, 1.0), (90, 1.4)])
def test_nothing_is_written_that_a_session_without_options_pays_for(
    path: Path, default: _Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    _measured(monkeypatch, path, default=default, patternless=(60, 1.0), listed=(50, 1.0))
    report = _optimized(path)
    assert report.output is not None
    assert report.output.unchanged
    assert report.sections.held_back is not None
    assert report.sections.held_back.process_after_bytes == default[0] * _MB


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return the same network, whose processes say nothing of it."""
    file = tmp_path / "small.onnx"
    file.write_bytes(network().SerializeToString())
    return file


def _raced(monkeypatch: pytest.MonkeyPatch, listed: float) -> list[Path | None]:
    """Let options on the written file save a third of what it requests and take so long.

    Returns:
        Where sessions are told that external data lies, one element per race.
    """
    times, folders = {DEFAULT: 1.0, PATTERNLESS: 1.0, LISTED: listed}, list[Path | None]()

    def race(
        _: SessionMaker,
        sessions: Sequence[tuple[Path, SessionPoint]],
        feeds: Path,
        *,
        rounds: int,
        folder: Path | None,
    ) -> tuple[Raced | None, ...]:
        found = race_sessions(sessions, feeds, rounds=1, folder=folder)
        folders.append(folder)
        assert rounds
        assert all(found)
        return tuple(
            at_ratio(times[point] if number else None, requested=60_000 if point == LISTED else 90_000)
            for number, (_, point) in enumerate(sessions)
        )

    monkeypatch.setattr(SessionMaker, "race", race)
    return folders


def _lists_options(report: OptimizeReport) -> bool:
    assert report.guarantee is not None
    return any("PRIORITY_BASED" in line for line in report.guarantee.session_options)


@pytest.mark.parametrize(("listed", "recommended"), [(2.06, False), (1.05, True)])
def test_options_for_small_models_are_measured_too(
    small: Path, listed: float, recommended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _raced(monkeypatch, listed)
    report = memsched.optimize(small, effort=1.0, allow=_ORDERED).report.values
    assert _lists_options(report) is recommended
    assert all(row.process_bytes is None for row in report.sections.sessions or ())
    told = f"{listed:.2f} x"
    shown = " ".join([*report.verdict.notes, *(text for text, _ in (*process_lines(report), *held_back_lines(report)))])
    assert told in shown


def test_options_that_could_not_be_timed_are_not_recommended(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionMaker, "race", lambda _, sessions, *__, **___: (None,) * len(sessions))
    assert not _lists_options(memsched.optimize(small, effort=1.0, allow=_ORDERED).report.values)


@pytest.mark.parametrize(("listed", "recommended"), [(2.06, False), (1.05, True)])
def test_a_budget_is_held_by_sessions_that_are_quick_enough(
    path: Path, listed: float, recommended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _measured(monkeypatch, path, default=(60, 1.0), patternless=(60, 1.0), listed=(60, listed))
    # Sessions without options request 166,080 bytes.
    result = memsched.optimize(path, budget=166_000, effort=2.0, keep_best=True)
    assert _lists_options(result.report.values) is recommended
    assert result.budget_met is recommended


@pytest.mark.parametrize("kind", ["standard input", "external data"])
def test_models_from_everywhere_are_measured(small: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = _raced(monkeypatch, 2.06)
    source: Path | bytes = small.read_bytes()
    if kind == "external data":
        onnx.save(onnx.load(small), small, save_as_external_data=True, location="weights", size_threshold=0)
        source = small
    report = memsched.optimize(source, effort=1.0).report.values
    assert not _lists_options(report)
    assert folders[-1] == (small.parent if kind == "external data" else None)


def test_processes_of_files_with_external_data_are_measured(small: Path, tmp_path: Path) -> None:
    onnx.save(onnx.load(small), small, save_as_external_data=True, location="weights", size_threshold=0)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved, feeds = elsewhere / small.name, tmp_path / "feeds.npz"
    moved.write_bytes(small.read_bytes())
    draw_feeds(small.read_bytes(), tmp_path, LoadOptions(), feeds, seed=0)
    found = measure_session(moved, feeds, DEFAULT, (small, DEFAULT), rounds=1, folder=tmp_path)
    assert not isinstance(found, str), found
    assert found.ratio is not None


def test_what_is_said_of_the_recommended_session_was_measured_in_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = {DEFAULT: 90_000, PATTERNLESS: 70_000, LISTED: 60_000}

    def measure(_: SessionMaker, file: Path, feeds: Path, point: SessionPoint, *__: object, **___: object) -> Measured:
        size = 100 if file == path else 50 if point == PATTERNLESS else 90
        return took(size * _MB, 0.1, requested=requested[point])

    monkeypatch.setattr(SessionMaker, "measure", measure)
    monkeypatch.setattr(SessionMaker, "time_ratio", lambda *_, **__: 1.0)
    report = _optimized(path)
    shown = report.sections.verification
    assert shown is not None
    assert shown.measured_peak_after_bytes == report.verdict.bytes == requested[PATTERNLESS]
    assert f"{requested[PATTERNLESS]:,} B" in measured_text(report, shown)
