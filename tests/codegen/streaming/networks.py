"""Known networks of 8 bits with random weights, as TFLite files: what memory they need depends on no weight."""

from __future__ import annotations

from tests.codegen.networks import QuantisedNet
from tests.formats.tflite_builder import Sub, build, options

__all__ = ["mobilenet_v2", "resnet_8"]

_NONE, _RELU, _RELU6 = 0, 1, 3

_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Of MobileNetV2: expansion, channels, repetitions, first stride."""


class _Net(QuantisedNet):
    def __init__(self, size: int) -> None:
        super().__init__(0)
        self.tensors, self.ops = [], []
        self.shape = (size, size, 3)
        self.current = self.tensor(self.shape)

    def convolve(self, out: int, kernel: int, stride: int, activation: int) -> None:
        """Add a convolution; of each channel by itself where ``out`` is 0."""
        rows, columns, channels = self.shape
        made = (-(-rows // stride), -(-columns // stride), out or channels)
        table = {
            "padding": 0, "strideH": stride, "strideW": stride, "dilationHFactor": 1, "dilationWFactor": 1,
            "fusedActivationFunction": activation,
        }  # fmt: skip
        if out:
            reads = self.biased(self.current, self.weights((out, kernel, kernel, channels), 0), out)
            self.current = self.op("CONV_2D", reads, made, options("Conv2DOptions", **table))
        else:
            reads = self.biased(self.current, self.weights((1, kernel, kernel, channels), 3), channels)
            depthwise = options("DepthwiseConv2DOptions", **table, depthMultiplier=1)
            self.current = self.op("DEPTHWISE_CONV_2D", reads, made, depthwise)
        self.shape = made

    def add(self, other: int, activation: int) -> None:
        """Add another tensor to the current one."""
        table = options("AddOptions", fusedActivationFunction=activation)
        self.current = self.op("ADD", [other, self.current], self.shape, table)

    def file(self, classes: int) -> bytes:
        """Add a mean, a layer of classes and a softmax, and return the file."""
        channels = self.shape[2]
        mean = [self.current, self.constant((2,), 1, 2)]
        self.current = self.op("MEAN", mean, (channels,), options("ReducerOptions"))
        reads = self.biased(self.current, self.weights((classes, channels), 0, per_channel=False), classes)
        self.current = self.op("FULLY_CONNECTED", reads, (classes,), options("FullyConnectedOptions"))
        table = options("SoftmaxOptions", beta=1.0)
        self.current = self.op("SOFTMAX", [self.current], (classes,), table, scale=1 / 256, zero=-128)
        return build(Sub(self.tensors, self.ops, (0,), (self.current,)))


def mobilenet_v2(size: int = 224) -> bytes:
    """Return MobileNetV2 1.0 with 1,000 classes."""
    net = _Net(size)
    net.convolve(32, 3, 2, _RELU6)
    for expansion, channels, repetitions, first in _BLOCKS:
        for number in range(repetitions):
            before, shape, stride = net.current, net.shape, 1 if number else first
            if expansion > 1:
                net.convolve(shape[2] * expansion, 1, 1, _RELU6)
            net.convolve(0, 3, stride, _RELU6)
            net.convolve(channels, 1, 1, _NONE)
            if stride == 1 and shape[2] == channels:
                net.add(before, _NONE)
    net.convolve(1280, 1, 1, _RELU6)
    return net.file(1000)


def resnet_8() -> bytes:
    """Return MLPerf Tiny's ResNet for images of 32 x 32."""
    net = _Net(32)
    net.convolve(16, 3, 1, _RELU)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        before, shape = net.current, net.shape
        net.convolve(channels, 3, stride, _RELU)
        net.convolve(channels, 3, 1, _NONE)
        made, after = net.current, net.shape
        if stride > 1:
            net.current, net.shape = before, shape
            net.convolve(channels, 1, stride, _NONE)
            before = net.current
        net.current, net.shape = made, after
        net.add(before, _RELU)
    return net.file(10)
