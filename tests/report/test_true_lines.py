"""Every line of a summary is true in every state in which it is printed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import memsched
from memsched.base.units import format_size
from memsched.cli.main import main
from memsched.commands.optimize.record import Record
from memsched.commands.optimize.report import _notes
from memsched.commands.optimize.suggested import suggested
from memsched.commands.optimize.trials import RunOutcome
from memsched.commands.session_rows import session_row
from memsched.report.console import findings
from memsched.report.page_data import page_data
from memsched.report.page_words import page_words
from memsched.report.sessions import default_session_line
from memsched.report.tiling import tiling_lines
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.rewrites import RefusalRow, TilingSection
from memsched.report.values.runtime import RefusedOpRow
from memsched.report.values.shared import VerificationSection
from memsched.runtimes.arena_facts import ArenaFacts
from memsched.runtimes.sessions import DEFAULT
from tests import small_models
from tests.formats import tflite_builder
from tests.formats.tflite_builder import pack, unpack
from tests.report.plain import EQUAL_OUTPUTS, amended

changed = msgspec.structs.replace


def said(report: OptimizeReport) -> str:
    return "\n".join(text for text, _ in findings(report, 80, verbose=False))


@pytest.fixture(scope="module")
def found() -> OptimizeReport:
    """A file in another order, which is not verified."""
    report = memsched.optimize(small_models.branches(), verify=False).report.values
    assert report.output is not None
    assert not report.output.unchanged
    return report


@pytest.fixture(scope="module")
def for_firmware() -> OptimizeReport:
    data = tflite_builder.build(tflite_builder.branches(4))
    report = memsched.optimize(
        data, target="tflm", verify=False, budget="1MB", allow=("reorder", "inplace")
    ).report.values
    assert report.sections.tflm is not None
    assert "budget met" in said(report)
    return report


def test_another_file_is_not_said_to_keep_its_order(found: OptimizeReport) -> None:
    """Its peak is the same, and what the runtime allocates is less by 5.8 %; or nothing is."""
    before = found.original.schedule
    figures = {"peak_bytes": before.peak_bytes, "arena_bytes": before.arena_bytes, "reduction_percent": 0.0}
    same = changed(found.written, schedule=changed(found.written.schedule, **figures))
    given = found.sections.requirement.given_bytes
    for needed, gain in ((given - given * 58 // 1000, True), (given, False), (given + 64, False)):
        report = amended(found, written=same, requirement=changed(found.sections.requirement, bytes=needed))
        text = said(report)
        assert "is kept" not in text
        assert "saves 0 B" not in text
        assert (f"saves {format_size(given - needed)} " in text) is gain
        schedule = changed(same.schedule, peak_bytes=before.peak_bytes + 64)
        higher = amended(report, written=changed(same, schedule=schedule))
        assert "is kept" not in said(higher)
        assert "saves -" not in said(higher)


def test_a_search_that_ended_early_is_not_said_to_be_interrupted(found: OptimizeReport) -> None:
    """Its effort, its memory or a person ended it: the report does not know which."""
    report = amended(found, verdict=changed(found.verdict, interrupted=True))
    assert "interrupted" not in said(report)
    assert "ended early" in said(report)


def test_a_model_that_is_refused_has_no_gain(for_firmware: OptimizeReport) -> None:
    assert for_firmware.sections.tflm is not None
    refused = RefusedOpRow(subgraph=0, operator=0, type="X", name="x", reason="it is not there")
    report = amended(for_firmware, tflm=changed(for_firmware.sections.tflm, refused=(refused,)))
    assert "saves" in said(for_firmware)
    text = said(report)
    assert f"X 'x': {refused.reason}" in text
    for gain in ("saves", "% less", "budget met"):
        assert gain not in text
    green = [line for line, style in findings(report, 80, verbose=False) if style == "green"]
    assert not green


def test_a_model_that_is_refused_meets_no_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever its arena would be: the report, the exit code and what is printed agree, and nothing is written."""
    model = unpack(tflite_builder.build(tflite_builder.branches(4)))
    for operator in model.operatorCodes:
        operator.builtinCode = operator.deprecatedBuiltinCode = 127
    path, out = tmp_path / "net.tflite", tmp_path / "out.tflite"
    path.write_bytes(pack(model))
    words = ["optimize", str(path), "-o", str(out), "--target", "tflm", "--budget", "100MB", "--effort", "1"]
    assert main(words) == 3
    text = capsys.readouterr().out
    assert "not met" in text
    assert "budget met" not in text
    assert not out.exists()


def _default_peaks(before: int | None, after: int | None) -> VerificationSection:
    """Return equal outputs, and the bytes that sessions without options requested for both files."""
    return changed(EQUAL_OUTPUTS, default_peak_before_bytes=before, default_peak_after_bytes=after)


def test_a_proof_says_for_which_operators_it_holds(found: OptimizeReport) -> None:
    """A session without options has operators of its own, which may need more than the least of the file's."""
    least = found.proof.bound_bytes
    assert found.proof.status == "optimal"
    for measured, told in ((least + 64, True), (least, False), (None, False)):
        shown = _default_peaks(measured, measured)
        report = amended(found, verification=shown)
        assert ("operators" in _proof(said(report))) == told
        cards = page_words(report, page_data(report)).cards
        assert any("operators" in (card.more or "") for card in cards) == told


@pytest.mark.parametrize(("process", "told"), [(None, True), (90, False), (110, True)])
def test_no_session_needs_more_whose_process_was_measured_to_take_less(
    found: OptimizeReport, process: int | None, told: bool
) -> None:
    shown = _default_peaks(1_000, 2_000)
    given = changed(session_row("given", DEFAULT), process_bytes=100)
    written = changed(session_row("written", DEFAULT), process_bytes=process)
    report = amended(found, verification=shown, sessions=(given, written))
    line, warns = default_session_line(report)
    assert (line is not None) == warns == told


def _proof(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("proven optimal"))


def test_nothing_helps_a_model_that_is_refused() -> None:
    facts = ArenaFacts(None, words="Didn't find op for builtin opcode")
    assert suggested(cast(RunOutcome, None), facts=facts) == ()


@pytest.mark.parametrize(("peak", "word"), [(50, "fell"), (100, "same"), (150, "grew")])
def test_a_larger_arena_is_told_with_what_the_peak_did(peak: int, word: str) -> None:
    given = SimpleNamespace(arena=100, schedule=SimpleNamespace(peak=100))
    plan = SimpleNamespace(checked=SimpleNamespace(peak=peak), schedule=SimpleNamespace(method="exact"))
    module = SimpleNamespace(notes=(), bodies=(), graphs=(None,))
    record: Any = SimpleNamespace(
        module=module,
        written=None,
        notes=(),
        failures=(),
        rewritten=module,
        final=SimpleNamespace(
            prepared=SimpleNamespace(baselines={"file_order": given}),
            placed=SimpleNamespace(allocation=SimpleNamespace(arena=160), plans=(plan,)),
        ),
        interrupted=False,
        command="optimize",
    )
    (note,) = _notes(cast(Record, record))
    assert " 100 to 160 B" in note
    assert word in note.rpartition(" peak ")[2]


def test_what_could_not_be_written_is_not_said_to_be_impossible() -> None:
    row = RefusalRow(op="a", type="Conv", reason="a defect of memsched, please report it: x", form="pieces", found=True)
    impossible = changed(row, reason="it has a state", found=False)
    section = cast(
        TilingSection,
        SimpleNamespace(
            applied=False,
            max_extra_macs_percent=0.0,
            exhausted=True,
            lower_bound_bytes=None,
            refusals=(row, impossible),
        ),
    )
    lines = [text for text, _ in tiling_lines(section, 80, verbose=False)]
    cut, defect = (next(number for number, line in enumerate(lines) if one.reason in line) for one in (impossible, row))
    assert lines[cut - 1].startswith("1 operator ")
    assert lines[defect - 1].startswith("1 operator ")
    assert "cut" in lines[cut - 1]
    assert "written" in lines[defect - 1]
