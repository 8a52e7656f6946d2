"""Small random networks of feature maps, as graphs without a file behind them."""

from __future__ import annotations

import random
from typing import Any

from memsched.graph.model import Graph, Op, Tensor


class Net:
    """Ops over maps (1, channels, rows, columns) of 4-byte elements."""

    def __init__(self, channels: int, rows: int, columns: int) -> None:
        self.tensors = [Tensor("x", 4 * channels * rows * columns, (1, channels, rows, columns), "float32")]
        self.ops: list[Op] = []

    def add(self, kind: str, reads: list[int], channels: int, rows: int, columns: int, **attributes: Any) -> int:
        made = len(self.tensors)
        self.tensors.append(Tensor(f"t{made}", 4 * channels * rows * columns, (1, channels, rows, columns), "float32"))
        macs = channels * rows * columns * 9 if kind == "Conv" else 0
        places = tuple(range(len(reads)))
        self.ops.append(
            Op(f"op{made}", kind, tuple(reads), (made,), attributes=attributes, positions=places, macs=macs)
        )
        return made

    def shape(self, tensor: int) -> tuple[int, int, int]:
        shape = self.tensors[tensor].shape or ()
        return shape[1], shape[2], shape[3]

    def conv(self, x: int, channels: int, kernel: int = 3, stride: int = 1, pad: int = 1) -> int:
        given, rows, columns = self.shape(x)
        made = [(length + 2 * pad - kernel) // stride + 1 for length in (rows, columns)]
        return self.add(
            "Conv", [x], channels, *made, constant_shape_1=(channels, given, kernel, kernel),
            strides=(stride, stride), pads=(pad,) * 4,
        )  # fmt: skip

    def relu(self, x: int) -> int:
        return self.add("Relu", [x], *self.shape(x))

    def join(self, kind: str, x: int, y: int) -> int:
        channels, rows, columns = self.shape(x)
        if kind == "Add":
            return self.add("Add", [x, y], channels, rows, columns)
        return self.add("Concat", [x, y], channels + self.shape(y)[0], rows, columns, axis=1)

    def pool(self, x: int) -> int:
        channels, rows, columns = self.shape(x)
        return self.add(
            "MaxPool", [x], channels, (rows - 2) // 2 + 1, (columns - 2) // 2 + 1, kernel_shape=(2, 2), strides=(2, 2)
        )

    def graph(self) -> Graph:
        read = {tensor for op in self.ops for tensor in op.inputs}
        outputs = tuple(tensor for tensor in range(1, len(self.tensors)) if tensor not in read)
        return Graph("net", tuple(self.tensors), tuple(self.ops), (0,), outputs)


def random_net(seed: int, layers: int = 8) -> Graph:
    """Convolutions, activations, pools, residual sums and branches."""
    pick = random.Random(seed)
    net = Net(pick.choice([3, 4]), pick.randint(9, 20), pick.randint(8, 16))
    x = 0
    while len(net.ops) < layers:
        channels, rows, columns = net.shape(x)
        kind = pick.choice(["conv", "conv", "strided", "point", "relu", "pool", "residual", "branches", "two outputs"])
        if kind == "conv":
            x = net.conv(x, pick.choice([4, 6, 8]), *pick.choice([(3, 1, 1), (5, 1, 2), (3, 1, 0)]))
        elif kind == "strided" and min(rows, columns) > 5:
            x = net.conv(x, 6, 3, 2, pick.randint(0, 1))
        elif kind == "point":
            x = net.conv(x, 8, 1, 1, 0)
        elif kind == "relu":
            x = net.relu(x)
        elif kind == "pool" and min(rows, columns) > 5:
            x = net.pool(x)
        elif kind == "residual":
            x = net.join("Add", x, net.relu(net.conv(x, channels)))
        elif kind == "branches":
            x = net.join("Concat", net.conv(x, 4, 1, 1, 0), net.conv(net.relu(x), 4))
        elif kind == "two outputs":
            net.conv(x, 4)
        if min(net.shape(x)[1:]) < 4:
            break
    return net.graph()
