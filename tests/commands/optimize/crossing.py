"""A model of three parts, of which two should come first: one where the input is short, the other where it is long."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

__all__ = ["CROSSES_AT", "crossing"]

CROSSES_AT = 89
"""The largest length at which what is wide should come before what grows with the square."""


def crossing(parts: str = "BCA") -> ModelProto:
    """Return the model with its parts stored in an order.

    A leaves 32 values for each of n tokens and needs n x n scores, B leaves as many and needs 128 for each. C needs
    n x n scores, too, and leaves one for each, so it should come first. Sessions without options begin with the last
    summand of the sum.

    Args:
        parts: Permutation of "ABC".
    """
    rng = np.random.default_rng(0)
    node = helper.make_node
    made = {
        "A": [
            node("Transpose", ["x"], ["at"], "a_turn", perm=[1, 0]),
            node("MatMul", ["x", "at"], ["as"], "a_scores"),
            node("MatMul", ["as", "x"], ["av"], "a_mix"),
            node("MatMul", ["av", "spread"], ["a"], "a_spread"),
        ],
        "B": [node("MatMul", ["x", "up"], ["h"], "b_up"), node("MatMul", ["h", "down"], ["b"], "b_down")],
        "C": [
            node("Transpose", ["x"], ["ct"], "c_turn", perm=[1, 0]),
            node("MatMul", ["x", "ct"], ["cs"], "c_scores"),
            node("ReduceMax", ["cs"], ["c"], "c_most", axes=[1]),
        ],
    }
    nodes = [one for part in parts for one in made[part]]
    nodes += [node("Add", ["a", "b"], ["ab"], "join"), node("Add", ["ab", "c"], ["y"], "last")]
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / 8).astype(np.float32), name)
        for name, shape in (("up", (8, 128)), ("down", (128, 32)), ("spread", (8, 32)))
    ]
    graph = helper.make_graph(
        nodes,
        "crossing",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 32])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
