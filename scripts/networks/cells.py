"""Pieces that the cells of NASNet, AmoebaNet and PNASNet have in common."""

from __future__ import annotations

from scripts.networks.builder import Builder, Value

__all__ = ["separable", "shifted_reduction", "squeeze"]


def squeeze(net: Builder, x: Value, filters: int) -> Value:
    """Activation, 1x1 convolution, BN."""
    return net.conv(net.relu(x), filters)


def separable(net: Builder, x: Value, filters: int, kernel: int, stride: int = 1) -> Value:
    """Twice: activation, depthwise convolution, pointwise convolution, BN."""
    x = net.conv(net.depthwise(net.relu(x), kernel, stride), filters)
    return net.conv(net.depthwise(net.relu(x), kernel), filters)


def shifted_reduction(net: Builder, x: Value, filters: int) -> Value:
    """Halve the extent of an input that skips a cell: two paths, the second shifted by one pixel."""
    active = net.relu(x)
    plain = net.conv(net.average_pool(active, 1, 2), filters // 2)
    shifted = net.crop(net.pad(active, 0, 0, 1, 1), 1, 1)
    return net.batch_norm(net.concat([plain, net.conv(net.average_pool(shifted, 1, 2), filters - filters // 2)]))
