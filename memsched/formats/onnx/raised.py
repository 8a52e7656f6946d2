"""Models of old operator sets in one that has loops over sequences, and operators that take sizes as inputs."""

from __future__ import annotations

from typing import Final

from onnx import ModelProto, TensorProto

from memsched.formats.onnx.nodes import opset

__all__ = ["LEAST_OPSET", "raised"]

LEAST_OPSET: Final = 13
"""Loops over sequences need this version of the operator set."""


def raised(model: ModelProto) -> ModelProto:
    """Return a model in an operator set that has loops over sequences; as it is where it can't be translated."""
    from onnx import version_converter

    if opset(model) >= LEAST_OPSET or any(one.data_location == TensorProto.EXTERNAL for one in model.graph.initializer):
        return model
    try:
        return version_converter.convert_version(model, LEAST_OPSET)
    except Exception:  # the converter raises whatever its C++ does
        return model
