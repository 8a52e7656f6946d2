"""What the readers put into ops for the rules of tiling: shapes of constants, kernels, hybrid operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from memsched.formats.module import LoadOptions
from memsched.formats.onnx import reader as onnx_reader
from memsched.formats.tflite import reader as tflite_reader
from memsched.graph.model import Op
from memsched.ops.geometry import describe
from memsched.ops.rules import Geometry
from memsched.rewrites.tile.runs import shape_attributes
from tests.formats.tflite_builder import O, Sub, T, build, options


def onnx_op(kind: str, opset: int, constants: dict[str, Any], **attributes: Any) -> Op:
    node = helper.make_node(kind, ["x", *constants], ["y"], "op", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
    y = helper.make_empty_tensor_value_info("y")
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx_reader.read(model.SerializeToString(), "m.onnx", LoadOptions()).graphs[0].ops[0]


def test_convolutions_know_their_weights() -> None:
    weights, bias = np.zeros((6, 2, 3, 5), np.float32), np.zeros(6, np.float32)
    found = onnx_op("Conv", 13, {"w": weights, "b": bias}, group=2).attributes
    assert found["kernel_shape"] == (3, 5)
    assert (found["constant_shape_1"], found["constant_shape_2"]) == ((6, 2, 3, 5), (6,))
    stated = onnx_op("Conv", 13, {"w": weights}, group=2, kernel_shape=[3, 5]).attributes
    assert stated["kernel_shape"] == (3, 5)


def test_constants_whose_values_are_known_have_no_shape() -> None:
    found = onnx_op("Reshape", 13, {"shape": np.array([4, 64])}).attributes
    assert found["shape"] == (4, 64)
    assert "constant_shape_1" not in found
    assert onnx_op("Mul", 13, {"c": np.zeros((4, 1, 1), np.float32)}).attributes == {"constant_shape_1": (4, 1, 1)}


def test_the_first_resize_has_its_scales_at_another_place() -> None:
    found = onnx_op("Resize", 10, {"scales": np.array([1, 1, 2, 2], np.float32)}).attributes
    assert (found["scales"], found["legacy"]) == ((1.0, 1.0, 2.0, 2.0), 1)


def conv_2d(dtype: str, size: int) -> Op:
    tensors = [
        T("x", (1, 4, 4, 2)), T("w", (3, 1, 1, 2), dtype, bytes(6 * size)), T("y", (1, 4, 4, 3)),
    ]  # fmt: skip
    table = options("Conv2DOptions", strideH=1, strideW=1)
    data = build(Sub(tensors, [O("CONV_2D", [0, 1], [2], table)], [0], [2]))
    return tflite_reader.read(data, "m.tflite", LoadOptions()).graphs[0].ops[0]


def test_tflite_operators_know_their_weights_and_whether_they_are_hybrid() -> None:
    plain, hybrid = conv_2d("FLOAT32", 4), conv_2d("INT8", 1)
    assert plain.attributes["constant_shape_1"] == hybrid.attributes["constant_shape_1"] == (3, 1, 1, 2)
    assert "hybrid" not in plain.attributes
    assert hybrid.attributes["hybrid"] is True


def test_attributes_whose_names_are_no_text() -> None:
    """Protobuf's Python runtime gives them as bytes."""
    node = helper.make_node("Exp", ["x"], ["y"], "op", unknown=3)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), ir_version=8)
    data = model.SerializeToString().replace(b"unknown", b"\xff\xfeknown")
    graph = onnx_reader.read(data, "m.onnx", LoadOptions()).graphs[0]
    assert graph.ops[0].attributes == {"\ufffd\ufffdknown": 3}
    assert isinstance(describe(graph, 0), Geometry)


def test_a_resize_states_sizes_along_its_axes_alone() -> None:
    sizes = {"sizes": (1, 2, 8, 6)}
    assert shape_attributes("Resize", sizes, (1, 2, 3, 6)) == {"sizes": (1, 2, 3, 6)}
    assert shape_attributes("Resize", {"sizes": (8, 6), "axes": (2, 3)}, (1, 2, 3, 6)) == {"sizes": (3, 6)}
    assert shape_attributes("Resize", {"sizes": (6, 8), "axes": (-1, 2)}, (1, 2, 3, 6)) == {"sizes": (6, 3)}
