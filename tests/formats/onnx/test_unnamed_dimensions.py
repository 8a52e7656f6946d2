"""Dimensions called "?": exporters write that for each that they do not know, so two of them need not be equal."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from memsched.base.errors import UnknownShapeError, UsageError
from memsched.commands.optimize.optimize import load, optimize
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.dimensions import open_inputs
from memsched.formats.onnx.reader import read
from tests.failures import fails
from tests.needs import recent_onnxruntime


def model(symbol: str) -> bytes:
    """Return two sums over inputs whose first dimensions have one name."""
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [symbol, width])
        for name, width in (("x", 4), ("z", 8), ("p", 4), ("q", 8))
    }
    nodes = [helper.make_node("Relu", ["x"], ["p"], "a"), helper.make_node("Neg", ["z"], ["q"], "b")]
    graph = helper.make_graph(nodes, "g", [values["x"], values["z"]], [values["p"], values["q"]])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("symbol", ["?", "*", "-", "_?"])
def test_one_stated_length_says_nothing_of_the_other(symbol: str) -> None:
    with pytest.raises(UnknownShapeError) as caught:
        read(model(symbol), "m.onnx", LoadOptions({"x": (3, 4)}))
    assert caught.value.options == ("--shape", "z=1,8")
    graph = load(model(symbol), input_shapes={"x": (3, 4)}).graph
    assert [graph.tensors[one].shape for one in graph.outputs] == [(3, 4), (1, 8)]
    graph = load(model(symbol), input_shapes={"x": (3, 4), "z": (5, 8)}).graph
    assert [graph.tensors[one].shape for one in graph.outputs] == [(3, 4), (5, 8)]
    with fails("no-such-dimension", f"--dim {symbol}", kind=UsageError):
        load(model(symbol), dims={symbol: 3})
    assert [one.name for one in open_inputs(onnx.load_model_from_string(model(symbol)))] == ["x[0]", "z[0]"]


def test_a_name_is_one_length() -> None:
    graph = load(model("n"), input_shapes={"x": (3, 4)}).graph
    assert graph.tensors[graph.outputs[1]].shape == (3, 8)


@recent_onnxruntime
def test_the_file_written_takes_both_lengths() -> None:
    written = optimize(model("?"), input_shapes={"x": (3, 4), "z": (3, 8)}).model
    session = onnxruntime.InferenceSession(written)
    one, other = session.run(None, {"x": np.ones((2, 4), np.float32), "z": np.ones((7, 8), np.float32)})
    assert (one.shape, other.shape) == ((2, 4), (7, 8))
