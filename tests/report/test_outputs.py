"""One verdict on outputs, wherever it is shown: summary, page and batch."""

from __future__ import annotations

from typing import Any

import pytest

import memsched
from memsched.report import batch, page_words
from memsched.report.console import findings
from memsched.report.outputs import compared
from tests import small_models
from tests.report.plain import typed


def report_with(equal: bool | None, error: float | None, *, rewritten: bool) -> dict[str, Any]:
    report = dict(memsched.optimize(small_models.branches(), verify=False).report.data)
    report["sections"]["verification"] = {
        "runtime": "onnxruntime 9",
        "outputs_equal": equal,
        "max_abs_error": error,
        "relative_error": error,
        "measured_peak_before_bytes": None,
        "measured_peak_after_bytes": None,
        "predicted_peak_before_bytes": None,
        "predicted_peak_after_bytes": None,
        "executed_order_matches": None,
        "runs": 3,
        "reason": "one of them",
        "notes": [],
    }
    applied = memsched.optimize(small_models.branches(), verify=False, level=2).report["sections"]["tile"]
    report["sections"]["tile"] = {**applied, "applied": True} if rewritten else None
    return report


@pytest.mark.parametrize(
    ("equal", "error", "rewritten", "good", "about"),
    [
        (True, 0.0, False, True, ("bit-equal",)),
        (False, 1.6e-7, True, True, ("equal ", " 1e-05 ", " 1.6e-07)")),
        (False, 1.6e-7, False, False, ("different",)),
        (False, 1.0, True, False, ("different",)),
        (False, None, True, False, ("different",)),
        (None, None, True, None, ("not ",)),
    ],
)
def test_everyone_says_the_same(
    equal: bool | None, error: float | None, rewritten: bool, good: bool | None, about: tuple[str, ...]
) -> None:
    report = report_with(equal, error, rewritten=rewritten)
    known, words = compared(typed(report).sections)
    assert known is good
    assert [one for one in about if one not in words] == []
    said, style = next(
        (text, style) for text, style in findings(typed(report), 80, verbose=False) if "onnxruntime 9" in text
    )
    shown = dict(page_words._verification(typed(report)))["outputs"]
    values = typed(report)
    assert values.output is not None
    row = batch.figures(values, values.output).outputs
    assert row == words
    if good:
        assert f" {words} on 3 " in said
        assert shown.startswith(f"{words}, 3 ")
    elif good is False:
        assert "outputs differ" in said
        assert style == "red"
        assert shown.startswith("different")
    else:
        assert "not verified" in said
        assert "not" in shown.partition(", ")[0]
        assert not shown.startswith(("bit-equal", "equal", "different"))
