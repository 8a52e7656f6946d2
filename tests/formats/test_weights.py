from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from memsched.formats.weights import Weights, weights
from tests.formats.onnx.test_segments import branching, constant, node
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, int32s, options
from tests.segment_cuts import load
from tests.small_models import floats, model_of


def named(found: Weights) -> list[dict[str, int]]:
    """Return per op its constants with their sizes."""
    return [{found.names[one]: found.sizes[one] for one in read} for read in found.per_op]


def test_each_constant_is_there_once_with_its_bytes() -> None:
    nodes = [
        node("Mul", ["x", "shared"], ["a"]),
        node("Add", ["a", "shared"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Reshape", ["c", "shape"], ["y"]),
    ]
    held = [constant("unread", [1.0]), constant("shape", [12], np.int64), constant("shared", [[1.0] * 4])]
    found = weights(load(model_of(nodes, [floats("x", [3, 4])], [floats("y", [12])], held)))
    assert found.names == ("shared", "shape")
    assert found.sizes == (16, 8)
    assert found.per_op == ((0,), (0,), (), (1,))


def test_computed_constants_count_with_their_own_size() -> None:
    nodes = [
        node("Constant", [], ["two"], value=constant("any", [2.0, 2.0])),
        node("DequantizeLinear", ["q", "scale"], ["w"]),
        node("Add", ["w", "two"], ["v"]),
        node("Mul", ["x", "v"], ["a"]),
        node("Mul", ["a", "w"], ["y"]),
    ]
    held = [constant("q", [[1, 2], [3, 4]], np.int8), constant("scale", 0.5)]
    found = weights(load(model_of(nodes, [floats("x", [2, 2])], [floats("y", [2, 2])], held)))
    assert named(found) == [{"v": 16}, {"w": 16}]


def test_bodies_count_with_what_they_capture() -> None:
    found = weights(load(branching()))
    own = next(name for name in found.names if name.endswith("/inner"))
    assert named(found) == [{}, {}, {"w": 4, "trips": 8, "yes": 1, "sum": 4, own: 4}, {}]


def test_small_and_sparse_elements_count_as_stored() -> None:
    packed = helper.make_tensor("q", onnx.TensorProto.INT4, [5], [1, 2, 3, 4, 5])
    nodes = [node("Cast", ["x"], ["a"], to=onnx.TensorProto.INT4), node("Concat", ["a", "q"], ["b"], axis=0)]
    nodes.append(node("Cast", ["b"], ["y"], to=onnx.TensorProto.FLOAT))
    graph = helper.make_graph(nodes, "m", [floats("x", [5])], [floats("y", [10])], [packed])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert named(weights(load(model.SerializeToString()))) == [{}, {"q": 3}, {}]
    dense = numpy_helper.from_array(np.ones(2, np.float32), "w")
    sparse = helper.make_sparse_tensor(dense, constant("at", [0, 5], np.int64), [3, 4])
    model = onnx.load_model_from_string(
        model_of([node("Add", ["x", "w"], ["y"])], [floats("x", [3, 4])], [floats("y", [3, 4])])
    )
    model.graph.sparse_initializer.append(sparse)
    assert named(weights(load(model.SerializeToString()))) == [{"w": 24}]


@pytest.mark.parametrize("name", ["mobilenetv2_035_96_int8", "nasnetmobile_int8", "person_detect"])
def test_all_constants_of_real_models_are_found(name: str) -> None:
    module = load((MODELS / f"{name}.tflite").read_bytes())
    assert sum(weights(module).sizes) == module.weights_bytes


def test_tensors_of_one_buffer_are_one_constant() -> None:
    model = load(build(Sub(
        [T("x"), T("w", data=bytes(16)), T("h", dtype="FLOAT16", data=bytes(8)), T("f"), T("a"), T("y")],
        [O("DEQUANTIZE", [2], [3]), O("ADD", [0, 1], [4], options("AddOptions")),
         O("ADD", [4, 3], [5], options("AddOptions"))],
        [0], [5],
    )))  # fmt: skip
    assert named(weights(model)) == [{"w": 16}, {"h": 8}]


def test_subgraphs_count_with_the_operators_that_execute_them() -> None:
    call = options("CallOnceOptions", initSubgraphIndex=1)
    inner = Sub([T("a"), T("", data=bytes(16)), T("b")], [O("CUSTOM:own", [0, 1], [2])], [0], [2], "inner")
    loop = options("WhileOptions", condSubgraphIndex=2, bodySubgraphIndex=3)
    less = Sub([T("i", (1,), "INT32"), T("n", (1,), "INT32", int32s(3)), T("c", (1,), "BOOL")],
               [O("LESS", [0, 1], [2])], [0], [2], "less")  # fmt: skip
    ops = [O("CALL_ONCE", [], [], call), O("ADD", [0, 1], [2], options("AddOptions"))]
    more = Sub([T("i", (1,), "INT32"), T("n", (1,), "INT32", int32s(1)), T("j", (1,), "INT32")], ops, [0], [2], "more")
    main = Sub([T("i", (1,), "INT32"), T("j", (1,), "INT32"), T("k", (1,), "INT32")],
               [O("WHILE", [0], [1], loop), O("NEG", [1], [2])], [0], [2])  # fmt: skip
    found = weights(load(build(main, inner, less, more)))
    assert [sorted(read.values()) for read in named(found)] == [[4, 4, 16], []]
    assert {"less/n", "more/n"} < set(found.names)


def test_what_fills_a_weight_counts_as_the_weight() -> None:
    nodes = [node("ConstantOfShape", ["shape"], ["ones"]), node("Add", ["x", "ones"], ["y"])]
    held = [constant("shape", [4, 8], np.int64)]
    found = weights(load(model_of(nodes, [floats("x", [4, 8])], [floats("y", [4, 8])], held)))
    assert named(found) == [{"ones": 4 * 8 * 4}]


def test_weights_of_two_bodies_of_one_op_are_two() -> None:
    body = helper.make_graph(
        [node("Add", ["x", "c"], ["t"])], "body", [], [floats("t", [4])], [constant("c", [1.0] * 4)]
    )
    choice = node("If", ["flag"], ["y"], then_branch=body, else_branch=body)
    found = weights(
        load(model_of([choice], [floats("x", [4])], [floats("y", [4])], [constant("flag", True, np.bool_)]))
    )
    assert sorted(found.sizes) == [1, 16, 16]
    assert found.per_op == ((0, 1, 2),)
