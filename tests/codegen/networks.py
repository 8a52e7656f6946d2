"""Random networks of 8 bits, as TFLite files with scales of their own at every tensor; deep convolutions of floats."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options
from tests.small_models import floats, model_of

_ACTIVATIONS = (0, 1, 3)
"""None, RELU and RELU6 in the schema."""


class QuantisedNet:
    """A chain of layers, with branches inside."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.tensors: list[T] = []
        self.ops: list[O] = []
        self.shape = (self.pick.randint(9, 20), self.pick.randint(7, 14), self.pick.choice([1, 3, 4]))
        self.current = self.tensor(self.shape)

    def tensor(self, shape: tuple[int, ...], scale: float | None = None, zero: int | None = None) -> int:
        """Add a tensor of the model's data: (1, *shape)."""
        self.tensors.append(
            T(
                f"t{len(self.tensors)}", (1, *shape), "INT8",
                scales=(scale or self.pick.uniform(0.02, 0.08),),
                zero_point=self.pick.randint(-20, 20) if zero is None else zero,
            )
        )  # fmt: skip
        return len(self.tensors) - 1

    def weights(self, shape: tuple[int, ...], axis: int, per_channel: bool = True) -> int:
        """Add symmetric weights."""
        data = self.values.integers(-127, 128, shape, dtype=np.int8).tobytes()
        count = shape[axis] if per_channel else 1
        scales = tuple(self.pick.uniform(0.002, 0.01) for _ in range(count))
        self.tensors.append(T(f"w{len(self.tensors)}", shape, "INT8", data=data, scales=scales, axis=axis))
        return len(self.tensors) - 1

    def biased(self, given: int, weights: int, count: int) -> list[int]:
        """Add a vector of 32 bits of the scale that products have, and return all that the layer reads."""
        data = self.values.integers(-3000, 3000, count, dtype=np.int32).tobytes()
        scales = tuple(self.tensors[given].scales[0] * scale for scale in self.tensors[weights].scales)
        self.tensors.append(T(f"b{len(self.tensors)}", (count,), "INT32", data=data, scales=scales))
        return [given, weights, len(self.tensors) - 1]

    def constant(self, shape: tuple[int, ...], *values: int) -> int:
        """Add small integers that are no data."""
        self.tensors.append(T(f"c{len(self.tensors)}", shape, "INT32", data=int32s(*values)))
        return len(self.tensors) - 1

    def op(self, kind: str, reads: list[int], shape: tuple[int, ...], table: Any = None, **quantisation: Any) -> int:
        """Add an operator, and return what it makes."""
        made = self.tensor(shape, **quantisation)
        self.ops.append(O(kind, reads, [made], table))
        return made

    def same(self) -> dict[str, Any]:
        """Return the quantisation of the current tensor, for what may not change it."""
        one = self.tensors[self.current]
        return {"scale": one.scales[0], "zero": one.zero_point}

    def conv(
        self, given: int, shape: tuple[int, ...], out: int, depthwise: bool = False
    ) -> tuple[int, tuple[int, int, int]]:
        """Add a convolution, of each channel by itself where ``depthwise``."""
        kernel = (self.pick.choice([1, 2, 3]), self.pick.choice([1, 3]))
        stride = self.pick.choice([1, 1, 2]) if min(shape[:2]) > 6 else 1
        same = self.pick.random() < 0.6
        spatial = [-(-n // stride) if same else (n - k) // stride + 1 for n, k in zip(shape[:2], kernel, strict=True)]
        if min(spatial) < 2:
            same, spatial = True, [-(-n // stride) for n in shape[:2]]
        table = {
            "padding": 0 if same else 1, "strideH": stride, "strideW": stride, "dilationHFactor": 1,
            "dilationWFactor": 1, "fusedActivationFunction": self.pick.choice(_ACTIVATIONS),
        }  # fmt: skip
        if depthwise:
            out = shape[2] * self.pick.choice([1, 1, 2])
            reads = self.biased(given, self.weights((1, *kernel, out), 3), out)
            made = (spatial[0], spatial[1], out)
            options_ = options("DepthwiseConv2DOptions", **table, depthMultiplier=out // shape[2])
            return self.op("DEPTHWISE_CONV_2D", reads, made, options_), made
        reads = self.biased(given, self.weights((out, *kernel, shape[2]), 0), out)
        made = (spatial[0], spatial[1], out)
        return self.op("CONV_2D", reads, made, options("Conv2DOptions", **table)), made

    def layer(self) -> None:
        """Add one random layer."""
        height, width, channels = self.shape
        kind = self.pick.choice(
            ["conv", "conv", "depthwise", "pool", "join", "concat", "pad", "function", "scale", "crop", "up"]
        )
        if kind in {"conv", "depthwise"}:
            self.current, self.shape = self.conv(
                self.current, self.shape, self.pick.choice([3, 5, 8, 12]), kind == "depthwise"
            )
        elif kind == "pool" and min(height, width) > 4:
            name = self.pick.choice(["AVERAGE_POOL_2D", "MAX_POOL_2D"])
            made = (-(-height // 2), -(-width // 2), channels)
            table = options(
                "Pool2DOptions", padding=0, strideH=2, strideW=2, filterHeight=3, filterWidth=2,
                fusedActivationFunction=self.pick.choice(_ACTIVATIONS),
            )  # fmt: skip
            self.current, self.shape = self.op(name, [self.current], made, table, **self.same()), made
        elif kind in {"join", "concat"}:
            self.branch(kind)
        elif kind == "pad":
            before, after = self.pick.randint(0, 2), self.pick.randint(0, 2)
            reads = [self.current, self.constant((4, 2), 0, 0, before, after, 1, 0, 0, 0)]
            self.shape = (height + before + after, width + 1, channels)
            self.current = self.op("PAD", reads, self.shape, options("PadOptions"), **self.same())
        elif kind == "function":
            self.function()
        elif kind == "scale":
            data = self.values.integers(-127, 128, channels, dtype=np.int8).tobytes()
            self.tensors.append(T(f"s{len(self.tensors)}", (channels,), "INT8", data=data, scales=(0.01,)))
            name = self.pick.choice(["MUL", "ADD"])
            table = options(f"{name.title()}Options", fusedActivationFunction=self.pick.choice(_ACTIVATIONS))
            self.current = self.op(name, [self.current, len(self.tensors) - 1], self.shape, table)
        elif kind == "crop" and min(height, width) > 5:
            reads = [
                self.current,
                self.constant((4,), 0, 1, 1, 0),
                self.constant((4,), 1, height - 2, width - 1, channels),
            ]
            self.shape = (height - 2, width - 1, channels)
            self.current = self.op("SLICE", reads, self.shape, options("SliceOptions"), **self.same())
        elif kind == "up" and height < 12:
            reads = [self.current, self.constant((2,), 2 * height, 2 * width)]
            self.shape = (2 * height, 2 * width, channels)
            table = options("ResizeNearestNeighborOptions")
            self.current = self.op("RESIZE_NEAREST_NEIGHBOR", reads, self.shape, table, **self.same())

    def branch(self, kind: str) -> None:
        """Join the current tensor with a function of it."""
        height, width, channels = self.shape
        table = options(
            "Conv2DOptions", padding=0, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1,
            fusedActivationFunction=1,
        )  # fmt: skip
        reads = self.biased(self.current, self.weights((channels, 3, 3, channels), 0), channels)
        if kind == "join":
            other = self.op("CONV_2D", reads, self.shape, table)
            name = self.pick.choice(["ADD", "SUB", "MUL"])
            joined = options(f"{name.title()}Options", fusedActivationFunction=self.pick.choice(_ACTIVATIONS))
            self.current = self.op(name, [self.current, other], self.shape, joined)
            return
        other = self.op("CONV_2D", reads, self.shape, table, **self.same())
        made = (height, width, 2 * channels)
        joined = options("ConcatenationOptions", axis=3)
        self.current, self.shape = self.op("CONCATENATION", [self.current, other], made, joined, **self.same()), made

    def function(self) -> None:
        """Add a function of each element."""
        name = self.pick.choice(["RELU", "LOGISTIC", "TANH", "QUANTIZE", "LEAKY_RELU"])
        fixed = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}.get(name)
        quantisation = {} if fixed is None else {"scale": fixed[0], "zero": fixed[1]}
        table = options("LeakyReluOptions", alpha=0.125) if name == "LEAKY_RELU" else None
        self.current = self.op(name, [self.current], self.shape, table, **quantisation)

    def finish(self) -> bytes:
        """Add a head, and return the file."""
        height, width, channels = self.shape
        if self.pick.random() < 0.5:
            reads = [self.current, self.constant((2,), 1, 2)]
            self.current = self.op("MEAN", reads, (channels,), options("ReducerOptions"))
            length = channels
        else:
            length = height * width * channels
            reads = [self.current, self.constant((2,), 1, length)]
            self.current = self.op("RESHAPE", reads, (length,), options("ReshapeOptions"), **self.same())
        classes = self.pick.choice([2, 10, 17])
        reads = self.biased(self.current, self.weights((classes, length), 0, per_channel=False), classes)
        self.current = self.op("FULLY_CONNECTED", reads, (classes,), options("FullyConnectedOptions"))
        table = options("SoftmaxOptions", beta=1.0)
        self.current = self.op("SOFTMAX", [self.current], (classes,), table, scale=1 / 256, zero=-128)
        return build(Sub(self.tensors, self.ops, (0,), (self.current,)))


def quantised_net(seed: int, layers: int = 7) -> bytes:
    """Return a random network of 8 bits."""
    net = QuantisedNet(seed)
    for _ in range(layers):
        net.layer()
    return net.finish()


def deep_net(channels: tuple[int, ...] = (16, 24, 20), size: int = 6) -> bytes:
    """Return convolutions of floats with many channels and small planes, one with a bias, as an ONNX file."""
    rng = np.random.default_rng(0)
    nodes, constants, current = [], [], "x"
    for number, (given, made) in enumerate(pairwise(channels)):
        weights = 0.2 * rng.standard_normal((made, given, 3, 3)).astype(np.float32)
        constants.append(numpy_helper.from_array(weights, f"w{number}"))
        read = [current, f"w{number}"]
        if number:
            constants.append(numpy_helper.from_array(rng.standard_normal(made).astype(np.float32), f"b{number}"))
            read.append(f"b{number}")
        nodes.append(helper.make_node("Conv", read, [f"c{number}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        current = f"r{number}"
    ends = [floats("x", [1, channels[0], size, size])], [floats(current, [1, channels[-1], size, size])]
    return model_of(nodes, *ends, constants)
