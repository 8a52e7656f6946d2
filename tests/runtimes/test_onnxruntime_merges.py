"""Ops that ONNX Runtime makes part of the convolution before them: predicted as the installed release measures them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.compiler import optimize
from memsched.graph.liveness import Storage, evaluate
from memsched.runtimes import onnxruntime as runtime
from tests.needs import recent_onnxruntime

pytestmark = recent_onnxruntime

FLOAT = TensorProto.FLOAT
VALUE = 8 * 16 * 16 * 4
NORMAL = ["scale", "shift", "mean", "variance"]


def model(
    kind: str, inputs: Sequence[str], shape: Sequence[int], first: str = "Conv", last: str = "", other: str = "c"
) -> bytes:
    """Return a convolution "c", then ``kind`` over ``inputs``, of which "k" is a constant of ``shape``, then a mean."""
    rng = np.random.default_rng(0)

    def constant(name: str, lengths: Sequence[int]) -> Any:
        return numpy_helper.from_array(rng.random(lengths).astype(np.float32) + 0.5, name)

    node = helper.make_node
    nodes = [node(first, ["x", "w"], ["c"], "c", pads=[1] * 4), node(kind, inputs, ["z"], "z")]
    end = "z"
    if last:
        nodes, end = [*nodes, node(last, ["z", other], ["e"], "e")], "e"
    nodes.append(node("GlobalAveragePool", [end], ["y"], "y"))
    constants = [constant("w", [8, 8, 3, 3]), *(constant(name, [8]) for name in NORMAL), constant("k", shape)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [1, 8, 16, 16])],
        [helper.make_tensor_value_info("y", FLOAT, [1, 8, 1, 1])],
        constants,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


NORMALISED = ("BatchNormalization", ["c", *NORMAL], [8, 1, 1])
CASES: dict[str, tuple[tuple[Any, ...], int]] = {
    "normalised": (NORMALISED, 1),
    "transposed and normalised": ((*NORMALISED, "ConvTranspose"), 1),
    "normalised, and read by another op": ((*NORMALISED, "Conv", "Add"), 3),
    "normalised, then scaled": ((*NORMALISED, "Conv", "Mul", "k"), 1),
    "scaled by channel": (("Mul", ["c", "k"], [8, 1, 1]), 1),
    "shifted by channel": (("Add", ["c", "k"], [1, 8, 1, 1]), 1),
    "shifted by the first input": (("Add", ["k", "c"], [8, 1, 1]), 2),
    "shifted element by element": (("Add", ["c", "k"], [1, 8, 16, 16]), 2),
}


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_part_of_a_convolution(case: str) -> None:
    described, values = CASES[case]
    data = model(*described)
    measured = runtime.measure(data, level="basic").peak_bytes
    assert measured is not None
    assert measured // VALUE == values
    graph = optimize(data, solver="file", verify=False).graph
    # A profile does not show what kernels take beside their outputs.
    bare = replace(graph, ops=tuple(replace(op, workspace=0) for op in graph.ops))
    assert evaluate(Storage.of(bare), range(len(bare.ops))).peak == measured
