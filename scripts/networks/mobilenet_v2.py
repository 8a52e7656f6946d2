"""MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks"), at 224x224.

Table 2 of the publication, batch normalisation folded into the convolutions; ReLU6 is a Clip, as frameworks export it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["mobilenet_v2"]

# Expansion, channels, repetitions, stride of the first.
_STAGES: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2() -> ModelProto:
    """Return the network for classes of ImageNet."""
    net = Builder("mobilenet_v2")
    x = _relu6(net, net.conv(net.input("input", 1, 3, 224, 224), 32, 3, 2))
    for expansion, channels, repeats, stride in _STAGES:
        for repeat in range(repeats):
            x = _block(net, x, expansion, channels, stride if repeat == 0 else 1)
    x = _relu6(net, net.conv(x, 1280, 1))
    x = net.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1))
    x = net.node("Flatten", [x], (1, math.prod(x.shape)), axis=1)
    return net.model(net.classifier(x, 1000))


def _block(net: Builder, x: Value, expansion: int, channels: int, stride: int) -> Value:
    y = _relu6(net, net.conv(x, x.channels * expansion, 1)) if expansion > 1 else x
    y = _relu6(net, net.depthwise(y, 3, stride))
    y = net.conv(y, channels, 1)
    return net.add(x, y) if x.shape == y.shape else y


def _relu6(net: Builder, x: Value) -> Value:
    return net.node("Clip", [x, net.scalar("zero", 0.0), net.scalar("six", 6.0)], x.shape)
