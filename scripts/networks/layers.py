"""Layers of several operators, as programs write them.

Convolutions are as in Caffe's model zoo: normalisation, scale and activation are layers of their own. The others are
as PyTorch's exporter decomposes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scripts.networks.builder import Builder, Value

__all__ = ["convolution", "gelu", "layer_norm", "linear", "normalised", "permuted", "reshaped", "scaled_attention"]
__all__ += ["silu"]

_Pair = tuple[int, int]


def convolution(
    net: Builder, x: Value, channels: int, kernel: int | _Pair, stride: int = 1, padding: int | _Pair | None = None
) -> Value:
    """Add a convolution with a bias and a rectifier."""
    return net.relu(net.conv(x, channels, kernel, stride, padding=padding))


def normalised(
    net: Builder,
    x: Value,
    channels: int,
    kernel: int | _Pair,
    stride: int = 1,
    padding: int | _Pair | None = None,
    *,
    relu: bool = True,
    scale: bool = True,
) -> Value:
    """Add a convolution, a batch normalisation and, if asked for, a scale layer and a rectifier.

    Args:
        scale: Write the normalisation's scale and shift as a layer of its own, a normalisation by constants.
    """
    x = net.batch_norm(net.conv(x, channels, kernel, stride, padding=padding))
    if scale:
        x = net.batch_norm(x)
    return net.relu(x) if relu else x


def silu(net: Builder, x: Value) -> Value:
    """Add ``x * sigmoid(x)``."""
    return net.node("Mul", [x, net.unary("Sigmoid", x)], x.shape)


def gelu(net: Builder, x: Value) -> Value:
    """Add the Gaussian error linear unit, by the error function."""
    scaled = net.node("Div", [x, net.scalar("root_of_two", math.sqrt(2))], x.shape)
    raised = net.node("Add", [net.unary("Erf", scaled), net.scalar("one", 1)], x.shape)
    product = net.node("Mul", [x, raised], x.shape)
    return net.node("Mul", [product, net.scalar("half", 0.5)], x.shape)


def linear(net: Builder, x: Value, width: int, *, bias: bool = True) -> Value:
    """Add a fully connected layer along the last axis."""
    shape = (*x.shape[:-1], width)
    product = net.node("MatMul", [x, net.weight((x.shape[-1], width), x.shape[-1])], shape)
    return net.node("Add", [product, net.bias(width)], shape) if bias else product


def layer_norm(net: Builder, x: Value) -> Value:
    """Add a normalisation along the last axis."""
    width = x.shape[-1]
    scale = net.floats(f"norm_scale_{width}", [width], 0.8, 1.2)
    return net.node("LayerNormalization", [x, scale, net.bias(width)], x.shape, axis=-1)


def reshaped(net: Builder, x: Value, *shape: int) -> Value:
    """Add a Reshape; equal shapes share a constant."""
    return net.node("Reshape", [x, net.integers("to_" + "x".join(map(str, shape)), shape)], shape)


def permuted(net: Builder, x: Value, *order: int) -> Value:
    """Add a Transpose."""
    return net.node("Transpose", [x], [x.shape[axis] for axis in order], perm=list(order))


def scaled_attention(net: Builder, queries: Value, keys: Value, values: Value, added: Sequence[str] = ()) -> Value:
    """Add ``softmax(queries * keys / sqrt(depth) + added) * values``.

    Args:
        queries: [..., positions, depth].
        keys: [..., depth, positions], as the product wants them.
        added: Constants that are added to the scores one after another.
    """
    shape = (*queries.shape[:-1], keys.shape[-1])
    factor = net.scalar(f"scale_{queries.shape[-1]}", 1 / math.sqrt(queries.shape[-1]))
    scores = net.node("Mul", [net.node("MatMul", [queries, keys], shape), factor], shape)
    for constant in added:
        scores = net.node("Add", [scores, constant], shape)
    weights = net.node("Softmax", [scores], shape, axis=-1)
    return net.node("MatMul", [weights, values], (*shape[:-1], values.shape[-1]))
