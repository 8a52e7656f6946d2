"""One step of training a small CNN on 16 images of 32x32: forward, and backward to the gradient of every weight.

Convolution and rectifier, four times, then an average pooling and a fully connected layer; the loss is the
cross-entropy, whose gradient is the softmax less the labels. Each activation is read by the op after it and, much
later, by two of the backward pass: what rematerialisation was invented for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["training"]

_BATCH: Final = 16
_EXTENT: Final = 32
_CHANNELS: Final = (3, 16, 16, 32, 32)
_POOL: Final = 4
_CLASSES: Final = 10


def training() -> ModelProto:
    """Return the graph of the images and the labels (one of them 1 in each row); its outputs are the gradients."""
    net = Builder("training")
    images = net.input("images", _BATCH, _CHANNELS[0], _EXTENT, _EXTENT)
    labels = net.input("labels", _BATCH, _CLASSES)
    reads: list[Value] = []
    made: list[Value] = []
    weights: list[str] = []
    x = images
    for channels in _CHANNELS[1:]:
        weights.append(net.weight((channels, x.channels, 3, 3), 9 * x.channels))
        reads.append(x)
        result = (_BATCH, channels, _EXTENT, _EXTENT)
        x = net.relu(net.node("Conv", [x, weights[-1]], result, kernel_shape=[3, 3], pads=[1] * 4))
        made.append(x)
    pooled = net.average_pool(x, _POOL, _POOL, 0)
    features = pooled.shape[1] * pooled.shape[2] * pooled.shape[3]
    flat = net.node("Reshape", [pooled, net.integers("flat", [_BATCH, features])], (_BATCH, features))
    dense = net.weight((features, _CLASSES), features)
    scores = net.node("MatMul", [flat, dense], (_BATCH, _CLASSES))
    error = net.node("Sub", [net.node("Softmax", [scores], scores.shape, axis=-1), labels], scores.shape)
    gradients = [net.node("MatMul", [_turned(net, flat), error], (features, _CLASSES))]
    back = net.node("Gemm", [error, dense], flat.shape, transB=1)
    slope = net.node("Reshape", [back, net.integers("pooled", list(pooled.shape))], pooled.shape)
    slope = net.node("Mul", [net.upsample(slope, _POOL), net.scalar("share", 1 / _POOL**2)], x.shape)
    for place in range(len(weights) - 1, -1, -1):
        # Where the rectifier let something through its sign is 1, elsewhere 0.
        mask = net.unary("Sign", made[place])
        slope = net.node("Mul", [slope, mask], slope.shape)
        gradients.append(_weight_gradient(net, reads[place], slope))
        if place:
            shape = reads[place].shape
            slope = net.node("ConvTranspose", [slope, weights[place]], shape, kernel_shape=[3, 3], pads=[1] * 4)
    return net.model(*gradients)


def _turned(net: Builder, x: Value) -> Value:
    """Swap the first two axes."""
    shape = (x.shape[1], x.shape[0], *x.shape[2:])
    return net.node("Transpose", [x], shape, perm=[1, 0, *range(2, len(shape))])


def _weight_gradient(net: Builder, x: Value, slope: Value) -> Value:
    """Correlate what a convolution read with the gradient of what it made."""
    shape = (x.channels, slope.channels, 3, 3)
    extents = list(slope.shape[2:])
    found = net.node("Conv", [_turned(net, x), _turned(net, slope)], shape, kernel_shape=extents, pads=[1] * 4)
    return _turned(net, found)
