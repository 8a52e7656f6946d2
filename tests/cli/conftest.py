"""A small model to run commands on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import small_models
from tests.outcomes import Outcome, Run

__all__ = ["Outcome", "Run"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(small_models.branches())
    return path
