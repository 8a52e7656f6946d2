"""Layers of networks for images of any height and width, of the operators that PyTorch's exporter makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from scripts.networks.open_layers import OpenBuilder

__all__ = ["attended", "channels_joined", "conv", "doubled", "group_norm", "residual", "resized_like"]

_NEAREST: Final[dict[str, Any]] = {
    "coordinate_transformation_mode": "asymmetric",
    "cubic_coeff_a": -0.75,
    "mode": "nearest",
    "nearest_mode": "floor",
}


def conv(
    net: OpenBuilder, x: str, before: int, after: int, kernel: int = 3, *, stride: int = 1, gain: float = 1.0
) -> str:
    """Add a convolution that keeps height and width where it has no stride.

    Args:
        gain: What magnitudes are multiplied with.
    """
    weight = net.weight(after, before, kernel, kernel, fan_in=math.ceil(before * kernel**2 / gain**2))
    return net.op(
        "Conv",
        x,
        weight,
        net.vector(after),
        dilations=[1, 1],
        group=1,
        kernel_shape=[kernel, kernel],
        pads=[kernel // 2] * 4,
        strides=[stride, stride],
    )


def group_norm(net: OpenBuilder, x: str, width: int, groups: int, *, axes: int = 2, epsilon: float = 1e-6) -> str:
    """Add a group normalisation: an InstanceNormalization between two Reshapes, then scale and shift.

    Args:
        axes: How many follow the channels.
    """
    ones, zeros = net.constant(np.ones(groups)), net.constant(np.zeros(groups))
    flat = net.op("Reshape", x, net.integers(0, groups, -1))
    normal = net.op("InstanceNormalization", flat, ones, zeros, epsilon=epsilon)
    normal = net.op("Reshape", normal, net.op("Shape", x))
    rest = (1,) * axes
    scaled = net.op("Mul", normal, net.vector(width, 1, *rest))
    return net.op("Add", scaled, net.vector(width, 0, *rest))


def residual(
    net: OpenBuilder, x: str, before: int, after: int, groups: int, time: str = "", time_width: int = 0
) -> str:
    """Add the residual block of a diffusion network; one that depends on the time is given it and its width."""
    y = conv(net, net.silu(group_norm(net, x, before, groups)), before, after)
    if time:
        weight = net.weight(after, time_width, fan_in=time_width)
        moved = net.op("Gemm", net.silu(time), weight, net.vector(after), alpha=1.0, beta=1.0, transB=1)
        for axis in (2, 3):
            moved = net.op("Unsqueeze", moved, net.integers(axis))
        y = net.op("Add", y, moved)
    y = conv(net, net.silu(group_norm(net, y, after, groups)), after, after)
    x = x if before == after else conv(net, x, before, after, 1)
    return net.op("Div", net.op("Add", x, y), net.constant(1.0))


def attended(net: OpenBuilder, queries: str, keys: str, values: str) -> str:
    """Add ``scaled_dot_product_attention`` on [batch, heads, places, depth], whose factor is computed of the depth."""
    ends = net.integers(-1), net.integers(np.iinfo(np.int64).max)
    root = net.op("Sqrt", net.op("Cast", net.op("Slice", net.op("Shape", queries), *ends), to=1))
    factor = net.op("Cast", net.op("Div", net.constant([1.0]), root), to=1)
    turned = net.op("Transpose", keys, perm=[0, 1, 3, 2])
    queries = net.op("Mul", queries, net.op("Sqrt", factor))
    turned = net.op("Mul", turned, net.op("Sqrt", factor))
    return net.op("MatMul", net.op("Softmax", net.op("MatMul", queries, turned), axis=-1), values)


def doubled(net: OpenBuilder, x: str) -> str:
    """Repeat each pixel twice in both directions."""
    return net.op("Resize", x, "", net.constant([1.0, 1.0, 2.0, 2.0]), **_NEAREST)


def resized_like(net: OpenBuilder, x: str, other: str) -> str:
    """Repeat pixels up to the height and width of ``other``."""
    kept = net.op("Slice", net.op("Shape", x), net.integers(0), net.integers(2), net.integers(0))
    wanted = net.op("Concat", kept, net.size(other, 2), net.size(other, 3), axis=0)
    return net.op("Resize", x, "", "", wanted, **_NEAREST)


def channels_joined(net: OpenBuilder, values: Sequence[str]) -> str:
    """Add a concatenation along the channels."""
    return net.op("Concat", *values, axis=1)
