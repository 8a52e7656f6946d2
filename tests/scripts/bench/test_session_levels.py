"""What sessions request is what was predicted, at three levels of graph optimisation."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench.session_levels import SESSIONS, rows
from tests.commands.optimize.test_session_rewrites import attention, long_skip
from tests.commands.optimize.test_slowdown import convolutions

MODELS = {"attention": attention, "long_skip": long_skip, "convolutions": convolutions}


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_within_two_percent_at_each_level(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(MODELS[name]())
    found = list(rows(path, work=1.0))
    assert {(row.session, row.how) for row in found} == {
        (session, how) for session in SESSIONS for how in ("given", "given, no reuse", "ordered")
    }
    assert {(row.session, row.how): row.error for row in found if abs(row.error) > 0.02} == {}
