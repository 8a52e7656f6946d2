"""What a summary and a page say where the runtime was measured to need other than what was predicted."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console

import memsched
from memsched.commands.optimize.verification import verification_section
from memsched.report import page_words
from memsched.report.blocks import _INCLUDED, block_lines, print_curve
from memsched.report.budget import budget_verdict
from memsched.report.console import findings
from memsched.report.page_data import page_data
from memsched.report.predicted import OTHER_SIZES, missed_by
from memsched.report.suggestions import suggestion_lines
from memsched.report.values.blocks import BlocksSection, CurveRow, CurveSection, SizeRow
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.values import CLOSE, MeasuredArena, Verification
from tests import small_models
from tests.report.plain import typed
from tests.report.test_outputs import report_with


def measured(before: int, after: int) -> dict[str, Any]:
    """Return a report whose peaks were measured, and predicted as in its table."""
    report = report_with(True, 0.0, rewritten=False)
    report["sections"]["verification"] |= {
        "measured_peak_before_bytes": before,
        "measured_peak_after_bytes": after,
        "predicted_peak_before_bytes": report["original"]["schedule"]["peak_bytes"],
        "predicted_peak_after_bytes": report["written"]["schedule"]["peak_bytes"],
    }
    return report


def lines(report: dict[str, Any]) -> list[str]:
    """Return the summary's lines."""
    return [text for text, _ in findings(typed(report), 200, verbose=False)]


def test_a_saving_that_was_measured_to_be_none_is_not_stated() -> None:
    report = measured(7_000, 7_000)
    said = lines(report)
    assert said[0].startswith("measured: 7,000 -> 7,000 B; ")
    assert not [line for line in said if line.startswith(("saves", "proven"))]
    values = typed(report)
    words = page_words.page_words(values, page_data(values))
    assert " 7,000 B" in words.verdict
    assert "predicted" not in words.verdict
    assert "%" not in words.verdict
    assert "less now" not in {card.more for card in words.cards}
    assert "not hold" in words.proof


def test_a_saving_that_was_measured_is_stated() -> None:
    report = measured(0, 0)
    for when in ("before", "after"):
        shown = report["sections"]["verification"]
        shown[f"measured_peak_{when}_bytes"] = shown[f"predicted_peak_{when}_bytes"]
    assert lines(report)[0].startswith("saves")


def test_peaks_at_other_sizes_are_not_compared() -> None:
    report = measured(7_000, 7_000)
    report["sections"]["verification"]["at_stated_sizes"] = False
    said = lines(report)
    assert said[0].startswith("saves")
    assert any(OTHER_SIZES in line for line in said)
    assert not [line for line in said if "not hold" in line]


def over_budget(before: int | None, after: int | None, *, executed: bool = False) -> str:
    """Return the verdict on a budget of 1,000 bytes, a session without options being measured."""
    report = report_with(True, 0.0, rewritten=False)
    report["sections"]["verification"] |= {"default_peak_before_bytes": before, "default_peak_after_bytes": after}
    report["budget"] = {"budget_bytes": 1_000, "required_bytes": 9_000, "exceeded_bytes": 8_000, "met": False}
    report["verdict"]["unit"] = "requested"
    if executed:
        session = {"session": "default", "level": "all", "block_channels": None, "processor": "one"}
        report["sections"]["executed"] = session
    values = typed(report)
    assert values.budget is not None
    return budget_verdict(values, values.budget)


@pytest.mark.parametrize(("peaks", "given"), [((900, 1_100), True), ((1_100, 900), False), ((900, 900), True)])
def test_a_budget_that_a_session_without_options_meets_is_not_impossible(peaks: tuple[int, int], given: bool) -> None:
    told = over_budget(*peaks)
    measured = told.rpartition("; ")[2]
    assert " 900 B " in measured
    assert measured.endswith("--session default")
    assert ("as given" in measured) == given
    assert "no order" not in told


def test_other_budgets_stay_impossible() -> None:
    assert "no order" in over_budget(1_100, 1_100)
    assert "no order" in over_budget(None, None)
    assert "--session default" not in over_budget(900, 900, executed=True)


def test_a_process_is_not_compared_with_a_bound_of_activations() -> None:
    report = dict(memsched.analyze(small_models.branches()).report.data)
    size = {"N": 8}
    row = {"sizes": size, "requested_bytes": 500, "process_bytes": 9_000, "measured_bytes": 9_000}
    report["sections"]["curve"] = {"rows": [row], "largest_sizes": None, "growth": []}
    for bound in (500, 2_000):
        report["proof"] |= {"bound_bytes": bound}
        report["budget"] = {"budget_bytes": 1_000, "required_bytes": 9_000, "exceeded_bytes": 8_000, "met": False}
        values = typed(report)
        assert values.budget is not None
        verdict = budget_verdict(values, values.budget)
        assert "not even N = 8 " in verdict
        assert "no order" not in verdict


@pytest.mark.parametrize(("saving", "said"), [(0, False), (100, True)])
def test_activations_are_left_out_where_none_are_saved(saving: int, said: bool) -> None:
    row = AlternativeRow(
        command="memsched",
        what="a file",
        bytes=500,
        saving_bytes=saving,
        extra_macs_percent=0.0,
        time_ratio=1.0,
        changes=(),
        process_bytes=900,
        process_saving_bytes=100,
    )
    values = msgspec.structs.replace(typed(report_with(True, 0.0, rewritten=False)), alternatives=(row,))
    ((text, _),) = suggestion_lines(values)
    assert ("activations 600 -> 500 B" in text) == said
    assert ("activations" in text) == said


def test_a_process_over_a_range_is_said_to_hold_the_library() -> None:
    row = SizeRow(
        sizes={"N": 8}, given_process_bytes=9_000, process_bytes=5_000, given_seconds=1.0, seconds=1.0, time_ratio=1.0
    )
    written = BlocksSection(ranges=(), way="in loops", loops=(), kernels=(), measured=(row,), compared=())
    told = [text for text, _ in block_lines(written) if "process" in text and " N = 8" in text]
    assert len(told) == 1
    assert _INCLUDED in told[0]
    curve = CurveRow(sizes={"N": 8}, requested_bytes=1, process_bytes=9_000, measured_bytes=9_000)
    console = Console(width=100, record=True, file=StringIO())
    print_curve(console, CurveSection(rows=(curve,), largest_sizes=None, growth=()), None)
    assert _INCLUDED in console.export_text()


@pytest.mark.parametrize(("apart", "said"), [(1.9e-4, True), (0.0, False), (None, False)])
def test_outputs_beside_what_people_have_today(apart: float | None, said: bool) -> None:
    report = report_with(True, 0.0, rewritten=False)
    report["sections"]["verification"]["default_relative_error"] = apart
    told = [line for line in lines(report) if re.search(r"\de[+-]\d\d ", line)]
    assert len(told) == said
    assert all(" 1.9e-04 " in line and "as given" in line for line in told)


@pytest.mark.parametrize(
    ("after", "arenas", "at_stated_sizes", "held"),
    [
        (1000, 0, True, True),
        (1019, 0, True, True),
        (1021, 0, True, False),
        (979, 0, True, False),
        (None, 0, True, True),
        (1500, 0, False, True),
        (1500, 1, True, False),
        (1500, 2, True, True),
    ],
)
def test_a_verification_and_its_section_say_the_same(
    after: int | None, arenas: int, at_stated_sizes: bool, held: bool
) -> None:
    shown = Verification(
        *("runtime", 1, True, 0.0, 2000, after, True, None),
        predicted_peak_before_bytes=2000,
        predicted_peak_after_bytes=1000,
        arenas=(MeasuredArena(1, 1, 1, 1),) * arenas,
        at_stated_sizes=at_stated_sizes,
    )
    assert shown.holds is held
    assert (missed_by(verification_section(shown)) <= CLOSE) is held
