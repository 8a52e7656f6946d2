"""Pieces of slices that leave axes or steps out: they state them, in the type of the given starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import memsched
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
    result = memsched.optimize(cropped(kind, inputs), effort=2, tile=True, order_guarantee="session")
    assert result.report["tiling"]["applied"]
    made = onnx.load_from_string(result.model)
    onnx.checker.check_model(made, full_check=True)
    pieces = {step["op"] for step in result.report["steps"] if step["origin"] == "b"}
    assert pieces
    assert all(not node.attribute for node in made.graph.node if node.name in pieces)
    assert result.verification is not None
    assert result.verification.relative_error is not None
    assert result.verification.relative_error <= 1e-5
