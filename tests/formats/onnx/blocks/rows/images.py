"""Layers of networks on images of open height and width, and random networks of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper, numpy_helper

__all__ = ["LAYERS", "Images", "random_network"]


class Images:
    """Collects nodes; every method returns the name of a value.

    Attributes:
        shapes: Per image its channels, and its rows per row of the input.
    """

    def __init__(self, channels: int = 3) -> None:
        shape: list[str | int | None] = ["batch", channels, "height", "width"]
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        self.nodes: list[Any] = []
        self.constants: list[TensorProto] = []
        self.shapes: dict[str, tuple[int, Fraction]] = {"x": (channels, Fraction(1))}
        self._numbers = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node whose output is like its first input."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{name}_op", **attributes))
        if inputs and inputs[0] in self.shapes:
            self.shapes[name] = self.shapes[inputs[0]]
        return name

    def constant(self, values: npt.ArrayLike) -> str:
        """Add a constant."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape: int) -> str:
        """Add random numbers."""
        scale = math.sqrt(max(1, math.prod(shape[1:])))
        return self.constant((self._numbers.standard_normal(shape) / scale).astype(np.float32))

    def conv(self, x: str, channels: int, kernel: int = 3, *, rate: Fraction = Fraction(1), **attributes: Any) -> str:
        """Add a convolution, with a bias."""
        before, rows = self.shapes[x]
        groups = attributes.get("group", 1)
        weight = self.weight(channels, before // groups, kernel, kernel)
        y = self.op("Conv", x, weight, self.weight(channels), **{"pads": [kernel // 2] * 4, **attributes})
        self.shapes[y] = channels, rows * rate
        return y

    def transposed(self, x: str, channels: int, kernel: int, stride: int, **attributes: Any) -> str:
        """Add a transposed convolution."""
        before, rows = self.shapes[x]
        weight = self.weight(before, channels, kernel, kernel)
        y = self.op("ConvTranspose", x, weight, self.weight(channels), strides=[stride] * 2, **attributes)
        self.shapes[y] = channels, rows * stride
        return y

    def resize(self, x: str, factor: int, **attributes: Any) -> str:
        """Enlarge an image."""
        channels, rows = self.shapes[x]
        y = self.op("Resize", x, "", self.constant(np.array([1, 1, factor, factor], np.float32)), **attributes)
        self.shapes[y] = channels, rows * factor
        return y

    def group_norm(self, x: str, groups: int) -> str:
        """Add a normalisation of groups of channels as exporters do."""
        flat = self.op("Reshape", x, self.constant(np.array([0, groups, -1], np.int64)))
        scale, bias = self.constant(np.ones(groups, np.float32)), self.constant(np.zeros(groups, np.float32))
        normal = self.op("InstanceNormalization", flat, scale, bias)
        back = self.op("Reshape", normal, self.op("Shape", x))
        self.shapes[back] = self.shapes[x]
        channels = self.shapes[x][0]
        return self.op("Add", self.op("Mul", back, self.weight(channels, 1, 1)), self.weight(channels, 1, 1))

    def instance_norm(self, x: str) -> str:
        """Add a normalisation of channels, with a scale and a bias."""
        channels = self.shapes[x][0]
        return self.op("InstanceNormalization", x, self.weight(channels), self.weight(channels))

    def squeeze_excite(self, x: str, *, pool: bool = True) -> str:
        """Multiply channels by what follows from their means."""
        mean = self.op("GlobalAveragePool", x) if pool else self.op("ReduceMean", x, axes=[2, 3])
        channels = self.shapes[x][0]
        self.shapes[mean] = channels, Fraction(0)
        return self.op("Mul", x, self.op("Sigmoid", self.conv(mean, channels, 1)))

    def joined(self, *images: str) -> str:
        """Put channels of images behind each other."""
        y = self.op("Concat", *images, axis=1)
        self.shapes[y] = sum(self.shapes[one][0] for one in images), self.shapes[images[0]][1]
        return y

    def halves(self, x: str) -> tuple[str, str]:
        """Part the channels into two."""
        channels, rows = self.shapes[x]
        names = f"half_{len(self.nodes)}_a", f"half_{len(self.nodes)}_b"
        sizes = self.constant(np.array([channels // 2, channels - channels // 2], np.int64))
        self.nodes.append(helper.make_node("Split", [x, sizes], list(names), name=f"{names[0]}_op", axis=1))
        self.shapes[names[0]] = channels // 2, rows
        self.shapes[names[1]] = channels - channels // 2, rows
        return names

    def model(self, *results: str, opset: int = 17) -> ModelProto:
        """Return the model."""
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", self.shapes[name][0], None, None])
            for name in results
        ]
        graph = helper.make_graph(self.nodes, "images", self.inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def random_network(seed: int) -> ModelProto:
    """Return a network of four to nine layers, with branches; heights and widths are multiples of 12."""
    numbers = random.Random(seed)
    net = Images()
    known = [net.conv("x", numbers.choice([4, 6, 8]))]
    for _ in range(numbers.randint(4, 9)):
        x = known[-1] if numbers.random() < 0.7 else numbers.choice(known)
        if net.shapes[x][1] > 2:
            x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
            net.shapes[x] = net.shapes[x][0], net.shapes[x][1] / 2
        layer = numbers.choice(LAYERS)
        if (net.shapes[x][1] * 12).denominator > 1 or (net.shapes[x][1] * 6).denominator > 1:
            layer = _convolved  # its rows are odd at some sizes
        y = layer(net, x, numbers)
        same = [one for one in known if net.shapes[one] == net.shapes[y]]
        alike = [one for one in known if net.shapes[one][1] == net.shapes[y][1]]
        if same and numbers.random() < 0.4:
            y = net.op("Add", y, numbers.choice(same))
        elif alike and numbers.random() < 0.3:
            y = net.joined(y, numbers.choice(alike))
        known.append(y)
    results = [known[-1]] if numbers.random() < 0.7 else list(dict.fromkeys([known[-1], numbers.choice(known)]))
    return net.model(*results)


def _convolved(net: Images, x: str, numbers: random.Random) -> str:
    kernel, dilation = numbers.choice([(1, 1), (3, 1), (5, 1), (3, 2), (2, 1)])
    whole = (kernel - 1) * dilation
    less = numbers.randint(0, whole) if numbers.random() < 0.3 else whole // 2
    y = net.conv(
        x, numbers.choice([4, 6]), kernel, dilations=[dilation] * 2, pads=[less, less, whole - less, whole - less]
    )
    return net.op(numbers.choice(["Relu", "Sigmoid", "LeakyRelu"]), y)


def _named_padding(net: Images, x: str, numbers: random.Random) -> str:
    before, rows = net.shapes[x]
    padding = numbers.choice(["SAME_UPPER", "SAME_LOWER"])
    y = net.op("Conv", x, net.weight(4, before, 4, 3), auto_pad=padding)
    net.shapes[y] = 4, rows
    return y


def _by_channel(net: Images, x: str, numbers: random.Random) -> str:
    del numbers
    channels = net.shapes[x][0]
    return net.conv(x, channels, 3, group=channels)


def _strided(net: Images, x: str, numbers: random.Random) -> str:
    kernel = numbers.choice([2, 3, 4])
    more = kernel - 2
    pads = [more // 2, more // 2, more - more // 2, more - more // 2]
    return net.conv(x, 6, kernel, rate=Fraction(1, 2), strides=[2, 2], pads=pads)


def _pooled(net: Images, x: str, numbers: random.Random) -> str:
    kind = numbers.choice(["MaxPool", "AveragePool"])
    if numbers.random() < 0.5:
        counted = {"count_include_pad": numbers.randint(0, 1)} if kind == "AveragePool" else {}
        return net.op(kind, x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, **counted)
    y = net.op(kind, x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0])
    net.shapes[y] = net.shapes[x][0], net.shapes[x][1] / 2
    return y


def _enlarged(net: Images, x: str, numbers: random.Random) -> str:
    mode = numbers.choice(["nearest", "linear", "cubic"])
    placed = numbers.choice(["asymmetric", "half_pixel"])
    chosen = {"nearest_mode": numbers.choice(["floor", "ceil", "round_prefer_floor"])} if mode == "nearest" else {}
    factor = numbers.choice([2, 2, 3])
    return net.resize(x, factor, mode=mode, coordinate_transformation_mode=placed, **chosen)


def _spread(net: Images, x: str, numbers: random.Random) -> str:
    if numbers.random() < 0.5:
        kernel, more = numbers.choice([(2, 0), (3, 0), (4, 0), (3, 1)])
        less = kernel - 2 + more
        pads = [less // 2, less // 2, less - less // 2, less - less // 2]
        return net.transposed(x, 4, kernel, 2, pads=pads, output_padding=[more, more])
    y = net.conv(x, 16, 1)
    y = net.op("DepthToSpace", y, blocksize=2, mode=numbers.choice(["DCR", "CRD"]))
    net.shapes[y] = 4, net.shapes[x][1] * 2
    return y


def _turned(net: Images, x: str, numbers: random.Random) -> str:
    kernel = numbers.choice([1, 3])
    return net.transposed(x, 4, kernel, 1, pads=[kernel // 2] * 4)


def _gathered(net: Images, x: str, numbers: random.Random) -> str:
    del numbers
    y = net.op("SpaceToDepth", x, blocksize=2)
    net.shapes[y] = 4 * net.shapes[x][0], net.shapes[x][1] / 2
    return net.conv(y, 4, 1)


def _padded(net: Images, x: str, numbers: random.Random) -> str:
    above, below = numbers.choice([(1, 1), (2, 2), (0, 2), (2, 1)])
    pads = net.constant(np.array([0, 0, above, above, 0, 0, below, below], np.int64))
    y = net.op("Pad", x, pads, mode=numbers.choice(["constant", "reflect", "edge"]))
    return net.conv(y, 4, above + below + 1, pads=[0] * 4)


def _normalised(net: Images, x: str, numbers: random.Random) -> str:
    y = net.conv(x, 8, 3)
    y = net.group_norm(y, numbers.choice([1, 2, 8])) if numbers.random() < 0.6 else net.instance_norm(y)
    return net.op("Mul", y, net.op("Sigmoid", y))


def _excited(net: Images, x: str, numbers: random.Random) -> str:
    return net.squeeze_excite(x, pool=numbers.random() < 0.5)


def _parted(net: Images, x: str, numbers: random.Random) -> str:
    first, second = net.halves(x)
    return net.joined(net.conv(first, 3, numbers.choice([1, 3])), second)


def _weighed(net: Images, x: str, numbers: random.Random) -> str:
    return net.op("Mul", net.op("Softmax", x, axis=numbers.choice([1, 3])), x)


LAYERS: Final[list[Callable[[Images, str, random.Random], str]]] = [
    *(_convolved, _convolved, _named_padding, _by_channel, _strided, _pooled, _enlarged, _spread, _turned, _gathered),
    *(_padded, _normalised, _normalised, _excited, _parted, _weighed),
]
