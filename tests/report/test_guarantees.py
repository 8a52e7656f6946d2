"""A prediction for the original never stands beside a measurement that contradicts it, unless both are named."""

from __future__ import annotations

from msgspec.structs import replace

import memsched
from memsched.report.guarantees import guarantee_lines
from memsched.report.values.optimize import OptimizeReport
from tests.report.plain import amended
from tests.small_models import branches


def test_a_contradicted_prediction_is_named_beside_the_measurement() -> None:
    report: OptimizeReport = memsched.optimize(branches()).report.values
    guarantee, shown = report.guarantee, report.sections.verification
    assert guarantee is not None
    assert shown is not None
    assert guarantee.predicted_peak_bytes is not None
    predicted = guarantee.predicted_peak_bytes.given

    def lines(measured: int) -> list[str]:
        seen = amended(report, verification=replace(shown, default_peak_before_bytes=measured))
        return [text for text, _ in guarantee_lines(seen)]

    (as_predicted,) = lines(predicted)
    assert f"as given {predicted:,}" in as_predicted
    measured = 2 * predicted
    promised, both = lines(measured)
    assert "as given" not in promised
    assert f"{guarantee.predicted_peak_bytes.session_without_reuse:,} B" in promised
    assert [one for one in (f" {measured:,} B ", f" {predicted:,} B ") if one not in both] == []
