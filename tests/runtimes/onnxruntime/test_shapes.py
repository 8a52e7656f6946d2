"""Open dimensions: ONNX Runtime plans before it knows them, and the figures say what it makes of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from memsched.commands.optimize.optimize import optimize
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.lowering.apply import apply_target
from memsched.targets.load import load_target
from tests.needs import recent_onnxruntime
from tests.runtimes.onnxruntime.measured import measure

pytestmark = recent_onnxruntime

FLOAT = TensorProto.FLOAT
TARGET = load_target("onnxruntime")


def chain(shape: Sequence[Any], middle: Sequence[onnx.NodeProto], last: str, known: Mapping[str, Any] = {}) -> bytes:
    """Return Sin, ``middle`` from "a" on, then Relu and Exp from the value ``last`` on."""
    nodes = [helper.make_node("Sin", ["x"], ["a"], "a"), *middle]
    nodes += [
        helper.make_node("Relu", [last], ["r"], "r"),
        helper.make_node("ReduceMax", ["r"], ["y"], "y", keepdims=0),
    ]
    constants = [helper.make_tensor("rows", TensorProto.INT64, [2], np.array([-1, 64]).tobytes(), raw=True)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, [])],
        constants,
        value_info=[helper.make_tensor_value_info(name, FLOAT, dims) for name, dims in known.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


EXP = [helper.make_node("Exp", ["a"], ["b"], "b")]
ROWS = [helper.make_node("Exp", ["a"], ["e"], "e"), helper.make_node("Reshape", ["e", "rows"], ["b"], "b")]
OWN_LENGTH = [
    helper.make_node("Shape", ["a"], ["s"], "s"),
    helper.make_node("Exp", ["a"], ["e"], "e"),
    helper.make_node("Reshape", ["e", "s"], ["b"], "b"),
]

CASES: dict[str, tuple[Any, Any, Any, bool]] = {
    "stated in numbers": ([8, 64], EXP, {}, True),
    "one name": (["N", 64], EXP, {}, True),
    "no name": ([None, 64], EXP, {}, False),
    "rows that follow": (["N", 64], ROWS, {}, False),
    "rows that the file names": (["N", 64], ROWS, {"b": ["M", 64], "r": ["M", 64]}, True),
    "rows that follow from numbers": ([8, 64], ROWS, {}, True),
    "a shape that is folded": ([8, 64], OWN_LENGTH, {}, True),
    "a shape that is open": (["N", 64], OWN_LENGTH, {}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_writes_in_place_need_shapes_that_the_file_states(case: str) -> None:
    shape, middle, known, granted = CASES[case]
    data = chain(shape, middle, "b", known)
    module = load_module(data, "-", LoadOptions(input_shapes={"x": (8, 64)}))
    lowered = apply_target(module.graph, TARGET)
    writes = [lowered.tensors[output].name for op in lowered.ops for output, _ in op.in_place]
    assert writes == (["r"] if granted else [])
    result = optimize(data, input_shapes={"x": (8, 64)}, effort=0.5)
    measured = measure(data, level="basic", input_shapes={"x": (8, 64)}).peak_bytes
    # A Shape of known lengths, two numbers, is folded.
    assert measured == pytest.approx(result.report["original"]["schedule"]["peak_bytes"], abs=16)


def block(length: Any) -> bytes:
    """Return a block that is wide inside, where a Reshape hides from inference how many rows there are."""
    node = helper.make_node
    rng = np.random.default_rng(0)

    def weight(name: str, shape: Sequence[int]) -> onnx.TensorProto:
        values = (rng.standard_normal(shape) / 8).astype(np.float32)
        return helper.make_tensor(name, FLOAT, shape, values.tobytes(), raw=True)

    nodes = [
        *(node("MatMul", ["x", "up"], ["h"], "h"), node("Reshape", ["h", "rows"], ["i"], "i")),
        *(node("Relu", ["i"], ["r"], "r"), node("MatMul", ["r", "down"], ["t"], "t")),
        node("Softmax", ["t"], ["y"], "y", axis=0),
    ]
    rows = helper.make_tensor("rows", TensorProto.INT64, [2], np.array([-1, 512]).tobytes(), raw=True)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [length, 64])],
        [helper.make_tensor_value_info("y", FLOAT, [length, 64])],
        [weight("up", [64, 512]), weight("down", [512, 64]), rows],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_pieces_hold_for_one_size_and_are_planned_so() -> None:
    result = optimize(block("N"), dims={"N": 128}, level=2, max_extra_macs=0.0, effort=1.5)
    check = result.report["sections"]["verification"]
    assert [tensor.name for tensor in result.module.graph.tensors if tensor.stated is not None]
    assert not [tensor.name for tensor in result.graph.tensors if tensor.stated is not None]
    for when in ("before", "after"):
        assert check[f"measured_peak_{when}_bytes"] == check[f"predicted_peak_{when}_bytes"]
    assert check["measured_peak_before_bytes"] == 2 * 128 * 512 * 4
    assert check["measured_peak_after_bytes"] < 128 * 512 * 4
