"""PNASNet-5 mobile (Liu et al., "Progressive Neural Architecture Search", figure 1), 224x224.

Stem 32, two cells of stride 2 as stem (13 and 27 filters), then nine cells with 54, 108 and 216 filters, of which the
fourth and the seventh have stride 2: there is one kind of cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value
from scripts.networks.cells import separable, shifted_reduction, squeeze

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["pnasnet5_mobile"]

_FILTERS: Final = (13, 27, 54, 54, 54, 108, 108, 108, 216, 216, 216)
_HALVING: Final = frozenset({0, 1, 5, 8})


def pnasnet5_mobile() -> ModelProto:
    """Return PNASNet-5 mobile at 224x224."""
    net = Builder("pnasnet5_mobile")
    before = x = net.conv(net.input("input", 1, 3, 224, 224), 32, 3, 2, padding=0)
    for place, filters in enumerate(_FILTERS):
        current = squeeze(net, x, filters)
        same = before.shape[2:] == x.shape[2:]
        skipped = squeeze(net, before, filters) if same else shifted_reduction(net, before, filters)
        before, x = x, _cell(net, current, skipped, 2 if place in _HALVING else 1)
    pooled = net.node("GlobalAveragePool", [net.relu(x)], (1, x.channels, 1, 1))
    return net.model(net.classifier(net.node("Flatten", [pooled], (1, x.channels)), 1000))


def _cell(net: Builder, current: Value, skipped: Value, stride: int) -> Value:
    filters = current.channels

    def deep(x: Value, kernel: int, step: int = stride) -> Value:
        return separable(net, x, filters, kernel, step)

    def pool(x: Value, step: int = stride) -> Value:
        return net.max_pool(x, 3, step)

    first = net.add(deep(skipped, 5), pool(skipped))
    second = net.add(deep(current, 7), pool(current))
    third = net.add(deep(current, 5), deep(current, 3))
    fourth = net.add(deep(third, 3, 1), pool(current))
    kept = net.conv(net.relu(current), filters, 1, 2) if stride == 2 else current
    fifth = net.add(deep(skipped, 3), kept)
    return net.concat([first, second, third, fourth, fifth])
