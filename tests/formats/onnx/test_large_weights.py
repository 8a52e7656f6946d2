"""Large weights before small ones in a file."""

from __future__ import annotations

import numpy as np
import onnxruntime
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.large_weights import weights_first


def layers(widths: list[int]) -> ModelProto:
    """Return products of matrices, each with what is added to it."""
    rng = np.random.default_rng(0)
    nodes, weights, read, before = [], [], "x", 16
    for number, width in enumerate(widths):
        weights.append(numpy_helper.from_array(rng.normal(size=width).astype(np.float32), f"b{number}"))
        weights.append(numpy_helper.from_array(rng.normal(size=(before, width)).astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", [read, f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Add", [f"m{number}", f"b{number}"], [f"a{number}"]))
        read, before = f"a{number}", width
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["length", 16])]
    ends.append(helper.make_tensor_value_info(read, TensorProto.FLOAT, ["length", before]))
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], initializer=weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@given(st.lists(st.sampled_from([16, 64, 1024, 2048]), min_size=1, max_size=5))
def test_all_but_their_order_stays(widths: list[int]) -> None:
    model = layers(widths)
    data = model.SerializeToString(deterministic=True)
    found = ModelProto.FromString(weights_first(data))
    large = [one.name for one in model.graph.initializer if len(one.raw_data) >= 1 << 16]
    small = [one.name for one in model.graph.initializer if len(one.raw_data) < 1 << 16]
    assert [one.name for one in found.graph.initializer] == [*large, *small]
    known = {one.name: one for one in model.graph.initializer}
    assert all(known[one.name] == one for one in found.graph.initializer)
    del found.graph.initializer[:], model.graph.initializer[:]
    assert found == model


def test_the_outputs_are_the_same() -> None:
    data = layers([64, 1024, 512, 32]).SerializeToString()
    after = weights_first(data)
    assert after != data
    x = np.random.default_rng(1).normal(size=(5, 16)).astype(np.float32)
    first, second = (onnxruntime.InferenceSession(one).run(None, {"x": x})[0] for one in (data, after))
    np.testing.assert_array_equal(first, second)


def test_a_file_that_is_so_already_stays_as_it_is() -> None:
    data = weights_first(layers([1024, 1024]).SerializeToString())
    assert weights_first(data) is data
