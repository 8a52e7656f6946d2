"""Inception-ResNet-v2 (Szegedy et al., "Inception-v4, Inception-ResNet and ... Residual Connections"), at 299x299.

The network that Keras releases, which pads its first convolutions otherwise than the publication; normalisation and
activation are layers of their own, and a residual is scaled by a product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import normalised

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["inception_resnet_v2"]

_Conv = Callable[..., Value]


def inception_resnet_v2() -> ModelProto:
    """Return Inception-ResNet-v2."""
    net = Builder("inception_resnet_v2")
    conv: _Conv = partial(normalised, net, scale=False)
    x = conv(conv(conv(net.input("input", 1, 3, 299, 299), 32, 3, 2, 0), 32, 3, 1, 0), 64, 3)
    x = net.max_pool(x, 3, 2, 0)
    x = net.max_pool(conv(conv(x, 80, 1), 192, 3, 1, 0), 3, 2, 0)
    double = conv(conv(conv(x, 64, 1), 96, 3), 96, 3)
    pooled = conv(net.average_pool(x), 64, 1)
    x = net.concat([conv(x, 96, 1), conv(conv(x, 48, 1), 64, 5), double, pooled])
    for _ in range(10):
        branches = [conv(x, 32, 1), conv(conv(x, 32, 1), 32, 3), conv(conv(conv(x, 32, 1), 48, 3), 64, 3)]
        x = net.relu(_residual(net, x, branches, 0.17))
    double = conv(conv(conv(x, 256, 1), 256, 3), 384, 3, 2, 0)
    x = net.concat([conv(x, 384, 3, 2, 0), double, net.max_pool(x, 3, 2, 0)])
    for _ in range(20):
        seven = conv(conv(conv(x, 128, 1), 160, (1, 7)), 192, (7, 1))
        x = net.relu(_residual(net, x, [conv(x, 192, 1), seven], 0.1))
    double = conv(conv(conv(x, 256, 1), 288, 3), 320, 3, 2, 0)
    single = [conv(conv(x, 256, 1), channels, 3, 2, 0) for channels in (384, 288)]
    x = net.concat([*single, double, net.max_pool(x, 3, 2, 0)])
    for block in range(10):
        three = conv(conv(conv(x, 192, 1), 224, (1, 3)), 256, (3, 1))
        last = block == 9
        x = _residual(net, x, [conv(x, 192, 1), three], 1.0 if last else 0.2)
        x = x if last else net.relu(x)
    x = net.average_pool(conv(x, 1536, 1), 8, 1, 0)
    x = net.node("Flatten", [x], (1, math.prod(x.shape)), axis=1)
    return net.model(net.unary("Softmax", net.classifier(x, 1000)))


def _residual(net: Builder, x: Value, branches: list[Value], scale: float) -> Value:
    """Add a residual, which has no normalisation, to ``x``."""
    up = net.conv(net.concat(branches), x.channels, 1)
    factor = net.scalar(f"scale_{scale:g}", scale)
    return net.add(x, net.node("Mul", [up, factor], up.shape))
