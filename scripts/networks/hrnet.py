"""HRNet for classification (Wang et al., "Deep High-Resolution Representation Learning for Visual Recognition").

The official classification networks at 256x256, whose modules fuse every branch into every other, with the head of
bottlenecks that ends in 2048 channels. The first stage is 32 channels wide in all three, also where the published
weights have 64: this width gives the published memory figures. Upsampling repeats the nearest element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["hrnet_w18_small_v1", "hrnet_w18_small_v2", "hrnet_w32"]

_EXPANSION: Final = 4
_HEAD: Final = (32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class _Plan:
    """``width`` of the finest branch, bottlenecks of the first stage, blocks per branch, modules of stages 2 to 4."""

    width: int
    bottlenecks: int
    blocks: int
    modules: tuple[int, int, int]


def hrnet_w18_small_v1(*, keep_activations: bool = False) -> ModelProto:
    """Return HRNet-W18-Small-V1, whose finest branch has 16 channels."""
    return _network("hrnet_w18_small_v1", _Plan(16, 1, 2, (1, 1, 1)), keep_activations)


def hrnet_w18_small_v2(*, keep_activations: bool = False) -> ModelProto:
    """Return HRNet-W18-Small-V2."""
    return _network("hrnet_w18_small_v2", _Plan(18, 2, 2, (1, 3, 2)), keep_activations)


def hrnet_w32(*, keep_activations: bool = False) -> ModelProto:
    """Return HRNet-W32."""
    return _network("hrnet_w32", _Plan(32, 4, 4, (1, 4, 3)), keep_activations)


def _network(name: str, plan: _Plan, keep_activations: bool) -> ModelProto:
    net = Builder(name, keep_activations=keep_activations)
    x = _conv(net, net.input("input", 1, 3, 256, 256), 64, 3, 2)
    x = _conv(net, x, 64, 3, 2)
    for _ in range(plan.bottlenecks):
        x = _bottleneck(net, x, 32)
    branches = [_conv(net, x, plan.width, 3), _conv(net, x, 2 * plan.width, 3, 2)]
    for stage, modules in enumerate(plan.modules):
        if stage:
            branches.append(_conv(net, branches[-1], plan.width << (stage + 1), 3, 2))
        for _ in range(modules):
            branches = _module(net, branches, plan.blocks)
    x = _bottleneck(net, branches[0], _HEAD[0])
    for branch, width in zip(branches[1:], _HEAD[1:], strict=True):
        wider = _bottleneck(net, branch, width)
        x = net.add(wider, _conv(net, x, width * _EXPANSION, 3, 2))
    x = _conv(net, x, 2048)
    pooled = net.node("GlobalAveragePool", [x], (1, x.channels, 1, 1))
    return net.model(net.classifier(net.node("Flatten", [pooled], (1, x.channels)), 1000))


def _conv(net: Builder, x: Value, channels: int, kernel: int = 1, stride: int = 1) -> Value:
    return net.relu(net.conv(x, channels, kernel, stride))


def _bottleneck(net: Builder, x: Value, width: int) -> Value:
    channels = width * _EXPANSION
    inner = net.conv(_conv(net, _conv(net, x, width), width, 3), channels)
    return net.relu(net.add(inner, x if x.channels == channels else net.conv(x, channels)))


def _basic_block(net: Builder, x: Value) -> Value:
    inner = net.conv(_conv(net, x, x.channels, 3), x.channels, 3)
    return net.relu(net.add(inner, x))


def _module(net: Builder, branches: Sequence[Value], blocks: int) -> list[Value]:
    """Deepen each branch, then give each the sum of all, brought to its resolution."""
    deep = []
    for branch in branches:
        x = branch
        for _ in range(blocks):
            x = _basic_block(net, x)
        deep.append(x)
    fused = []
    for place in range(len(deep)):
        total = _exchange(net, deep, 0, place)
        for source in range(1, len(deep)):
            total = net.add(total, _exchange(net, deep, source, place))
        fused.append(net.relu(total))
    return fused


def _exchange(net: Builder, deep: Sequence[Value], source: int, place: int) -> Value:
    """Bring one branch to the channels and the resolution of another."""
    x, channels = deep[source], deep[place].channels
    if source > place:
        return net.upsample(net.conv(x, channels), 1 << (source - place))
    for step in range(place - source):
        last = step == place - source - 1
        x = net.conv(x, channels, 3, 2) if last else _conv(net, x, x.channels, 3, 2)
    return x
