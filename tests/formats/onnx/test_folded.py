"""Shape arithmetic is carried out: the same outputs, at the sizes that are stated and no other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import memsched
from memsched.check.rewrite import check_folded
from memsched.formats.capabilities import ShapeArithmetic
from memsched.formats.files import load_module
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions, Module
from memsched.graph.model import Graph
from memsched.runtimes.known import observer_of
from tests.failures import fails

STATED = LoadOptions(input_shapes={"x": (1, 3, 32, 32)})


def integers(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, dtype=np.int64), name)


def weights(name: str, *shape: int) -> TensorProto:
    drawn = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(drawn * np.float32(0.1), name)


def doubled(*, outputs: Sequence[str] = ("y",), ir_version: int = 8) -> bytes:
    """Return layers with a Resize between them to twice the size, which is computed as exporters write it."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Shape", ["b"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "first"], ["batch"]),
        *(helper.make_node("Gather", ["sizes", axis], [f"{axis} length"]) for axis in ("rows", "columns")),
        *(helper.make_node("Mul", [f"{axis} length", "two"], [f"{axis} wanted"]) for axis in ("rows", "columns")),
        helper.make_node("Concat", ["batch", "channels", "rows wanted", "columns wanted"], ["wanted"], axis=0),
        helper.make_node(
            *("Resize", ["b", "", "", "wanted"], ["large"]),
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        helper.make_node("Conv", ["large", "w2"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    stored = [
        *(weights("w1", 16, 3, 3, 3), weights("w2", 8, 16, 3, 3), integers("first", 0), integers("rows", 2)),
        *(integers("columns", 3), integers("two", 2), integers("channels", 16)),
    ]
    kinds = {"sizes": TensorProto.INT64, "wanted": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])]
    if ir_version < 4:
        inputs += [helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in stored]
    given = [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None) for name in outputs]
    graph = helper.make_graph(nodes, "doubled", inputs, given, stored)
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=ir_version).SerializeToString())


def read(data: bytes, options: LoadOptions = STATED) -> Module:
    return load_module(data, "doubled.onnx", options)


def folded(data: bytes, options: LoadOptions = STATED) -> bytes | None:
    module = read(data, options)
    return capability(module, ShapeArithmetic).folded(module, options)


def kinds(data: bytes) -> list[str]:
    return [node.op_type for node in onnx.ModelProto.FromString(data).graph.node]


def run(data: bytes, size: int = 32) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    drawn = np.random.default_rng(1).standard_normal((1, 3, size, size)).astype(np.float32)
    return [np.asarray(one) for one in session.run(None, {"x": drawn})]


@pytest.mark.parametrize("ir_version", [3, 8])
def test_only_layers_are_left_and_compute_the_same(ir_version: int) -> None:
    given = doubled(ir_version=ir_version)
    made = folded(given)
    assert made is not None
    onnx.checker.check_model(onnx.ModelProto.FromString(made), full_check=True)
    assert kinds(made) == ["Conv", "Relu", "Resize", "Conv", "Relu", "MaxPool"]
    for before, after in zip(run(given), run(made), strict=True):
        np.testing.assert_array_equal(before, after)
    if ir_version >= 4:
        stored = {tensor.name for tensor in onnx.ModelProto.FromString(made).graph.initializer}
        assert stored == {"w1", "w2", "wanted"}


def test_another_size_is_refused() -> None:
    made = folded(doubled())
    assert made is not None
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument):
        run(made, 48)


def test_integers_that_callers_may_replace_decide_nothing() -> None:
    model = onnx.ModelProto.FromString(doubled())
    model.graph.input.append(helper.make_tensor_value_info("two", TensorProto.INT64, [1]))
    assert folded(model.SerializeToString()) is None


def test_what_the_caller_gets_is_computed() -> None:
    given = doubled(outputs=["y", "sizes", "wanted"])
    made = folded(given)
    assert made is not None
    assert "Shape" in kinds(made)
    assert "Concat" in kinds(made)
    for before, after in zip(run(given), run(made), strict=True):
        np.testing.assert_array_equal(before, after)


def test_models_without_shape_arithmetic_stay() -> None:
    made = folded(doubled())
    assert made is not None
    assert folded(made) is None


def test_sizes_that_a_run_told_are_not_taken_for_granted() -> None:
    """The rows of NonZero depend on the data: so does what is computed from them."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"]),
        helper.make_node("Shape", ["where"], ["sizes"]),
        helper.make_node("Shape", ["x"], ["given"]),
        helper.make_node("Concat", ["sizes", "given"], ["all"], axis=0),
        helper.make_node("Cast", ["all"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "found",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    options = observer_of("onnx").observe(data, "found.onnx", LoadOptions(), None, seed=0)
    module = load_module(data, "found.onnx", options)
    assert {tensor.name: tensor.shape for tensor in module.graph.tensors}["where"] == (2, 16)
    made = capability(module, ShapeArithmetic).folded(module, options)
    assert made is not None
    assert kinds(made) == ["NonZero", "Shape", "Concat", "Cast"]
    assert onnx.ModelProto.FromString(made).graph.node[1].input == ["where"]


def test_bodies_read_what_was_computed() -> None:
    body = helper.make_graph(
        [helper.make_node("Reshape", ["x", "wanted"], ["inside"])],
        "body",
        [],
        [helper.make_tensor_value_info("inside", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("ReduceProd", ["sizes"], ["wanted"], keepdims=1),
        helper.make_node("If", ["choice"], ["y"], then_branch=body, else_branch=body),
    ]
    graph = helper.make_graph(
        nodes,
        "outer",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32]),
            helper.make_tensor_value_info("choice", TensorProto.BOOL, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    made = folded(data, LoadOptions())
    assert made is not None
    assert kinds(made) == ["If"]
    drawn = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    results = [
        onnxruntime.InferenceSession(one).run(None, {"x": drawn, "choice": np.array([True])})[0] for one in (data, made)
    ]
    np.testing.assert_array_equal(*results)


def test_pieces_cross_what_was_computed(tmp_path: Path) -> None:
    path = tmp_path / "doubled.onnx"
    path.write_bytes(doubled())
    stated = {"x": (1, 3, 32, 32)}
    result = memsched.optimize(str(path), input_shapes=stated, level=2, order_guarantee="session", effort=0.5)
    tiling = result.report["sections"]["tile"]
    assert tiling["applied"]
    assert any({"Resize", "Conv"} <= layer_types(result.report.data, group) for group in tiling["groups"])
    assert result.report["sections"]["verification"]["outputs_equal"]
    assert (
        result.report["written"]["schedule"]["peak_bytes"]
        < 100_000
        < result.report["original"]["schedule"]["peak_bytes"]
    )
    assert not {"Shape", "Gather", "Mul"} & set(kinds(result.model))


def layer_types(report: Mapping[str, Any], group: Mapping[str, Sequence[str]]) -> set[str]:
    return {row["type"] for row in report["written"]["steps"] if row["origin"] in group["ops"]}


def test_a_file_that_gains_nothing_keeps_its_arithmetic(tmp_path: Path) -> None:
    path = tmp_path / "doubled.onnx"
    path.write_bytes(doubled())
    result = memsched.optimize(str(path), input_shapes={"x": (1, 3, 32, 32)}, level=2, max_extra_macs=0, budget=10**9)
    assert result.model == path.read_bytes()


BREAKS: dict[str, tuple[str, Callable[[Graph], Graph]]] = {
    "an op of another type": ("unknown-op", lambda graph: with_op(graph, 1, type="Sigmoid")),
    "an op of another name": ("unknown-op", lambda graph: with_op(graph, 1, name="other")),
    "an op that reads another tensor": ("op-differs", lambda graph: with_op(graph, 3, inputs=graph.ops[1].inputs)),
    "an op that makes another tensor": ("op-differs", lambda graph: with_op(graph, 1, outputs=graph.ops[2].outputs)),
    "another size": (
        "tensor-differs",
        lambda graph: dataclasses.replace(
            graph, tensors=(*graph.tensors[:-1], dataclasses.replace(graph.tensors[-1], size=1))
        ),
    ),
    "another input": ("interface-differs", lambda graph: dataclasses.replace(graph, inputs=())),
    "another output": ("interface-differs", lambda graph: dataclasses.replace(graph, outputs=graph.ops[0].outputs)),
    "an op that is missing though it is read": (
        "op-differs",
        lambda graph: dataclasses.replace(graph, ops=graph.ops[1:]),
    ),
}


def with_op(graph: Graph, number: int, **changes: object) -> Graph:
    ops = list(graph.ops)
    ops[number] = dataclasses.replace(ops[number], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(graph, ops=tuple(ops))


@pytest.mark.parametrize("broken", BREAKS)
def test_the_check_sees(broken: str) -> None:
    given = doubled()
    made = folded(given)
    assert made is not None
    before, after = read(given).graph, read(made).graph
    check_folded(before, after)
    code, change = BREAKS[broken]
    with fails(code):
        check_folded(before, change(after))


def test_outputs_that_became_constants_are_none_of_the_graph() -> None:
    given = doubled(outputs=["y", "wanted"])
    made = folded(given)
    assert made is not None
    before, after = read(given).graph, read(made).graph
    assert len(after.outputs) < len(before.outputs)
    check_folded(before, after)
    with fails("interface-differs"):
        check_folded(before, dataclasses.replace(after, outputs=()))
