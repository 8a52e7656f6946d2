"""Operators of ONNX Runtime's own: their sizes are read as the runtime has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from tests.formats.onnx_builder import BOOL, FLOAT, branch, constant, make, node, read, sizes, value
from tests.needs import recent_onnxruntime

pytestmark = recent_onnxruntime

UINT8 = TensorProto.UINT8

CONSTANTS: dict[str, Any] = {
    "s": np.float32(0.1),
    "z": np.uint8(3),
    "w": np.ones((6, 4, 3, 3), np.float32),
    "v": np.ones(8, np.float32),
    "m": np.ones((8, 5), np.float32),
    "t": np.ones((5, 8), np.float32),
    "k": np.ones((8, 5), np.uint8),
    "ks": np.ones(1, np.float32),
    "kz": np.ones(1, np.uint8),
    "c": np.ones((4, 1, 1), bool),
}

POOL = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}

CASES: dict[str, tuple[str, tuple[int, ...], int, dict[str, Any]]] = {
    "BiasGelu": ("x v", (2, 8), FLOAT, {}),
    "FastGelu": ("x", (2, 8), FLOAT, {}),
    "Gelu": ("x", (2, 8), FLOAT, {}),
    "QuickGelu": ("x", (2, 8), FLOAT, {}),
    "DynamicQuantizeMatMul": ("x k ks kz", (3, 2, 8), FLOAT, {}),
    "FusedConv": ("x w", (1, 4, 9, 9), FLOAT, {"activation": "Relu", "strides": [2, 2], "pads": [1, 1, 0, 0]}),
    "FusedGemm": ("x t", (2, 8), FLOAT, {"activation": "Relu", "transB": 1}),
    "FusedMatMul": ("x m", (3, 2, 8), FLOAT, {"alpha": 0.5}),
    "QLinearAdd": ("x s z x s z s z", (2, 8), UINT8, {}),
    "QLinearMul": ("x s z x s z s z", (2, 8), UINT8, {}),
    "QLinearLeakyRelu": ("x s z s z", (2, 8), UINT8, {}),
    "QLinearSigmoid": ("x s z s z", (2, 8), UINT8, {}),
    "QLinearSoftmax": ("x s z s z", (2, 8), UINT8, {"opset": 13}),
    "QLinearConcat": ("s z x s z x s z", (2, 8), UINT8, {"axis": 1}),
    "QLinearWhere": ("c x s z x s z s z", (1, 4, 2, 3), UINT8, {}),
    "QLinearAveragePool": ("x s z s z", (1, 4, 9, 9), UINT8, POOL),
    "QLinearGlobalAveragePool": ("x s z s z", (1, 4, 9, 9), UINT8, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_sizes_are_those_of_the_runtime(case: str) -> None:
    reads, shape, element, attributes = CASES[case]
    own = node(case, reads, "a", domain="com.microsoft", **attributes)
    constants = [constant(name, array) for name, array in CONSTANTS.items() if name in reads.split()]
    nodes = [own, node("Identity", "a", "y")]
    model = make(nodes, [value("x", shape, element)], [value("y", None, element)], constants, domains=["com.microsoft"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    kind = np.float32 if element == FLOAT else np.uint8
    (made,) = session.run(None, {"x": np.ones(shape, kind)})
    assert sizes(read(model))["a"] == made.nbytes


def test_a_fused_operator_in_a_branch_needs_no_run() -> None:
    """One run would show one branch, and the other would count nothing."""
    fused = node("FusedConv", "a w", "f", domain="com.microsoft", activation="Relu", pads=[1] * 4)
    first = branch("then", fused, node("Neg", "f", "p"), outputs="p")
    second = branch("else", node("Conv", "a w", "g", pads=[1] * 4), node("Abs", "g", "q"), outputs="q")
    choice = node("If", "flag", "b", then_branch=first, else_branch=second)
    model = make(
        [node("Relu", "x", "a"), choice, node("Neg", "b", "y")],
        [value("x", [1, 4, 8, 8]), value("flag", [], BOOL)],
        [value("y", None)],
        [constant("w", np.ones((6, 4, 3, 3), np.float32))],
        domains=["com.microsoft"],
    )
    module = read(model)
    inner = sizes(module, 1) | sizes(module, 2)
    assert inner["f"] == inner["g"] == 6 * 64 * 4
