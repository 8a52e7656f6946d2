"""Measured peaks beside predicted ones: the summary says so where they differ by more than 2 %."""

from __future__ import annotations

import pytest

from memsched.report.console import findings
from tests.report.plain import typed
from tests.report.test_outputs import report_with


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((1000, 1000), (900, 900), None),
        ((1020, 1000), (882, 900), None),
        ((1021, 1000), (900, 900), "up to 2.1 % off the 1,000 -> 900 B predicted"),
        ((1000, 1000), (1000, 800), "up to 25.0 % off the 1,000 -> 800 B predicted"),
        ((5000, None), (4000, None), None),
    ],
)
def test_a_prediction_that_missed_is_named(
    before: tuple[int, int | None], after: tuple[int, int | None], said: str | None
) -> None:
    report = report_with(True, 0.0, rewritten=False)
    for when, (measured, predicted) in (("before", before), ("after", after)):
        report["sections"]["verification"][f"measured_peak_{when}_bytes"] = measured
        report["sections"]["verification"][f"predicted_peak_{when}_bytes"] = predicted
    text, style = findings(typed(report), 100, verbose=False)[-1]
    assert f"measured peak {before[0]:,} -> {after[0]:,} B" in text
    assert ("predicted" in text) == (said is not None)
    assert said is None or said in text
    assert style == ("green" if said is None else "yellow")


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
    lines = [text for text, _ in findings(typed(report), 100, verbose=False)]
    assert any(line.startswith("LiteRT's own planner leaves gaps") for line in lines) == said
