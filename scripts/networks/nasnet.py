"""NASNet-A mobile (Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", fig. 2 and 4).

4 @ 1056 at 224x224: stem 32, two reduction cells as stem (11 and 22 filters), then three stages of four normal cells
with 44, 88 and 176 filters, with a reduction cell between them. The first reduction of even extent pads, and crops
behind the pointwise convolution, as the widely used ports of the published weights do; BN behind such a crop stays an
op.

The factorised reduction of a skipped input has its two poolings of stride 2 without the shift of the second by one
pixel (Pad and Slice in those ports): that variant gives the published memory figures. With the shift the optimum is
higher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.networks.builder import Builder, Value
from scripts.networks.cells import separable, squeeze

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["nasnet_a", "normal_cell"]


def nasnet_a(*, keep_activations: bool = False) -> ModelProto:
    """Return NASNet-A mobile at 224x224."""
    net = Builder("nasnet_a", keep_activations=keep_activations)
    stem = net.conv(net.input("input", 1, 3, 224, 224), 32, 3, 2, padding=0)
    first = _reduction(net, squeeze(net, stem, 11), stem, 11)
    current = squeeze(net, first, 22)
    before, x = first, _reduction(net, current, _factorized(net, stem, 22), 22)
    for stage, filters in enumerate((44, 88, 176)):
        if stage:
            skipped = squeeze(net, before, filters)
            before, x = x, _reduction(net, squeeze(net, x, filters), skipped, filters, padded=stage == 1)
        for cell in range(4):
            skipped = squeeze(net, before, filters) if cell else _factorized(net, before, filters)
            before, x = x, normal_cell(net, squeeze(net, x, filters), skipped)
    pooled = net.node("GlobalAveragePool", [net.relu(x)], (1, x.channels, 1, 1))
    return net.model(net.classifier(net.node("Flatten", [pooled], (1, x.channels)), 1000))


def _factorized(net: Builder, x: Value, filters: int) -> Value:
    """Halve the extent of an input that skips a cell."""
    active = net.relu(x)
    paths = [net.conv(net.average_pool(active, 1, 2), filters // 2) for _ in range(2)]
    return net.batch_norm(net.concat(paths))


def _padded_separable(net: Builder, x: Value, filters: int, kernel: int) -> Value:
    """A separable pair of stride 2 that pads before and crops behind its first convolutions."""
    x = net.conv(net.depthwise(net.pad(net.relu(x), 1, 1, 0, 0), kernel, 2), filters)
    x = net.batch_norm(net.crop(x, 1, 1))
    return net.conv(net.depthwise(net.relu(x), kernel), filters)


def _pool(net: Builder, x: Value, kind: str, *, padded: bool) -> Value:
    pool = net.max_pool if kind == "max" else net.average_pool
    return net.crop(pool(net.pad(x, 1, 1, 0, 0), 3, 2), 1, 1) if padded else pool(x, 3, 2)


def normal_cell(net: Builder, current: Value, skipped: Value) -> Value:
    """Add a normal cell on the squeezed results of the two cells before it."""
    filters = current.channels
    first = net.add(separable(net, current, filters, 5), separable(net, skipped, filters, 3))
    second = net.add(separable(net, skipped, filters, 5), separable(net, skipped, filters, 3))
    third = net.add(net.average_pool(current), skipped)
    fourth = net.add(net.average_pool(skipped), net.average_pool(skipped))
    fifth = net.add(separable(net, current, filters, 3), current)
    return net.concat([skipped, first, second, third, fourth, fifth])


def _reduction(net: Builder, current: Value, skipped: Value, filters: int, *, padded: bool = False) -> Value:
    def halved(x: Value, kernel: int) -> Value:
        return _padded_separable(net, x, filters, kernel) if padded else separable(net, x, filters, kernel, 2)

    first = net.add(halved(current, 5), halved(skipped, 7))
    second = net.add(_pool(net, current, "max", padded=padded), halved(skipped, 7))
    third = net.add(_pool(net, current, "average", padded=padded), halved(skipped, 5))
    fourth = net.add(net.average_pool(first), second)
    fifth = net.add(separable(net, first, filters, 3), _pool(net, current, "max", padded=padded))
    return net.concat([second, third, fourth, fifth])
