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
    ("equal", "error", "rewritten", "good", "words"),
    [
        (True, 0.0, False, True, "bit-equal"),
        (False, 1.6e-7, True, True, "equal within 1e-05 (largest relative error 1.6e-07)"),
        (False, 1.6e-7, False, False, "different"),
        (False, 1.0, True, False, "different"),
        (False, None, True, False, "different"),
        (None, None, True, None, "not compared"),
    ],
)
def test_everyone_says_the_same(
    equal: bool | None, error: float | None, rewritten: bool, good: bool | None, words: str
) -> None:
    report = report_with(equal, error, rewritten=rewritten)
    assert compared(typed(report).sections) == (good, words)
    said, style = next(
        (text, style) for text, style in findings(typed(report), 80, verbose=False) if "onnxruntime 9" in text
    )
    shown = dict(page_words._verification(typed(report)))["outputs"]
    values = typed(report)
    assert values.output is not None
    row = batch.figures(values, values.output).outputs
    assert row == words
    if good:
        assert f"outputs {words} on 3 random inputs" in said
        assert shown.startswith(f"{words}, 3 random inputs")
    elif good is False:
        assert "outputs differ" in said
        assert style == "red"
        assert shown.startswith("different")
    else:
        assert "not verified" in said
        assert shown.startswith("could not be run")
