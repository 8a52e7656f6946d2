"""Pinned models execute the file's order in sessions of the installed ONNX Runtime that set no option for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import memsched
from memsched.runtimes.onnxruntime.pins import pin, shape_nodes, unpin
from tests.needs import recent_onnxruntime
from tests.onnx_dags import elementwise, executed, feed_of, reshaping, shuffled

pytestmark = recent_onnxruntime

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(nodes: Any, inputs: Any, outputs: Any, opset: int = 17, constants: Any = (), ir: int = 8) -> Any:
    def values(given: Any) -> Any:
        return [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in given]

    graph = helper.make_graph(nodes, "model", values(inputs), values(outputs), list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def own(names: list[str], model: onnx.ModelProto) -> tuple[list[str], list[str]]:
    """Return the model's own nodes as executed, and the same nodes in the model's order."""
    wanted = [node.name for node in model.graph.node]
    ran = [name for name in names if name in set(wanted)]
    return ran, [name for name in wanted if name in set(ran)]


def hold(model: onnx.ModelProto, folder: Path, feed: Any = None, most_bytes: int = 8) -> onnx.ModelProto:
    """Pin a model and check what pins promise; returns the pinned model."""
    pinned = pin(model)
    assert not pinned.unpinnable
    onnx.checker.check_model(pinned.model, full_check=True)
    feed = feed_of(model) if feed is None else feed
    expected, names, peak = executed(model, folder, by_file=True, feed=feed)
    for optimized in (False, True):
        outputs, names, pinned_peak = executed(pinned.model, folder, optimized=optimized, feed=feed)
        ran, wanted = own(names, model)
        assert ran == wanted
        assert [o.tobytes() for o in outputs] == [e.tobytes() for e in expected]
        if not optimized:
            assert len(ran) == sum(node.op_type != "Constant" for node in model.graph.node)
            assert pinned_peak <= peak + most_bytes
    return pinned.model


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_order_holds_in_plain_sessions(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 25):
        model = shuffled(elementwise(seed, columns=100), seed)
        pinned = hold(model, tmp_path)
        names = executed(pinned, tmp_path, optimized=True)[1]
        assert len(own(names, model)[0]) == len(model.graph.node), "a node vanished: the test tests less than it says"


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 18])
def test_order_holds_where_optimization_merges_reshapes(opset: int, tmp_path: Path) -> None:
    for seed in range(12):
        hold(shuffled(reshaping(seed, opset), seed), tmp_path, most_bytes=256)


@pytest.mark.parametrize("opset", [7, 11, 13, 20])
def test_order_holds_with_symbolic_dimensions(opset: int, tmp_path: Path) -> None:
    for seed in range(5):
        hold(shuffled(elementwise(seed, opset, symbolic=True), seed), tmp_path, most_bytes=64)


def test_order_does_not_hold_without_pins(tmp_path: Path) -> None:
    kept = 0
    for seed in range(10):
        model = shuffled(elementwise(seed), seed)
        ran, wanted = own(executed(model, tmp_path)[1], model)
        kept += ran == wanted
    assert kept == 0


def test_one_pin_per_pair_without_a_dependency() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "a"),
        helper.make_node("Neg", ["a"], ["b"], "b"),
        helper.make_node("Sin", ["x"], ["c"], "c"),
        helper.make_node("Add", ["b", "c"], ["y"], "d"),
    ]
    pinned = pin(model_of(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])]))
    assert pinned.pins == 1
    assert pin(model_of(nodes[:2], [("x", FLOAT, [2])], [("b", FLOAT, [2])])).pins == 0


def test_unpin_gives_the_model_back_and_pinning_twice_changes_nothing() -> None:
    for model in (shuffled(elementwise(1), 2), shuffled(reshaping(1, 11), 2)):
        once = pin(model).model
        assert unpin(once).SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)
        assert pin(once).model.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


def test_given_model_is_not_changed() -> None:
    model = shuffled(elementwise(1), 2)
    before = model.SerializeToString(deterministic=True)
    pin(model)
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("kind", ["BOOL", "INT8", "UINT8", "INT32", "INT64", "FLOAT16", "DOUBLE", "STRING"])
def test_element_types(kind: str, tmp_path: Path) -> None:
    element = getattr(TensorProto, kind)
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], "a", perm=[1, 0]),
        helper.make_node("Tile", ["x", "twice"], ["b"], "b"),
        helper.make_node("Concat", ["x", "x"], ["c"], "c", axis=0),
        helper.make_node("Transpose", ["b"], ["d"], "d", perm=[1, 0]),
    ]
    twice = helper.make_tensor("twice", INT64, [2], [1, 2])
    outputs = [("a", element, [3, 2]), ("c", element, [4, 3]), ("d", element, [6, 2])]
    model = model_of(nodes, [("x", element, [2, 3])], outputs, constants=[twice])
    value = np.array([["0", "1", "2"], ["3", "4", "5"]], dtype=object)
    if kind != "STRING":
        value = np.arange(6).reshape(2, 3).astype(helper.tensor_dtype_to_np_dtype(element))
    pinned = pin(model)
    assert pinned.pins == 3
    assert not pinned.unpinnable
    for optimized in (False, True):
        outputs_, names, _ = executed(pinned.model, tmp_path, optimized=optimized, feed={"x": value})
        assert own(names, model)[0] == ["a", "b", "c", "d"]
        assert outputs_[1].tolist() == value.tolist() * 2


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("shape", [[], [0, 3], [1]])
def test_scalars_and_empty_tensors(shape: list[int], opset: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"], "a"),
        helper.make_node("Neg", ["x"], ["b"], "b"),
        helper.make_node("Sin", ["x"], ["c"], "c"),
        helper.make_node("Sum", ["a", "b", "c"], ["y"], "d"),
    ]
    model = model_of(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], opset)
    hold(model, tmp_path, {"x": np.ones(shape, np.float32)}, most_bytes=64)


@pytest.mark.parametrize("opset", [11, 17])
def test_pinned_nodes_still_work_in_place(opset: int, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "a"),
        helper.make_node("Cos", ["x"], ["c"], "c"),
        helper.make_node("Relu", ["a"], ["b"], "b"),
        helper.make_node("ReduceMax", ["b"], ["m"], "m"),
        helper.make_node("ReduceMax", ["c"], ["k"], "k"),
        helper.make_node("Add", ["m", "k"], ["y"], "y"),
    ]
    model = model_of(nodes, [("x", FLOAT, [100])], [("y", FLOAT, [1])], opset)
    pinned = hold(model, tmp_path, {"x": np.ones(100, np.float32)}, most_bytes=24)
    assert executed(pinned, tmp_path)[2] < 900, "the Relu took new memory"


def test_pinned_nodes_work_in_place_behind_what_only_the_runtime_infers(tmp_path: Path) -> None:
    fused = helper.make_node("FusedMatMul", ["x", "x"], ["a"], "a", domain="com.microsoft", transB=1)
    nodes = [
        fused,
        helper.make_node("Cos", ["x"], ["c"], "c"),
        helper.make_node("Relu", ["a"], ["b"], "b"),
        helper.make_node("ReduceMax", ["b"], ["m"], "m"),
        helper.make_node("ReduceMax", ["c"], ["k"], "k"),
        helper.make_node("Add", ["m", "k"], ["y"], "y"),
    ]
    model = model_of(nodes, [("x", FLOAT, [50, 2])], [("y", FLOAT, [1, 1])])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    pinned = pin(model).model
    outputs, _, peak = executed(pinned, tmp_path, feed={"x": np.ones((50, 2), np.float32)})
    assert outputs[0].item() == pytest.approx(2 + np.cos(1))
    assert peak < 2 * 10_000, "the Relu took new memory"


def test_bounds_of_a_range_stay_scalars(tmp_path: Path) -> None:
    """ONNX Runtime follows the values of integers through Unsqueeze, and takes a pinned scalar for a vector."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"], "a"),
        helper.make_node("Shape", ["x"], ["dims"], "dims"),
        helper.make_node("Gather", ["dims", "zero"], ["count"], "count"),
        helper.make_node("Range", ["zero", "count", "one"], ["r"], "r"),
        helper.make_node("Cast", ["r"], ["f"], "f", to=FLOAT),
        helper.make_node("Add", ["f", "a"], ["y"], "y"),
    ]
    constants = [helper.make_tensor(name, INT64, [], [at]) for at, name in enumerate(("zero", "one"))]
    model = model_of(nodes, [("x", FLOAT, [4])], [("y", FLOAT, [4])], constants=constants)
    for optimized in (False, True):
        names = executed(pin(model).model, tmp_path, optimized=optimized)[1]
        assert [name for name in names if name in "arfy"] == ["a", "r", "f", "y"]


def test_nodes_without_inputs_are_reported_and_the_others_still_in_order(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "a"),
        helper.make_node("RandomNormal", [], ["r"], "r", shape=[2], seed=1.0),
        helper.make_node("Neg", ["x"], ["b"], "b"),
        helper.make_node("Sin", ["x"], ["c"], "c"),
        helper.make_node("Sum", ["a", "r", "b", "c"], ["y"], "d"),
    ]
    model = model_of(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    pinned = pin(model)
    assert pinned.unpinnable == (("a", "r"),)
    for optimized in (False, True):
        names = executed(pinned.model, tmp_path, optimized=optimized)[1]
        assert [name for name in own(names, model)[0] if name != "r"] == ["a", "b", "c", "d"]
        assert own(names, model)[0].index("r") < names.index("b")


def test_too_old_an_opset_is_reported() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], "a"), helper.make_node("Neg", ["x"], ["b"], "b")]
    pinned = pin(model_of(nodes, [("x", FLOAT, [2])], [("a", FLOAT, [2]), ("b", FLOAT, [2])], opset=6))
    assert (pinned.pins, pinned.unpinnable) == (0, (("a", "b"),))


def test_sequences_and_captures(tmp_path: Path) -> None:
    def branch(name: str, kind: str) -> Any:
        node = helper.make_node(kind, ["a"], [name])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, FLOAT, [4])])

    nodes = [
        helper.make_node("Sigmoid", ["x"], ["a"], "a"),
        helper.make_node("SplitToSequence", ["x", "two"], ["s"], "s"),
        helper.make_node("If", ["cond"], ["i"], "i", then_branch=branch("t", "Neg"), else_branch=branch("e", "Sin")),
        helper.make_node("ConcatFromSequence", ["s"], ["c"], "c", axis=0),
        helper.make_node("Add", ["i", "c"], ["y"], "y"),
    ]
    two = helper.make_tensor("two", INT64, [], [2])
    model = model_of(nodes, [("x", FLOAT, [4]), ("cond", TensorProto.BOOL, [])], [("y", FLOAT, [4])], constants=[two])
    pinned = pin(model)
    assert pinned.unpinnable == (("i", "c"),), "the one input of c is a sequence"
    assert any("bodies" in note for note in pinned.notes)
    onnx.checker.check_model(pinned.model)
    feed = {"x": np.arange(4, dtype=np.float32), "cond": np.array(True)}
    for optimized in (False, True):
        ran = own(executed(pinned.model, tmp_path, optimized=optimized, feed=feed)[1], model)[0]
        assert ran.index("a") < ran.index("s") < ran.index("i")


def test_a_shape_runs_before_its_input_would_die(tmp_path: Path) -> None:
    """Left to the default order, Shape would keep the large tensor until the end."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["large"], "large"),
        helper.make_node("Shape", ["large"], ["dims"], "dims"),
        helper.make_node("ReduceMax", ["large"], ["small"], "small"),
        helper.make_node("Sin", ["small"], ["s"], "s"),
        helper.make_node("Expand", ["s", "dims"], ["e"], "e"),
        helper.make_node("Neg", ["x"], ["n"], "n"),
        helper.make_node("Add", ["e", "n"], ["y"], "y"),
    ]
    model = model_of(nodes, [("x", FLOAT, ["rows", 50])], [("y", FLOAT, ["rows", 50])])
    assert shape_nodes(model) == (1,)
    names = executed(pin(model).model, tmp_path, feed={"x": np.ones((40, 50), np.float32)})[1]
    assert names.index("dims") < names.index("s")


def test_old_ir_versions_need_no_initializers() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], "a"), helper.make_node("Neg", ["x"], ["b"], "b")]
    for opset in (7, 9, 13):
        model = model_of(nodes, [("x", FLOAT, [2])], [("a", FLOAT, [2]), ("b", FLOAT, [2])], opset, ir=3)
        onnx.checker.check_model(pin(model).model)


def test_names_of_the_model_that_look_like_pins_stay() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["memsched_pin_1_value"], "a"),
        helper.make_node("Neg", ["x"], ["b"], "b"),
        helper.make_node("Sin", ["memsched_pin_1_value"], ["c"], "c"),
    ]
    pinned = pin(model_of(nodes, [("x", FLOAT, [2])], [("b", FLOAT, [2]), ("c", FLOAT, [2])]))
    onnx.checker.check_model(pinned.model)


def test_values_that_only_symbolic_inference_knows_are_read_back() -> None:
    """ONNX's own inference gives GroupNormalization no type, so that the pin on its output is not declared."""
    constants = [onnx.numpy_helper.from_array(np.ones(4, "f"), name) for name in ("s", "b")]
    nodes = [helper.make_node("GroupNormalization", ["x", "s", "b"], ["n"], "n", num_groups=2)]
    nodes += [helper.make_node(kind, ["n"], [kind], kind) for kind in ("Relu", "Tanh")]
    outputs = [(kind, FLOAT, None) for kind in ("Relu", "Tanh")]
    model = model_of(nodes, [("x", FLOAT, [1, 4, 8, 8])], outputs, opset=21, constants=constants, ir=10)
    pinned = pin(model)
    assert pinned.pins == 1
    shapes = {tensor.name: tensor.shape for tensor in memsched.load(pinned.model.SerializeToString()).graph.tensors}
    assert shapes["memsched_pin_1_none"] == (0,)
    assert shapes["memsched_pin_1_value"] == shapes["n"] == (1, 4, 8, 8)
