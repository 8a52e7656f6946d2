"""A candidate that fails makes way for the next best one, and is recorded; see `memsched.commands.failures`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import memsched
from memsched.base.errors import InternalError, ModelError, UsageError
from memsched.cli.main import INTERNAL
from memsched.commands.failures import DEFECTS, REPORT_IT, Failures
from memsched.commands.optimize import finish, placing, session, tile, trials
from memsched.commands.optimize.tile import TileRewrite
from memsched.report.values.optimize import OptimizeReport
from memsched.runtimes.output import Guarantee, ModelBytes
from memsched.runtimes.values import Verification
from tests.commands.optimize.test_choose import convolutions, skip_connection
from tests.tools import every_command


def fails(*_: Any, **__: Any) -> Any:
    """Fail as a defect does."""
    raise IndexError("tuple index out of range")


def report_of(data: bytes, **options: Any) -> OptimizeReport:
    """Return the report of a short run for sessions with options."""
    found: OptimizeReport = memsched.optimize(data, effort=2, order_guarantee="session", **options).report.values
    return found


@pytest.fixture
def goes_on(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv(DEFECTS)
    return monkeypatch


@pytest.mark.parametrize("step", [(tile, "_TileWays"), (TileRewrite, "candidates"), (tile, "_in_pieces")])
def test_a_defect_of_one_rewrite_leaves_that_one_out(goes_on: pytest.MonkeyPatch, step: tuple[Any, str]) -> None:
    goes_on.setattr(*step, fails)
    report = report_of(convolutions(), level=3)
    assert report.output is not None
    (failure,) = [one for one in report.sections.failures if one.what.endswith("(tile)") and one.defect]
    assert failure.reason.startswith("IndexError")
    assert any(failure.what in note and REPORT_IT in note for note in report.verdict.notes)


def test_a_defect_ends_the_run_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEFECTS, "raise")
    monkeypatch.setattr(TileRewrite, "candidates", fails)
    with pytest.raises(IndexError):
        report_of(convolutions(), level=2)


def test_what_cannot_be_placed_is_left_out(goes_on: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise InternalError("an address is wrong")

    goes_on.setattr(placing, "place", refuse)
    report = report_of(convolutions(), level=2)
    assert report.output is not None
    assert report.sections.tile is None or not report.sections.tile.applied


@pytest.mark.parametrize("wrong_ones", [0, 1])
def test_the_next_best_file_that_holds_is_written(goes_on: pytest.MonkeyPatch, wrong_ones: int) -> None:
    """Repetitions, then the order alone."""
    wrong = Verification("onnxruntime 0", 3, False, 0.5, None, None, None, "wrong", relative_error=0.25)
    right = Verification("onnxruntime 0", 3, True, 0.0, None, None, None, None, relative_error=0.0)
    answers = [wrong] * wrong_ones + [right] * 4
    goes_on.setattr(finish, "verify_written", lambda *_, **__: (answers.pop(0), ()))
    data = skip_connection()
    result = memsched.optimize(
        data, effort=2, order_guarantee="session", allow=("reorder", "inplace", "remat"), max_extra_macs=50.0
    )
    report: OptimizeReport = result.report.values
    assert len(report.sections.failures) == wrong_ones
    assert all(one.defect and "wrong" in one.reason for one in report.sections.failures)
    assert (report.sections.recompute is not None and report.sections.recompute.applied) == (wrong_ones == 0)
    assert (result.model == data) == (wrong_ones > 0)
    assert report.sections.verification is None or report.sections.verification.outputs_equal


def test_a_file_that_cannot_be_written_is_left_out(goes_on: pytest.MonkeyPatch) -> None:
    goes_on.setattr(finish, "write_model", fails)
    data = convolutions()
    result = memsched.optimize(data, effort=1, order_guarantee="pins", level=2)
    assert result.model == data
    assert result.report.values.sections.failures


def test_a_defect_in_a_trial_of_what_else_helps_takes_nothing_away(goes_on: pytest.MonkeyPatch) -> None:
    goes_on.setattr(trials, "Driver", fails)
    report = report_of(convolutions(), hooks=memsched.Hooks(words=("optimize", "net.onnx")))
    assert report.alternatives == ()
    assert any(one.defect for one in report.sections.failures)


def test_what_only_the_user_can_change_is_passed_on(goes_on: pytest.MonkeyPatch) -> None:
    assert goes_on
    failures = Failures()
    with pytest.raises(UsageError), failures.left_out("one"):
        raise UsageError("an option")
    with pytest.raises(KeyboardInterrupt), failures.left_out("one"):
        raise KeyboardInterrupt
    with failures.left_out("two"):
        raise ModelError("large")
    with failures.left_out("two"):
        raise ModelError("large")
    assert [(one.what, one.reason, one.defect) for one in failures.found] == [("two", "large", False)]


@pytest.mark.parametrize("fault", ["refuted", "unwritable"])
def test_a_session_graph_that_fails_leaves_the_file_as_it_is(goes_on: pytest.MonkeyPatch, fault: str) -> None:
    wrong = Verification("onnxruntime 0", 3, False, 0.5, None, None, None, "wrong", relative_error=0.25)

    def run(*_: Any, **__: Any) -> Any:
        if fault == "unwritable":
            raise InternalError("the reordered model does not hold the same graphs")
        return session._SessionRun(ModelBytes(b"", False, Guarantee("session")), wrong)

    goes_on.setattr(session, "_run", run)
    data = convolutions()
    result = memsched.optimize(data, effort=1, session="default")
    assert result.model == data
    (failure,) = result.report.values.sections.failures
    assert failure.defect


def test_every_command_finds_what_must_not_happen(tmp_path: Path) -> None:
    written = tmp_path / "out.onnx"
    case = every_command.Case("optimize", ("optimize",), (written,))
    one = "memsched: error: 'x.onnx' is empty\n"
    assert every_command.judge(case, 0, "", "", 1.0).wrong is not None
    assert every_command.judge(case, 1, "", one, 1.0).wrong is None
    assert every_command.judge(case, 1, "", one + one, 1.0).wrong is not None
    assert every_command.judge(case, 4, "", one, 1.0).wrong is not None
    assert every_command.judge(case, 1, "", f"memsched: error: {INTERNAL}: KeyError: 3\n", 1.0).wrong is not None
    written.write_bytes(b"model")
    assert every_command.judge(case, 0, "", "", 1.0).wrong is None
    assert every_command.judge(case, 0, f"note: {INTERNAL} in a rewrite", "", 1.0).wrong
