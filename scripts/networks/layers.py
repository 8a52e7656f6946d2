"""Convolutions as Caffe's model zoo writes them: normalisation, scale and activation are layers of their own."""

from __future__ import annotations

from scripts.networks.builder import Builder, Value

__all__ = ["convolution", "normalised"]

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
