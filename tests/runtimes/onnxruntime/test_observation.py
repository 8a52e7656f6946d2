"""Sizes that a run shows: what depends on data, bodies that do not run, inputs from a file; held to real sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.commands.calls import Hooks
from memsched.commands.optimize.analysis import analyze
from memsched.commands.optimize.optimize import load, optimize
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.shapes import OF_ONE_RUN
from memsched.runtimes.onnxruntime import verification as runtime
from tests.failures import fails
from tests.needs import recent_onnxruntime

pytestmark = recent_onnxruntime

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, element: int, dims: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, dims)


def model_of(nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def picked() -> bytes:
    """Return two wide branches over the elements of an input that are not zero: an order decides, and data."""
    node = helper.make_node
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((1, 64)).astype(np.float32), "wide"),
        numpy_helper.from_array(rng.standard_normal((64, 1)).astype(np.float32), "thin"),
        numpy_helper.from_array(np.array([1]), "one"),
    ]
    nodes = [
        node("NonZero", ["x"], ["places"], "places"),
        node("Transpose", ["places"], ["rows"], "rows", perm=[1, 0]),
        node("GatherND", ["x", "rows"], ["flat"], "flat"),
        node("Unsqueeze", ["flat", "one"], ["found"], "found"),
        node("MatMul", ["found", "wide"], ["a1"], "a1"),
        node("Sin", ["found"], ["bent"], "bent"),
        node("MatMul", ["bent", "wide"], ["b1"], "b1"),
        node("MatMul", ["a1", "thin"], ["a2"], "a2"),
        node("MatMul", ["b1", "thin"], ["b2"], "b2"),
        node("Add", ["a2", "b2"], ["y"], "y"),
    ]
    return model_of(nodes, [value("x", FLOAT, ["h", "w"])], [value("y", FLOAT, ["n", 1])], weights)


def grown() -> bytes:
    """Return a loop that doubles what it carries, as often as the input says, and a branch that is not taken."""
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["v", "v"], ["v2"], "twice", axis=0),
            helper.make_node("Identity", ["c"], ["c2"], "go_on"),
        ],
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("v", FLOAT, None)],
        [value("c2", BOOL, []), value("v2", FLOAT, None)],
    )
    yes = helper.make_graph([helper.make_node("Neg", ["long"], ["z1"], "neg")], "yes", [], [value("z1", FLOAT, None)])
    no = helper.make_graph(
        [
            helper.make_node("Concat", ["long", "long"], ["more"], "more", axis=0),
            helper.make_node("Expand", ["more", "dims"], ["z2"], "expand"),
        ],
        "no",
        [],
        [value("z2", FLOAT, None)],
    )
    nodes = [
        helper.make_node("Loop", ["times", "", "x"], ["long"], "loop", body=body),
        helper.make_node("If", ["which"], ["y"], "if", then_branch=yes, else_branch=no),
    ]
    inputs = [
        value("x", FLOAT, [16]),
        value("times", INT64, []),
        value("which", BOOL, []),
        value("dims", INT64, [2]),
    ]
    return model_of(nodes, inputs, [value("y", FLOAT, ["n"])])


def feeds(tmp_path: Path, **arrays: Any) -> str:
    path = tmp_path / "feeds.npz"
    np.savez(path, **arrays)
    return str(path)


def half_zero(shape: tuple[int, int]) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    x[:, ::2] = 0
    return x


def test_sizes_that_depend_on_data_are_those_of_the_run(tmp_path: Path) -> None:
    with fails("unknown-shape", "--shapes-from-run"):
        load_module(picked(), "m.onnx", LoadOptions(dims={"h": 32, "w": 64}))
    graph = load(picked(), shapes_from_run=feeds(tmp_path, x=half_zero((32, 64)))).graph
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    assert shapes["places"] == (2, 1024)
    assert shapes["a1"] == (1024, 64)
    assert shapes["y"] == (1024, 1)


@pytest.mark.parametrize("session", [None, "default"])
def test_layers_are_not_cut_at_sizes_that_data_decide(tmp_path: Path, session: Literal["default"] | None) -> None:
    """A file cut for as many elements as one run showed would leave out the rest of those that another one has."""
    node, file = helper.make_node, str(tmp_path / "bent.onnx")
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Cast", ["places"], ["rows"], to=FLOAT),
        *(
            node(kind, [read], [made])
            for kind, read, made in [("Exp", "rows", "a"), ("Sin", "a", "b"), ("Cos", "b", "c")]
        ),
        node("ReduceSum", ["c"], ["y"], keepdims=0),
    ]
    Path(file).write_bytes(model_of(nodes, [value("x", FLOAT, [32, 64])], [value("y", FLOAT, [])]))
    path = feeds(tmp_path, x=half_zero((32, 64)))
    options: dict[str, Any] = {"session": session} if session else {"order_guarantee": "session"}
    result = optimize(file, shapes_from_run=path, level=2, **options)
    plain = optimize(file, shapes_from_run=path, hooks=Hooks(words=("optimize", file)), **options)
    assert result.report["sections"]["tile"] is None or not result.report["sections"]["tile"]["applied"]
    assert not any("tile" in row["command"] for row in plain.report["alternatives"])
    x = np.random.default_rng(2).standard_normal((32, 64)).astype(np.float32)
    (found,), (given,) = (
        onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for one in (result.model, Path(file).read_bytes())
    )
    np.testing.assert_allclose(found, given, rtol=1e-5)


def test_the_order_is_better_and_the_peak_is_that_of_the_session(tmp_path: Path) -> None:
    path = feeds(tmp_path, x=half_zero((32, 64)))
    result = optimize(picked(), shapes_from_run=path)
    found = result.verification
    assert found is not None
    assert found.outputs_equal
    assert (found.runs, found.feeds) == (1, path)
    assert found.measured_peak_before_bytes is not None
    assert found.measured_peak_after_bytes is not None
    assert found.measured_peak_after_bytes < 0.6 * found.measured_peak_before_bytes
    assert found.predicted_peak_after_bytes == pytest.approx(found.measured_peak_after_bytes, rel=0.02)
    assert result.report.values.sections.verification is not None
    assert result.report.values.sections.verification.feeds == path
    (note,) = [one for one in result.report.values.verdict.notes if OF_ONE_RUN in one]
    assert "'places'" in note
    assert "other inputs" in note
    # Nothing is baked in: the file runs on other data, too.
    again = runtime.compare_models(picked(), result.model, dims={"h": 7, "w": 9}).verification
    assert again.outputs_equal


def test_random_inputs_have_the_shapes_that_are_stated() -> None:
    shapes = {
        one.name: one.shape for one in load(picked(), dims={"h": 4, "w": 6}, shapes_from_run="random").graph.tensors
    }
    assert shapes["places"] == (2, 24)
    assert {one.name: one.shape for one in load(picked(), shapes_from_run="random").graph.tensors}["x"] == (224, 224)


def test_loops_count_their_largest_iteration_and_branches_that_do_not_run_nothing(tmp_path: Path) -> None:
    given = feeds(tmp_path, x=np.ones(16, np.float32), times=np.array(5), which=np.array(True), dims=np.array([2, 2]))
    module = load(grown(), shapes_from_run=given)
    by_name = {one.name: one.shape for graph in module.graphs for one in graph.tensors}
    assert by_name["long"] == by_name["y"] == (512,)
    assert by_name["v2"] == by_name["v"] == (512,)
    assert by_name["more"] is None
    assert any("not run" in note for note in module.notes)
    found = optimize(grown(), shapes_from_run=given).verification
    assert found is not None
    assert found.outputs_equal


def test_what_the_file_tells_is_not_asked_of_a_run(tmp_path: Path) -> None:
    data = model_of(
        [helper.make_node("Relu", ["x"], ["y"], "relu")], [value("x", FLOAT, ["n", 4])], [value("y", FLOAT, ["n", 4])]
    )
    module = load(data, shapes_from_run=feeds(tmp_path, x=np.ones((3, 4), np.float32)))
    assert module.graph.tensors[module.graph.outputs[0]].shape == (3, 4)
    assert not [note for note in module.notes if "one run" in note]


def test_functions_without_a_kernel_are_seen_as_well(tmp_path: Path) -> None:
    """ONNX Runtime executes such an operator as several others, of which its profile tells."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"], "places"),
        helper.make_node("Cast", ["places"], ["numbers"], "numbers", to=FLOAT),
        helper.make_node("Celu", ["numbers"], ["bent"], "bent", alpha=2.0),
        helper.make_node("Softplus", ["bent"], ["y"], "y"),
    ]
    data = model_of(nodes, [value("x", FLOAT, [5])], [value("y", FLOAT, [1, "n"])])
    given = feeds(tmp_path, x=np.array([0, 1, 0, 2, 3], np.float32))
    shapes = {one.name: one.shape for one in load(data, shapes_from_run=given).graph.tensors}
    assert shapes["bent"] == shapes["y"] == (1, 3)


@pytest.mark.parametrize(
    ("arrays", "about"),
    [
        ({}, ("feeds.npz", "'x'")),
        ({"x": np.ones((2, 2), np.float32), "z": np.ones(1)}, ("'z'", "'x'")),
        ({"x": np.ones((2, 2), np.float64)}, ("tensor(double)", "tensor(float)")),
        ({"x": np.ones(2, np.float32)}, (": x ", "Got: 1 Expected: 2")),
    ],
)
def test_inputs_that_do_not_fit_are_told(tmp_path: Path, arrays: dict[str, Any], about: tuple[str, ...]) -> None:
    with fails("fails-at-inputs", *about):
        load(picked(), shapes_from_run=feeds(tmp_path, **arrays))


def looked_up(tmp_path: Path) -> str:
    """Write a model that runs on indices from 1 to 8 alone."""
    node, file = helper.make_node, tmp_path / "looked_up.onnx"
    weights = [
        numpy_helper.from_array(np.array(5), "five"),
        numpy_helper.from_array(np.ones((4, 32), np.float32), "table"),
    ]
    nodes = [
        node("Sub", ["i", "five"], ["at"], "sub"),
        node("Gather", ["table", "at"], ["rows"], "gather"),
        node("Exp", ["rows"], ["y"], "exp"),
    ]
    file.write_bytes(model_of(nodes, [value("i", INT64, [64])], [value("y", FLOAT, [64, 32])], weights))
    return str(file)


def test_what_random_inputs_do_not_suit_is_told_how_to_state_others(tmp_path: Path) -> None:
    path = looked_up(tmp_path)
    verification = optimize(path).report["sections"]["verification"]
    assert verification["outputs_equal"] is None
    assert "--shapes-from-run FEEDS.npz" in verification["reason"]
    with fails("fails-at-inputs", "--session", "--shapes-from-run FEEDS.npz"):
        optimize(path, session="default")


def test_inputs_that_are_stated_are_those_that_are_verified_and_measured_on(tmp_path: Path) -> None:
    given = feeds(tmp_path, i=np.arange(64) % 8 + 1)
    report = optimize(looked_up(tmp_path), session="default", shapes_from_run=given).report
    assert report["sections"]["verification"]["outputs_equal"]
    assert (report["sections"]["verification"]["feeds"], report["sections"]["verification"]["runs"]) == (given, 1)
    assert report["sections"]["sessions"]


def test_files_that_state_every_size_need_no_run() -> None:
    path = Path(__file__).parents[3] / "models" / "hello_world_int8.tflite"
    with fails("states-every-size", "--shapes-from-run"):
        analyze(str(path), shapes_from_run="random")
