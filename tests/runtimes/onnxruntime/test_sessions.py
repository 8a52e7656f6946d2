"""The rules and figures that memsched builds on, as the installed ONNX Runtime shows them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from memsched.commands.optimize.optimize import optimize
from memsched.errors import ModelError, RuntimeUnavailableError
from memsched.formats.module import LoadOptions
from memsched.runtimes.child import ChildResult
from memsched.runtimes.onnxruntime import sessions as onnxruntime_sessions
from memsched.runtimes.onnxruntime import verification as runtime
from memsched.runtimes.onnxruntime.orders import default_order, priority_order
from memsched.runtimes.onnxruntime.pins import pin
from memsched.runtimes.onnxruntime.session_points import draw_feeds
from memsched.runtimes.onnxruntime.sessions import read_profile, session_options
from tests import small_models
from tests.commands.optimize.test_choose import skip_connection
from tests.needs import recent_onnxruntime
from tests.onnx_dags import elementwise, executed, graph_of, shuffled

pytestmark = recent_onnxruntime

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(nodes: Any, inputs: Any, outputs: Any, opset: int = 17, constants: Any = ()) -> onnx.ModelProto:
    def values(given: Any) -> Any:
        return [v if isinstance(v, onnx.ValueInfoProto) else helper.make_tensor_value_info(*v) for v in given]

    graph = helper.make_graph(nodes, "model", values(inputs), values(outputs), list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def relu(kind: str = "Relu", shape: Any = (8,)) -> bytes:
    model = model_of([helper.make_node(kind, ["x"], ["y"], "n")], [("x", FLOAT, shape)], [("y", FLOAT, shape)])
    return bytes(model.SerializeToString())


def branches(depth_first: bool) -> bytes:
    """Return six branches input -> large -> small, summed: one large tensor at a time, or all six."""
    large = [helper.make_node("Sin", ["x"], [f"l{i}"], f"l{i}") for i in range(6)]
    small = [helper.make_node("ReduceMax", [f"l{i}"], [f"s{i}"], f"s{i}", keepdims=0) for i in range(6)]
    last = [helper.make_node("Sum", [f"s{i}" for i in range(6)], ["y"], "y")]
    nodes = [node for pair in zip(large, small, strict=True) for node in pair] if depth_first else large + small
    return bytes(model_of(nodes + last, [("x", FLOAT, [1000])], [("y", FLOAT, [])]).SerializeToString())


# The order that the runtime takes


@pytest.mark.parametrize("shape_nodes", [False, True])
def test_default_order_is_predicted(shape_nodes: bool, tmp_path: Path) -> None:
    for seed in range(100):
        model = shuffled(elementwise(seed, shape_nodes=shape_nodes), seed)
        names = [node.name for node in model.graph.node]
        assert [names[op] for op in default_order(graph_of(model))] == executed(model, tmp_path)[1], seed


def test_priority_order_is_the_file_order(tmp_path: Path) -> None:
    for seed in range(100):
        model = shuffled(elementwise(seed), seed)
        graph = graph_of(model)
        assert executed(model, tmp_path, by_file=True)[1] == [node.name for node in model.graph.node], seed
        assert priority_order(graph) == tuple(range(len(graph.ops)))


def test_priority_order_runs_shapes_first(tmp_path: Path) -> None:
    hoisted = 0
    for seed in range(30):
        model = shuffled(elementwise(seed, shape_nodes=True), seed)
        names = [node.name for node in model.graph.node]
        predicted = [names[op] for op in priority_order(graph_of(model))]
        assert predicted == executed(model, tmp_path, by_file=True)[1], seed
        hoisted += predicted != names
    assert hoisted > 20


def test_default_order_of_a_long_chain_needs_no_recursion() -> None:
    nodes = [helper.make_node("Relu", [f"v{i - 1}" if i else "x"], [f"v{i}"], f"n{i}") for i in range(20_000)]
    graph = graph_of(model_of(nodes, [("x", FLOAT, [1])], [("v19999", FLOAT, [1])]))
    assert default_order(graph) == priority_order(graph) == tuple(range(20_000))


def test_instructions_open_the_session_that_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(branches(True))
    for guarantee in ("session", "pins", "default"):
        scope: dict[str, Any] = {"onnxruntime": onnxruntime, "path": str(path)}
        exec("\n".join(runtime.session_instructions(guarantee)), scope)  # noqa: S102
        assert scope["session"].run(None, {"x": np.ones(1000, np.float32)})[0] == pytest.approx(6 * np.sin(1.0))
        stated = runtime._PRINTED if guarantee == "session" else runtime._WITHOUT_OPTIONS
        own = session_options(onnxruntime, stated)
        found = scope["session"].get_session_options()
        for name in ("execution_order", "graph_optimization_level", "enable_mem_reuse", "enable_mem_pattern"):
            assert getattr(found, name) == getattr(own, name), (guarantee, name)
        assert scope.get("kept", []) == stated["disabled"]


# Verification


def test_equal_models_with_measured_peaks_and_order() -> None:
    found = runtime.verify(branches(False), branches(True), runs=2)
    assert (found.outputs_equal, found.max_abs_error, found.runs) == (True, 0.0, 2)
    # In use at the end of a node, before its inputs are given back: 6 large and a small; 1 large and 6 small.
    assert (found.measured_peak_before_bytes, found.measured_peak_after_bytes) == (6 * 4000 + 4, 4000 + 6 * 4)
    assert found.executed_order_matches is True
    assert found.reason is None
    assert found.runtime == f"onnxruntime {onnxruntime.__version__}"
    assert found.measured_with == tuple(runtime.session_instructions("session"))
    assert found.default_peak_before_bytes == found.default_peak_after_bytes
    assert found.outputs_vary is True


def test_different_outputs() -> None:
    found = runtime.compare_models(relu(), relu("Abs"), atol=100.0)
    assert found.verification.outputs_equal is False
    assert found.verification.max_abs_error is not None
    assert found.verification.max_abs_error > 0
    assert "differ" in (found.verification.reason or "")
    assert found.outputs_close is True
    assert runtime.compare_models(relu(), relu("Abs"), rtol=1e-6).outputs_close is False


def test_wrong_order_is_noticed() -> None:
    wanted = [f"l{i}" for i in range(6)] + [f"s{i}" for i in range(6)] + ["y"]
    assert runtime.verify(branches(True), branches(True), expected_order=wanted, runs=1).executed_order_matches is False
    assert runtime.verify(branches(True), branches(False), expected_order=wanted, runs=1).executed_order_matches is True


def test_pins_are_judged_in_plain_sessions() -> None:
    model = shuffled(elementwise(5), 5)
    plain = model.SerializeToString()
    pinned = pin(model).model.SerializeToString()
    wanted = [node.name for node in model.graph.node]
    found = runtime.verify(plain, pinned, expected_order=wanted, guarantee="pins", runs=1)
    assert (found.outputs_equal, found.executed_order_matches, found.reason) == (True, True, None)
    found = runtime.verify(plain, plain, expected_order=wanted, guarantee="pins", runs=1)
    assert (found.outputs_equal, found.executed_order_matches) == (True, False)


def test_missing_node_names() -> None:
    nodes = [helper.make_node(kind, ["x"], [kind], "own" if kind != "Sin" else "") for kind in ("Relu", "Sin")]
    nodes.append(helper.make_node("Sum", ["Relu", "Sin"], ["y"]))
    before = model_of(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    after = model_of([nodes[at] for at in (1, 0, 2)], [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    # As the reader names them: a node without a name takes that of an output.
    found = runtime.verify(
        before.SerializeToString(), after.SerializeToString(), expected_order=["Sin", "own", "y"], runs=1
    )
    assert (found.outputs_equal, found.executed_order_matches) == (True, True)


def test_nodes_of_bodies_are_told_from_those_of_the_main_graph() -> None:
    """Both number their nodes from 0, and here no node has a name."""
    body = [helper.make_node("Neg", ["a"], ["n"]), helper.make_node("Exp", ["n"], ["e"])]
    branch = helper.make_graph(body, "branch", [], [helper.make_tensor_value_info("e", FLOAT, [4])])
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Neg", ["x"], ["b"]),
        helper.make_node("If", ["c"], ["d"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["b", "d"], ["y"]),
    ]
    inputs = [("x", FLOAT, [4]), ("c", TensorProto.BOOL, [])]
    before, after = (
        model_of([nodes[at] for at in order], inputs, [("y", FLOAT, [4])]).SerializeToString()
        for order in ((0, 1, 2, 3), (0, 2, 1, 3))
    )
    found = runtime.verify(before, after, expected_order=["a", "d", "b", "y"], runs=1)
    assert (found.outputs_equal, found.executed_order_matches) == (True, True)
    assert runtime.verify(before, before, expected_order=["a", "d", "b", "y"], runs=1).executed_order_matches is False


def test_a_model_that_the_runtime_refuses() -> None:
    custom = model_of(
        [helper.make_node("Odd", ["x"], ["y"], "n", domain="my.ops")], [("x", FLOAT, [1])], [("y", FLOAT, [1])]
    )
    custom.opset_import.add(domain="my.ops", version=1)
    refused = custom.SerializeToString()
    found = runtime.verify(refused, refused)
    assert (found.outputs_equal, found.executed_order_matches, found.runs) == (None, None, 0)
    assert "my.ops" in (found.reason or "")
    assert "\n" not in (found.reason or "")
    found = runtime.verify(relu(), refused)
    assert found.outputs_equal is False
    assert (found.reason or "").startswith("the optimised model does not run: ")


def test_damaged_bytes() -> None:
    assert runtime.verify(b"\x08\x08garbage", relu()).outputs_equal is None
    assert runtime.verify(relu(), b"\x08\x08garbage").outputs_equal is False


def test_unknown_dimensions_are_stated_or_named() -> None:
    model = relu(shape=["n", 3])
    found = runtime.verify(model, model, runs=1)
    assert found.outputs_equal is None
    assert "--input-shape x:" in (found.reason or "")
    assert runtime.verify(model, model, runs=1, dims={"n": 2}).measured_peak_after_bytes == 24
    assert runtime.verify(model, model, runs=1, input_shapes={"x": [4, 3]}).measured_peak_after_bytes == 48


def test_external_data_is_found(tmp_path: Path) -> None:
    weight = helper.make_tensor("w", FLOAT, [4096], np.arange(4096, dtype=np.float32).tobytes(), raw=True)
    nodes = [helper.make_node("Add", ["x", "w"], ["y"], "n")]
    model = model_of(nodes, [("x", FLOAT, [4096])], [("y", FLOAT, [4096])], constants=[weight])
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    data = path.read_bytes()
    assert len(data) < 1000
    assert runtime.verify(path, data, data_folder=tmp_path, runs=1).outputs_equal is True
    assert runtime.measure(path).peak_bytes == 4096 * 4
    (tmp_path / "weights").unlink()
    found = runtime.verify(path, path, runs=1)
    assert found.outputs_equal is None
    assert found.reason


def test_random_operators_cannot_be_compared() -> None:
    """Without a seed, the numbers depend on the node's place in the file."""
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["r"], "r"),
        helper.make_node("Neg", ["x"], ["n"], "n"),
        helper.make_node("Add", ["n", "r"], ["y"], "y"),
    ]
    before, after = (
        model_of([nodes[at] for at in order], [("x", FLOAT, [9])], [("y", FLOAT, [9])]).SerializeToString()
        for order in ((0, 1, 2), (1, 0, 2))
    )
    found = runtime.verify(before, after, runs=1)
    assert (found.outputs_equal, found.max_abs_error, found.executed_order_matches) == (None, None, True)
    assert "RandomUniformLike" in (found.reason or "")
    assert found.measured_peak_after_bytes is not None


def test_computed_constants_count_as_weights() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["dims"], ["w"], "w"),
        helper.make_node("Add", ["x", "w"], ["y"], "y"),
    ]
    dims = helper.make_tensor("dims", INT64, [1], [5000])
    model = model_of(nodes, [("x", FLOAT, [5000])], [("y", FLOAT, [5000])], constants=[dims]).SerializeToString()
    found = runtime.verify(model, model, runs=1)
    assert (found.measured_peak_before_bytes, found.outputs_equal, found.executed_order_matches) == (20000, True, True)


def test_indices_stay_in_bounds_where_they_can() -> None:
    table = helper.make_tensor("table", FLOAT, [2, 3], list(range(6)))
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"], "n")]
    model = model_of(nodes, [("i", INT64, [64])], [("y", FLOAT, [64, 3])], constants=[table]).SerializeToString()
    assert runtime.verify(model, model).outputs_equal is True


def test_sequences_strings_and_absent_optionals() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", FLOAT, ["k"])
    nodes = [
        helper.make_node("SequenceLength", ["s"], ["n"], "n"),
        helper.make_node("SequenceInsert", ["s", "x"], ["t"], "t"),
        helper.make_node("Identity", ["words"], ["w"], "w"),
    ]
    out = helper.make_tensor_sequence_value_info("t", FLOAT, None)
    inputs = [sequence, ("x", FLOAT, [2]), ("words", TensorProto.STRING, [3])]
    model = model_of(nodes, inputs, [out, ("n", INT64, []), ("w", TensorProto.STRING, [3])]).SerializeToString()
    found = runtime.verify(model, model)
    assert (found.outputs_equal, found.max_abs_error) == (True, 0.0)


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16", "INT8", "UINT16", "BOOL", "DOUBLE", "FLOAT8E4M3FN"])
def test_element_types(kind: str) -> None:
    element = getattr(TensorProto, kind)
    model = model_of([helper.make_node("Cast", ["x"], ["y"], "n", to=element)], [("x", element, [9])],
                     [("y", element, [9])], opset=19)  # fmt: skip
    model.ir_version = 9
    data = model.SerializeToString()
    assert runtime.verify(data, data, runs=1).outputs_equal is True


def test_inputs_are_the_same_for_one_seed_and_differ_between_seeds() -> None:
    doubled = model_of([helper.make_node("Add", ["x", "x"], ["y"], "n")], [("x", FLOAT, [3])], [("y", FLOAT, [3])])
    errors = [
        runtime.verify(relu(shape=[3]), doubled.SerializeToString(), runs=1, seed=seed).max_abs_error
        for seed in (1, 1, 2)
    ]
    assert errors[0] == errors[1] != errors[2]


# A runtime that is missing, hangs or crashes


def test_missing_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeUnavailableError, match="pip install onnxruntime, or"):
        runtime.verify(relu(), relu())


def test_timeout_says_nothing_about_outputs() -> None:
    found = runtime.verify(relu(), relu(), timeout_seconds=0.05)
    assert (found.outputs_equal, found.reason) == (None, "onnxruntime: not finished after 0.05 s")


@pytest.mark.parametrize("first_survives", [True, False])
def test_crash_is_blamed_on_the_right_model(first_survives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def child(path: str, request: Any, timeout: float | None) -> ChildResult:
        if len(request["models"]) == 1 and first_survives:
            return ChildResult("ok", value={"failed": None})
        return ChildResult("crash", reason="the process was killed by SIGSEGV")

    monkeypatch.setattr(runtime, "run_in_child", child)
    found = runtime.verify(relu(), relu())
    assert found.outputs_equal is (False if first_survives else None)
    assert "SIGSEGV" in (found.reason or "")


# Optimised offline first


def convolutions(seed: int) -> onnx.ModelProto:
    """Return branches of Conv, BatchNormalization and Relu: optimisation merges and renumbers them."""
    rng = np.random.default_rng(seed)
    nodes, constants, ends = [], [], ["x"]

    def weight(name: str, shape: tuple[int, ...]) -> str:
        values = rng.uniform(0.5, 1, shape).astype(np.float32)
        constants.append(helper.make_tensor(name, FLOAT, shape, values.tobytes(), raw=True))
        return name

    for at in range(8):
        source = ends[int(rng.integers(max(0, len(ends) - 3), len(ends)))]
        nodes += [
            helper.make_node("Conv", [source, weight(f"w{at}", (2, 2, 1, 1))], [f"c{at}"], f"conv{at}"),
            helper.make_node(
                "BatchNormalization",
                [f"c{at}", *(weight(f"{n}{at}", (2,)) for n in ("scale", "bias", "mean", "var"))],
                [f"b{at}"],
                f"norm{at}",
            ),
            helper.make_node("Relu", [f"b{at}"], [f"r{at}"], f"relu{at}"),
        ]
        ends.append(f"r{at}")
    nodes.append(helper.make_node("Sum", ends[1:], ["y"], "sum"))
    return model_of(nodes, [("x", FLOAT, [1, 2, 4, 4])], [("y", FLOAT, [1, 2, 4, 4])], constants=constants)


@pytest.mark.parametrize("level", ["basic", "extended"])
def test_reordered_after_offline_optimization(level: Any, tmp_path: Path) -> None:
    for seed in range(4):
        path = tmp_path / "given.onnx"
        given = convolutions(seed)
        path.write_bytes(given.SerializeToString())
        optimized = onnx.load_model_from_string(runtime.offline_optimized(path, level))
        assert len(optimized.graph.node) < len(given.graph.node)
        for at, node in enumerate(optimized.graph.node):
            node.name = f"n{at}"
        for order in range(5):
            model = shuffled(optimized, order)
            names = executed(model, tmp_path, by_file=True, level=level)[1]
            assert names == [node.name for node in model.graph.node]


def test_offline_optimization_of_no_model(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"broken\.onnx"):
        runtime.offline_optimized(path, "basic")


def test_measure_says_why_not(tmp_path: Path) -> None:
    found = runtime.measure(tmp_path / "missing.onnx")
    assert (found.peak_bytes, found.executed) == (None, None)
    assert found.reason
    found = runtime.measure(branches(True))
    assert (found.peak_bytes, found.executed) == (4024, tuple(range(13)))


# What is verified is what is opened


def peak_as_printed(path: Path, folder: Path) -> tuple[int, list[str]]:
    """Open a file as the instructions say, with a profile; return its peak and the nodes that ran."""
    scope: dict[str, Any] = {"onnxruntime": onnxruntime, "path": str(path)}
    *lines, last = runtime.session_instructions("session")
    profile = f"options.enable_profiling = True; options.profile_file_prefix = {str(folder / 'profile')!r}"
    exec("\n".join([*lines, profile, last]), scope)  # noqa: S102
    session = scope["session"]
    feed = {value.name: np.ones(value.shape, np.float32) for value in session.get_inputs()}
    session.run(None, feed)
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    names = [e["name"].removesuffix("_kernel_time") for e in events if e["name"].endswith("_kernel_time")]
    return read_profile(events)["peak_bytes"], names


def head(opset: int = 17) -> onnx.ModelProto:
    """Return a language model's end: rows are multiplied by the transpose of a large constant."""
    table = helper.make_tensor("table", FLOAT, [8192, 64], np.ones(8192 * 64, np.float32).tobytes(), raw=True)
    nodes = [
        helper.make_node("Transpose", ["table"], ["turned"], "turn", perm=[1, 0]),
        helper.make_node("Sin", ["x"], ["s"], "s"),
        helper.make_node("MatMul", ["s", "turned"], ["logits"], "head"),
        helper.make_node("ReduceMax", ["logits"], ["y"], "best", axes=[1], keepdims=1),
    ]
    return model_of(nodes, [("x", FLOAT, [4, 64])], [("y", FLOAT, [4, 1])], opset, [table])


def test_constants_are_folded_in_the_printed_session(tmp_path: Path) -> None:
    """With ORT_DISABLE_ALL the transpose of the weights runs each time: it alone needs 2 MB."""
    data = head().SerializeToString()
    (tmp_path / "head.onnx").write_bytes(data)
    logits = 4 * 8192 * 4
    assert peak_as_printed(tmp_path / "head.onnx", tmp_path)[0] < 2 * logits
    found = runtime.verify(data, data, runs=1)
    assert found.measured_peak_before_bytes == peak_as_printed(tmp_path / "head.onnx", tmp_path)[0]
    result = optimize(data, time_limit=1.0)
    assert result.schedule.peak == found.measured_peak_before_bytes
    assert (runtime.measure(data, level="disabled").peak_bytes or 0) >= 8192 * 64 * 4


def test_what_is_computed_again_is_not_merged_in_the_printed_session(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [node("Sin", ["x"], ["a"], "a"), node("Exp", ["a"], ["b"], "b"), node("Sin", ["x"], ["c"], "c")]
    nodes.append(node("Add", ["b", "c"], ["y"], "y"))
    twice = model_of(nodes, [("x", FLOAT, [64])], [("y", FLOAT, [64])])
    path = tmp_path / "twice.onnx"
    path.write_bytes(twice.SerializeToString())
    assert peak_as_printed(path, tmp_path)[1] == ["a", "b", "c", "y"]


def test_products_keep_their_place_in_the_printed_session(tmp_path: Path) -> None:
    """MatMulAddFusion would make Gemm of the product and its bias, behind all nodes of the file."""
    node = helper.make_node
    weight = helper.make_tensor("w", FLOAT, [8, 8], np.ones(64, np.float32).tobytes(), raw=True)
    bias = helper.make_tensor("v", FLOAT, [8], np.ones(8, np.float32).tobytes(), raw=True)
    nodes = [
        *(node("MatMul", ["x", "w"], ["m"], "m"), node("Add", ["m", "v"], ["a"], "a"), node("Sin", ["x"], ["s"], "s")),
        node("Add", ["a", "s"], ["y"], "y"),
    ]
    model = model_of(nodes, [("x", FLOAT, [4, 8])], [("y", FLOAT, [4, 8])], constants=[weight, bias])
    path = tmp_path / "product.onnx"
    path.write_bytes(model.SerializeToString())
    assert peak_as_printed(path, tmp_path)[1] == ["m", "a", "s", "y"]


def test_what_reads_reshaped_values_keeps_its_place_in_the_printed_session(tmp_path: Path) -> None:
    """ReshapeFusion would make one node of both, behind all nodes of the file, so that the product waited for it."""
    node = helper.make_node
    weight = helper.make_tensor("w", FLOAT, [8, 8], np.ones(64, np.float32).tobytes(), raw=True)
    shapes = [helper.make_tensor(name, TensorProto.INT64, [2], dims) for name, dims in [("r", [8, 4]), ("t", [4, 8])]]
    nodes = [
        *(
            node("Sin", ["x"], ["s"], "s"),
            node("Reshape", ["s", "r"], ["a"], "a"),
            node("Reshape", ["a", "t"], ["b"], "b"),
        ),
        *(node("MatMul", ["b", "w"], ["m"], "m"), node("Exp", ["x"], ["e"], "e"), node("Add", ["m", "e"], ["y"], "y")),
    ]
    model = model_of(nodes, [("x", FLOAT, [2, 16])], [("y", FLOAT, [4, 8])], constants=[weight, *shapes])
    model.graph.node[4].op_type = "Reshape"
    model.graph.node[4].input.append("t")
    path = tmp_path / "reshaped.onnx"
    path.write_bytes(model.SerializeToString())
    assert peak_as_printed(path, tmp_path)[1] == ["s", "a", "b", "m", "e", "y"]


@pytest.mark.parametrize("allow", [{}, {"tile": True}, {"remat": True, "max_extra_macs": 50.0}])
def test_the_promised_peak_is_the_one_of_the_printed_session(allow: Any, tmp_path: Path) -> None:
    model = skip_net() if "tile" in allow else skip_connection() if allow else small_models.branches()
    result = optimize(model, time_limit=4.0, order_guarantee="session", **allow)
    path = tmp_path / "written.onnx"
    result.save(path)
    data, check = result.report.data, result.report["verification"]
    measured, _ = peak_as_printed(path, tmp_path)
    assert measured == check["measured_peak_after_bytes"] == check["predicted_peak_after_bytes"]
    assert measured == data["result"]["peak_bytes"]
    assert not data["output"]["unchanged"]
    assert data["order_guarantee"]["session_options"] == check["measured_with"]


def skip_net() -> bytes:
    """Return a small encoder and decoder whose first value waits until the end."""
    rng = np.random.default_rng(0)
    weights = [
        helper.make_tensor(f"w{at}", FLOAT, shape, rng.standard_normal(shape).astype(np.float32).tobytes(), raw=True)
        for at, shape in enumerate([(8, 3, 3, 3), (16, 8, 3, 3), (8, 16, 3, 3), (2, 16, 3, 3)])
    ]
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["a"], "a", pads=[1] * 4),
        node("Conv", ["a", "w1"], ["b"], "b", pads=[1] * 4),
        node("Tanh", ["b"], ["t"], "t"),
        node("Conv", ["t", "w2"], ["c"], "c", pads=[1] * 4),
        node("Concat", ["a", "c"], ["j"], "j", axis=1),
        node("Conv", ["j", "w3"], ["y"], "y", pads=[1] * 4),
    ]
    model = model_of(nodes, [("x", FLOAT, [1, 3, 32, 32])], [("y", FLOAT, [1, 2, 32, 32])], constants=weights)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("seen", "level", "kind", "opened", "known"),
    [
        ([10, 11, 12, 13], "all", "Conv", 3, 12),
        ([10] * 20, "all", "Conv", 12, 10),
        ([], "disabled", "Conv", 0, 10),
        ([], "all", "Relu", 0, 10),
    ],
)
def test_a_peak_that_chance_kept_low_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, seen: list[int], level: str, kind: str, opened: int, known: int
) -> None:
    """Sessions of one file differ by chance: only what none of many showed makes another file need more."""
    shown = iter(seen)
    proto = model_of([helper.make_node(kind, ["x"], ["y"], "n")], [("x", FLOAT, [1])], [("y", FLOAT, [1])])
    wanted = [{"model": number, "options": {"level": level}, "reference": 0} for number in range(2)]
    attempt = onnxruntime_sessions._SessionAttempt(None, {"sessions": wanted, "borders": []}, [proto, proto], 4)
    attempt.results = [{"peak_bytes": 9, "lasting_bytes": size} for size in (10, 12)]
    asked: list[int] = []

    def larger(_: Any, request: dict[str, Any], profile: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["model"])
        return {**profile, "lasting_bytes": next(shown)}

    monkeypatch.setattr(onnxruntime_sessions._SessionAttempt, "_larger", larger)
    attempt._look_again(wanted[1])
    assert asked == [0] * opened
    assert [one["lasting_bytes"] for one in attempt.results] == [known, 12]


def test_inputs_are_drawn_into_a_file_that_is_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw_feeds(small_models.branches(), None, LoadOptions(), Path("feeds.npz"), seed=0)
    with np.load(tmp_path / "feeds.npz") as feeds:
        assert feeds.files
