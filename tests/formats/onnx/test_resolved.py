"""Operators of ONNX Runtime's own that nothing else infers: their sizes are those it tells as it loads the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from memsched.formats.onnx import resolved
from tests.formats.onnx_builder import FLOAT, INT64, constant, make, node, read, sizes, value
from tests.needs import recent_onnxruntime

pytestmark = recent_onnxruntime

CONSTANTS: dict[str, Any] = {
    "m": np.ones((5, 8), np.float32),
    "n": np.ones((6, 5), np.float32),
    "a": np.ones((8, 24), np.float32),
    "b": np.ones(24, np.float32),
    "q": np.ones((8, 5), np.int8),
    "s": np.float32(0.1),
    "k": np.ones((6, 1, 16), np.uint8),
    "ks": np.ones(6, np.float32),
}

CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "FusedMatMul": ("x m", (1, 4, 8), {"transB": 1}),
    "Attention": ("x a b", (1, 4, 8), {"num_heads": 2}),
    "MultiHeadAttention": ("x x x", (1, 4, 8), {"num_heads": 2}),
    "MatMulNBits": ("x k ks", (1, 4, 32), {"K": 32, "N": 6, "bits": 4, "block_size": 32}),
}


@pytest.mark.parametrize("case", CASES)
def test_sizes_are_those_of_the_runtime(case: str) -> None:
    reads, shape, attributes = CASES[case]
    own = node(case, reads, "y", domain="com.microsoft", **attributes)
    constants = [constant(name, array) for name, array in CONSTANTS.items() if name in reads.split()]
    nodes = [node("Relu", "x", "r"), own, node("Neg", "y", "z")]
    model = make(nodes, [value("x", shape)], [value("z", None)], constants, domains=["com.microsoft"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (made,) = session.run(None, {"x": np.ones(shape, np.float32)})
    assert sizes(read(model))["y"] == made.nbytes


def test_shapes_are_followed_on_both_sides_of_what_only_the_runtime_knows() -> None:
    """What follows from a length that only ONNX Runtime tells is found by shape arithmetic again."""
    model = make(
        [
            node("FusedMatMul", "x m", "p", domain="com.microsoft", transB=1),
            node("DynamicQuantizeLinear", "p", "u us uz"),
            node("MatMulIntegerToFloat", "u w us s uz", "f", domain="com.microsoft"),
            node("Shape", "f", "t"),
            node("Expand", "one t", "y"),
        ],
        [value("x", (1, 4, 8))],
        [value("y", None)],
        [
            constant("m", CONSTANTS["m"]),
            constant("w", np.ones((5, 7), np.int8)),
            constant("s", np.float32(0.1)),
            constant("one", np.ones(1, np.float32)),
        ],
        domains=["com.microsoft"],
    )
    found = sizes(read(model))
    assert found["p"] == 4 * 5 * 4
    assert found["f"] == found["y"] == 4 * 7 * 4


@pytest.mark.parametrize("twice", [False, True])
def test_a_declaration_that_is_wrong_behind_such_an_operator_is_told(twice: bool) -> None:
    """ONNX's inference tells of no contradiction beside an operator that it does not know."""
    own = node("FusedMatMul", "x m", "p", domain="com.microsoft", transB=1)
    nodes = [own, node("Reshape", "p s", "y")]
    constants = [constant("m", CONSTANTS["m"]), constant("s", np.array([1, 4, -1]))]
    model = make(nodes, [value("x", (1, 4, 8))], [value("y", (1, "n"))], constants, domains=["com.microsoft"])
    if twice:
        model.graph.value_info.append(value("y", None))
    module = read(model)
    assert sizes(module)["y"] == 4 * 5 * 4
    assert any(all(one in note for one in ("'y'", "[1, n]", "[1, 4, 5]")) for note in module.notes)


def test_what_the_runtime_refuses_tells_nothing() -> None:
    model = make([node("Unheard", "x", "y", domain="custom")], [value("x", (4,))], [value("y", None)])
    assert resolved.infer(model, model.graph.node) == {}
    wrong = make([node("Relu", "x", "y")], [value("x", (4,), FLOAT)], [value("y", None)])
    wrong.graph.node[0].input[0] = "absent"
    assert resolved.infer(wrong, wrong.graph.node) == {}


def test_a_rank_that_the_runtime_does_not_know_is_no_scalar() -> None:
    nodes = [node("Reshape", "x s", "a"), node("Neg", "a", "y")]
    model = make(nodes, [value("x", (4,)), value("s", ("n",), INT64)], [value("y", None)])
    assert resolved.infer(model, model.graph.node) == {}
