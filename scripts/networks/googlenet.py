"""GoogLeNet (Szegedy et al., "Going Deeper with Convolutions"), at 224x224, without its auxiliary classifiers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import convolution

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["googlenet"]

_Module = tuple[int, int, int, int, int, int]

_STAGES: Final[tuple[tuple[_Module, ...], ...]] = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)
"""Channels of 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5 and pool projection: the publication's table 1."""


def googlenet() -> ModelProto:
    """Return GoogLeNet without its dropout layer, which does nothing at inference."""
    net = Builder("googlenet")
    x = convolution(net, net.input("input", 1, 3, 224, 224), 64, 7, 2, 3)
    x = _norm(net, _pool(net, x))
    x = convolution(net, x, 64, 1)
    x = _pool(net, _norm(net, convolution(net, x, 192, 3)))
    for number, stage in enumerate(_STAGES):
        if number:
            x = _pool(net, x)
        for module in stage:
            x = _inception(net, x, module)
    x = net.average_pool(x, 7, 1, 0)
    x = net.node("Flatten", [x], (1, math.prod(x.shape)), axis=1)
    return net.model(net.unary("Softmax", net.classifier(x, 1000)))


def _pool(net: Builder, x: Value) -> Value:
    """Add a pooling that halves even extents: its last window reaches over the edge, as Caffe rounds up."""
    batch, channels, height, width = x.shape
    shape = (batch, channels, height // 2, width // 2)
    return net.node("MaxPool", [x], shape, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)


def _norm(net: Builder, x: Value) -> Value:
    return net.node("LRN", [x], x.shape, size=5, alpha=1e-4, beta=0.75)


def _inception(net: Builder, x: Value, module: _Module) -> Value:
    one, reduce_three, three, reduce_five, five, projection = module
    branches = [
        convolution(net, x, one, 1),
        convolution(net, convolution(net, x, reduce_three, 1), three, 3),
        convolution(net, convolution(net, x, reduce_five, 1), five, 5),
        convolution(net, net.max_pool(x, 3), projection, 1),
    ]
    return net.concat(branches)
