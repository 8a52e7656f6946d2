"""Models of old operator sets in one that has loops over sequences, and operators that take sizes as inputs."""

from __future__ import annotations

from onnx import ModelProto, TensorProto, version_converter

from memsched.formats.onnx.nodes import opset
from memsched.formats.onnx.standard import Opset

__all__ = ["raised"]


def raised(model: ModelProto) -> ModelProto:
    """Return a model in an operator set that has loops over sequences; as it is where it can't be translated."""
    outside = any(one.data_location == TensorProto.EXTERNAL for one in model.graph.initializer)
    if outside or opset(model) >= Opset.LOOPS_OVER_SEQUENCES:
        return model
    try:
        return version_converter.convert_version(model, Opset.LOOPS_OVER_SEQUENCES)
    except Exception:  # the converter raises whatever its C++ does
        return model
