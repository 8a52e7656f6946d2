"""What some tests need of the machine that not every supported Python has."""

from __future__ import annotations

import onnxruntime
import pytest

__all__ = ["MEASURABLE", "recent_onnxruntime"]

_VERSION = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])

MEASURABLE = _VERSION >= (1, 29)
"""Whether ONNX Runtime's profiles carry memory figures."""

recent_onnxruntime = pytest.mark.skipif(
    not MEASURABLE, reason="ONNX Runtime for Python 3.10 ends at 1.23; profiles carry memory figures from 1.29 on"
)
