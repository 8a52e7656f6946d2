"""GPT-2 of 6 layers (Sanh et al., "DistilBERT", section 3, made of Radford et al.'s GPT-2): 1,024 tokens at once.

768 wide, 12 heads, 50,257 tokens; the scores of the last position alone, as generation asks for them. As PyTorch's
exporter writes it: fully connected layers are a Gemm between two Reshapes, GELU is its approximation by Tanh, and the
weights of the scores are those of the embedding, transposed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import layer_norm, permuted, reshaped, scaled_attention

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["gpt2_6"]

_LAYERS: Final = 6
_WIDTH: Final = 768
_HEADS: Final = 12
_TOKENS: Final = 50_257
_POSITIONS: Final = 1024


def gpt2_6() -> ModelProto:
    """Return the decoder without a cache."""
    net = Builder("gpt2_6")
    table = net.weight((_TOKENS, _WIDTH), 1)
    shape = (1, _POSITIONS, _WIDTH)
    tokens = net.input("input_ids", 1, _POSITIONS, integers=True)
    x = net.node("Gather", [table, tokens], shape, axis=0)
    x = net.node("Add", [x, net.weight(shape, 1)], shape)
    for _ in range(_LAYERS):
        x = net.add(x, _attention(net, layer_norm(net, x)))
        x = net.add(x, _linear(net, _gelu(net, _linear(net, layer_norm(net, x), 4 * _WIDTH)), _WIDTH))
    x = layer_norm(net, x)
    last = net.node(
        "Slice", [x, *(net.integers(f"at_{at}", [at]) for at in (_POSITIONS - 1, _POSITIONS, 1))], (1, 1, _WIDTH)
    )
    scores = net.node("Transpose", [table], (_WIDTH, _TOKENS), perm=[1, 0])
    return net.model(net.node("MatMul", [last, scores], (1, 1, _TOKENS)))


def _linear(net: Builder, x: Value, width: int) -> Value:
    rows = reshaped(net, x, _POSITIONS, x.shape[-1])
    weight = net.weight((x.shape[-1], width), x.shape[-1])
    product = net.node("Gemm", [rows, weight, net.bias(width)], (_POSITIONS, width), mergeable=False)
    return reshaped(net, product, 1, _POSITIONS, width)


def _attention(net: Builder, x: Value) -> Value:
    sizes = net.integers("split_3", (_WIDTH,) * 3)
    parts = net.nodes("Split", [_linear(net, x, 3 * _WIDTH), sizes], [x.shape] * 3, axis=2)
    split = [reshaped(net, part, 1, _POSITIONS, _HEADS, _WIDTH // _HEADS) for part in parts]
    queries, keys, values = (
        permuted(net, part, *order)
        for part, order in zip(split, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    hidden = np.triu(np.full((1, 1, _POSITIONS, _POSITIONS), np.finfo(np.float32).min, np.float32), 1)
    mixed = scaled_attention(net, queries, keys, values, [net.array("causal_mask", hidden)])
    return _linear(net, reshaped(net, permuted(net, mixed, 0, 2, 1, 3), *x.shape), _WIDTH)


def _gelu(net: Builder, x: Value) -> Value:
    cubed = net.node("Pow", [x, net.scalar("three", 3)], x.shape)
    inner = net.add(x, net.node("Mul", [cubed, net.scalar("of_cube", 0.044715)], x.shape))
    inner = net.node("Mul", [inner, net.scalar("of_tanh", math.sqrt(2 / math.pi))], x.shape)
    raised = net.node("Add", [net.unary("Tanh", inner), net.scalar("one", 1)], x.shape)
    return net.node("Mul", [net.node("Mul", [x, net.scalar("half", 0.5)], x.shape), raised], x.shape)
