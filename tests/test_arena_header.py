"""The C header that a build makes from a report."""

from __future__ import annotations

from pathlib import Path

import memsched
from scripts.arena_header import header

MODELS = Path(__file__).resolve().parent.parent / "models"


def test_the_header_states_the_reports_figures() -> None:
    result = memsched.optimize(MODELS / "person_detect.tflite", target="tflm", verify=False)
    text = header(dict(result.report.data), "person_detect.json")
    assert "#define PERSON_DETECT_ACTIVATION_BYTES ((size_t)55296u)" in text
    assert result.report.data["output"]["sha256"] in text
    assert text.count("PERSON_DETECT_ARENA_H_") == 3
