"""Room in the arena for what a session requests at once, in the runtime that is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from memsched.formats.blocks import Range
from memsched.formats.onnx.blocks.pattern import pattern_bytes, pattern_sizes
from memsched.formats.onnx.blocks.probes import OpenValues, probe
from memsched.formats.onnx.blocks.reserve import reserve, reserve_points, reserved

WIDTH, MOST = 256, 32768

REGIONS = """
import sys, numpy as np, onnxruntime
onnxruntime.set_default_logger_severity(0)
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
feeds = {"x": np.ones((1, int(sys.argv[2]), 256), np.float32)}
for _ in range(3):
    session.run(None, feeds)
    print("a run ended", file=sys.stderr, flush=True)
"""


def layers(count: int) -> ModelProto:
    """Return layers of which each keeps what it reads, so that several values wait."""
    rng = np.random.default_rng(0)
    nodes, weights, read = [], [], "x"
    for number in range(count):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.05, (WIDTH, WIDTH)).astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", [read, f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Softmax", [f"m{number}"], [f"s{number}"], axis=-1))
        nodes.append(helper.make_node("Add", [read, f"s{number}"], [f"a{number}"]))
        read = f"a{number}"
    nodes.append(helper.make_node("ReduceMean", [read], ["y"], axes=[1], keepdims=0))
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", WIDTH]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH]),
    ]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], initializer=weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def values_of(model: ModelProto) -> OpenValues:
    return probe(model, {"batch": Range(1, 4), "length": Range(1, MOST, named=True)})


def grown(path: Path, length: int) -> list[int]:
    """Return the bytes by which the arena's regions grow in each of three runs."""
    done = subprocess.run(
        [sys.executable, "-c", REGIONS, str(path), str(length)], capture_output=True, text=True, check=True
    )
    runs = done.stderr.split("a run ended")[:3]
    return [sum(map(int, re.findall(r"Extended allocation by (\d+)", run))) for run in runs]


def test_what_waits_at_once_is_added_up() -> None:
    model = layers(2)
    value = 4 * 1000 * WIDTH
    sizes = {"batch": 1, "length": 1000}
    # A layer's product and softmax beside the sum before it, which is the graph's input in the first.
    assert pattern_bytes(model.graph, values_of(model), sizes) == 3 * value
    assert [one.at(sizes) for one in pattern_sizes(model.graph, values_of(model))] == [3 * value]


def test_constants_are_no_part_of_it_and_squares_are_followed_where_nodes_compute_lengths() -> None:
    rng = np.random.default_rng(0)
    kernel = numpy_helper.from_array(rng.normal(0, 0.1, (16, 3, 16, 16)).astype(np.float32), "kernel")
    nodes = [
        helper.make_node("Constant", [], ["large"], value=numpy_helper.from_array(np.zeros((1, 1, 16, 9)), "large")),
        helper.make_node("Conv", ["x", "kernel"], ["patches"], strides=[16, 16]),
        helper.make_node("Reshape", ["patches", "shape"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["columns"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["columns", "rows"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["rows", "shares"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    constants = [kernel, numpy_helper.from_array(np.array([0, 16, -1]), "shape")]
    model = helper.make_model(
        helper.make_graph(nodes, "patches", ends[:1], ends[1:], constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    span = Range(32, 1024, named=True)
    values = probe(model, {"batch": Range(1, 4), "height": span, "width": span})
    (size,) = pattern_sizes(model.graph, values)
    for batch, height, width in ((1, 1024, 1024), (2, 1024, 512), (1, 512, 256)):
        tokens = height // 16 * (width // 16)
        sizes = {"batch": batch, "height": height, "width": width}
        assert 0.75 < size.at(sizes) / (batch * 4 * (2 * tokens * tokens + 2 * 16 * tokens)) <= 1.0


def test_the_arena_does_not_grow_after_the_first_run(tmp_path: Path) -> None:
    given, written = layers(4), layers(4)
    assert reserve(written, values_of(given))
    onnx.checker.check_model(written, full_check=True)
    onnx.save(written, tmp_path / "written.onnx")
    for length in (3000, 20000, MOST):
        first, *later = grown(tmp_path / "written.onnx", length)
        assert first
        assert later == [0, 0], length


def test_outputs_stay(tmp_path: Path) -> None:
    given, written = layers(3), layers(3)
    reserve(written, values_of(given))
    sessions = [onnxruntime.InferenceSession(one.SerializeToString()) for one in (given, written)]
    for batch, length in ((1, 1), (2, 7), (1, 977), (3, 4096)):
        x = np.random.default_rng(length).normal(size=(batch, length, WIDTH)).astype(np.float32)
        plain, again = (session.run(None, {"x": x})[0] for session in sessions)
        assert np.array_equal(plain, again)
    empty = sessions[1].run(None, {"x": np.zeros((0, 5, WIDTH), np.float32)})[0]
    assert empty.shape == (0, WIDTH)


def test_a_model_without_loops_gets_room_and_refuses_other_lengths(tmp_path: Path) -> None:
    given = layers(4)
    (point,) = reserve_points(given, values_of(given))
    assert given == layers(4)
    (tmp_path / "written.onnx").write_bytes(point.build())
    onnx.checker.check_model(tmp_path / "written.onnx", full_check=True)
    onnx.save(given, tmp_path / "given.onnx")
    assert not any(grown(tmp_path / "written.onnx", MOST)[1:])
    assert any(grown(tmp_path / "given.onnx", MOST)[1:])
    session = onnxruntime.InferenceSession(tmp_path / "written.onnx")
    plain = onnxruntime.InferenceSession(tmp_path / "given.onnx")
    x = np.random.default_rng(0).normal(size=(2, 1999, WIDTH)).astype(np.float32)
    assert np.array_equal(session.run(None, {"x": x})[0], plain.run(None, {"x": x})[0])
    with pytest.raises(Exception, match=f"length_must_be_1_to_{MOST}"):
        session.run(None, {"x": np.zeros((1, MOST + 1, WIDTH), np.float32)})


def test_small_models_stay_as_they_are() -> None:
    model = layers(2)
    values = probe(model, {"batch": Range(1, 4), "length": Range(1, 64, named=True)})
    before = model.SerializeToString(deterministic=True)
    assert reserved(lambda: before, values) == before
    assert not reserve_points(model, values)
