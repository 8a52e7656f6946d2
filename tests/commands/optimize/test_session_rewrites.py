"""``--session`` with rewrites: pieces and repetitions in the graph that a session executes, figures as measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from memsched.commands.optimize.optimize import optimize
from memsched.commands.optimize.session import ExecutedFile, SessionName
from memsched.commands.results import OptimizeResult
from memsched.commands.session_rows import session_row
from memsched.report.tiling import tiling_lines
from memsched.runtimes.runtime import Requirement
from memsched.runtimes.sessions import EXECUTED
from tests.commands.optimize.test_slowdown import convolutions
from tests.failures import fails
from tests.permissions import allowed

EFFORT = 3.0
TOKENS, HEADS, WIDTH = 256, 4, 32


def attention() -> bytes:
    """Return attention of several heads, whose scores are by far the largest values, without a convolution."""
    rng = np.random.default_rng(0)
    shape, nodes, constants = (1, HEADS, TOKENS, WIDTH), [], []
    for name in "qkv":
        values = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 6
        constants.append(numpy_helper.from_array(values, f"w_{name}"))
        nodes.append(helper.make_node("MatMul", ["x", f"w_{name}"], [name], f"to_{name}"))
    nodes.append(helper.make_node("Transpose", ["k"], ["kt"], "turn", perm=[0, 1, 3, 2]))
    nodes.append(helper.make_node("MatMul", ["q", "kt"], ["scores"], "scores"))
    nodes.append(helper.make_node("Softmax", ["scores"], ["shares"], "shares", axis=-1))
    nodes.append(helper.make_node("MatMul", ["shares", "v"], ["mixed"], "mixed"))
    nodes.append(helper.make_node("Add", ["mixed", "x"], ["y"], "sum"))
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph(nodes, "attention", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def long_skip(side: int = 96) -> bytes:
    """Return a cheap value that waits while wide ones are computed."""
    rng = np.random.default_rng(0)
    nodes, constants = [], []

    def conv(read: str, made: str, channels: tuple[int, int], stride: int = 1) -> None:
        values = rng.standard_normal((channels[1], channels[0], 3, 3)).astype(np.float32) / (3 * channels[0])
        constants.append(numpy_helper.from_array(values, f"w_{made}"))
        nodes.append(
            helper.make_node(
                "Conv", [read, f"w_{made}"], [made], f"conv_{made}", pads=[1, 1, 1, 1], strides=[stride, stride]
            )
        )

    conv("x", "early", (3, 16))
    conv("early", "a", (16, 16), stride=2)
    conv("a", "b", (16, 128))
    conv("b", "c", (128, 64))
    conv("c", "d", (64, 16), stride=2)
    nodes.append(helper.make_node("ReduceMean", ["d"], ["mean"], "mean", axes=[2, 3], keepdims=1))
    nodes.append(helper.make_node("Mul", ["early", "mean"], ["last"], "last"))
    conv("last", "y", (16, 4), stride=2)
    graph = helper.make_graph(
        nodes,
        "skip",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, side, side))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 4, side // 2, side // 2))],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def rewritten(
    folder: Path, data: bytes, session: SessionName, *, tile: bool = False, remat: bool = False
) -> OptimizeResult:
    """Return what is written, which was measured to be as predicted, and computes the same."""
    path = folder / "net.onnx"
    path.write_bytes(data)
    result = optimize(path, session=session, allow=allowed(tile=tile, remat=remat), effort=EFFORT)
    report, shown = result.report.values, result.verification
    assert shown is not None
    assert report.output is not None
    assert not report.output.unchanged
    assert report.in_session
    assert shown.measured_peak_after_bytes == shown.predicted_peak_after_bytes == report.verdict.bytes
    assert shown.executed_order_matches
    assert shown.outputs_equal or (shown.relative_error or 0.0) < 1e-5
    return result


@pytest.mark.parametrize("session", ["default", "extended", "basic"])
def test_pieces_of_attention_in_what_is_executed(tmp_path: Path, session: SessionName) -> None:
    result = rewritten(tmp_path, attention(), session, tile=True)
    whole = optimize(tmp_path / "net.onnx", session=session, effort=EFFORT, verify=False)
    tiling = result.report.values.sections.tile
    assert tiling is not None
    assert tiling.applied
    assert result.report["written"]["schedule"]["peak_bytes"] < 0.65 * whole.report["written"]["schedule"]["peak_bytes"]


@pytest.mark.parametrize("session", ["default", "extended"])
def test_pieces_of_convolutions_and_what_the_runtime_makes_of_them(tmp_path: Path, session: SessionName) -> None:
    result = rewritten(tmp_path, convolutions((3, 16, 16, 24, 24, 24, 16, 16, 8)), session, tile=True)
    report = result.report.values
    assert report.sections.tile is not None
    assert report.sections.tile.applied
    assert report.in_session
    # Below 0.4 where the processor's blocks have 16 channels, a little more where they have 8.
    assert report.verdict.bytes < 0.42 * report.verdict.original_bytes
    assert not any(" 0 B" in line for line, _ in tiling_lines(report.sections.tile, 100, verbose=True))
    # Few pieces: each operator takes its bytes of the process.
    assert len(result.graph.ops) < 80
    # What convolutions in pieces execute at this level is blocked where convolutions as they are were.
    blocked = {op.type for op in result.graph.ops if op.type.startswith("com.microsoft.nchwc")}
    assert bool(blocked) == (
        report.sections.executed is not None and report.sections.executed.block_channels is not None
    )


@pytest.mark.parametrize("session", ["default", "basic"])
def test_a_value_is_computed_again_in_what_is_executed(tmp_path: Path, session: SessionName) -> None:
    result = rewritten(tmp_path, long_skip(), session, remat=True)
    remat = result.report.values.sections.recompute
    assert remat is not None
    assert remat.applied
    assert result.verification is not None
    assert result.verification.outputs_equal
    whole = optimize(tmp_path / "net.onnx", session=session, effort=EFFORT, verify=False)
    assert result.report["written"]["schedule"]["peak_bytes"] < whole.report["written"]["schedule"]["peak_bytes"]


def test_what_gains_nothing_rewritten_is_only_ordered(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(long_skip(side=8))
    ordered, permitted = (
        optimize(
            tmp_path / "net.onnx", session="basic", allow=allowed(tile=more, remat=more), effort=EFFORT, verify=False
        )
        for more in (False, True)
    )
    assert ordered.model == permitted.model
    assert permitted.report.values.sections.tile is not None
    assert not permitted.report.values.sections.tile.applied


@pytest.mark.parametrize("data", [attention(), long_skip()], ids=["attention", "skip"])
def test_one_run_reaches_what_separate_ones_do(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "net.onnx").write_bytes(data)
    rewrites = ("reorder", "inplace", "tile", "remat")
    file, executed, both = (
        optimize(tmp_path / "net.onnx", effort=EFFORT, max_slowdown=None, **options)  # type: ignore[arg-type]
        for options in (
            {"allow": rewrites, "order_guarantee": "session"},
            {"allow": rewrites, "session": "default"},
            {"allow": (*rewrites, "opening"), "order_guarantee": "session"},
        )
    )
    assert both.verification is not None
    assert both.verification.outputs_equal is not False
    assert taken(both) <= 1.05 * min(taken(file), taken(executed))


def taken(result: OptimizeResult) -> int:
    """Return the bytes of the process with the file that was written."""
    rows = result.report.values.sections.sessions
    (*_, process) = [row.process_bytes for row in rows if row.file == "written"]
    assert process is not None
    return process


def test_only_sessions_can_be_opened_in_another_way() -> None:
    person = Path(__file__).parents[3] / "models" / "person_detect.tflite"
    with fails("other-format", "--allow opening"):
        optimize(person, allow=("reorder", "inplace", "opening"), effort=0.1)


@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize(
    ("ratio", "slowdown", "budget", "less"),
    [(1.05, 10.0, None, True), (1.5, 10.0, None, False), (1.5, None, None, True), (1.0, 10.0, 60, False)],
)
def test_what_is_slow_or_misses_a_budget_makes_way(
    ratio: float, slowdown: float | None, budget: int | None, less: bool
) -> None:
    row = session_row("written", EXECUTED)
    executed = msgspec.structs.replace(row, process_bytes=70, cpu_ratio=ratio)
    file = msgspec.structs.replace(row, process_bytes=100, cpu_ratio=1.0)
    made: Any = SimpleNamespace(
        written=SimpleNamespace(unchanged=False), sessions=(executed,), budget=budget, needed=(100, 70)
    )
    other: Any = SimpleNamespace(
        written=SimpleNamespace(unchanged=False), sessions=(file,), needed=(Requirement(100), Requirement(50))
    )
    assert ExecutedFile.takes_less_than(made, other, slowdown) == less
