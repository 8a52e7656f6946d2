"""U-Net of Buda et al. ("Association of genomic subtypes of lower-grade gliomas with shape features ..."), 512x512.

Five depths with 32 to 512 channels, half of those in figure 1 of "U-Net: Convolutional Networks for Biomedical Image
Segmentation"; padded convolutions with their batch normalisation folded in, transposed ones to enlarge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["unet_512"]

_CHANNELS: Final = (32, 64, 128, 256, 512)


def unet_512() -> ModelProto:
    """Return the network."""
    net = Builder("unet_512")
    x = net.input("input", 1, 3, 512, 512)
    skips: list[Value] = []
    for depth, channels in enumerate(_CHANNELS):
        x = _block(net, net.max_pool(x, 2, 2, 0) if depth else x, channels)
        skips.append(x)
    for skip in skips[-2::-1]:
        x = _block(net, net.concat([net.conv_transpose(x, skip.channels), skip]), skip.channels)
    return net.model(net.unary("Sigmoid", net.conv(x, 1)))


def _block(net: Builder, x: Value, channels: int) -> Value:
    for _ in range(2):
        x = net.relu(net.conv(x, channels, 3))
    return x
