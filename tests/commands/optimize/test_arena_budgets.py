"""No model of ours ends with a larger arena than it had, and a larger budget is met wherever a smaller one is.

`make test-budgets` holds it for all models with more work, and for files that are given.
"""

from __future__ import annotations

import pytest

from tests.formats.tflite_builder import MODELS
from tests.tools.budgets import PERMISSIONS, judge

TARGETS = ("tflm-reference", "tflm")


@pytest.mark.parametrize("permission", PERMISSIONS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["hello_world_int8", "micro_speech_quantized"])
def test_small_models_over_twelve_budgets(name: str, target: str, permission: str) -> None:
    found = judge((MODELS / f"{name}.tflite").read_bytes(), target, permission, effort=0.1)
    assert not found.wrong
    assert len(found.met) == 11


@pytest.mark.parametrize(
    ("name", "target", "permission", "steps"),
    [
        ("person_detect", "tflm-reference", "tile", 4),
        ("person_detect", "tflm", "tile", 3),
        ("mobilenetv2_035_96_int8", "tflm-reference", "tile and remat", 3),
        ("nasnetmobile_int8", "tflm-reference", "order", 2),
    ],
)
def test_larger_models_over_a_few_budgets(name: str, target: str, permission: str, steps: int) -> None:
    found = judge((MODELS / f"{name}.tflite").read_bytes(), target, permission, effort=0.15, steps=steps)
    assert not found.wrong
    assert found.reached < found.given
    assert len(found.met) == steps - 1
