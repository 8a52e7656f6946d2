"""VGG-19 (Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition"), at 224x224."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder
from scripts.networks.layers import convolution

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["vgg", "vgg19"]

_STAGES: Final = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def vgg19() -> ModelProto:
    """Return VGG-19 without its dropout layers, which do nothing at inference."""
    return vgg("vgg19", _STAGES)


def vgg(name: str, stages: Sequence[tuple[int, int]]) -> ModelProto:
    """Return a network of stages of (channels, convolutions), each followed by a pooling, and the classifier."""
    net = Builder(name)
    x = net.input("input", 1, 3, 224, 224)
    for channels, count in stages:
        for _ in range(count):
            x = convolution(net, x, channels, 3)
        x = net.max_pool(x, 2, 2, 0)
    x = net.node("Flatten", [x], (1, math.prod(x.shape)), axis=1)
    for features in (4096, 4096):
        x = net.relu(net.classifier(x, features))
    x = net.classifier(x, 1000)
    return net.model(net.unary("Softmax", x))
