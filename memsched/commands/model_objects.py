"""Models that a program holds as objects of other packages, as the bytes of their files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, Protocol

__all__ = ["ModelObject", "with_bytes"]

_SOURCES: Final = ("source", "first", "second")
"""Parameters of commands that take a model."""


class ModelObject(Protocol):
    """An ``onnx.ModelProto`` or an ``onnx_ir.Model``: what both have."""

    @property
    def ir_version(self) -> int: ...  # noqa: D102 - above
    @property
    def producer_name(self) -> Any: ...  # noqa: D102 - above


def with_bytes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a command with its models as bytes; all other values stay as they are."""
    return {name: _as_bytes(value) if name in _SOURCES else value for name, value in values.items()}


def _as_bytes(source: Any) -> Any:
    # Whoever holds such an object has imported its package.
    onnx, onnx_ir = sys.modules.get("onnx"), sys.modules.get("onnx_ir")
    if onnx_ir is not None and isinstance(source, onnx_ir.Model):
        source = onnx_ir.to_proto(source)
    if onnx is not None and isinstance(source, onnx.ModelProto):
        return source.SerializeToString()
    return source
