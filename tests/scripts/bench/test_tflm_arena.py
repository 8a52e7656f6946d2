"""The table of arenas executes what it prints, in TensorFlow Lite Micro itself."""

from __future__ import annotations

import pytest

from scripts.bench.runner.declare import ROOT
from scripts.bench.tflm_arena import arena

pytest.importorskip("tflite_micro")


def test_a_row_is_of_a_file_that_was_executed() -> None:
    found = arena(ROOT / "models" / "hello_world_int8.tflite", 0.0, 0.0, tile=False, effort_limit=0.2)
    assert (found.given, found.bytes, found.extra, found.flash) == (1136, 1136, 0.0, 0.0)
    assert found.verified
    assert found.time > 0
