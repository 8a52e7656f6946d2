"""Large values in a branch: the same outputs for every span of nodes, and no block in the runtime that is installed."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.patternless import best_nodes, branched, in_branches
from memsched.formats.onnx.structure import graphs_of
from memsched.graph.model import Tensor
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.ranged import draw_at, run_on
from tests.formats.onnx.blocks.test_reserve import grown
from tests.formats.onnx.test_segments import MODELS, branching
from tests.segment_cuts import LEVELS, run
from tests.small_models import floats

WIDTH, LENGTH = 256, 8192


def layers(count: int, length: int, opset: int = 17, ir_version: int = 9) -> bytes:
    """Return layers of which each keeps what it reads; the first are wide, and the last has large weights."""
    rng = np.random.default_rng(0)
    nodes, weights, read = [], [], "x"
    for number in range(count):
        weights.append(numpy_helper.from_array(rng.normal(0, 0.05, (WIDTH, WIDTH)).astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", [read, f"w{number}"], [f"m{number}"]))
        nodes.append(helper.make_node("Softmax", [f"m{number}"], [f"s{number}"], axis=-1))
        nodes.append(helper.make_node("Add", [read, f"s{number}"], [f"a{number}"]))
        read = f"a{number}"
    weights.append(numpy_helper.from_array(rng.normal(0, 0.05, (WIDTH, 40_000)).astype(np.float32), "last"))
    nodes.append(helper.make_node("ReduceMean", [read], ["mean"], axes=[1], keepdims=0))
    nodes.append(helper.make_node("MatMul", ["mean", "last"], ["y"]))
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, length, WIDTH]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40_000]),
    ]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], initializer=weights)
    opsets = [helper.make_opsetid("", opset)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=ir_version).SerializeToString())


def tensors_of(data: bytes) -> dict[str, Tensor]:
    return {one.name: one for one in load_module(data, "x.onnx", LoadOptions()).graph.tensors}


def feeds_of(model: ModelProto, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {one.name: [dim.dim_value or 4 for dim in one.type.tensor_type.shape.dim] for one in model.graph.input}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def assert_same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    assert list(first) == list(second)
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


@given(st.sampled_from(sorted(MODELS)), st.integers(0, 10_000), st.booleans())
def test_any_nodes_in_a_branch_compute_the_same(kind: str, seed: int, constants: bool) -> None:
    model = MODELS[kind](seed)
    data, count = model.SerializeToString(), len(model.graph.node)
    start, end = sorted(random.Random(seed).sample(range(count + 1), 2))
    symbols = {"rows": 4} if kind == "shapes" else {}
    known = load_module(data, "x.onnx", LoadOptions(dims=symbols)).graph.tensors
    written = branched(data, {one.name: one for one in known}, (start, end), constants=constants)
    assert written is not None
    if kind != "shapes":  # whose outputs state no shape
        onnx.checker.check_model(written, full_check=True)
    feeds = feeds_of(model, seed)
    for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL):
        assert_same(run(data, feeds, level), run(written, feeds, level))


@pytest.mark.parametrize("condition", [True, False])
def test_nodes_with_bodies_keep_what_these_capture(condition: bool) -> None:
    model = onnx.load_model_from_string(branching())
    # Captured, and needed outside.
    model.graph.output.append(floats("a", [3, 4]))
    data = model.SerializeToString()
    feeds = {"x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4), "condition": np.array(condition)}
    for span in combinations(range(6), 2):
        for constants in (False, True):
            written = branched(data, tensors_of(data), span, constants=constants)
            assert written is not None
            onnx.checker.check_model(written, full_check=True)
            assert_same(run(data, feeds), run(written, feeds))


def test_of_a_branch_the_runtime_notes_no_pattern(tmp_path: Path) -> None:
    data = layers(2, LENGTH)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    first, second, third = grown(path, LENGTH)
    assert first > 0
    assert second > 0, "where the block finds a place by itself, no branch is needed"
    assert third == 0
    for written in in_branches(load_module(data, "x.onnx", LoadOptions()), data):
        path.write_bytes(written)
        assert grown(path, LENGTH)[1:] == [0, 0]


def test_weights_of_what_is_small_stay_outside() -> None:
    data = layers(2, LENGTH)
    model = onnx.load_model_from_string(data)
    span = best_nodes(model.graph, tensors_of(data))
    assert span is not None
    assert span[1] == len(model.graph.node) - 1
    written = onnx.load_model_from_string(in_branches(load_module(data, "x.onnx", LoadOptions()), data)[0])
    assert [one.name for one in written.graph.initializer] == ["w0", "w1", "last"]
    inner = next(scope.graph for scope in graphs_of(written.graph) if scope.graph.name == "branch")
    assert {"w0", "w1"} <= {name for node in inner.node for name in node.input}
    assert [node.op_type for node in written.graph.node if "last" in node.input] == ["MatMul"]


def test_no_copy_of_weights_stays_beside_a_branch(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(layers(12, 64))
    del model.graph.node[-1], model.graph.initializer[-1]
    rng, large = np.random.default_rng(0), 1024
    for one in model.graph.initializer:
        one.CopyFrom(numpy_helper.from_array(rng.normal(0, 0.05, (large, large)).astype(np.float32), one.name))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = large
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, large]))
    data = model.SerializeToString()
    written = branched(data, tensors_of(data), (0, len(model.graph.node)), constants=True)
    assert written is not None
    took = []
    for number, one in enumerate((data, written)):
        path, feeds = tmp_path / f"{number}.onnx", tmp_path / "feeds.npz"
        path.write_bytes(one)
        draw_at(path, {}, feeds, seed=0)
        found = run_on(path, feeds, even=True)
        assert isinstance(found, Measured)
        took.append(found.peak)
    # Stored in the branch they are there three times while a session is opened; so they are twice.
    assert took[1] < took[0] + 1.3 * sum(one.ByteSize() for one in model.graph.initializer)


def test_small_models_and_old_ones_have_no_branch() -> None:
    listed = onnx.load_model_from_string(layers(2, LENGTH, ir_version=3))
    listed.graph.input.extend(helper.make_tensor_value_info(w.name, 1, w.dims) for w in listed.graph.initializer)
    for data in (layers(2, 64), layers(2, LENGTH, opset=10), listed.SerializeToString()):
        assert in_branches(load_module(data, "x.onnx", LoadOptions()), data) == ()


def test_shapes_are_known_behind_a_branch() -> None:
    data = layers(2, LENGTH)
    given = load_module(data, "x.onnx", LoadOptions())
    for written in in_branches(given, data):
        read = load_module(written, "x.onnx", LoadOptions())
        shapes = {one.name: one.shape for one in read.graph.tensors}
        assert shapes["y"] == (1, 40_000)
        assert all(shapes.get(one.name, one.shape) == one.shape for one in given.graph.tensors)
