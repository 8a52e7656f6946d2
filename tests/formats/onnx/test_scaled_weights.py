"""Scales as part of shared weights: the bits that ONNX Runtime gives itself, and one copy of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import memsched
from memsched.formats.onnx import scaled_weights
from memsched.formats.onnx.scaled_weights import scale_weights
from memsched.formats.onnx.structure import Scope, analyse
from memsched.graph.model import Graph, Op, Tensor
from memsched.plan.rewrite import without_merged
from tests.failures import fails

FLOAT = TensorProto.FLOAT
LEVELS = onnxruntime.GraphOptimizationLevel


class Net:
    """Nodes and weights of a model that is being made."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray[Any, Any]] = {}

    def weight(self, name: str, *shape: int, positive: bool = False) -> str:
        if name not in self.weights:
            value = self.rng.normal(size=shape).astype(np.float32)
            self.weights[name] = np.abs(value) + np.float32(0.1) if positive else value
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def normalised(self, x: str, output: str, channels: int = 6, **attributes: Any) -> str:
        given = [self.weight(name, channels, positive=name == "variance") for name in ("scale", "shift", "mean")]
        return self.node(
            "BatchNormalization", [x, *given, self.weight("variance", channels, positive=True)], output, **attributes
        )

    def model(self, outputs: Sequence[str], shape: Sequence[int] = (1, 4, 8, 8), ir_version: int = 8) -> ModelProto:
        stored = [numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        inputs = sorted({name for node in self.nodes for name in node.input if name.startswith("x")})
        given = [helper.make_tensor_value_info(name, FLOAT, shape) for name in inputs]
        if ir_version < 4:
            given += [helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in stored]
        made = [helper.make_tensor_value_info(name, FLOAT, [f"{name}_{axis}" for axis in shape]) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", given, made, stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=ir_version)


def run(model: ModelProto, level: Any) -> list[np.ndarray[Any, Any]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    rng = np.random.default_rng(1)
    feed = {value.name: rng.normal(size=value.shape).astype(np.float32) for value in session.get_inputs()}
    return list(session.run(None, feed))


def optimised(model: ModelProto, path: Any) -> ModelProto:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    return onnx.load(path)


def large(model: ModelProto) -> int:
    """Return how many weights of convolutions a model stores."""
    return sum(len(tensor.dims) > 2 and tensor.dims[-1] == 3 for tensor in model.graph.initializer)


def pieces(
    seed: int, *, bias: bool, group: int, scales: Sequence[str], count: int = 3, ir_version: int = 8
) -> ModelProto:
    net = Net(seed)
    outputs = []
    for number in range(count):
        given = [f"x{number}", net.weight("w", 6, 4 // group, 3, 3)]
        value = net.node("Conv", [*given, *([net.weight("b", 6)] if bias else [])], f"c{number}", group=group)
        for step, kind in enumerate(scales):
            output = f"s{number}_{step}"
            if kind == "BatchNormalization":
                value = net.normalised(value, output, epsilon=1e-3)
            elif kind == "Factor":
                value = net.node("Mul", [value, net.weight("factor")], output)
            else:
                value = net.node(kind, [value, net.weight(kind, *((6, 1, 1) if step else (1, 6, 1, 1)))], output)
        outputs.append(net.node("Relu", [value], f"y{number}"))
    return net.model(outputs, ir_version=ir_version)


CHAINS = (
    ["BatchNormalization"],
    ["BatchNormalization", "BatchNormalization"],
    ["Mul"],
    ["Factor"],
    ["Add"],
    ["Mul", "Add"],
    ["Add", "Mul", "BatchNormalization"],
    ["BatchNormalization", "Factor", "Add"],
)


@pytest.mark.parametrize("scales", CHAINS, ids="-".join)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_bits_are_those_of_the_runtime_and_weights_are_stored_once(
    scales: list[str], bias: bool, group: int, tmp_path: Any
) -> None:
    for seed in range(5):
        given = pieces(seed, bias=bias, group=group, scales=scales)
        model = ModelProto.FromString(given.SerializeToString())
        merged = scale_weights(model)
        onnx.checker.check_model(model, full_check=True)
        assert len(merged) == 3 * len(scales)
        assert [node.op_type for node in model.graph.node] == ["Conv", "Relu"] * 3
        assert large(model) == 1
        for level in (LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_ENABLE_ALL):
            for one, other in zip(run(given, level), run(model, level), strict=True):
                np.testing.assert_array_equal(one, other)
    if set(scales) != {"Add"}:
        # The rule of the runtime that all of this is for: else nothing here would be of use.
        assert large(optimised(given, tmp_path / "given.onnx")) == 3
    assert large(optimised(model, tmp_path / "scaled.onnx")) == 1


def test_first_versions_of_the_format_list_weights_as_inputs() -> None:
    given = pieces(0, bias=False, group=1, scales=["BatchNormalization"], ir_version=3)
    model = ModelProto.FromString(given.SerializeToString())
    assert scale_weights(model)
    onnx.checker.check_model(model)
    assert {tensor.name for tensor in model.graph.initializer} <= {value.name for value in model.graph.input}
    assert "variance" not in {value.name for value in model.graph.input}
    stored = {tensor.name for tensor in model.graph.initializer}
    assert {value.name for value in model.graph.input} - stored == {"x0", "x1", "x2"}


def test_weights_that_nodes_compute() -> None:
    net = Net(0)
    shape = numpy_helper.from_array(np.array([6, 4, 3, 3]), "shape")
    filled = helper.make_tensor("filled", FLOAT, [1], [0.25])
    net.nodes.append(helper.make_node("ConstantOfShape", ["shape"], ["w"], "w", value=filled))
    factor = numpy_helper.from_array(np.arange(1, 7, dtype=np.float32).reshape(6, 1, 1))
    net.nodes.append(helper.make_node("Constant", [], ["f"], "f", value=factor))
    net.node("Mul", [net.node("Conv", ["x", "w"], "c"), "f"], "y")
    given = net.model(["y"])
    given.graph.initializer.append(shape)
    model = ModelProto.FromString(given.SerializeToString())
    assert scale_weights(model) == {"c": "y"}
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    assert [tensor.name for tensor in model.graph.initializer] == ["w_scaled"]
    np.testing.assert_array_equal(run(given, LEVELS.ORT_ENABLE_BASIC)[0], run(model, LEVELS.ORT_ENABLE_BASIC)[0])
    # What computes a constant from others goes with it.
    net = Net(0)
    net.weights["shape"] = np.array([6, 1, 1])
    net.nodes.append(helper.make_node("ConstantOfShape", ["shape"], ["f"], "f", value=filled))
    net.node("Identity", ["f"], "unread")
    net.node("Mul", [net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c"), "f"], "y")
    model = net.model(["y"])
    assert scale_weights(model) == {"c": "y"}
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    assert [tensor.name for tensor in model.graph.initializer] == ["w_scaled"]


@pytest.mark.parametrize("opset", [9, 13])
def test_scales_by_channel_as_caffe2_exports_them(opset: int) -> None:
    def widened(net: Net, name: str) -> str:
        net.weight(name, 6)
        if opset < 13:
            return net.node("Unsqueeze", [name], f"{name}_wide", axes=[1, 2])
        net.weights["axes"] = np.array([1, 2])
        return net.node("Unsqueeze", [name, "axes"], f"{name}_wide")

    net = Net(0)
    value = net.node("Mul", [net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c"), widened(net, "factor")], "m")
    given = net.model([net.node("Add", [value, widened(net, "sum")], "y")])
    given.opset_import[0].version = opset
    model = ModelProto.FromString(given.SerializeToString())
    assert scale_weights(model) == {"c": "m", "m": "y"}
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    assert len(model.graph.initializer) == 2
    np.testing.assert_array_equal(run(given, LEVELS.ORT_ENABLE_BASIC)[0], run(model, LEVELS.ORT_ENABLE_BASIC)[0])


@pytest.mark.parametrize("opset", [9, 13])
def test_scales_that_several_nodes_give_their_form(opset: int) -> None:
    net = Net(0)
    net.weights |= {"ends": np.array([6, 1, 1]), "first": np.array([0])}
    row = net.node("Transpose", [net.weight("column", 1, 1, 6, 1)], "row", perm=[0, 1, 3, 2])
    flat = net.node(
        "Squeeze", [row, "first"][: 2 if opset >= 13 else 1], "flat", **({} if opset >= 13 else {"axes": [0]})
    )
    factor = net.node("Identity", [net.node("Reshape", [flat, "ends"], "high")], "factor")
    given = net.model([net.node("Mul", [net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c"), factor], "y")])
    given.opset_import[0].version = opset
    model = ModelProto.FromString(given.SerializeToString())
    assert scale_weights(model) == {"c": "y"}
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    assert [tensor.name for tensor in model.graph.initializer] == ["w_scaled"]
    np.testing.assert_array_equal(run(given, LEVELS.ORT_ENABLE_BASIC)[0], run(model, LEVELS.ORT_ENABLE_BASIC)[0])


def test_a_long_chain_is_analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    analysed: list[int] = []

    def counted(graph: onnx.GraphProto) -> list[Scope]:
        analysed.append(len(graph.node))
        return analyse(graph)

    monkeypatch.setattr(scaled_weights, "analyse", counted)
    net = Net(0)
    value = net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c")
    for number in range(200):
        value = net.node("Mul", [value, net.weight("factor", 6, 1, 1)], f"m{number}")
    model = net.model([value])
    assert len(scale_weights(model)) == 200
    assert [node.op_type for node in model.graph.node] == ["Conv"]
    assert len(model.graph.initializer) == 1
    assert analysed == [201, 1]


def read_twice(net: Net) -> list[str]:
    convolution = net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c")
    return [net.normalised(convolution, "y"), net.node("Relu", [convolution], "z")]


def an_output(net: Net) -> list[str]:
    return [net.normalised(net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c"), "y"), "c"]


def by_row(net: Net) -> list[str]:
    convolution = net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c")
    return [net.node("Mul", [convolution, net.weight("rows", 6, 1)], "y")]


def in_front(net: Net) -> list[str]:
    convolution = net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c")
    return [net.node("Mul", [net.weight("factor", 6, 1, 1), convolution], "y")]


def with_another_image(net: Net) -> list[str]:
    return [net.node("Mul", [net.node("Conv", ["x", net.weight("w", 4, 4, 1, 1)], "c"), "x"], "y")]


def with_computed_weights(net: Net) -> list[str]:
    weights = net.node("Reshape", ["x2", net.weight("w", 6, 4, 3, 3)], "w2")
    net.weights["w"] = np.array([4, 4, 4, 4])
    return [net.node("Mul", [net.node("Conv", ["x", weights], "c"), net.weight("factor", 4, 1, 1)], "y")]


@pytest.mark.parametrize(
    "make",
    [read_twice, an_output, by_row, in_front, with_another_image, with_computed_weights],
    ids=lambda one: one.__name__,
)
def test_what_is_no_scale_stays(make: Any) -> None:
    net = Net(0)
    model = net.model(make(net))
    before = model.SerializeToString(deterministic=True)
    assert scale_weights(model) == {}
    assert model.SerializeToString(deterministic=True) == before


def training(model: ModelProto) -> None:
    model.opset_import[0].version = 14
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            node.attribute.append(helper.make_attribute("training_mode", 1))
            node.output.extend([f"{node.name}_mean", f"{node.name}_variance"])


def replaceable(model: ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("mean", FLOAT, [6]))


def replaceable_further_up(model: ModelProto) -> None:
    replaceable(model)
    model.graph.node.insert(0, helper.make_node("Identity", ["mean"], ["middle"]))
    for node in model.graph.node[1:]:
        node.input[:] = ["middle" if name == "mean" else name for name in node.input]


def of_arithmetic(model: ModelProto) -> None:
    model.graph.node.insert(0, helper.make_node("Sqrt", ["variance"], ["root"]))
    for node in model.graph.node[1:]:
        node.input[:] = ["root" if name == "variance" else name for name in node.input]


def elsewhere(model: ModelProto) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL


def doubled(model: ModelProto) -> None:
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def huge(model: ModelProto) -> None:
    filled(model, 1 << 20, 1 << 20)


def large_in_the_file_alone(model: ModelProto) -> None:
    filled(model, 64, 64)


def filled(model: ModelProto, *image: int) -> None:
    shape = numpy_helper.from_array(np.array([6, 4, *image]), "shape")
    model.graph.initializer.append(shape)
    value = helper.make_tensor("value", FLOAT, [1], [1.0])
    model.graph.node.insert(0, helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=value))
    for node in model.graph.node:
        node.input[:] = ["filled" if name == "w" else name for name in node.input]


def constant(model: ModelProto) -> None:
    for node in model.graph.node:
        node.input[:] = ["w" if name.startswith("x") else name for name in node.input]


def stated(name: str, *dims: int) -> Any:
    def change(model: ModelProto) -> None:
        tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
        tensor.dims[:] = dims

    change.__name__ = f"{name}{dims}"
    return change


WRONG = (stated("w", 6, 4, 3, 5), stated("w", 6), stated("mean", 3), stated("mean", 7), stated("shift", 1, 6))


@pytest.mark.parametrize(
    "change",
    [
        training,
        replaceable,
        replaceable_further_up,
        of_arithmetic,
        elsewhere,
        doubled,
        huge,
        large_in_the_file_alone,
        constant,
        *WRONG,
    ],
    ids=lambda one: one.__name__,
)
def test_other_forms_stay(change: Any) -> None:
    model = pieces(0, bias=False, group=1, scales=["BatchNormalization"])
    assert len(scale_weights(ModelProto.FromString(model.SerializeToString()))) == 3
    change(model)
    assert scale_weights(model) == {}


def test_a_body_keeps_what_it_reads() -> None:
    net = Net(0)
    value = net.normalised(net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c"), "s")
    branch = helper.make_graph(
        [helper.make_node("Add", ["c", "shift_too"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", FLOAT, None)],
    )
    net.weight("shift_too", 6, 1, 1)
    net.weights["condition"] = np.array(True)
    net.nodes.append(helper.make_node("If", ["condition"], ["i"], "i", then_branch=branch, else_branch=branch))
    model = net.model([net.node("Add", [value, "i"], "y")])
    assert scale_weights(model) == {}
    # Where it reads the weights alone, these stay, too.
    branch.node[0].input[:] = ["shift_too", "w"]
    del net.nodes[-2:]
    net.nodes.append(helper.make_node("If", ["condition"], ["i"], "i", then_branch=branch, else_branch=branch))
    net.weight("shift_too", 1, 1, 1, 1)
    net.weights["shift_too"] = np.ones((1, 1, 1, 1), np.float32)
    model = net.model([value, "i"])
    assert scale_weights(model) == {"c": "s"}
    assert {"w", "w_scaled"} <= {tensor.name for tensor in model.graph.initializer}


# In whole models


def network() -> bytes:
    """Convolutions at a high resolution, each with a normalization, then few channels more."""
    net = Net(3)
    value, channels = "x", 4
    for number in range(5):
        made = 16 if number < 4 else 6
        value = net.node("Conv", [value, net.weight(f"w{number}", made, channels, 3, 3)], f"c{number}", pads=[1] * 4)
        given = [f"{name}{number}" for name in ("scale", "shift", "mean", "variance")]
        for name in given:
            net.weight(name, made, positive=name.startswith("variance"))
        value = net.node("BatchNormalization", [value, *given], f"n{number}")
        value, channels = net.node("Relu", [value], f"r{number}"), made
    return bytes(net.model([net.node("GlobalAveragePool", [value], "y")], (1, 4, 48, 48)).SerializeToString())


def test_a_file_in_pieces_stores_scaled_weights_once(tmp_path: Any) -> None:
    given = network()
    result = memsched.optimize(
        given, level=2, max_extra_macs=50, max_slowdown=None, effort=1, order_guarantee="session"
    )
    written = ModelProto.FromString(result.model)
    makers = {name: node.op_type for node in written.graph.node for name in node.output}
    assert all(makers[node.input[0]] == "Concat" for node in written.graph.node if node.op_type == "BatchNormalization")
    assert sum(node.op_type == "Conv" for node in written.graph.node) > 5
    assert large(written) == 5
    assert large(optimised(written, tmp_path / "optimised.onnx")) == 5
    seen = result.report["sections"]["verification"]
    assert seen["measured_peak_after_bytes"] == result.report["sections"]["requirement"]["bytes"]
    assert seen["measured_peak_after_bytes"] < seen["measured_peak_before_bytes"] / 2
    assert seen["relative_error"] < 1e-5


def test_values_computed_again_have_the_same_bits() -> None:
    net = Net(4)
    first = net.normalised(net.node("Conv", ["x", net.weight("w", 6, 4, 3, 3)], "c", pads=[1] * 4), "n")
    value = net.node("Conv", [first, net.weight("v", 64, 6, 3, 3)], "wide", pads=[1] * 4)
    value = net.node("Conv", [value, net.weight("u", 6, 64, 3, 3)], "narrow", pads=[1] * 4)
    given = net.model([net.node("Add", [value, first], "y")], (1, 4, 48, 48)).SerializeToString()
    result = memsched.optimize(
        given,
        allow=("reorder", "inplace", "remat"),
        max_extra_macs=100,
        max_slowdown=None,
        effort=1,
        order_guarantee="session",
    )
    written = ModelProto.FromString(result.model)
    assert sum(node.op_type == "Conv" for node in written.graph.node) == 4
    assert large(written) == 3
    seen = result.report["sections"]["verification"]
    assert seen["outputs_equal"] is True
    assert seen["measured_peak_after_bytes"] == result.report["sections"]["requirement"]["bytes"]


def chain(*, twice: bool = False, an_output: bool = False) -> Graph:
    tensors = tuple(Tensor(name, 16, (4,), "float32") for name in "xcsy")
    ops = [Op("c", "Conv", (0,), (1,)), Op("s", "Mul", (1,), (2,)), Op("y", "Relu", (1 if twice else 2,), (3,))]
    return Graph("g", tensors, tuple(ops), (0,), (3, 1) if an_output else (3,), dependencies=((1, 2),))


def test_graphs_without_what_was_merged() -> None:
    merged = without_merged(chain(), {"c": "s"})
    assert [op.name for op in merged.ops] == ["c", "y"]
    assert [tensor.name for tensor in merged.tensors] == ["x", "s", "y"]
    assert merged.ops[0].outputs == (1,)
    assert merged.dependencies == ((0, 1),)
    both = without_merged(chain(), {"c": "s", "s": "y"})
    assert [(op.name, op.outputs) for op in both.ops] == [("c", (1,))]
    for wrong in (chain(twice=True), chain(an_output=True)):
        with fails("cannot-leave-out", "'c'"):
            without_merged(wrong, {"c": "s"})
