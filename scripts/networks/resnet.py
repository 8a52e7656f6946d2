"""ResNet-18 and ResNet-50 (He et al., "Deep Residual Learning for Image Recognition"), at 224x224.

As in the authors' own model files: the first 1x1 convolution of a bottleneck has the stride, and batch normalisation,
scale and activation are layers of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import normalised

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["resnet18", "resnet50"]


def resnet18(*, scale: bool = True) -> ModelProto:
    """Return ResNet-18; without ``scale`` the scale layers are part of the normalisations."""
    return _network("resnet18", (2, 2, 2, 2), 1, scale)


def resnet50(*, scale: bool = True) -> ModelProto:
    """Return ResNet-50; without ``scale`` the scale layers are part of the normalisations."""
    return _network("resnet50", (3, 4, 6, 3), 4, scale)


def _network(name: str, blocks: Sequence[int], expansion: int, scale: bool) -> ModelProto:
    net = Builder(name)
    x = normalised(net, net.input("input", 1, 3, 224, 224), 64, 7, 2, 3, scale=scale)
    x = net.max_pool(x, 3, 2, 1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            x = _block(net, x, 64 << stage, expansion, stride, scale)
    x = net.average_pool(x, 7, 1, 0)
    x = net.node("Flatten", [x], (1, math.prod(x.shape)), axis=1)
    return net.model(net.unary("Softmax", net.classifier(x, 1000)))


def _block(net: Builder, x: Value, width: int, expansion: int, stride: int, scale: bool) -> Value:
    channels = width * expansion
    shortcut = x
    if stride != 1 or x.channels != channels:
        shortcut = normalised(net, x, channels, 1, stride, 0, relu=False, scale=scale)
    if expansion == 1:
        y = normalised(net, x, width, 3, stride, scale=scale)
        y = normalised(net, y, channels, 3, relu=False, scale=scale)
    else:
        y = normalised(net, x, width, 1, stride, 0, scale=scale)
        y = normalised(net, y, width, 3, scale=scale)
        y = normalised(net, y, channels, 1, relu=False, scale=scale)
    return net.relu(net.add(shortcut, y))
