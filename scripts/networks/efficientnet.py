"""EfficientNet-B0 (Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks"), 224x224.

Table 1 of the publication, batch normalisation folded into the convolutions. Swish is a sigmoid and a product, as
frameworks export it; every block has a squeeze-and-excitation branch, which looks at whole planes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import silu

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["efficientnet_b0"]

# Expansion, channels, repetitions, stride of the first, kernel.
_STAGES: Final = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientnet_b0() -> ModelProto:
    """Return the network for classes of ImageNet."""
    net = Builder("efficientnet_b0")
    x = silu(net, net.conv(net.input("input", 1, 3, 224, 224), 32, 3, 2))
    for expansion, channels, repeats, stride, kernel in _STAGES:
        for repeat in range(repeats):
            x = _block(net, x, expansion, channels, stride if repeat == 0 else 1, kernel)
    x = _mean(net, silu(net, net.conv(x, 1280, 1)))
    x = net.node("Flatten", [x], (1, math.prod(x.shape)), axis=1)
    return net.model(net.classifier(x, 1000))


def _block(net: Builder, x: Value, expansion: int, channels: int, stride: int, kernel: int) -> Value:
    y = silu(net, net.conv(x, x.channels * expansion, 1)) if expansion > 1 else x
    y = silu(net, net.depthwise(y, kernel, stride))
    squeezed = silu(net, net.conv(_mean(net, y), max(1, x.channels // 4), 1))
    gate = net.unary("Sigmoid", net.conv(squeezed, y.channels, 1))
    y = net.conv(net.node("Mul", [y, gate], y.shape), channels, 1)
    return net.add(x, y) if x.shape == y.shape else y


def _mean(net: Builder, x: Value) -> Value:
    return net.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1))
