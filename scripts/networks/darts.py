"""DARTS (Liu et al., "DARTS: Differentiable Architecture Search"): the second-order genotype for ImageNet, 224x224.

48 filters, 14 cells, of which the fifth and the tenth reduce; no auxiliary head, no drop path. Common sub-expressions
are merged: activations of the same value, and in the reduction cells poolings and sums that the genotype has twice.
The factorised reduction has its two convolutions of stride 2 without the shift of the second by one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["darts"]

_CELLS: Final = 14
_FILTERS: Final = 48
_NORMAL: Final = (
    ("sep_conv_3x3", 0),
    ("sep_conv_3x3", 1),
    ("sep_conv_3x3", 0),
    ("sep_conv_3x3", 1),
    ("sep_conv_3x3", 1),
    ("skip_connect", 0),
    ("skip_connect", 0),
    ("dil_conv_3x3", 2),
)
_REDUCE: Final = (
    ("max_pool_3x3", 0),
    ("max_pool_3x3", 1),
    ("skip_connect", 2),
    ("max_pool_3x3", 1),
    ("max_pool_3x3", 0),
    ("skip_connect", 2),
    ("skip_connect", 2),
    ("max_pool_3x3", 1),
)


def darts(*, keep_activations: bool = False) -> ModelProto:
    """Return the ImageNet network of the second-order genotype."""
    net = Builder("darts", merge=True, keep_activations=keep_activations)
    x = net.relu(net.conv(net.input("input", 1, 3, 224, 224), _FILTERS // 2, 3, 2))
    before = net.conv(x, _FILTERS, 3, 2)
    x = net.conv(net.relu(before), _FILTERS, 3, 2)
    filters, halved = _FILTERS, True
    for index in range(_CELLS):
        reduces = index in {_CELLS // 3, 2 * _CELLS // 3}
        filters *= 2 if reduces else 1
        skipped = _factorized(net, before, filters) if halved else net.conv(net.relu(before), filters)
        states = [skipped, net.conv(net.relu(x), filters)]
        before, x, halved = x, _cell(net, states, _REDUCE if reduces else _NORMAL, 2 if reduces else 1), reduces
    pooled = net.average_pool(x, 7, 1, 0)
    return net.model(net.classifier(net.node("Flatten", [pooled], (1, x.channels)), 1000))


def _factorized(net: Builder, x: Value, filters: int) -> Value:
    active = net.relu(x)
    return net.batch_norm(net.concat([net.conv(active, filters // 2, 1, 2) for _ in range(2)]))


def _cell(net: Builder, inputs: Sequence[Value], genotype: Sequence[tuple[str, int]], stride: int) -> Value:
    states = list(inputs)
    for step in range(0, len(genotype), 2):
        pair = [
            _edge(net, kind, states[state], stride if state < 2 else 1) for kind, state in genotype[step : step + 2]
        ]
        states.append(net.add(*pair))
    return net.concat(states[2:])


def _edge(net: Builder, kind: str, x: Value, stride: int) -> Value:
    if kind == "skip_connect":
        return x
    if kind == "max_pool_3x3":
        return net.max_pool(x, 3, stride)
    active = net.relu(x)
    if kind == "dil_conv_3x3":
        return net.conv(net.depthwise(active, 3, stride, dilation=2), x.channels)
    half = net.conv(net.depthwise(active, 3, stride), x.channels)
    return net.conv(net.depthwise(net.relu(half), 3), x.channels)
