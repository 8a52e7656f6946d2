"""How files are opened where no session was named: what is recommended costs no more time than is permitted."""

from __future__ import annotations

from pathlib import Path

import pytest

import memsched
from memsched.commands.optimize.opening import opened_file
from memsched.commands.session_rows import session_row
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.onnxruntime.session_maker import OnnxRuntimeSessions
from memsched.runtimes.onnxruntime.session_points import (
    DEFAULT,
    LISTED,
    PATTERNLESS,
    MeasuredSession,
    SessionPoint,
)
from tests.commands.optimize.test_finish import LEAST
from tests.commands.optimize.test_session import network

pytestmark = pytest.mark.usefixtures("timed")

_MB = 1_000_000
_Taken = tuple[int, float]
"""Megabytes of the process, and processor time beside the file as given."""


def _rows(given: int, *written: _Taken) -> tuple[SessionRow, ...]:
    points = zip((DEFAULT, PATTERNLESS, LISTED), written, strict=True)
    rows = [
        session_row("written", point, MeasuredSession(None, size * _MB, size * _MB, 0.1, ratio))
        for point, (size, ratio) in points
    ]
    return session_row("given", DEFAULT, MeasuredSession(None, given * _MB, given * _MB, 0.1)), *rows


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

    def measure(
        _: OnnxRuntimeSessions, file: Path, feeds: Path, point: SessionPoint, *__: object, **___: object
    ) -> MeasuredSession:
        size, ratio = (100, None) if file == path else taken[names[point]]
        return MeasuredSession(None, size * _MB, size * _MB, 0.1, ratio)

    monkeypatch.setattr(OnnxRuntimeSessions, "measure", measure)


def _optimized(path: Path) -> OptimizeReport:
    report: OptimizeReport = memsched.optimize(path, time_limit=10).report.values
    return report


def test_options_that_take_too_long_are_not_printed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _measured(monkeypatch, path, default=(90, 1.0), patternless=(89, 1.0), listed=(60, 2.06))
    report = _optimized(path)
    assert report.order_guarantee is not None
    assert report.order_guarantee.kind == "none"
    assert not any("options" in line.split("#")[0] for line in report.order_guarantee.session_options)
    assert all(row.execution_order == "default" for row in report.sessions or ())


def test_the_pattern_alone_is_left_out_where_that_saves_as_much(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _measured(monkeypatch, path, default=(90, 1.0), patternless=(60, 0.97), listed=(60, 1.05))
    report = _optimized(path)
    assert report.order_guarantee is not None
    assert report.order_guarantee.session_options == (
        "options = onnxruntime.SessionOptions()",
        "options.enable_mem_pattern = False",
        "session = onnxruntime.InferenceSession(path, options)",
    )
    assert [row.mem_pattern for row in report.sessions or ()] == [True, True, False]


def test_options_that_are_worth_it_are_printed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _measured(monkeypatch, path, default=(90, 1.0), patternless=(89, 1.0), listed=(60, 1.05))
    report = _optimized(path)
    assert report.order_guarantee is not None
    assert report.order_guarantee.kind == "session"
    assert any("PRIORITY_BASED" in line for line in report.order_guarantee.session_options)


@pytest.mark.parametrize("default", [(120, 1.0), (90, 1.4)])
def test_nothing_is_written_that_a_session_without_options_pays_for(
    path: Path, default: _Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    _measured(monkeypatch, path, default=default, patternless=(60, 1.0), listed=(50, 1.0))
    report = _optimized(path)
    assert report.output is not None
    assert report.output.unchanged
    assert report.held_back is not None
    assert report.held_back.process_after_bytes == default[0] * _MB
