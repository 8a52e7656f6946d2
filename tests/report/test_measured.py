"""Measured peaks beside predicted ones: the summary says so where they differ by more than 2 %."""

from __future__ import annotations

import pytest

from memsched.report.console import findings
from tests.report.plain import typed
from tests.report.test_outputs import report_with


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((1000, 1000), (900, 900), ()),
        ((1020, 1000), (882, 900), ()),
        ((1021, 1000), (900, 900), (" 2.1 % ", " 1,000 -> 900 B ")),
        ((1000, 1000), (1000, 800), (" 25.0 % ", " 1,000 -> 800 B ")),
        ((5000, None), (4000, None), ()),
    ],
)
def test_a_prediction_that_missed_is_named(
    before: tuple[int, int | None], after: tuple[int, int | None], said: tuple[str, ...]
) -> None:
    report = report_with(True, 0.0, rewritten=False)
    for when, (measured, predicted) in (("before", before), ("after", after)):
        report["sections"]["verification"][f"measured_peak_{when}_bytes"] = measured
        report["sections"]["verification"][f"predicted_peak_{when}_bytes"] = predicted
    text, style = findings(typed(report), 100, verbose=False)[-1]
    assert f" {before[0]:,} -> {after[0]:,} B" in text
    assert ("predicted" in text) == bool(said)
    assert [one for one in said if one not in text] == []
    assert style == ("yellow" if said else "green")


@pytest.mark.parametrize(
    ("taken", "said"), [(None, False), ({"before": 1.004, "after": 1.0}, False), ({"before": 1.0, "after": 1.01}, True)]
)
def test_gaps_of_the_runtime_s_own_planner_are_named(taken: dict[str, float] | None, said: bool) -> None:
    report = report_with(True, 0.0, rewritten=False)
    arenas = {
        "before": report["original"]["schedule"]["arena_bytes"],
        "after": report["written"]["schedule"]["arena_bytes"],
    }
    own = None if taken is None else {when: int(arenas[when] * factor) for when, factor in taken.items()}
    if own is not None:
        report["verdict"]["unit"] = "litert_arena"
        report["sections"]["requirement"] |= {"given_bytes": own["before"], "bytes": own["after"]}
    lines = [text for text, _ in findings(typed(report), 100, verbose=False) if "own planner" in text]
    assert len(lines) == said
    assert own is None or all(f" {own['before']:,} B " in line and f" {own['after']:,} B " in line for line in lines)
