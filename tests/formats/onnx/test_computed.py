"""Constants that nodes compute: as the runtime does, in the model's version of the operator set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.computed import ComputedConstants, NoValueError

STORED = np.arange(6, dtype=np.float32).reshape(1, 1, 6)


def model_of(*nodes: Any, opset: int, **stored: np.ndarray[Any, Any]) -> ModelProto:
    weights = [numpy_helper.from_array(value, name) for name, value in {"stored": STORED, **stored}.items()]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    last = helper.make_node("Add", ["x", nodes[-1].output[0]], ["y"])
    graph = helper.make_graph([*nodes, last], "net", given, made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def constants(model: ModelProto, **options: Any) -> ComputedConstants:
    return ComputedConstants(model, list(model.graph.node[:-1]), Path(), **options)


@pytest.mark.parametrize(
    ("opset", "kind", "attributes", "stored"),
    [
        (11, "Squeeze", {"axes": [0]}, {}),
        (13, "Squeeze", {}, {"axes": np.array([0])}),
        (11, "Unsqueeze", {"axes": [0, 3]}, {}),
        (9, "Slice", {"starts": [2], "ends": [5], "axes": [2]}, {}),
        (12, "ReduceSum", {"axes": [2], "keepdims": 0}, {}),
        (10, "Clip", {"min": 1.0, "max": 3.0}, {}),
        (2, "Pad", {"pads": [0, 0, 1, 0, 0, 2], "value": 4.0}, {}),
        (6, "Tile", {}, {"repeats": np.array([1, 2, 3])}),
    ],
)
def test_old_operators_say_what_they_said(
    opset: int, kind: str, attributes: dict[str, Any], stored: dict[str, np.ndarray[Any, Any]]
) -> None:
    node = helper.make_node(kind, ["stored", *stored], ["made"], **attributes)
    model = model_of(node, opset=max(opset, 7), **stored)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, {"x": np.zeros(1, np.float32)})
    np.testing.assert_array_equal(constants(model).get("made"), wanted)


def test_constants_of_constants_are_followed_down() -> None:
    nodes = [helper.make_node("Identity", [f"v{number}"], [f"v{number + 1}"]) for number in range(3_000)]
    nodes[0].input[0] = "stored"
    np.testing.assert_array_equal(constants(model_of(*nodes, opset=13)).get("v3000"), STORED)


def huge(kind: str) -> tuple[ModelProto, str]:
    lengths = {"shape": np.array([1 << 20, 1 << 20, 6])}
    given = {"ConstantOfShape": ["shape"], "Expand": ["stored", "shape"], "Tile": ["stored", "shape"]}[kind]
    return model_of(helper.make_node(kind, given, ["made"]), opset=13, **lengths), "made"


@pytest.mark.parametrize("kind", ["ConstantOfShape", "Expand", "Tile"])
def test_a_file_of_some_bytes_takes_no_terabytes(kind: str) -> None:
    model, name = huge(kind)
    with pytest.raises(NoValueError, match="'made'"):
        constants(model).get(name)


def test_what_cannot_be_said() -> None:
    node = helper.make_node("Sqrt", ["stored"], ["made"])
    model = model_of(node, opset=13)
    with pytest.raises(NoValueError, match="'x'"):
        constants(model).get("x")
    with pytest.raises(NoValueError, match="'made'"):
        constants(model, kinds={"Identity"}).get("made")
    model.graph.node[0].op_type = "Unheard"
    with pytest.raises(NoValueError, match="'made'"):
        constants(model).get("made")
    model.graph.initializer[0].dims[:] = [7]
    with pytest.raises(NoValueError, match=r"'stored'.*read"):
        constants(model).get("stored")
    outside = ModelProto.FromString(model.SerializeToString())
    outside.graph.initializer[0].data_location = TensorProto.EXTERNAL
    with pytest.raises(NoValueError, match=r"'stored'.*outside"):
        ComputedConstants(outside, [], None).get("stored")
