"""Weights of convolutions cut from stacks: the same outputs, and what opening a session frees is given back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.blocks import stacked_weights
from memsched.formats.onnx.blocks.rows.plan import LoopWorks, arrange
from memsched.formats.onnx.blocks.rows.write import write_rows
from memsched.formats.onnx.blocks.stacked_weights import weights_in_stacks
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.ranged import draw_at, run_on
from tests.formats.onnx.blocks.rows.compare import differences, field_of
from tests.formats.onnx.blocks.rows.images import Images


def deep(widths: list[int], *, normal: bool = False) -> ModelProto:
    """Return convolutions in a row."""
    net, x = Images(), "x"
    for width in widths:
        x = net.conv(x, width)
        x = net.instance_norm(x) if normal else net.op("Relu", x)
    return net.model(net.conv(x, 1))


@given(st.lists(st.sampled_from([64, 128, 192, 256]), min_size=2, max_size=6), st.sampled_from([1 << 20, 2 << 20]))
@settings(max_examples=20)
def test_outputs_are_the_same_and_weights_once_in_the_file(widths: list[int], least: int) -> None:
    model = deep(widths)
    data = model.SerializeToString(deterministic=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacked_weights, "_MAPPED", least)
        written = weights_in_stacks(data)
    found = onnx.load_model_from_string(written)
    onnx.checker.check_model(found, full_check=True)
    stacks = [one for one in found.graph.initializer if one.name.endswith("_stack")]
    assert all(len(one.raw_data) >= least for one in stacks)
    assert (written == data) == (not stacks)
    assert abs(len(written) - len(data)) < 1 << 13
    before = sum(len(one.raw_data) for one in model.graph.initializer)
    cut = [node for node in found.graph.node if node.op_type == "Slice"]
    assert sum(len(one.raw_data) for one in found.graph.initializer) == before
    assert bool(cut) == bool(stacks)
    assert differences(model, found, [(1, 12, 12)]) == [0.0]


def test_copies_that_loops_make_are_cut_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked_weights, "_MAPPED", 1 << 20)
    model = deep([128] * 6, normal=True)
    field = field_of(model)
    given_file = write_rows(model, field, arrange(LoopWorks(field, 1), field.heavy, 0), 1)
    written = onnx.load_model_from_string(weights_in_stacks(given_file.SerializeToString()))
    assert not [node for node in written.graph.node if node.op_type == "Slice"]
    read = {one.name for one in written.graph.initializer}
    assert not read & {one.name for one in model.graph.initializer if len(one.raw_data) >= 1 << 18}
    assert max(differences(given_file, written, [(1, 24, 12), (2, 36, 24)])) == 0.0


def test_what_is_reshaped_otherwise_or_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked_weights, "_MAPPED", 1 << 19)
    weights = [
        numpy_helper.from_array(np.random.default_rng(number).random((64, 128, 3, 3), np.float32), f"w{number}")
        for number in range(4)
    ]
    shape = numpy_helper.from_array(np.array([128, 64, 3, 3], np.int64), "shape")
    branch = helper.make_graph(
        [helper.make_node("Reshape", ["w0", "shape"], ["inner"])],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [128, 64, 3, 3])],
    )
    nodes = [
        helper.make_node("If", ["condition"], ["reshaped"], then_branch=branch, else_branch=branch),
        helper.make_node("ReduceSum", ["reshaped"], ["a"], keepdims=0),
        helper.make_node("Add", ["w1", "w2"], ["b"]),
    ]
    graph = helper.make_graph(
        nodes,
        "reshaped",
        [
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w1", TensorProto.FLOAT, [64, 128, 3, 3]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("a", "b", "w3")],
        initializer=[*weights, shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data = model.SerializeToString()
    found = weights_in_stacks(data)
    left = {one.name for one in onnx.load_model_from_string(found).graph.initializer}
    assert {"w1", "w3", "shape"} <= left
    assert not {"w0", "w2"} & left
    outputs = [onnxruntime.InferenceSession(one).run(None, {"condition": np.array(True)}) for one in (data, found)]
    for first, second in zip(*outputs, strict=True):
        np.testing.assert_array_equal(first, second)


def test_old_files_and_weights_that_lie_beside_them_stay(tmp_path: Path) -> None:
    model = deep([512, 512, 512, 512, 512, 512])
    data = model.SerializeToString()
    assert weights_in_stacks(data) != data
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="model.data")
    beside = (tmp_path / "model.onnx").read_bytes()
    assert weights_in_stacks(beside) == beside
    old = onnx.load_model_from_string(data)
    old.opset_import[0].version = 9
    assert weights_in_stacks(old.SerializeToString()) == old.SerializeToString()


def test_the_installed_runtime_cuts_stacks_when_it_opens_a_session(tmp_path: Path) -> None:
    model = deep([512] * 9)
    took = []
    for name, one in (("given", model.SerializeToString()), ("stacked", weights_in_stacks(model.SerializeToString()))):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(one)
        draw_at(path, {"batch": 1, "height": 12, "width": 12}, tmp_path / "feeds.npz", seed=0)
        found = run_on(path, tmp_path / "feeds.npz", even=True)
        assert isinstance(found, Measured)
        took.append(found.peak)
    # A stack of 50 MB at most is there beside what is cut from it; of 75 MB of weights no other copy.
    assert took[1] < took[0] + (60 << 20)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(tmp_path / "stacked.onnx", options, providers=["CPUExecutionProvider"])
    session = onnx.load(tmp_path / "optimised.onnx", load_external_data=False)
    assert not [node for node in session.graph.node if node.op_type == "Slice"]
    assert not [one for one in session.graph.initializer if one.name.endswith("_stack")]
