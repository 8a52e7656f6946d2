"""The rules and figures that memsched builds on, as the installed ONNX Runtime shows them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from memsched.formats.module import LoadOptions
from memsched.runtimes.child import ChildResult
from memsched.runtimes.onnxruntime import sessions as onnxruntime_sessions
from memsched.runtimes.onnxruntime import verification as runtime
from memsched.runtimes.onnxruntime.opened import session_options
from memsched.runtimes.onnxruntime.orders import default_order, priority_order
from memsched.runtimes.onnxruntime.pins import pin
from memsched.runtimes.onnxruntime.session_memory import draw_feeds
from memsched.runtimes.sessions import DEFAULT, LISTED
from scripts.bench.offline import offline_optimized
from tests import small_models
from tests.failures import fails
from tests.needs import recent_onnxruntime
from tests.onnx_dags import elementwise, executed, graph_of, shuffled
from tests.runtimes.onnxruntime.measured import measure, verify

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
        stated = LISTED if guarantee == "session" else DEFAULT
        own = session_options(stated)
        found = scope["session"].get_session_options()
        for name in ("execution_order", "graph_optimization_level", "enable_mem_reuse", "enable_mem_pattern"):
            assert getattr(found, name) == getattr(own, name), (guarantee, name)
        assert scope.get("kept", []) == list(stated.disabled)


# Verification


def test_equal_models_with_measured_peaks_and_order() -> None:
    found = verify(branches(False), branches(True), runs=2)
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
    assert verify(branches(True), branches(True), expected_order=wanted, runs=1).executed_order_matches is False
    assert verify(branches(True), branches(False), expected_order=wanted, runs=1).executed_order_matches is True


def test_pins_are_judged_in_plain_sessions() -> None:
    model = shuffled(elementwise(5), 5)
    plain = model.SerializeToString()
    pinned = pin(model).model.SerializeToString()
    wanted = [node.name for node in model.graph.node]
    found = verify(plain, pinned, expected_order=wanted, guarantee="pins", runs=1)
    assert (found.outputs_equal, found.executed_order_matches, found.reason) == (True, True, None)
    found = verify(plain, plain, expected_order=wanted, guarantee="pins", runs=1)
    assert (found.outputs_equal, found.executed_order_matches) == (True, False)


def test_missing_node_names() -> None:
    nodes = [helper.make_node(kind, ["x"], [kind], "own" if kind != "Sin" else "") for kind in ("Relu", "Sin")]
    nodes.append(helper.make_node("Sum", ["Relu", "Sin"], ["y"]))
    before = model_of(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    after = model_of([nodes[at] for at in (1, 0, 2)], [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    # As the reader names them: a node without a name takes that of an output.
    found = verify(before.SerializeToString(), after.SerializeToString(), expected_order=["Sin", "own", "y"], runs=1)
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
    found = verify(before, after, expected_order=["a", "d", "b", "y"], runs=1)
    assert (found.outputs_equal, found.executed_order_matches) == (True, True)
    assert verify(before, before, expected_order=["a", "d", "b", "y"], runs=1).executed_order_matches is False


def test_a_model_that_the_runtime_refuses() -> None:
    custom = model_of(
        [helper.make_node("Odd", ["x"], ["y"], "n", domain="my.ops")], [("x", FLOAT, [1])], [("y", FLOAT, [1])]
    )
    custom.opset_import.add(domain="my.ops", version=1)
    refused = custom.SerializeToString()
    found = verify(refused, refused)
    assert (found.outputs_equal, found.executed_order_matches, found.runs) == (None, None, 0)
    assert "my.ops" in (found.reason or "")
    assert "\n" not in (found.reason or "")
    found = verify(relu(), refused)
    assert found.outputs_equal is False
    assert "my.ops" in (found.reason or "").partition(": ")[2]
    assert "optimised" in (found.reason or "").partition(": ")[0]


def test_damaged_bytes() -> None:
    assert verify(b"\x08\x08garbage", relu()).outputs_equal is None
    assert verify(relu(), b"\x08\x08garbage").outputs_equal is False


def test_unknown_dimensions_are_stated_or_named() -> None:
    model = relu(shape=["n", 3])
    found = verify(model, model, runs=1)
    assert found.outputs_equal is None
    assert "--shape x=" in (found.reason or "")
    assert verify(model, model, runs=1, dims={"n": 2}).measured_peak_after_bytes == 24
    assert verify(model, model, runs=1, input_shapes={"x": [4, 3]}).measured_peak_after_bytes == 48


def test_external_data_is_found(tmp_path: Path) -> None:
    weight = helper.make_tensor("w", FLOAT, [4096], np.arange(4096, dtype=np.float32).tobytes(), raw=True)
    nodes = [helper.make_node("Add", ["x", "w"], ["y"], "n")]
    model = model_of(nodes, [("x", FLOAT, [4096])], [("y", FLOAT, [4096])], constants=[weight])
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    data = path.read_bytes()
    assert len(data) < 1000
    assert verify(path, data, data_folder=tmp_path, runs=1).outputs_equal is True
    assert measure(path).peak_bytes == 4096 * 4
    (tmp_path / "weights").unlink()
    found = verify(path, path, runs=1)
    assert found.outputs_equal is None
    assert found.reason


def test_models_that_draw_are_compared_with_the_same_seeds() -> None:
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
    found = verify(before, after, runs=2)
    assert (found.outputs_equal, found.max_abs_error, found.executed_order_matches) == (True, 0.0, True)
    assert any("once" in note and "seeds" in note for note in found.notes)
    twice = [*nodes[:2], helper.make_node("RandomUniformLike", ["x"], ["r2"], "r2"), nodes[2]]
    twice[3] = helper.make_node("Sum", ["n", "r", "r2"], ["y"], "y")
    doubled = model_of(twice, [("x", FLOAT, [9])], [("y", FLOAT, [9])]).SerializeToString()
    found = verify(before, doubled, runs=1)
    assert found.outputs_equal is False
    assert "2 RandomUniformLike" in (found.reason or "")


def test_computed_constants_count_as_weights() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["dims"], ["w"], "w"),
        helper.make_node("Add", ["x", "w"], ["y"], "y"),
    ]
    dims = helper.make_tensor("dims", INT64, [1], [5000])
    model = model_of(nodes, [("x", FLOAT, [5000])], [("y", FLOAT, [5000])], constants=[dims]).SerializeToString()
    found = verify(model, model, runs=1)
    assert (found.measured_peak_before_bytes, found.outputs_equal, found.executed_order_matches) == (20000, True, True)


def test_indices_stay_in_bounds_where_they_can() -> None:
    table = helper.make_tensor("table", FLOAT, [2, 3], list(range(6)))
    nodes = [helper.make_node("Gather", ["table", "i"], ["y"], "n")]
    model = model_of(nodes, [("i", INT64, [64])], [("y", FLOAT, [64, 3])], constants=[table]).SerializeToString()
    assert verify(model, model).outputs_equal is True


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
    found = verify(model, model)
    assert (found.outputs_equal, found.max_abs_error) == (True, 0.0)


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16", "INT8", "UINT16", "BOOL", "DOUBLE", "FLOAT8E4M3FN"])
def test_element_types(kind: str) -> None:
    element = getattr(TensorProto, kind)
    model = model_of([helper.make_node("Cast", ["x"], ["y"], "n", to=element)], [("x", element, [9])],
                     [("y", element, [9])], opset=19)  # fmt: skip
    model.ir_version = 9
    data = model.SerializeToString()
    assert verify(data, data, runs=1).outputs_equal is True


def test_inputs_are_the_same_for_one_seed_and_differ_between_seeds() -> None:
    doubled = model_of([helper.make_node("Add", ["x", "x"], ["y"], "n")], [("x", FLOAT, [3])], [("y", FLOAT, [3])])
    errors = [
        verify(relu(shape=[3]), doubled.SerializeToString(), runs=1, seed=seed).max_abs_error for seed in (1, 1, 2)
    ]
    assert errors[0] == errors[1] != errors[2]


# A runtime that is missing, hangs or crashes


def test_missing_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with fails("runtime-missing", "pip install onnxruntime"):
        verify(relu(), relu())


def test_timeout_says_nothing_about_outputs() -> None:
    found = verify(relu(), relu(), timeout_seconds=0.05)
    assert found.outputs_equal is None
    assert re.fullmatch(r"onnxruntime: .* 0\.05 s", found.reason or "")


@pytest.mark.parametrize("first_survives", [True, False])
def test_crash_is_blamed_on_the_right_model(first_survives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def child(path: str, request: Any, timeout: float | None) -> ChildResult:
        if len(request["models"]) == 1 and first_survives:
            return ChildResult("ok", value={"failed": None})
        return ChildResult("crash", reason="the process was killed by SIGSEGV")

    monkeypatch.setattr(runtime, "run_in_child", child)
    found = verify(relu(), relu())
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
        optimized = onnx.load_model_from_string(offline_optimized(path, level))
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
    with fails("not-loaded", "broken.onnx"):
        offline_optimized(path, "basic")


def test_measure_says_why_not(tmp_path: Path) -> None:
    found = measure(tmp_path / "missing.onnx")
    assert (found.peak_bytes, found.executed) == (None, None)
    assert found.reason
    found = measure(branches(True))
    assert (found.peak_bytes, found.executed) == (4024, tuple(range(13)))


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
    attempt = onnxruntime_sessions._SessionAttempt({"sessions": wanted, "borders": []}, [proto, proto], 4)
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
