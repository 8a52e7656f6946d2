"""InceptionV3 (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision"), at 299x299.

The released network, without its auxiliary classifier; normalisation, scale and activation are layers of their own.
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

__all__ = ["inception_v3"]

_Conv = Callable[..., Value]


def inception_v3(*, scale: bool = True) -> ModelProto:
    """Return InceptionV3; without ``scale`` the scale layers are part of the normalisations."""
    net = Builder("inception_v3")
    conv: _Conv = partial(normalised, net, scale=scale)
    x = conv(net.input("input", 1, 3, 299, 299), 32, 3, 2, 0)
    x = conv(conv(x, 32, 3, 1, 0), 64, 3)
    x = net.max_pool(x, 3, 2, 0)
    x = conv(conv(x, 80, 1), 192, 3, 1, 0)
    x = net.max_pool(x, 3, 2, 0)
    for projection in (32, 64, 64):
        x = _coarse(net, conv, x, projection)
    x = net.concat([conv(x, 384, 3, 2, 0), conv(conv(conv(x, 64, 1), 96, 3), 96, 3, 2, 0), net.max_pool(x, 3, 2, 0)])
    for width in (128, 160, 160, 192):
        x = _factored(net, conv, x, width)
    seven = conv(conv(conv(x, 192, 1), 192, (1, 7)), 192, (7, 1))
    x = net.concat([conv(conv(x, 192, 1), 320, 3, 2, 0), conv(seven, 192, 3, 2, 0), net.max_pool(x, 3, 2, 0)])
    for _ in range(2):
        x = _wide(net, conv, x)
    x = net.average_pool(x, 8, 1, 0)
    x = net.node("Flatten", [x], (1, math.prod(x.shape)), axis=1)
    return net.model(net.unary("Softmax", net.classifier(x, 1000)))


def _coarse(net: Builder, conv: _Conv, x: Value, projection: int) -> Value:
    double = conv(conv(conv(x, 64, 1), 96, 3), 96, 3)
    return net.concat([conv(x, 64, 1), conv(conv(x, 48, 1), 64, 5), double, conv(net.average_pool(x), projection, 1)])


def _factored(net: Builder, conv: _Conv, x: Value, width: int) -> Value:
    seven = conv(conv(conv(x, width, 1), width, (1, 7)), 192, (7, 1))
    double = conv(conv(conv(x, width, 1), width, (7, 1)), width, (1, 7))
    double = conv(conv(double, width, (7, 1)), 192, (1, 7))
    return net.concat([conv(x, 192, 1), seven, double, conv(net.average_pool(x), 192, 1)])


def _wide(net: Builder, conv: _Conv, x: Value) -> Value:
    three = conv(x, 384, 1)
    double = conv(conv(x, 448, 1), 384, 3)
    branches = [conv(x, 320, 1)]
    for value in (three, double):
        branches += [conv(value, 384, (1, 3)), conv(value, 384, (3, 1))]
    return net.concat([*branches, conv(net.average_pool(x), 192, 1)])
