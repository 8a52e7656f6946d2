"""U-Net (Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", figure 1), 256x256.

Five depths with 8 to 128 channels (an eighth of the publication's), padded convolutions so that the extents match, and
upsampling by nearest neighbours after a 1x1 convolution in place of the transposed one, as many programs have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["unet"]

_CHANNELS: Final = (8, 16, 32, 64, 128)


def unet() -> ModelProto:
    """Return the network."""
    net = Builder("unet")
    x = net.input("input", 1, 3, 256, 256)
    skips: list[Value] = []
    for depth, channels in enumerate(_CHANNELS):
        x = _block(net, net.max_pool(x, 2, 2, 0) if depth else x, channels)
        skips.append(x)
    for skip in skips[-2::-1]:
        raised = net.upsample(net.conv(x, skip.channels), 2)
        x = _block(net, net.concat([skip, raised]), skip.channels)
    return net.model(net.unary("Sigmoid", net.conv(x, 1)))


def _block(net: Builder, x: Value, channels: int) -> Value:
    for _ in range(2):
        x = net.relu(net.conv(x, channels, 3))
    return x
