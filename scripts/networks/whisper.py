"""The encoder of Whisper tiny (Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision").

Table 1 of the publication: 4 layers, 384 wide, 6 heads; 30 s of sound as 80 mel bands in 3,000 steps. As PyTorch's
exporter writes it: GELU by Erf, queries scaled before heads are split.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import gelu, layer_norm, linear, permuted, reshaped

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["whisper_tiny_encoder"]

_LAYERS: Final = 4
_WIDTH: Final = 384
_HEADS: Final = 6
_BANDS: Final = 80
_STEPS: Final = 3000


def whisper_tiny_encoder() -> ModelProto:
    """Return the encoder."""
    net = Builder("whisper_tiny_encoder")
    x = gelu(net, _conv(net, net.input("input_features", 1, _BANDS, _STEPS), 1))
    x = permuted(net, gelu(net, _conv(net, x, 2)), 0, 2, 1)
    x = net.node("Add", [x, net.weight(x.shape[1:], 1)], x.shape)
    for _ in range(_LAYERS):
        x = net.add(x, _attention(net, layer_norm(net, x)))
        inner = gelu(net, linear(net, layer_norm(net, x), 4 * _WIDTH))
        x = net.add(x, linear(net, inner, _WIDTH))
    return net.model(layer_norm(net, x))


def _conv(net: Builder, x: Value, stride: int) -> Value:
    weight = net.weight((_WIDTH, x.channels, 3), 3 * x.channels)
    shape = (1, _WIDTH, x.shape[2] // stride)
    return net.node(
        "Conv", [x, weight, net.bias(_WIDTH)], shape, mergeable=False, kernel_shape=[3], strides=[stride], pads=[1, 1]
    )


def _attention(net: Builder, x: Value) -> Value:
    depth, positions = _WIDTH // _HEADS, x.shape[1]
    scaled = net.node("Mul", [linear(net, x, _WIDTH), net.scalar("scale", 1 / math.sqrt(depth))], x.shape)
    queries, keys, values = (
        reshaped(net, one, 1, positions, _HEADS, depth)
        for one in (scaled, linear(net, x, _WIDTH, bias=False), linear(net, x, _WIDTH))
    )
    shape = (1, _HEADS, positions, positions)
    scores = net.node("MatMul", [permuted(net, queries, 0, 2, 1, 3), permuted(net, keys, 0, 2, 3, 1)], shape)
    weights = net.node("Softmax", [scores], shape, axis=-1)
    mixed = net.node("MatMul", [weights, permuted(net, values, 0, 2, 1, 3)], (1, _HEADS, positions, depth))
    return linear(net, reshaped(net, permuted(net, mixed, 0, 2, 1, 3), *x.shape), _WIDTH)
