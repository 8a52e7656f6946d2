"""``--session``: the graph that ONNX Runtime executes is planned, written, and executed as it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from memsched.commands.optimize.optimize import optimize
from memsched.commands.optimize.session import SessionName, _SessionRun
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.shapes import OF_ONE_RUN
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.onnxruntime.executed import executed_model, executed_rules
from memsched.runtimes.output import Guarantee, ModelBytes
from memsched.runtimes.values import Verification
from memsched.targets.load import load_target
from tests.failures import fails
from tests.outcomes import Run

SIDE = 24


EVEN = ((48, 16), (48, 16), (48, 16))
"""Channels of each branch inside and of what it leaves."""


def network(
    dims: tuple[int | str, ...] = (1, 3, SIDE, SIDE), branches: tuple[tuple[int, int], ...] = EVEN
) -> onnx.ModelProto:
    """Return a small network whose three branches run one after the other, or all at once; the order decides."""
    rng = np.random.default_rng(0)
    weights: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def conv(read: str, made: str, channels: tuple[int, int], stride: int = 1) -> str:
        values = rng.standard_normal((channels[1], channels[0], 3, 3)).astype(np.float32) / 9
        weights.append(numpy_helper.from_array(values, f"w_{made}"))
        node = helper.make_node("Conv", [read, f"w_{made}"], [f"c_{made}"], f"conv_{made}", pads=[1, 1, 1, 1])
        node.attribute.append(helper.make_attribute("strides", [stride, stride]))
        nodes.append(node)
        nodes.append(helper.make_node("Relu", [f"c_{made}"], [made], f"relu_{made}"))
        return made

    stem = conv("x", "stem", (3, 16))
    wide = [conv(stem, f"wide{at}", (16, inside)) for at, (inside, _) in enumerate(branches)]
    small = [conv(one, f"small{at}", branches[at], stride=2) for at, one in enumerate(wide)]
    nodes.append(helper.make_node("Concat", small, ["joined"], "join", axis=1))
    nodes.append(helper.make_node("GlobalAveragePool", ["joined"], ["y"], "pool"))
    joined = sum(left for _, left in branches)
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (dims[0], joined, 1, 1))],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return as a file a network whose branch that is widest inside, and leaves least, must run first."""
    file = tmp_path_factory.mktemp("session") / "net.onnx"
    onnx.save_model(network(branches=((8, 32), (48, 4), (8, 32))), file)
    return file


@pytest.mark.parametrize("session", ["default", "extended", pytest.param("basic", marks=pytest.mark.quick)])
def test_what_is_predicted_is_what_the_printed_session_requests(path: Path, session: SessionName) -> None:
    result = optimize(path, session=session, effort=2.0)
    report = result.report.values
    shown = result.verification
    assert shown is not None
    assert shown.measured_peak_after_bytes is not None
    assert report.output is not None
    assert not report.output.unchanged
    assert report.proof.status == "optimal"
    assert report.in_session
    assert shown.measured_peak_after_bytes == report.verdict.bytes
    assert shown.measured_peak_after_bytes < (shown.measured_peak_before_bytes or 0)
    assert shown.executed_order_matches is True
    assert shown.outputs_equal or (shown.relative_error or 0.0) < 1e-3


def test_printed_lines_open_the_file_with_the_same_outputs(path: Path, tmp_path: Path) -> None:
    result = optimize(path, session="default", effort=2.0)
    (tmp_path / "out.onnx").write_bytes(result.model)
    names: dict[str, Any] = {"onnxruntime": onnxruntime, "path": str(tmp_path / "out.onnx")}
    lines = result.report["output"]["guarantee"]["session_options"]
    exec("\n".join(lines), names)  # noqa: S102 - the very lines that people are told
    feed = {"x": np.random.default_rng(1).standard_normal((1, 3, SIDE, SIDE)).astype(np.float32)}
    given = onnxruntime.InferenceSession(str(path)).run(None, feed)[0]
    found = names["session"].run(None, feed)[0]
    np.testing.assert_allclose(found, given, rtol=1e-3, atol=1e-6)


def test_the_block_is_stated_where_tensors_are_blocked_and_only_there(path: Path) -> None:
    blocked = optimize(path, session="default", effort=2.0)
    portable = optimize(path, session="extended", effort=2.0)
    domains = {node.domain for node in onnx.load_model_from_string(blocked.model).graph.node}
    executed = blocked.report.values.sections.executed
    assert executed is not None
    if "com.microsoft.nchwc" in domains:
        block = executed.block_channels
        assert block in {8, 16}
        assert any(f" {block} channels" in note for note in blocked.report.values.verdict.notes)
    else:
        assert executed.block_channels is None
    assert portable.report["sections"]["executed"]["block_channels"] is None
    assert "com.microsoft.nchwc" not in {n.domain for n in onnx.load_model_from_string(portable.model).graph.node}


def test_sessions_hold_the_one_without_options_and_the_one_printed(path: Path) -> None:
    rows = optimize(path, session="extended", effort=2.0).report.values.sections.sessions
    assert [(row.file, row.level) for row in rows] == [("given", "all"), ("given", "extended"), ("written", "disabled")]
    default, printed = rows[0], rows[-1]
    assert default == with_figures(default, _DEFAULT)
    assert printed.predicted_bytes == printed.measured_bytes
    assert (printed.mem_reuse, printed.mem_pattern, printed.execution_order) == (False, False, "file")


_DEFAULT = SessionRow(file="given", level="all", execution_order="default", mem_reuse=True, mem_pattern=True)


def with_figures(shown: SessionRow, wanted: SessionRow) -> SessionRow:
    """Return ``wanted`` with the figures of ``shown``."""
    figures = ("predicted_bytes", "measured_bytes", "process_bytes", "first_run_bytes", "cpu_ms", "runs", "settled")
    return msgspec.structs.replace(wanted, **{name: getattr(shown, name) for name in figures})


def test_open_dimensions_are_fixed_in_the_file_and_said(tmp_path: Path) -> None:
    onnx.save_model(network(("N", 3, SIDE, SIDE)), tmp_path / "open.onnx")
    result = optimize(tmp_path / "open.onnx", session="extended", effort=2.0, dims={"N": 2})
    written = onnx.load_model_from_string(result.model)
    assert written.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    assert result.report["output"]["fixed_dimensions"] == [{"dimension": "N", "size": 2}]
    assert (
        result.report["sections"]["verification"]["measured_peak_after_bytes"]
        == result.report["written"]["schedule"]["peak_bytes"]
    )


def test_a_file_that_gains_nothing_is_written_unchanged(tmp_path: Path) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Sin", ["x"], ["y"], "only")],
            "one",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (8,))],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (8,))],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    onnx.save_model(model, tmp_path / "one.onnx")
    result = optimize(tmp_path / "one.onnx", session="default", effort=1.0)
    assert result.model == (tmp_path / "one.onnx").read_bytes()
    assert result.report["output"]["unchanged"] is True
    assert result.report.values.sections.executed is None


def test_views_that_optimisation_would_merge_are_none_in_what_it_made() -> None:
    target = load_target("onnxruntime")
    rules = executed_rules(target)
    assert {op for rule in rules.views for op in rule.ops} == {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}
    assert rules.in_place == target.in_place


def test_a_session_of_another_runtime_is_refused(path: Path) -> None:
    with fails("other-target", "--session", "--target onnxruntime", "'paper'"):
        optimize(path, session="default", target="paper")


@pytest.mark.parametrize(
    "words",
    [("--order-guarantee", "pins"), ("--budget-for", "arena"), ("--tflm-plan",), ("--control-dependencies",)],
)
def test_what_a_session_has_no_use_for_is_refused(run: Run, path: Path, words: tuple[str, ...]) -> None:
    run("optimize", path, "--session", "default", *words).failed("option-conflict", "--session", " ".join(words))


def test_what_is_executed_is_stored_alike_by_every_process() -> None:
    """ONNX Runtime numbers reorders in the order of addresses, and stores nodes as it meets them."""
    path = Path(__file__).parents[3] / "models" / "networks" / "unetpp.onnx"
    data = path.read_bytes()
    first, *others = (executed_model(data, str(path), LoadOptions(), "default", seed=0).data for _ in range(3))
    assert others == [first, first]


def test_sizes_of_the_runtimes_own_operators_are_stated(path: Path) -> None:
    """The runtime infers none of them, and writes nothing in place where none is stated."""
    result = optimize(path, session="default", effort=2.0)
    graph = onnx.load_model_from_string(result.model).graph
    stated = {value.name for value in (*graph.value_info, *graph.output)}
    assert {name for node in graph.node for name in node.output if name} <= stated
    assert not any(OF_ONE_RUN in note for note in result.report.values.verdict.notes)


def test_sizes_beside_what_depends_on_data_are_stated(tmp_path: Path) -> None:
    """Where one output is as long as data say, the runtime still writes in place what has one size alone."""
    model = network((1, 3, SIDE, SIDE))
    model.graph.node.append(helper.make_node("Softmax", ["joined"], ["soft"], "soft", axis=-1))
    model.graph.node.append(helper.make_node("Greater", ["soft", "half"], ["large"], "large"))
    model.graph.node.append(helper.make_node("NonZero", ["large"], ["places"], "places"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.5), "half"))
    model.graph.output.append(helper.make_tensor_value_info("places", onnx.TensorProto.INT64, (4, "found")))
    onnx.save(model, tmp_path / "found.onnx")
    result = optimize(tmp_path / "found.onnx", session="default", shapes_from_run="random", effort=1.0)
    check = result.report["sections"]["verification"]
    assert check["measured_peak_after_bytes"] == check["predicted_peak_after_bytes"]
    unsure = [note for note in result.report["verdict"]["notes"] if OF_ONE_RUN in note]
    assert len(unsure) == 1
    assert ": 'places';" in unsure[0]


def test_weights_that_are_dequantised_in_each_run_count(tmp_path: Path) -> None:
    """ONNX Runtime folds no DequantizeLinear: the weights of a product are values of each run."""
    node = helper.make_node
    constants: dict[str, Any] = {"scale": np.float32(0.01), "zero": np.int8(0)}
    nodes = []
    for at in range(4):
        constants[f"w{at}"] = np.full((64, 64), at + 1, np.int8)
        nodes.append(node("DequantizeLinear", [f"w{at}", "scale", "zero"], [f"d{at}"], f"d{at}"))
        nodes.append(node("MatMul", [f"s{at - 1}" if at else "x", f"d{at}"], [f"m{at}"], f"m{at}"))
        nodes.append(node("Sin", [f"m{at}"], [f"s{at}"], f"s{at}"))
    graph = helper.make_graph(
        nodes,
        "weights",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (4, 64))],
        [helper.make_tensor_value_info("s3", onnx.TensorProto.FLOAT, (4, 64))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "weights.onnx")
    result = optimize(tmp_path / "weights.onnx", session="default", effort=1.0)
    check = result.report["sections"]["verification"]
    assert check["measured_peak_after_bytes"] == check["predicted_peak_after_bytes"] >= 64 * 64 * 4
    assert check["measured_peak_after_bytes"] < check["measured_peak_before_bytes"]


def refused_where_never_taken() -> bytes:
    """Return a model with a branch that fits no size but one, and is taken at none of those that are stated."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((8, 3)).astype(np.float32), "w")]

    def branch(node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(
            [node], node.name, [], [helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, None)]
        )

    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node(
            "If",
            ["taken"],
            ["y"],
            "choose",
            then_branch=branch(helper.make_node("MatMul", ["r", "w"], ["o"], "never")),
            else_branch=branch(helper.make_node("Tanh", ["r"], ["o"], "always")),
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "branches",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (2, "m")),
            helper.make_tensor_value_info("taken", onnx.TensorProto.BOOL, ()),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def test_dimensions_stay_open_where_the_runtime_refuses_the_stated_ones(tmp_path: Path) -> None:
    feeds = tmp_path / "feeds.npz"
    np.savez(feeds, x=np.zeros((2, 4), np.float32), taken=np.array(False))
    stated = LoadOptions(input_shapes={"x": (2, 4), "taken": ()}, feeds=str(feeds))
    executed = executed_model(refused_where_never_taken(), "-", stated, "default", seed=0)
    assert dict(executed.fixed) == {}
    assert [node.op_type for node in onnx.load_model_from_string(executed.data).graph.node] == ["Relu", "If"]


def picking(side: int) -> onnx.ModelProto:
    """Return a network whose sizes inside depend on the values of its input."""
    nodes = [
        helper.make_node("Greater", ["x", "least"], ["m"], "m"),
        helper.make_node("NonZero", ["m"], ["nz"], "nz"),
        helper.make_node("Transpose", ["nz"], ["nzt"], "nzt", perm=[1, 0]),
        helper.make_node("GatherND", ["x", "nzt"], ["g"], "g"),
        helper.make_node("Exp", ["g"], ["e"], "e"),
        helper.make_node("Sigmoid", ["x"], ["s"], "s"),
    ]
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (side, side))
    made = [
        helper.make_tensor_value_info("e", onnx.TensorProto.FLOAT, ("K",)),
        helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, (side, side)),
    ]
    least = numpy_helper.from_array(np.float32(0.5), "least")
    graph = helper.make_graph(nodes, "picking", [given], made, [least])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("session", [None, "default"])
def test_what_ran_at_other_sizes_is_not_compared_with_what_is_predicted(
    tmp_path: Path, session: SessionName | None
) -> None:
    onnx.save_model(picking(64), tmp_path / "picking.onnx")
    stated = {"nz": (2, 64 * 64)}
    result = optimize(tmp_path / "picking.onnx", session=session, effort=1.0, input_shapes=stated)
    report = result.report.values
    assert report.sections.requirement is not None
    # Indices as found, and turned about: 64 bits each.
    assert report.sections.requirement.given_bytes >= 2 * 2 * 8 * 64 * 64
    assert report.sections.requirement.measured_given_bytes is None
    if report.sections.verification is not None:
        assert not report.sections.verification.at_stated_sizes
        assert (report.sections.verification.measured_peak_before_bytes or 0) < report.sections.requirement.given_bytes


def test_sizes_that_are_those_that_ran_are_compared(tmp_path: Path) -> None:
    onnx.save_model(network(("N", 3, SIDE, SIDE)), tmp_path / "open.onnx")
    stated = {"x": (2, 3, SIDE, SIDE), "stem": (2, 16, SIDE, SIDE)}
    shown = optimize(tmp_path / "open.onnx", effort=1.0, input_shapes=stated).report.values.sections.verification
    assert shown is not None
    assert shown.at_stated_sizes


@pytest.mark.parametrize(
    ("equal", "error", "measured", "reason", "about"),
    [
        (False, 0.5, 7_000, "they differ by 0.5", "they differ by 0.5"),
        (False, None, None, "no such operator", "no such operator"),
        (True, 0.0, 7_000, None, "7,000 B"),
    ],
)
def test_why_a_rewritten_graph_is_not_written(
    equal: bool, error: float | None, measured: int | None, reason: str | None, about: str
) -> None:
    shown = Verification("onnxruntime 9", 3, equal, error, 9_000, measured, None, reason, relative_error=error)
    written = ModelBytes(b"", False, Guarantee("session"))
    assert about in _SessionRun(written, shown).objection()
