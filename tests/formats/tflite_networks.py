"""Networks of the kinds that phones run, with random weights that keep the outputs varied."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.formats.tflite_builder import O, Sub, T, build, options

__all__ = ["NETWORKS", "audio", "classifier", "dense", "segmenter"]

_SCALE = 0.05
"""Scale of every quantized activation: 8 bits cover six standard deviations."""


class Network:
    """Appends layers to a model; activations are float32 or int8."""

    def __init__(self, shape: tuple[int, int, int], *, quantized: bool, any_batch: bool = False) -> None:
        self.quantized, self.any_batch, self.rng = quantized, any_batch, np.random.default_rng(0)
        self.tensors: list[T] = []
        self.ops: list[O] = []
        self.last = self.value((1, *shape))

    def value(self, shape: tuple[int, ...]) -> int:
        """Add an activation."""
        scales: tuple[float, ...] = (_SCALE,) if self.quantized else ()
        dtype = "INT8" if self.quantized else "FLOAT32"
        signature = (-1, *shape[1:]) if self.any_batch else None
        self.tensors.append(T(f"t{len(self.tensors)}", shape, dtype, signature=signature, scales=scales))
        return len(self.tensors) - 1

    def shape(self, tensor: int) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self.tensors[tensor].shape)

    def weights(self, shape: tuple[int, ...], fan: int, axis: int) -> list[int]:
        """Add weights that keep the variance, and a bias."""
        real = self.rng.standard_normal(shape) * math.sqrt(2 / fan)
        outputs, count = shape[axis], len(self.tensors)
        if not self.quantized:
            self.tensors.append(T(f"w{count}", shape, data=real.astype(np.float32).tobytes()))
            self.tensors.append(T(f"b{count}", (outputs,), data=np.zeros(outputs, np.float32).tobytes()))
            return [count, count + 1]
        scale = float(np.abs(real).max() / 127)
        data = np.round(real / scale).astype(np.int8).tobytes()
        scales = (scale,) * outputs
        self.tensors.append(T(f"w{count}", shape, "INT8", data, scales=scales, axis=axis))
        bias = np.zeros(outputs, np.int32).tobytes()
        self.tensors.append(T(f"b{count}", (outputs,), "INT32", bias, scales=(scale * _SCALE,) * outputs))
        return [count, count + 1]

    def conv(self, kernel: tuple[int, int], channels: int = 0, stride: tuple[int, int] = (1, 1)) -> Network:
        """Add a convolution with SAME padding and ReLU; ``channels`` 0: depthwise."""
        read = self.last
        _, rows, columns, depth = self.shape(read)
        if channels:
            constants = self.weights((channels, *kernel, depth), math.prod(kernel) * depth, 0)
        else:
            constants = self.weights((1, *kernel, depth), math.prod(kernel), 3)
        self.last = self.value((1, -(-rows // stride[0]), -(-columns // stride[1]), channels or depth))
        stated: dict[str, Any] = {"padding": 0, "strideH": stride[0], "strideW": stride[1]}
        stated |= {"fusedActivationFunction": 1, "dilationHFactor": 1, "dilationWFactor": 1}
        kind, name = ("CONV_2D", "Conv2D") if channels else ("DEPTHWISE_CONV_2D", "DepthwiseConv2D")
        stated |= {} if channels else {"depthMultiplier": 1}
        self.ops.append(O(kind, [read, *constants], [self.last], options(f"{name}Options", **stated)))
        return self

    def join(self, *others: int) -> Network:
        """Concatenate the last tensor to others, along the channels."""
        reads = [*others, self.last]
        channels = sum(self.shape(one)[-1] for one in reads)
        self.last = self.value((*self.shape(self.last)[:-1], channels))
        self.ops.append(O("CONCATENATION", reads, [self.last], options("ConcatenationOptions", axis=3)))
        return self

    def resized(self, rows: int, columns: int) -> Network:
        """Add a bilinear resize."""
        read, size = self.last, len(self.tensors)
        self.tensors.append(T(f"size{size}", (2,), "INT32", np.array([rows, columns], np.int32).tobytes()))
        self.last = self.value((1, rows, columns, self.shape(read)[-1]))
        self.ops.append(O("RESIZE_BILINEAR", [read, size], [self.last], options("ResizeBilinearOptions")))
        return self

    def data(self) -> bytes:
        """Return the model's file."""
        return build(Sub(self.tensors, self.ops, [0], [self.last]))


def classifier(size: int = 160, width: int = 16, *, any_batch: bool = False) -> bytes:
    """Return an int8 classifier with 7 x 7 depthwise layers."""
    net = Network((size, size, 3), quantized=True, any_batch=any_batch).conv((3, 3), width, (2, 2))
    for stride, channels in ((1, 2), (2, 4), (1, 4), (2, 8), (1, 8), (2, 16), (1, 16)):
        net.conv((7, 7), stride=(stride, stride)).conv((1, 1), channels * width)
    return net.data()


def dense(size: int = 224, growth: int = 32) -> bytes:
    """Return an int8 network of densely connected blocks, like DenseNet-121."""
    net = Network((size, size, 3), quantized=True).conv((7, 7), 2 * growth, (2, 2)).conv((3, 3), stride=(2, 2))
    for layers in (3, 4, 5):
        for _ in range(layers):
            before = net.last
            net.conv((1, 1), 4 * growth).conv((3, 3), growth).join(before)
        net.conv((1, 1), net.shape(net.last)[-1] // 2).conv((3, 3), stride=(2, 2))
    return net.data()


def audio(samples: int = 32_000, width: int = 32) -> bytes:
    """Return a float network of long 1-D convolutions over a waveform."""
    net = Network((1, samples, 1), quantized=False).conv((1, 400), width, (1, 4))
    for kernel, stride in ((65, 2), (65, 2), (33, 2), (33, 2)):
        net.conv((1, kernel), width, (1, stride))
    return net.data()


def segmenter(size: int = 513, width: int = 8) -> bytes:
    """Return a float network that labels every pixel."""
    net = Network((size, size, 3), quantized=False).conv((3, 3), width, (2, 2))
    for channels in (2, 4, 8):
        net.conv((5, 5), stride=(2, 2)).conv((1, 1), channels * width).conv((3, 3), channels * width)
    return net.conv((1, 1), 4).resized(size, size).data()


NETWORKS: dict[str, Callable[[], bytes]] = {
    "classifier": classifier,
    "dense": dense,
    "audio": audio,
    "segmenter": segmenter,
}
"""Builders by name."""
