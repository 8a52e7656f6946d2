"""A transformer encoder of BERT-base's sizes (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers").

12 layers, 768 wide, 12 heads, 3072 in the feed-forward part; 128 positions, given as embeddings.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import gelu, layer_norm, linear

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["transformer"]

_LAYERS: Final = 12
_WIDTH: Final = 768
_HEADS: Final = 12
_INNER: Final = 3072
_POSITIONS: Final = 128


def transformer() -> ModelProto:
    """Return the encoder."""
    net = Builder("transformer")
    x = net.input("embeddings", 1, _POSITIONS, _WIDTH)
    for _ in range(_LAYERS):
        x = layer_norm(net, net.add(x, _attention(net, x)))
        inner = gelu(net, linear(net, x, _INNER))
        x = layer_norm(net, net.add(x, linear(net, inner, _WIDTH)))
    return net.model(x)


def _attention(net: Builder, x: Value) -> Value:
    depth = _WIDTH // _HEADS
    shape = (1, _HEADS, _POSITIONS, depth)
    queries = _heads(net, linear(net, x, _WIDTH), (0, 2, 1, 3), shape)
    keys = _heads(net, linear(net, x, _WIDTH), (0, 2, 3, 1), (1, _HEADS, depth, _POSITIONS))
    values = _heads(net, linear(net, x, _WIDTH), (0, 2, 1, 3), shape)
    scores = net.node("MatMul", [queries, keys], (1, _HEADS, _POSITIONS, _POSITIONS))
    scaled = net.node("Div", [scores, net.scalar("root_of_depth", math.sqrt(depth))], scores.shape)
    mixed = net.node("MatMul", [net.node("Softmax", [scaled], scaled.shape, axis=-1), values], shape)
    joined = net.node("Transpose", [mixed], (1, _POSITIONS, _HEADS, depth), perm=[0, 2, 1, 3])
    flat = net.node("Reshape", [joined, net.integers("joined", x.shape)], x.shape)
    return linear(net, flat, _WIDTH)


def _heads(net: Builder, x: Value, order: tuple[int, ...], shape: tuple[int, ...]) -> Value:
    split = (1, _POSITIONS, _HEADS, _WIDTH // _HEADS)
    parts = net.node("Reshape", [x, net.integers("heads", split)], split)
    return net.node("Transpose", [parts], shape, perm=list(order))
