"""The trained policy as two ONNX models: the encoder, and some steps of the decoder with a choice at their end.

`quantise` makes of them what ships.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from memsched.features.pipeline.respect_embedding import WIDTH

__all__ = ["export"]

Arrays = Mapping[str, NDArray[np.float32]]

_OPSET = 17
_IR = 8


def export(weights: Arrays) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return the encoder and the decoder, with 32-bit weights.

    Args:
        weights: By the names that `scripts.respect.policy.Policy` gives them.
    """
    encoder, decoder = (
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="memsched")
        for graph in (_encoder(weights), _decoder(weights))
    )
    for model in (encoder, decoder):
        model.ir_version = _IR
        onnx.checker.check_model(model, full_check=True)
    return encoder, decoder


def _encoder(weights: Arrays) -> onnx.GraphProto:
    """Return embeddings [node, 1, column] -> references of all nodes, the decoder's first state and first input."""
    cells = len(weights["pointer_query.bias"])
    constants: dict[str, NDArray[Any]] = {
        "first": weights["first"][None],
        "glimpse_weight": weights["glimpse_reference.weight"].T,
        "pointer_weight": weights["pointer_reference.weight"].T,
        "axes": np.array([1, 2], np.int64),
        "direction": np.array([0], np.int64),
        **_lstm(weights, "encoder.{}_l0", "encoder"),
    }
    nodes = [
        helper.make_node(
            "LSTM",
            ["embeddings", "encoder_W", "encoder_R", "encoder_B"],
            ["all", "last", "last_memory"],
            hidden_size=cells,
        ),
        helper.make_node("Squeeze", ["all", "axes"], ["contexts"]),
        helper.make_node("MatMul", ["contexts", "glimpse_weight"], ["glimpses"]),
        helper.make_node("MatMul", ["contexts", "pointer_weight"], ["pointers"]),
        helper.make_node("Squeeze", ["last", "direction"], ["hidden"]),
        helper.make_node("Squeeze", ["last_memory", "direction"], ["memory"]),
        helper.make_node("Identity", ["first"], ["input"]),
    ]
    return helper.make_graph(
        nodes,
        "respect_encoder",
        [_float("embeddings", ["nodes", 1, WIDTH])],
        [
            _float("glimpses", ["nodes", cells]),
            _float("pointers", ["nodes", cells]),
            _float("hidden", [1, cells]),
            _float("memory", [1, cells]),
            _float("input", [1, WIDTH]),
        ],
        [_initializer(name, value) for name, value in constants.items()],
    )


def _decoder(weights: Arrays) -> onnx.GraphProto:
    """Return the nodes since the last choice [step, 1, column], state and candidates' references -> the choice."""
    cells = len(weights["pointer_query.bias"])
    constants: dict[str, NDArray[Any]] = {
        "glimpse_weight": weights["glimpse_query.weight"].T,
        "glimpse_bias": weights["glimpse_query.bias"],
        "pointer_weight": weights["pointer_query.weight"].T,
        "pointer_bias": weights["pointer_query.bias"],
        "pointer": weights["pointer.weight"].T,
        "scale": np.array(cells**-0.5, np.float32),
        "zero": np.array([0], np.int64),
        "everything": np.array([-1], np.int64),
        **_lstm(weights, "cell.{}", "decoder"),
    }
    nodes = [
        helper.make_node("Unsqueeze", ["hidden", "zero"], ["hidden_before"]),
        helper.make_node("Unsqueeze", ["memory", "zero"], ["memory_before"]),
        helper.make_node(
            "LSTM",
            ["inputs", "decoder_W", "decoder_R", "decoder_B", "", "hidden_before", "memory_before"],
            ["", "hidden_after", "memory_after"],
            hidden_size=cells,
        ),
        helper.make_node("Squeeze", ["hidden_after", "zero"], ["next_hidden"]),
        helper.make_node("Squeeze", ["memory_after", "zero"], ["next_memory"]),
        helper.make_node("MatMul", ["next_hidden", "glimpse_weight"], ["turned"]),
        helper.make_node("Add", ["turned", "glimpse_bias"], ["question"]),
        helper.make_node("Gemm", ["question", "glimpses"], ["products"], transB=1),
        helper.make_node("Mul", ["products", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["shares"], axis=1),
        helper.make_node("MatMul", ["shares", "glimpses"], ["glimpse"]),
        helper.make_node("MatMul", ["glimpse", "pointer_weight"], ["turned_glimpse"]),
        helper.make_node("Add", ["turned_glimpse", "pointer_bias"], ["pointing"]),
        helper.make_node("Add", ["pointers", "pointing"], ["sums"]),
        helper.make_node("Tanh", ["sums"], ["bent"]),
        helper.make_node("MatMul", ["bent", "pointer"], ["columns"]),
        helper.make_node("Reshape", ["columns", "everything"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["choice"], axis=0, keepdims=0),
    ]
    return helper.make_graph(
        nodes,
        "respect_decoder",
        [
            _float("inputs", ["steps", 1, WIDTH]),
            _float("hidden", [1, cells]),
            _float("memory", [1, cells]),
            _float("glimpses", ["candidates", cells]),
            _float("pointers", ["candidates", cells]),
        ],
        [
            helper.make_tensor_value_info("choice", TensorProto.INT64, []),
            _float("next_hidden", [1, cells]),
            _float("next_memory", [1, cells]),
        ],
        [_initializer(name, value) for name, value in constants.items()],
    )


def _lstm(weights: Arrays, pattern: str, name: str) -> dict[str, NDArray[np.float32]]:
    """Return an LSTM's weights in ONNX's order of gates (i, o, f, c); PyTorch's is i, f, g, o."""

    def gates(kind: str) -> NDArray[np.float32]:
        inner, forget, cell, outer = np.split(weights[pattern.format(kind)], 4)
        return np.concatenate((inner, outer, forget, cell))

    return {
        f"{name}_W": gates("weight_ih")[None],
        f"{name}_R": gates("weight_hh")[None],
        f"{name}_B": np.concatenate((gates("bias_ih"), gates("bias_hh")))[None],
    }


def _float(name: str, shape: list[str | int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _initializer(name: str, value: NDArray[Any]) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value), name)
