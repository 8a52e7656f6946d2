"""AmoebaNet-A (Real et al., "Regularized Evolution for Image Classifier Architecture Search", figure 5).

At 224x224: stem 32, two reduction cells as stem (25 and 50 filters), then three stages of four normal cells with 50,
100 and 200 filters, with a reduction cell between them: 12.5 filters before the first of the four doublings. The
shift of the second path of a factorised reduction is a Pad and a Slice. The pair of 1x7 and 7x1 convolutions reduces
in its first one and has no activation before it. The mean over the plane gives ``[1, 600]`` (a ReduceMean), and the
classifier is a MatMul and an Add.

The graph that published figures of AmoebaNet-A belong to could not be identified: this one is compared with none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.networks.builder import Builder, Value
from scripts.networks.cells import separable, shifted_reduction, squeeze

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["amoebanet_a"]


def amoebanet_a(*, keep_activations: bool = False) -> ModelProto:
    """Return AmoebaNet-A with four cells per stage at 224x224."""
    net = Builder("amoebanet_a", keep_activations=keep_activations)
    stem = net.conv(net.input("input", 1, 3, 224, 224), 32, 3, 2)
    squeezed = squeeze(net, stem, 25)
    before, x = stem, _reduction(net, squeezed, squeezed)
    current = squeeze(net, x, 50)
    before, x = x, _reduction(net, current, _skipped(net, before, current))
    for stage, filters in enumerate((50, 100, 200)):
        for cell in range(5 if stage else 4):
            current = squeeze(net, x, filters)
            build = _reduction if stage and not cell else _normal
            before, x = x, build(net, current, _skipped(net, before, current))
    x = net.relu(x)
    pooled = net.node("ReduceMean", [x], (1, x.channels), axes=[2, 3], keepdims=0)
    return net.model(net.matmul_classifier(pooled, 1000))


def _skipped(net: Builder, x: Value, current: Value) -> Value:
    """Bring the input that skips a cell to the shape of ``current``."""
    same = x.shape[2:] == current.shape[2:]
    return squeeze(net, x, current.channels) if same else shifted_reduction(net, x, current.channels)


def _normal(net: Builder, current: Value, skipped: Value) -> Value:
    filters = current.channels
    first = net.add(net.average_pool(skipped), net.max_pool(skipped))
    second = net.add(skipped, net.average_pool(current))
    third = net.add(separable(net, first, filters, 5), separable(net, current, filters, 3))
    fourth = net.add(separable(net, first, filters, 3), current)
    fifth = net.add(net.average_pool(third), separable(net, skipped, filters, 3))
    return net.concat([second, fourth, fifth])


def _reduction(net: Builder, current: Value, skipped: Value) -> Value:
    filters = current.channels
    first = net.add(net.average_pool(skipped, 3, 2), separable(net, current, filters, 3, 2))
    second = net.add(net.max_pool(current, 3, 2), net.max_pool(skipped, 3, 2))
    third = net.add(net.max_pool(skipped, 3, 2), separable(net, first, filters, 7))
    fourth = net.add(separable(net, skipped, filters, 7, 2), net.average_pool(current, 3, 2))
    fifth = net.add(separable(net, second, filters, 3), _cross(net, skipped))
    return net.concat([third, fourth, fifth])


def _cross(net: Builder, x: Value) -> Value:
    """A 1x7 convolution of stride 2, activation, a 7x1 convolution."""
    return net.conv(net.relu(net.conv(x, x.channels, (1, 7), 2)), x.channels, (7, 1))
