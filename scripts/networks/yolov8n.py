"""YOLOv8n (Jocher et al., "Ultralytics YOLO", release 8, the nano detector of 80 classes), 640x640.

As PyTorch's exporter writes it, batch normalisation folded into the convolutions: SiLU is a sigmoid and a product, the
halves of a block are a Split, and boxes are decoded by a softmax over 16 distances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import permuted, reshaped, silu

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["yolov8n"]

_CLASSES: Final = 80
_DISTANCES: Final = 16


def yolov8n() -> ModelProto:
    """Return the detector: [1, 84, 8400], four coordinates and 80 scores for each place."""
    net = Builder("yolov8n")
    x = _conv(net, net.input("images", 1, 3, 640, 640), 16, 3, 2)
    skips: list[Value] = []
    for channels, repeats in ((32, 1), (64, 2), (128, 2), (256, 1)):
        x = _block(net, _conv(net, x, channels, 3, 2), channels, repeats, residual=True)
        skips.append(x)
    low, middle, high = skips[1], skips[2], _pooled(net, x)
    middle = _block(net, net.concat([net.upsample(high, 2), middle]), 128)
    low = _block(net, net.concat([net.upsample(middle, 2), low]), 64)
    middle = _block(net, net.concat([_conv(net, low, 64, 3, 2), middle]), 128)
    high = _block(net, net.concat([_conv(net, middle, 128, 3, 2), high]), 256)
    return net.model(_detections(net, (low, middle, high)))


def _conv(net: Builder, x: Value, channels: int, kernel: int = 1, stride: int = 1) -> Value:
    return silu(net, net.conv(x, channels, kernel, stride, padding=kernel // 2))


def _block(net: Builder, x: Value, channels: int, repeats: int = 1, *, residual: bool = False) -> Value:
    """Add a C2f block."""
    x = _conv(net, x, channels)
    parts = [*_split(net, x, (channels // 2, channels // 2))]
    for _ in range(repeats):
        y = _conv(net, _conv(net, parts[-1], channels // 2, 3), channels // 2, 3)
        parts.append(net.add(parts[-1], y) if residual else y)
    return _conv(net, net.concat(parts), channels)


def _split(net: Builder, x: Value, channels: tuple[int, int]) -> tuple[Value, ...]:
    sizes = net.integers("split_" + "_".join(map(str, channels)), channels)
    return net.nodes("Split", [x, sizes], [(x.shape[0], one, *x.shape[2:]) for one in channels], axis=1)


def _pooled(net: Builder, x: Value) -> Value:
    """Add fast spatial pyramid pooling."""
    parts = [_conv(net, x, x.channels // 2)]
    for _ in range(3):
        parts.append(net.max_pool(parts[-1], 5))
    return _conv(net, net.concat(parts), x.channels)


def _detections(net: Builder, planes: tuple[Value, ...]) -> Value:
    rows = []
    for x in planes:
        boxes = net.conv(_conv(net, _conv(net, x, 64, 3), 64, 3), 4 * _DISTANCES)
        scores = net.conv(_conv(net, _conv(net, x, _CLASSES, 3), _CLASSES, 3), _CLASSES)
        joined = net.concat([boxes, scores])
        rows.append(reshaped(net, joined, 1, joined.channels, joined.shape[2] * joined.shape[3]))
    boxes, scores = _split(net, net.concat(rows, axis=2), (4 * _DISTANCES, _CLASSES))
    return net.concat([_decoded(net, boxes, planes), net.unary("Sigmoid", scores)])


def _decoded(net: Builder, x: Value, planes: tuple[Value, ...]) -> Value:
    """Add what makes boxes, by centre and extent in pixels, of distances to their four sides."""
    places = x.shape[2]
    spread = permuted(net, reshaped(net, x, 1, 4, _DISTANCES, places), 0, 2, 1, 3)
    weights = net.node("Softmax", [spread], spread.shape, axis=1)
    distances = reshaped(net, net.conv(weights, 1), 1, 4, places)
    near, far = (_half(net, distances, start) for start in (0, 2))
    shape = (1, 2, places)
    anchors = [np.stack(np.meshgrid(*2 * [np.arange(one.shape[2]) + 0.5])).reshape(1, 2, -1) for one in planes]
    centres = net.array("anchors", np.concatenate(anchors, axis=2).astype(np.float32))
    low, high = net.node("Sub", [centres, near], shape), net.node("Add", [far, centres], shape)
    middle = net.node("Div", [net.add(low, high), net.scalar("two", 2)], shape)
    extent = net.node("Sub", [high, low], shape)
    strides = np.repeat([640 / one.shape[2] for one in planes], [one.shape[2] * one.shape[3] for one in planes])
    factor = net.array("strides", strides.astype(np.float32)[None])
    return net.node("Mul", [net.concat([middle, extent]), factor], (1, 4, places))


def _half(net: Builder, x: Value, start: int) -> Value:
    bounds = [net.integers(f"at_{value}", [value]) for value in (start, start + 2, 1)]
    return net.node("Slice", [x, *bounds], (x.shape[0], 2, x.shape[2]))
