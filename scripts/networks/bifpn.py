"""The neck of EfficientDet-D0 (Tan et al., "EfficientDet: Scalable and Efficient Object Detection", figures 2 and 3).

Three repeats of BiFPN with 64 channels on P3 to P7 of a 512x512 image, from the three features of EfficientNet-B0. A
node weights its inputs, adds them up, and applies swish, a depthwise and a pointwise convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["bifpn_d0"]

_CHANNELS: Final = 64
_REPEATS: Final = 3
_LEVELS: Final = 5


def bifpn_d0() -> ModelProto:
    """Return the neck alone: three features in, five out."""
    net = Builder("bifpn_d0")
    features = [
        net.input("p3", 1, 40, 64, 64),
        net.input("p4", 1, 112, 32, 32),
        net.input("p5", 1, 320, 16, 16),
    ]
    down = [net.conv(feature, _CHANNELS) for feature in features]
    down.append(net.max_pool(net.conv(features[-1], _CHANNELS), 3, 2))
    down.append(net.max_pool(down[-1], 3, 2))
    # The first repeat has projections of its own for the way up again.
    up = [*down[:1], *(net.conv(feature, _CHANNELS) for feature in features[1:]), *down[3:]]
    for _ in range(_REPEATS):
        down = up = _repeat(net, down, up)
    return net.model(*up)


def _repeat(net: Builder, down: Sequence[Value], up: Sequence[Value]) -> list[Value]:
    """From the coarsest level to the finest and back."""
    middle = list(down)
    for level in range(_LEVELS - 2, -1, -1):
        middle[level] = _fuse(net, [down[level], net.upsample(middle[level + 1], 2)])
    result = [middle[0]]
    for level in range(1, _LEVELS):
        skipped = [up[level], middle[level]] if level < _LEVELS - 1 else [up[level]]
        result.append(_fuse(net, [*skipped, net.max_pool(result[-1], 3, 2)]))
    return result


def _fuse(net: Builder, values: Sequence[Value]) -> Value:
    weighted = [net.node("Mul", [value, net.own_floats([], 0.3, 0.6)], value.shape) for value in values]
    total = weighted[0]
    for value in weighted[1:]:
        total = net.add(total, value)
    active = net.node("Mul", [total, net.unary("Sigmoid", total)], total.shape)
    return net.conv(net.depthwise(active, 3), _CHANNELS)
