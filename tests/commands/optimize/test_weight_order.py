"""Large weights first in a file, where sessions were seen to take less of the process so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import memsched
from memsched.commands.results import OptimizeResult
from memsched.commands.session_rows import measured_sessions, session_row
from memsched.formats.onnx.capabilities import OnnxWeightPlacement
from memsched.formats.onnx.large_weights import weights_first
from memsched.report.values.sessions import SessionRow
from tests.small_models import branches

SIDE, WIDTH = 1 << 16, 1 << 15


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return branches in a bad order, and a large weight behind small ones."""
    model = ModelProto.FromString(branches(4, SIDE))
    table = np.random.default_rng(0).normal(size=(4, 1, WIDTH)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    model.graph.node.append(helper.make_node("Mul", ["y", "table"], ["z"], name="last"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, [4, 1, WIDTH]))
    path = tmp_path_factory.mktemp("weights") / "branches.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def optimized(path: Path, monkeypatch: pytest.MonkeyPatch, seen: Any, **options: Any) -> OptimizeResult:
    """Return what is written where the sessions on a file with large weights first take what ``seen`` says."""

    def told(*asked: Any, **kwargs: Any) -> tuple[SessionRow, ...]:
        rows = measured_sessions(*asked, **kwargs)
        return tuple(msgspec.structs.replace(row, process_bytes=seen(row)) for row in rows)

    monkeypatch.setattr("memsched.commands.optimize.weight_order.measured_sessions", told)
    return memsched.optimize(path, effort=0.1, **options)


def is_first(model: bytes) -> bool:
    return weights_first(model) == model


@pytest.mark.parametrize(
    "options", [{"allow": ("reorder", "inplace")}, {"allow": ("reorder", "inplace", "branch"), "max_slowdown": None}]
)
def test_large_weights_come_first_where_sessions_take_less_so(
    given: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No branch is worth it.
    monkeypatch.setattr(OnnxWeightPlacement, "in_branches", lambda _, __, written: (written,))
    result = optimized(given, monkeypatch, lambda _: 1 << 20, **options)
    assert is_first(result.model)
    values = result.report.values
    assert any("large weights" in note for note in values.verdict.notes)
    assert values.output is not None
    assert not values.output.unchanged
    assert {row.process_bytes for row in values.sections.sessions if row.file == "written"} == {1 << 20}
    feeds = {"x": np.random.default_rng(1).normal(size=(1, SIDE, 16)).astype(np.float32)}
    outputs = [
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
        for model in (given.read_bytes(), result.model)
    ]
    np.testing.assert_array_equal(*outputs)


def more_with_options(row: SessionRow) -> int:
    return 1 << 20 if row.execution_order == "default" else 1 << 32


def with_options_best(*asked: Any, **_: Any) -> tuple[SessionRow, ...]:
    """Return what sessions would take if the order that is kept paid off."""
    rows = [session_row(one.file, one.point) for one in asked[2]]
    sizes = [1 << 26 if row.execution_order == "file" else 1 << 28 for row in rows]
    return tuple(
        msgspec.structs.replace(row, process_bytes=size, cpu_ratio=1.0) for row, size in zip(rows, sizes, strict=True)
    )


@pytest.mark.parametrize("seen", [lambda _: 1 << 32, lambda _: None, more_with_options])
def test_they_stay_where_they_are_where_a_session_takes_more(
    given: Path, seen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which session is recommended must not depend on the machine: one that keeps the order is measured again.
    monkeypatch.setattr("memsched.commands.optimize.judged_sessions.measured_sessions", with_options_best)
    monkeypatch.setattr("memsched.commands.optimize.branch._pattern_costs", lambda *_: False)
    result = optimized(given, monkeypatch, seen, allow=("reorder", "inplace"))
    assert any(row.execution_order == "file" for row in result.report.values.sections.sessions)
    assert not is_first(result.model)
    assert result.model != given.read_bytes()
    assert not any("large weights" in note for note in result.report.values.verdict.notes)


def test_a_file_that_is_as_given_stays_so_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (
        numpy_helper.from_array(np.ones(size, np.float32), name) for size, name in ((1, "small"), (1 << 18, "large"))
    )
    nodes = [
        helper.make_node("Mul", ["x", "small"], ["a"]),
        helper.make_node("Mul", ["a", "large"], ["b"]),
        helper.make_node("Sqrt", ["b"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1 << 18]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], initializer=[small, large])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / "chain.onnx"
    path.write_bytes(model.SerializeToString())
    assert optimized(path, monkeypatch, lambda _: 1 << 10).model == path.read_bytes()
