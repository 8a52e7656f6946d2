"""Verification of models that draw random numbers: the same seeds, and every draw once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from memsched.runtimes.onnxruntime import ranged_process
from memsched.runtimes.onnxruntime.draws import same_draws
from memsched.runtimes.onnxruntime.parts import OnnxRuntimeParts
from memsched.runtimes.onnxruntime.verification import compare_models, try_other_sizes
from tests.small_models import floats, model_of

WEIGHTS = [
    numpy_helper.from_array(np.array(0.5, np.float32), "ratio"),
    numpy_helper.from_array(np.array(True), "train"),
]


def node(kind: str, reads: list[str], made: str, **attributes: Any) -> Any:
    return helper.make_node(kind, reads, [made], made, **attributes)


def dropped(*, doubled: bool = False, batch: int | str = 4) -> bytes:
    """Return a model that drops of x, or that drops twice where it dropped once."""
    nodes = [node("Dropout", ["x", "ratio", "train"], "a"), node("Exp", ["x"], "e")]
    if doubled:
        nodes = [nodes[1], nodes[0], node("Dropout", ["x", "ratio", "train"], "a2")]
    nodes.append(node("Sum", ["a", "e", "a2" if doubled else "a"], "y"))
    return model_of(nodes, [floats("x", [batch, 9])], [floats("y", [batch, 9])], WEIGHTS)


def functional() -> Any:
    """Return a model that calls a function twice that draws, in a body too."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    function = helper.make_function("mine", "F", ["a"], ["b"], [node("RandomNormalLike", ["a"], "b")], imports)
    calls = [helper.make_node("F", [read], [made], made, domain="mine") for read, made in (("x", "r"), ("r", "y"))]
    graph = helper.make_graph(calls, "g", [floats("x", [3])], [floats("y", [3])])
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=[function])


def test_a_draw_that_is_there_twice_refutes_a_file() -> None:
    once = compare_models(dropped(), dropped()).verification
    assert (once.outputs_equal, once.runs) == (True, 3)
    twice = compare_models(dropped(), dropped(doubled=True)).verification
    assert (twice.outputs_equal, "2 Dropout" in (twice.reason or "")) == (False, True)


def test_other_sizes_are_compared_with_the_same_seeds() -> None:
    data = dropped(batch="n")
    sizes, _ = try_other_sizes(data, data, dims={"n": 2})
    assert [one.outcome for one in sizes] == ["equal", "equal"]


def test_ranges_are_compared_with_the_same_seeds(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("given.onnx", "same.onnx", "twice.onnx")]
    for path, doubled in zip(paths, (False, False, True), strict=True):
        path.write_bytes(dropped(doubled=doubled, batch="n"))
    sizes = [{"n": 2}, {"n": 5}]
    request = {"paths": list(map(str, paths)), "folder": None, "sizes": sizes, "seed": 0, "tolerance": 0.0}
    for row in ranged_process.compare_sizes({**request, "accurate": None})["rows"]:
        same, twice = row["others"]
        assert (same["equal"], same["message"]) == (True, None)
        assert not twice["equal"]
        assert "2 Dropout" in twice["message"]


def test_seeds_reach_functions_and_count_every_call() -> None:
    draws = same_draws(functional(), [functional()])
    assert (draws.count, draws.unseeded, draws.mismatch) == (2, None, None)
    assert all(any(one.name == "seed" for one in each.attribute) for each in draws.models[0].graph.node)
    first, second = (next(one.f for one in each.attribute) for each in draws.models[0].graph.node)
    assert first != second
    assert not any(each.attribute for each in functional().functions[0].node)


def test_seeds_that_a_model_has_are_kept() -> None:
    model = onnx.load_from_string(dropped())
    model.graph.node[0].attribute.append(helper.make_attribute("seed", 11))
    draws = same_draws(model, [model])
    assert [one.i for one in draws.models[1].graph.node[0].attribute] == [11]


def test_a_model_that_does_not_draw_is_left_alone() -> None:
    model = onnx.load_from_string(model_of([node("Dropout", ["x"], "y")], [floats("x", [3])], [floats("y", [3])]))
    draws = same_draws(model, [model])
    assert draws.count == 0
    assert draws.models[0] is model


def test_a_part_on_a_device_draws_what_the_whole_model_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # profiles are written there
    part = model_of(
        [node("Dropout", ["x", "ratio", "train"], "a")], [floats("x", [4, 9])], [floats("a", [4, 9])], WEIGHTS
    )
    whole = model_of(
        [node("Exp", ["x"], "e"), node("Dropout", ["x", "ratio", "train"], "a")],
        *([floats("x", [4, 9])], [floats("e", [4, 9]), floats("a", [4, 9])], WEIGHTS),
    )
    feed = {"x": np.ones((4, 9), np.float32)}
    runtime = OnnxRuntimeParts()
    outputs = [runtime.open(data, number, {}).run(["a"], feed)[0] for number, data in enumerate((part, whole))]
    assert outputs[0].tobytes() == outputs[1].tobytes()
    assert 0 < np.count_nonzero(outputs[0]) < outputs[0].size
