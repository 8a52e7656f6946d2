"""Activations that were exported as chains, from the command to ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import memsched
from memsched.formats.module import LoadOptions
from memsched.report.page_data import page_data
from memsched.report.page_words import page_words
from memsched.runtimes.onnxruntime.session_memory import draw_feeds, measure_session
from memsched.runtimes.sessions import DEFAULT, LISTED, SessionPoint
from tests.failures import fails
from tests.small_models import floats, model_of

SHAPE = [1, 8, 24, 24]
BYTES = 4 * 8 * 24 * 24
EFFORT = 0.3


def gated(layers: int = 2, batch: int | str = 1, wide: int = 1, end: bool = False) -> bytes:
    """Convolutions with x * sigmoid(x) after each.

    Args:
        wide: How many times the channels in the middle are as many as outside.
        end: The last activation makes the output.
    """
    values = np.random.default_rng(11)
    shape = [batch, *SHAPE[1:]]
    nodes: list[Any] = []
    weights = []
    read = "x"
    for number in range(layers):
        before, after = (8 * (wide if 0 < place < layers else 1) for place in (number, number + 1))
        drawn = values.normal(size=(after, before, 3, 3)).astype(np.float32) / 8
        weights.append(numpy_helper.from_array(drawn, f"w{number}"))
        made = "y" if end and number == layers - 1 else f"m{number}"
        nodes += [
            helper.make_node("Conv", [read, f"w{number}"], [f"c{number}"], f"c{number}", pads=[1, 1, 1, 1]),
            helper.make_node("Sigmoid", [f"c{number}"], [f"g{number}"], f"g{number}"),
            helper.make_node("Mul", [f"c{number}", f"g{number}"], [made], f"m{number}"),
        ]
        read = made
    if not end:
        nodes.append(helper.make_node("Neg", [read], ["y"], "last"))
    return model_of(nodes, [floats("x", shape)], [floats("y", shape)], weights)


def run(data: bytes, **more: Any) -> memsched.OptimizeResult:
    return memsched.optimize(data, allow=("reorder", "inplace", "fuse"), effort=EFFORT, **more)


def types(data: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(data).graph.node]


def test_two_tensors_instead_of_three_are_live() -> None:
    data = gated()
    result = run(data, order_guarantee="session")
    section = result.report["sections"]["chains"]
    assert section["applied"]
    assert (section["given_bytes"], section["bytes"]) == (3 * BYTES, 2 * BYTES)
    assert [row["type"] for row in section["chains"]] == ["com.microsoft.QuickGelu"] * 2
    assert [row["ops"] for row in section["chains"]] == [["g0", "m0"], ["g1", "m1"]]
    assert [row["output"] for row in section["chains"]] == ["m0", "m1"]
    assert result.report["sections"]["requirement"]["bytes"] == 2 * BYTES
    assert types(result.model) == ["Conv", "QuickGelu", "Conv", "QuickGelu", "Neg"]
    assert [(entry.domain, entry.version) for entry in onnx.load_from_string(result.model).opset_import] == [
        ("", 17),
        ("com.microsoft", 1),
    ]
    seen = result.verification
    assert seen is not None
    assert seen.relative_error is not None
    assert seen.relative_error <= 1e-5
    assert (seen.measured_peak_before_bytes, seen.measured_peak_after_bytes) == (3 * BYTES, 2 * BYTES)
    assert memsched.optimize(data, effort=EFFORT).report["sections"]["chains"] is None


def test_an_activation_may_make_what_the_model_returns() -> None:
    result = run(gated(end=True), order_guarantee="session")
    assert types(result.model) == ["Conv", "QuickGelu"] * 2
    assert [row["output"] for row in result.report["sections"]["chains"]["chains"]] == ["m0", "y"]
    assert result.verification is not None
    assert result.verification.outputs_equal is not None


def test_a_model_may_be_an_activation_alone() -> None:
    nodes = [helper.make_node("Sigmoid", ["x"], ["g"], "g"), helper.make_node("Mul", ["g", "x"], ["y"], "m")]
    result = run(model_of(nodes, [floats("x", SHAPE)], [floats("y", SHAPE)]), order_guarantee="session")
    assert types(result.model) == ["QuickGelu"]


def test_open_dimensions_stay_open() -> None:
    data = gated(batch="batch")
    result = run(data, dims={"batch": 3}, order_guarantee="session")
    assert result.report["sections"]["requirement"]["bytes"] == 6 * BYTES
    (read,) = onnx.load_from_string(result.model).graph.input
    assert read.type.tensor_type.shape.dim[0].dim_param == "batch"
    for batch in (1, 5):
        values = np.random.default_rng(batch).normal(size=(batch, *SHAPE[1:])).astype(np.float32)
        before, after = (
            onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"]).run(None, {"x": values})[0]
            for one in (data, result.model)
        )
        assert np.allclose(before, after, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("point", [DEFAULT, LISTED, SessionPoint("basic"), SessionPoint("extended")], ids=repr)
def test_no_session_requests_more(tmp_path: Path, point: SessionPoint) -> None:
    given, written, feeds = (tmp_path / name for name in ("given.onnx", "written.onnx", "feeds.npz"))
    given.write_bytes(gated(3, wide=4))
    written.write_bytes(run(given.read_bytes()).model)
    assert "QuickGelu" in types(written.read_bytes())
    draw_feeds(given.read_bytes(), None, LoadOptions(), feeds, seed=0)
    before, after = (measure_session(one, feeds, point) for one in (given, written))
    assert not isinstance(before, str)
    assert not isinstance(after, str)
    assert before.requested is not None
    assert after.requested is not None
    assert after.requested <= before.requested
    assert point != LISTED or after.requested < before.requested


def test_where_nothing_is_saved_the_file_stays() -> None:
    """A chain that is small beside the rest of the model is no reason for operators of one runtime."""
    net = onnx.load_from_string(gated())
    large = helper.make_node("Concat", ["y0", "y0", "y0", "y0"], ["y"], "large", axis=1)
    net.graph.node[-1].output[0] = "y0"
    net.graph.node.append(large)
    del net.graph.output[:]
    net.graph.output.append(floats("y", [1, 32, 24, 24]))
    data = net.SerializeToString()
    result = run(data)
    assert result.model == data
    section = result.report["sections"]["chains"]
    assert (section["applied"], section["chains"]) == (False, [])
    assert section["given_bytes"] == section["bytes"] == 5 * BYTES


def test_a_model_without_chains_has_an_empty_section() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], "a"), helper.make_node("Neg", ["a"], ["y"], "b")]
    result = run(model_of(nodes, [floats("x", SHAPE)], [floats("y", SHAPE)]))
    assert result.report["sections"]["chains"] == {
        "applied": False,
        "given_bytes": BYTES * 2,
        "bytes": BYTES * 2,
        "chains": [],
    }


def test_pieces_begin_at_whole_activations() -> None:
    data = gated(2, wide=8)
    pieces = memsched.optimize(data, level=2, effort=1, order_guarantee="session")
    both = memsched.optimize(data, allow=("reorder", "inplace", "tile", "fuse"), effort=1, order_guarantee="session")
    assert both.report["sections"]["chains"]["applied"]
    assert both.report["sections"]["tile"]["applied"]
    assert both.report["sections"]["requirement"]["bytes"] < pieces.report["sections"]["requirement"]["bytes"]
    assert "QuickGelu" in types(both.model)
    assert both.verification is not None
    assert both.verification.relative_error is not None
    assert both.verification.relative_error <= 1e-5


def test_a_budget_that_is_met_without_leaves_them() -> None:
    data = gated()
    assert run(data, budget=3 * BYTES).report["sections"]["chains"] is None
    less = run(data, budget=2 * BYTES, order_guarantee="session")
    assert less.budget_met
    assert less.report["sections"]["chains"]["applied"]


def test_the_graph_that_a_session_executes_has_them_already() -> None:
    with fails("option-conflict", "--session", "fuse", "--allow"):
        run(gated(), session="default")
    with fails("option-conflict", "--session", "io", "--allow"):
        memsched.optimize(gated(), allow=("reorder", "inplace", "io"), session="default")


def test_tflite_models_have_none() -> None:
    from tests.formats.tflite_builder import O, Sub, T, build

    tensors = [T(name, (1, 8)) for name in ("x", "g", "y")]
    data = build(Sub(tensors, [O("LOGISTIC", (0,), (1,)), O("MUL", (0, 1), (2,))], (0,), (2,)))
    result = memsched.optimize(data, allow=("reorder", "inplace", "fuse"), effort=EFFORT, verify=False)
    assert result.model == data
    assert not result.report["sections"]["chains"]["applied"]


def test_the_same_bytes_every_time() -> None:
    data = gated(3)
    assert run(data, verify=False).model == run(data, verify=False).model


def test_the_page_tells_of_them() -> None:
    result = run(gated(), verify=False)
    report = result.report.values
    words = page_words(report, page_data(report))
    (table,) = words.rewrites
    assert table.title.lower() in words.lead
    assert f" {report.written.schedule.peak_bytes:,} B" in words.lead
    assert table.text.startswith("2 chains ")
    assert f" {3 * BYTES:,} bytes " in table.text
    assert list(table.rows[1]) == ["g1", "m1", "com.microsoft.QuickGelu", "2"]
    assert len(table.headings) == 4
