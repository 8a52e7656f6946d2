"""Networks that enlarge images of any height and width: EDSR (Lim et al.) and ESRGAN (Wang et al.).

EDSR's baseline has 16 residual blocks of 64 channels and puts channels beside each other (DepthToSpace). ESRGAN has
blocks of three dense blocks of five convolutions, 64 channels and 32 more by each, and repeats pixels (Resize); 6 of
those blocks where the publication has 23.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.networks.open_image_layers import channels_joined, conv, doubled
from scripts.networks.open_layers import OpenBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["esrgan_open", "superres_open"]


def superres_open(layers: int = 16, width: int = 64, doublings: int = 1) -> ModelProto:
    """Return EDSR, which doubles height and width so many times."""
    net = OpenBuilder("superres_open", width, 1)
    x = start = conv(net, net.input("input", "batch", 3, "height", "width"), 3, width)
    for _ in range(layers):
        inner = net.op("Relu", conv(net, x, width, width, gain=2**0.5))
        x = net.op("Add", conv(net, inner, width, width, gain=0.3), x)
    x = net.op("Add", conv(net, x, width, width), start)
    for _ in range(doublings):
        x = net.op("DepthToSpace", conv(net, x, width, 4 * width), blocksize=2, mode="CRD")
    return _image(net, conv(net, x, width, 3))


def esrgan_open(layers: int = 6, width: int = 64, growth: int = 32) -> ModelProto:
    """Return ESRGAN's generator, which makes four times the height and width."""
    net = OpenBuilder("esrgan_open", width, 1)
    x = start = conv(net, net.input("input", "batch", 3, "height", "width"), 3, width)
    for _ in range(layers):
        outer = x
        for _ in range(3):
            x = _dense(net, x, width, growth)
        x = net.op("Add", net.op("Mul", x, net.constant(0.2)), outer)
    x = net.op("Add", start, conv(net, x, width, width))
    for _ in range(2):
        x = _leaky(net, conv(net, doubled(net, x), width, width, gain=2**0.5))
    return _image(net, conv(net, _leaky(net, conv(net, x, width, width, gain=2**0.5)), width, 3))


def _dense(net: OpenBuilder, x: str, width: int, growth: int) -> str:
    known = [x]
    for number in range(4):
        joined = channels_joined(net, known) if number else x
        known.append(_leaky(net, conv(net, joined, width + number * growth, growth, gain=2**0.5)))
    last = conv(net, channels_joined(net, known), width + 4 * growth, width)
    return net.op("Add", net.op("Mul", last, net.constant(0.2)), x)


def _leaky(net: OpenBuilder, x: str) -> str:
    return net.op("LeakyRelu", x, alpha=0.2)


def _image(net: OpenBuilder, x: str) -> ModelProto:
    return net.model(net.named(x, "output"), "batch", 3, "image_height", "image_width")
