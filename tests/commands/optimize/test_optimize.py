"""The Python API: what the commands do, as functions over values."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import onnx
import pytest

import memsched
from memsched.base.errors import ModelError, UsageError
from memsched.formats.module import Body, Module
from memsched.graph.model import Graph, Op, Tensor
from memsched.runtimes.graph_plan import bottom_up
from tests import small_models
from tests.failures import fails
from tests.formats import tflite_builder

TFLITE = tflite_builder.build(tflite_builder.branches(size=64))


def test_optimize_bytes() -> None:
    result = memsched.optimize(small_models.branches(), verify=False)
    assert result.schedule.status == "optimal"
    assert result.schedule.peak < result.report["original"]["schedule"]["peak_bytes"]
    assert result.allocation.arena >= result.schedule.peak
    assert result.verification is None
    assert result.budget_met is None
    assert onnx.load_model_from_string(result.model).graph.node[0].name.startswith("mul")
    given = result.report["original"]
    assert [step["op"] for step in given["steps"][:2]] == ["mul0", "mul1"]
    assert max(step["footprint_bytes"] for step in given["steps"]) == given["schedule"]["peak_bytes"]
    assert result.report["model"]["path"] == "-"
    assert result.report["output"]["path"] is None
    with pytest.raises(AttributeError):
        result.model = b""  # type: ignore[misc]


def test_the_example_of_the_manual(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(small_models.branches())
    result = memsched.optimize(str(path), target="onnxruntime", budget="256KB", verify=False)
    result.save(str(tmp_path / "out.onnx"))
    result.report.save(str(tmp_path / "out.json"))
    assert result.budget_met is True
    assert (tmp_path / "out.onnx").read_bytes() == result.model
    assert json.loads((tmp_path / "out.json").read_text()) == result.report.data
    tflite = tmp_path / "model.tflite"
    tflite.write_bytes(TFLITE)
    assert len(memsched.load(tflite).graph.ops) == 11


def test_saving_over_the_input_needs_force(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(small_models.branches())
    result = memsched.optimize(path, verify=False)
    with fails("would-overwrite", "model.onnx", "--force"):
        result.save(path)
    result.save(path, force=True)
    assert path.read_bytes() == result.model


def test_analyze() -> None:
    found = memsched.analyze(TFLITE, target="ideal")
    assert found.schedule.order == tuple(range(11))
    assert found.report["command"] == "analyze"
    assert found.report["written"]["schedule"]["peak_bytes"] == found.schedule.peak
    assert found.report["written"]["schedule"]["peak_bytes"] == found.report["original"]["schedule"]["peak_bytes"]


def test_verify() -> None:
    model = small_models.branches()
    found = memsched.verify(model, memsched.optimize(model, verify=False).model, runs=1)
    assert found.same is True
    assert found.verification.outputs_equal is True


def test_stop_keeps_what_was_found() -> None:
    result = memsched.optimize(small_models.branches(), verify=False, hooks=memsched.Hooks(stop=lambda: True))
    assert result.interrupted
    assert result.report["verdict"]["interrupted"] is True
    assert result.schedule.peak <= result.report["original"]["schedule"]["peak_bytes"]


def test_progress_is_told() -> None:
    stages: list[Any] = []
    memsched.optimize(
        small_models.branches(), hooks=memsched.Hooks(on_progress=stages.append), order_guarantee="session"
    )
    assert stages[-1].stage == "verification"
    assert stages[0].best_peak >= stages[-1].best_peak >= stages[-1].lower_bound > 0


@pytest.mark.parametrize(
    "options",
    [
        {"budget": -1},
        {"budget": "much"},
        {"time_limit": -1.0},
        {"seed": -1},
        {"workers": 0},
        {"solver": "magic"},
        {"control_dependencies": True},
        {"dims": {"nowhere": 3}},
    ],
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        memsched.optimize(small_models.branches(), **options)


def test_wrong_sources(tmp_path: Path) -> None:
    for source in (b"", b"nonsense", tmp_path, tmp_path / "none"):
        with pytest.raises(ModelError):
            memsched.load(source)


def test_names_of_the_package() -> None:
    assert set(memsched.__all__) <= set(dir(memsched))
    for name in memsched.__all__:
        assert getattr(memsched, name) is not None
    with pytest.raises(AttributeError, match="'optimise'"):
        _ = memsched.optimise


def test_an_external_model_from_its_folder(tmp_path: Path) -> None:
    path = small_models.external_branches(tmp_path)
    result = memsched.optimize(path)
    assert result.verification is not None
    assert result.verification.outputs_equal is True
    (tmp_path / "out").mkdir()
    result.save(tmp_path / "out" / "model.onnx")
    assert memsched.verify(path, tmp_path / "out" / "model.onnx", runs=1).same is True


def test_subgraphs_that_nothing_executes_are_scheduled_too() -> None:
    data = tflite_builder.build(
        tflite_builder.Sub(
            [tflite_builder.T("a"), tflite_builder.T("b")], [tflite_builder.O("EXP", [0], [1])], [0], [1]
        ),
        dataclasses.replace(tflite_builder.branches(size=64), name="other"),
    )
    # By default no file is written that saves nothing of what an interpreter takes.
    assert memsched.optimize(data, verify=False).model == data
    result = memsched.optimize(data, verify=False, allow=("reorder", "inplace"))
    (other,) = result.report["sections"]["bodies"]
    assert (other["graph"], other["parent"], other["op"]) == ("other", None, None)
    assert other["peak_bytes"] < other["file_peak_bytes"]
    assert result.model != data
    assert any("'other'" in note for note in result.report["verdict"]["notes"])


def a_module(count: int, *bodies: Body) -> Module:
    graph = Graph("g", (Tensor("x", 4), Tensor("y", 4)), (Op("a", "A", (0,), (1,)),), (0,), (1,))
    return Module("m", "onnx", "0" * 64, (graph,) * count, bodies, 0, 0, (), None)


def test_bodies_come_before_those_who_execute_them() -> None:
    nested = a_module(4, Body(1, 0, 0), Body(2, 1, 0), Body(3, 2, 0), Body(3, 0, 0))
    assert bottom_up(nested) == [3, 2, 1, 0]
    deep = a_module(5001, *(Body(index + 1, index, 0) for index in range(5000)))
    assert bottom_up(deep) == list(range(5000, -1, -1))
    with fails("calls-itself"):
        bottom_up(a_module(3, Body(1, 0, 0), Body(2, 1, 0), Body(1, 2, 0)))
