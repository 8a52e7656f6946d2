"""Ops that ONNX Runtime makes part of others or leaves out: predicted as the installed release measures them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.commands.optimize.optimize import optimize
from memsched.graph.liveness import Storage, evaluate
from tests.needs import recent_onnxruntime
from tests.runtimes.onnxruntime.measured import measure

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
    assert held(data) // VALUE == values


def held(data: bytes) -> int:
    """Return the measured peak, which must be the predicted one."""
    measured = measure(data, level="basic").peak_bytes
    assert measured is not None
    graph = optimize(data, solver="file", verify=False).graph
    # A profile does not show what kernels take beside their outputs.
    bare = replace(graph, ops=tuple(replace(op, workspace=0) for op in graph.ops))
    assert evaluate(Storage.of(bare), range(len(bare.ops))).peak == measured
    return measured


def chain(kinds: Sequence[tuple[str, Sequence[str], dict[str, Any]]], shape: Sequence[int] = (1, 8, 16, 16)) -> bytes:
    """Return a model of ops "a", "b", ... over x and constants, of which the last makes "y"."""
    names = [*"abcdefgh"[: len(kinds) - 1], "y"]
    nodes = [
        helper.make_node(kind, list(reads), [name], name, **attributes)
        for name, (kind, reads, attributes) in zip(names, kinds, strict=True)
    ]
    values = {
        "w": np.ones((8, 8, 3, 3), np.float32),
        "m": np.ones((16, 8), np.float32),
        "two": np.array(2, np.float32),
        "shape": np.array([1, 8, 1, 1]),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "channels": np.array([0, 1, 0, 0, 0, 1, 0, 0]),
        "cut": np.array([0, 0, -1, 1, 0, 0, 1, 1]),
    }
    used = {read for _, reads, _ in kinds for read in reads}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in values.items() if name in used],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


MEAN: tuple[str, list[str], dict[str, Any]] = ("GlobalAveragePool", ["c"], {})
POOL = {"kernel_shape": [3, 3]}
WHOLE = 8 * 16 * 16 * 4
PADDED = 8 * 18 * 18 * 4
CHAINS: dict[str, tuple[bytes, int]] = {
    "pads before a convolution": (
        chain([("Sin", ["x"], {}), ("Pad", ["a", "pads"], {}), ("Conv", ["b", "w"], {}), MEAN]),
        2 * WHOLE,
    ),
    "pads before an average": (
        chain([("Sin", ["x"], {}), ("Pad", ["a", "pads"], {}), ("AveragePool", ["b"], POOL), MEAN]),
        2 * WHOLE,
    ),
    "pads before a maximum": (
        chain([("Sin", ["x"], {}), ("Pad", ["a", "pads"], {}), ("MaxPool", ["b"], POOL), MEAN]),
        WHOLE + PADDED,
    ),
    "twos before a convolution": (
        chain([("Sin", ["x"], {}), ("Pad", ["a", "pads", "two"], {}), ("Conv", ["b", "w"], {}), MEAN]),
        WHOLE + PADDED,
    ),
    "reflected before a convolution": (
        chain([("Sin", ["x"], {}), ("Pad", ["a", "pads"], {"mode": "reflect"}), ("Conv", ["b", "w"], {}), MEAN]),
        WHOLE + PADDED,
    ),
    "pads that two read": (
        chain(
            [
                ("Pad", ["x", "pads"], {}),
                ("Conv", ["a", "w"], {}),
                ("Sin", ["a"], {}),
                ("GlobalAveragePool", ["b"], {}),
                ("GlobalAveragePool", ["c"], {}),
                ("Add", ["d", "e"], {}),
            ]
        ),
        2 * PADDED + WHOLE,
    ),
    "cut before a convolution": (
        chain([("Sin", ["x"], {}), ("Pad", ["a", "cut"], {}), ("Conv", ["b", "w"], {}), MEAN]),
        WHOLE + 8 * 16 * 18 * 4,
    ),
    "scaled by a number": (
        chain([("Conv", ["x", "w"], {"pads": [1] * 4}), ("Mul", ["a", "two"], {}), ("GlobalAveragePool", ["b"], {})]),
        WHOLE,
    ),
    "shifted by a number": (
        chain([("Conv", ["x", "w"], {"pads": [1] * 4}), ("Add", ["a", "two"], {}), ("GlobalAveragePool", ["b"], {})]),
        2 * WHOLE,
    ),
    "dropped out": (
        chain([("Sin", ["x"], {}), ("Dropout", ["a"], {}), ("Cos", ["b"], {}), ("Add", ["a", "c"], {})]),
        3 * WHOLE,
    ),
    "expanded to its own shape": (
        chain([("Sin", ["x"], {}), ("Expand", ["a", "shape"], {}), ("Cos", ["b"], {}), ("Add", ["a", "c"], {})]),
        3 * WHOLE,
    ),
    "transposed before a product": (
        chain([("Sin", ["x"], {}), ("Transpose", ["a"], {}), ("Gemm", ["b", "m"], {}), ("Cos", ["c"], {})], [16, 512]),
        16 * 512 * 4 + 512 * 8 * 4,
    ),
    "transposed, and read by another op": (
        chain(
            [
                ("Sin", ["x"], {}),
                ("Transpose", ["a"], {}),
                ("Gemm", ["b", "m"], {}),
                ("Cos", ["b"], {}),
                ("Concat", ["c", "d"], {"axis": 1}),
            ],
            [16, 512],
        ),
        3 * 16 * 512 * 4,
    ),
}


@pytest.mark.parametrize("case", CHAINS)
def test_what_is_absorbed_or_left_out(case: str) -> None:
    data, least = CHAINS[case]
    assert held(data) == pytest.approx(least, abs=VALUE / 2)
