"""U-Net (Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation"), image open.

Five depths with 32 to 512 channels, half of those in figure 1, and padded convolutions with their normalisation folded
in. Any height and width from 16: what is enlarged takes those of what it is joined with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.networks.open_image_layers import channels_joined, conv, resized_like
from scripts.networks.open_layers import OpenBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["unet_open", "unet_transposed_open"]


def unet_open(layers: int = 5, width: int = 32) -> ModelProto:
    """Return the network that enlarges by nearest neighbours."""
    return _unet("unet_open", layers, width, transposed=False)


def unet_transposed_open(layers: int = 5, width: int = 32) -> ModelProto:
    """Return the network that enlarges by transposed convolutions, and pads by what is missing."""
    return _unet("unet_transposed_open", layers, width, transposed=True)


def _unet(name: str, layers: int, width: int, *, transposed: bool) -> ModelProto:
    net = OpenBuilder(name, width, 1)
    x = net.input("input", "batch", 3, "height", "width")
    skips: list[str] = []
    for depth in range(layers):
        if depth:
            x = net.op("MaxPool", x, ceil_mode=0, kernel_shape=[2, 2], pads=[0] * 4, strides=[2, 2])
        x = _block(net, x, width << depth - 1 if depth else 3, width << depth)
        skips.append(x)
    for depth, skip in reversed(list(enumerate(skips[:-1]))):
        after = width << depth
        raised = _transposed(net, x, after, skip) if transposed else _nearest(net, x, after, skip)
        x = _block(net, channels_joined(net, [skip, raised]), 2 * after, after)
    x = net.named(net.op("Sigmoid", conv(net, x, width, 1, 1)), "output")
    return net.model(x, "batch", 1, "height", "width")


def _block(net: OpenBuilder, x: str, before: int, after: int) -> str:
    for depth in (before, after):
        x = net.op("Relu", conv(net, x, depth, after, gain=2**0.5))
    return x


def _nearest(net: OpenBuilder, x: str, after: int, skip: str) -> str:
    return conv(net, resized_like(net, x, skip), 2 * after, after, 1)


def _transposed(net: OpenBuilder, x: str, after: int, skip: str) -> str:
    attributes = {"dilations": [1, 1], "group": 1, "kernel_shape": [2, 2], "pads": [0] * 4, "strides": [2, 2]}
    x = net.op("ConvTranspose", x, net.weight(2 * after, after, 2, 2), net.vector(after), **attributes)
    missing = [net.op("Sub", net.length(skip, axis), net.length(x, axis)) for axis in (2, 3)]
    before = [net.op("Div", lack, net.constant(2, int)) for lack in missing]
    after_it = [net.op("Sub", lack, half) for lack, half in zip(missing, before, strict=True)]
    first, last = ([net.op("Unsqueeze", one, net.integers(0)) for one in ends] for ends in (before, after_it))
    pads = net.op("Concat", net.integers(0, 0), *first, net.integers(0, 0), *last, axis=0)
    return net.op("Pad", x, pads, net.constant(0.0), mode="constant")
