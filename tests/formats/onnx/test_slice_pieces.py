"""Pieces of slices that leave axes or steps out: they state what their form of Slice has, in the type of the starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import memsched
from memsched.features.distribute.distribute import distribute, run_plan
from tests.distributed_nets import cluster_of
from tests.small_models import floats, model_of

SIDE = 34


def cropped(kind: Any, inputs: int) -> bytes:
    """Two convolutions with many channels between them, and a slice there with so many inputs."""
    values = np.random.default_rng(5)
    constants = [
        numpy_helper.from_array(values.normal(size=shape).astype(np.float32) / 4, name)
        for name, shape in (("w1", (16, 2, 3, 3)), ("w2", (2, 16, 3, 3)))
    ]
    whole = inputs == 3
    numbers = {
        "starts": [0, 0, 1, 1] if whole else [1],
        "ends": [1, 16, SIDE - 1, SIDE] if whole else [SIDE - 1],
        "axes": [3],
    }
    names = ["starts", "ends", "axes"][: inputs - 1]
    constants += [numpy_helper.from_array(np.array(numbers[name], kind), name) for name in names]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Slice", ["a", *names], ["b"], "b"),
        helper.make_node("Conv", ["b", "w2"], ["y"], "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    shape = [1, 2, SIDE - 2, SIDE - 1] if whole else [1, 2, SIDE, SIDE - 2]
    return model_of(nodes, [floats("x", [1, 2, SIDE, SIDE])], [floats("y", shape)], constants)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("inputs", [3, 4])
def test_a_slice_in_pieces(kind: Any, inputs: int) -> None:
    result = memsched.optimize(cropped(kind, inputs), effort=2, level=2, order_guarantee="session")
    assert result.report["sections"]["tile"]["applied"]
    made = onnx.load_from_string(result.model)
    onnx.checker.check_model(made, full_check=True)
    pieces = {step["op"] for step in result.report["written"]["steps"] if step["origin"] == "b"}
    assert pieces
    assert all(not node.attribute for node in made.graph.node if node.name in pieces)
    assert result.verification is not None
    assert result.verification.relative_error is not None
    assert result.verification.relative_error <= 1e-5


def cropped_by_attributes(version: int, *, whole: bool) -> bytes:
    """The same network with a slice of an older operator set, which has no steps."""
    model = onnx.load_from_string(cropped(np.int64, 3 if whole else 4))
    model.opset_import[0].version = version
    ranges: dict[str, Any] = {"starts": [1], "ends": [SIDE - 1], "axes": [3]}
    if whole:
        ranges = {"starts": [0, 0, 1, 1], "ends": [1, 16, SIDE - 1, SIDE]}
    slice_node = helper.make_node("Slice", ["a"], ["b"], "b", **ranges)
    model.graph.node[1].CopyFrom(slice_node)
    del model.graph.initializer[2:]
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("whole", [False, True])
def test_a_slice_without_steps_in_pieces(version: int, whole: bool) -> None:
    result = memsched.optimize(
        cropped_by_attributes(version, whole=whole), effort=2, level=2, order_guarantee="session"
    )
    assert result.report["sections"]["tile"]["applied"]
    made = onnx.load_from_string(result.model)
    onnx.checker.check_model(made, full_check=True)
    pieces = {step["op"] for step in result.report["written"]["steps"] if step["origin"] == "b"}
    assert pieces & {node.name for node in made.graph.node}
    assert result.verification is not None
    assert result.verification.relative_error is not None
    assert result.verification.relative_error <= 1e-5


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("whole", [False, True])
def test_a_slice_without_steps_on_several_devices(version: int, whole: bool) -> None:
    found = run_plan(
        distribute(cropped_by_attributes(version, whole=whole), cluster=cluster_of(3), method="even", effort=1.0)
    )
    parts = [found.models.file(device, step) for device, step in found.models.facts]
    kinds = [node.op_type for data in parts for node in onnx.load_from_string(data).graph.node]
    assert kinds.count("Slice") > 1
    assert found.executed is not None
