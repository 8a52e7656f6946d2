"""Writing ONNX: the same nodes in another order, and nothing else changed."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper

from memsched.formats.module import Module
from memsched.formats.onnx import reader, writer
from memsched.formats.onnx.structure import analyse
from memsched.graph.model import Graph
from tests.failures import fails
from tests.formats.onnx_builder import BOOL, branch, call, constant, function, make, node, value


def load(model: onnx.ModelProto) -> Module:
    return reader.read(model.SerializeToString(), "net.onnx")


def written(module: Module, orders: dict[int, list[int]], **metadata: str) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.ModelProto.FromString(writer.serialize(module, orders, metadata))
    return model


def outputs(graph: onnx.GraphProto) -> list[str]:
    return [proto.output[0] for proto in graph.node]


def diamond() -> onnx.ModelProto:
    """Two branches; their constants stand at the front, as exporters write them."""
    nodes = [
        node("Constant", "", "k", value=constant("k", np.ones(4, np.float32))),
        node("Neg", "k", "minus", name="folded"),
        node("Constant", "", "spare", value_float=1.0),
        node("Relu", "x", "a", name="first"),
        node("Abs", "x", "b", doc_string="kept"),
        node("Add", "a k", "c", name="third"),
        node("Mul", "b minus", "d"),
        node("Add", "c d", "y"),
    ]
    model = make(nodes, [value("x", [4])], [value("y", [4])])
    model.doc_string, model.producer_name = "about", "someone"
    return model


def test_unchanged_orders_return_the_files_own_bytes() -> None:
    data = diamond().SerializeToString() + b"\xfa\x7f\x03new"  # field 2047, unknown to this version
    module = reader.read(data, "net.onnx")
    assert writer.serialize(module, {}, {}) == data
    assert writer.serialize(module, {0: range(5)}, {}) == data
    assert b"\xfa\x7f\x03new" in writer.serialize(module, {0: [1, 0, 2, 3, 4]}, {})


def test_constants_move_before_their_first_reader() -> None:
    module = load(diamond())
    model = written(module, {0: [1, 3, 0, 2, 4]})
    assert outputs(model.graph) == ["b", "k", "minus", "d", "a", "c", "y", "spare"]
    onnx.checker.check_model(model)
    assert (model.doc_string, model.producer_name) == ("about", "someone")
    assert [proto.name for proto in model.graph.node if proto.output[0] in {"a", "b", "c"}] == ["", "first", "third"]
    assert next(proto for proto in model.graph.node if proto.output[0] == "b").doc_string == "kept"
    again = reader.read(model.SerializeToString(), "net.onnx")
    assert [op.name for op in again.graph.ops] == ["b", "d", "first", "third", "y"]


def test_metadata_is_added_and_replaced() -> None:
    model = diamond()
    for key, text in (("a", "1"), ("memsched.order", "old"), ("memsched.order", "older")):
        model.metadata_props.add(key=key, value=text)
    result = written(load(model), {}, **{"memsched.order": "new"})
    assert [(entry.key, entry.value) for entry in result.metadata_props] == [("a", "1"), ("memsched.order", "new")]
    assert outputs(result.graph) == outputs(model.graph)


def test_equal_orders_give_equal_bytes() -> None:
    module = load(diamond())
    first, second = (writer.serialize(module, {0: [1, 3, 0, 2, 4]}, {"b": "1", "a": "2"}) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 0, 1, 2, 3], [0, 1, 2, 3, 9]])
def test_orders_that_do_not_fit_are_defects(order: list[int]) -> None:
    with fails("op-count"):
        writer.serialize(load(diamond()), {0: order}, {})


def test_nodes_take_their_ops_names_only_for_measuring() -> None:
    module = load(diamond())
    named = onnx.ModelProto.FromString(writer.serialize(module, {}, {}, name_nodes=True))
    by_output = {proto.output[0]: proto.name for proto in named.graph.node}
    assert [by_output[module.graph.tensors[op.outputs[0]].name] for op in module.graph.ops] == [
        op.name for op in module.graph.ops
    ]
    assert [op.name for op in module.graph.ops] == ["first", "b", "third", "d", "y"]


def test_bodies_are_reordered_with_the_constants_they_capture() -> None:
    then = branch("then", node("Relu", "x", "p"), node("Abs", "x", "q"), node("Sum", "p q k", "t"), outputs="t")
    other = branch("else", node("Identity", "x", "e"), outputs="e")
    nodes = [
        node("Constant", "", "k", value=constant("k", np.ones(4, np.float32))),
        node("Neg", "x", "n"),
        node("If", "c", "i", then_branch=then, else_branch=other),
        node("Add", "n i", "y"),
    ]
    module = load(make(nodes, [value("x", [4]), value("c", [], BOOL)], [value("y", [4])]))
    body = next(body.graph for body in module.bodies if module.graphs[body.graph].name.endswith("then_branch"))
    model = written(module, {0: [1, 0, 2], body: [1, 0, 2]})
    assert outputs(model.graph) == ["k", "i", "n", "y"]
    proto = next(item.g for item in model.graph.node[1].attribute if item.name == "then_branch")
    assert outputs(proto) == ["q", "p", "t"]
    onnx.checker.check_model(model)


def test_functions_are_inlined_only_when_the_order_changes() -> None:
    inner = function("Inner", node("Relu", "p", "l"), node("Abs", "p", "r"), node("Add", "l r", "q"))
    model = make([call("Inner", "x", "y")], [value("x", [4])], [value("y", None)], functions=[inner], domains=["my"])
    module = load(model)
    assert len(written(module, {}, key="value").functions) == 1
    reordered = written(module, {0: [1, 0, 2]})
    assert [proto.op_type for proto in reordered.graph.node] == ["Abs", "Relu", "Add"]
    assert not reordered.functions


def random_order(graph: Graph, rng: random.Random) -> list[int]:
    producer = {tensor: index for index, op in enumerate(graph.ops) for tensor in op.outputs}
    waiting = [{producer[tensor] for tensor in op.inputs if tensor in producer} for op in graph.ops]
    order: list[int] = []
    while len(order) < len(waiting):
        done = set(order)
        order.append(rng.choice([op for op, needs in enumerate(waiting) if op not in done and needs <= done]))
    return order


def test_any_order_of_random_graphs_reads_back_as_that_order() -> None:
    rng = random.Random(11)
    for _ in range(40):
        nodes = []
        for index in range(14):
            if rng.random() < 0.2:
                nodes.append(node("Constant", "", f"t{index}", value=constant("k", np.ones(3, np.float32))))
            else:
                reads = [rng.choice(["x", *(f"t{i}" for i in range(index))]) for _ in range(2)]
                nodes.append(helper.make_node("Add", reads, [f"t{index}"]))
        nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(14)] + ["x"], ["y"]))
        model = make(nodes, [value("x", [3])], [value("y", None)])
        module = load(model)
        order = random_order(module.graph, rng)
        again = reader.read(writer.serialize(module, {0: order}, {}), "net.onnx")
        assert [op.name for op in again.graph.ops] == [module.graph.ops[op].name for op in order]
        assert again.constant_ops == module.constant_ops


@pytest.mark.parametrize("version", [3, 4, 8])
def test_weights_are_dropped_unless_something_reads_them(version: int) -> None:
    then = branch("then", node("Identity", "captured", "t"), outputs="t")
    other = branch("else", node("Neg", "captured", "e"), outputs="e")
    nodes = [node("Add", "x read", "s"), node("If", "c", "y", then_branch=then, else_branch=other)]
    names = ("read", "captured", "out", "unread", "kept")
    constants = [constant(name, np.ones(4, np.float32)) for name in names]
    ends = [value("x", [4]), value("c", [], BOOL), value("unread", [4])], [value("y", [4]), value("out", [4])]
    model = helper.make_model(helper.make_graph(nodes, "net", *ends, constants), ir_version=version)
    writer.drop_unread(model, analyse(model.graph), {"read", "captured", "out", "unread"})
    left = {tensor.name for tensor in model.graph.initializer}
    # In later versions callers may give another value of an initializer that is listed as an input.
    listed = {"unread"} if version >= 4 else set()
    assert left == {"read", "captured", "out", "kept"} | listed
    assert {one.name for one in model.graph.input} == {"x", "c"} | listed
