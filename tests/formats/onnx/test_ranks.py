"""Shape operands of absurd length: refused before ONNX's own inference makes a shape of that many dimensions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from tests.failures import fails
from tests.small_models import floats, model_of

LAST = 2**63 - 1
INT64 = TensorProto.INT64


def constant(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def expand(*before: object, constants: tuple[TensorProto, ...] = (), length: int | None = None) -> bytes:
    inputs = [floats("x", [1, 3, 1])]
    if length is not None:
        inputs.append(helper.make_tensor_value_info("s", INT64, [length]))
    nodes = [*before, helper.make_node("Expand", ["x", "s"], ["y"], name="grow")]
    return model_of(nodes, inputs, [floats("y", None)], constants)


@pytest.mark.parametrize("length", [2**40, LAST])
def test_a_declared_length(length: int) -> None:
    with fails("absurd-size", "'grow' (Expand)", "'s'"):
        load_module(expand(length=length), "m.onnx", LoadOptions())


def test_a_length_that_is_a_value() -> None:
    node = helper.make_node("ConstantOfShape", ["n"], ["t"])
    data = expand(node, helper.make_node("Cast", ["t"], ["s"], to=INT64), constants=(constant("n", 2**40),))
    with fails("absurd-size", "1,099,511,627,776"):
        load_module(data, "m.onnx", LoadOptions())


def test_ends_of_slices_are_no_lengths() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Slice", ["all", "first", "last"], ["part"]),
        helper.make_node("Shape", ["part"], ["count"]),
        helper.make_node("ConstantOfShape", ["count"], ["ones"], value=constant("", 1)),
        helper.make_node("Mul", ["ones", "part"], ["s"]),
    ]
    data = expand(*nodes, constants=(constant("first", 0), constant("last", LAST)))
    assert load_module(data, "m.onnx", LoadOptions()).graph.ops


def test_initializers_count_before_they_could_stand_alone() -> None:
    """IR version 3 with a slice whose axes are an initializer: the axes must not be taken for the first ones."""
    nodes = [helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["y"], name="cut")]
    constants = (constant("starts", 0), constant("ends", 1), constant("axes", 1))
    model = onnx.load_from_string(model_of(nodes, [floats("x", [2, 3])], [floats("y", [2, 1])], constants))
    model.ir_version = 3
    model.graph.input.extend(helper.make_tensor_value_info(value.name, INT64, [1]) for value in constants)
    graph = load_module(model.SerializeToString(), "m.onnx", LoadOptions()).graph
    assert graph.tensors[graph.outputs[0]].shape == (2, 1)
