"""Small networks, clusters and plans for the tests of distribution."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

from memsched.features.distribute.plan import Blocks
from memsched.features.distribute.space import Space
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.reader import read
from memsched.formats.tflite.reader import read as read_tflite
from memsched.graph.distribution import Share
from memsched.graph.model import AttributeValue, Graph, Op, Tensor
from memsched.targets.cluster import Cluster, Device, LinearTime, Mode, Router
from tests.rewrites.tile.random_nets import onnx_net, tflite_net

Layer = tuple[str, Sequence[int], tuple[int, ...], Mapping[str, AttributeValue]]


def network(given: tuple[int, ...], layers: Sequence[Layer]) -> Graph:
    """Ops over input 0 of shape ``given``: each as (type, tensors read, shape made, attributes); op i makes i + 1."""
    tensors = [Tensor("x", 4 * _count(given), given, "float32")]
    ops = []
    for number, (kind, inputs, shape, attributes) in enumerate(layers):
        name = f"{kind.lower()}{number + 1}"
        tensors.append(Tensor(name, 4 * _count(shape), shape, "float32"))
        macs = 10 * _count(shape) if kind == "Conv" else 0
        ops.append(
            Op(
                name, kind, tuple(inputs), (number + 1,), attributes=attributes,
                positions=tuple(range(len(inputs))), macs=macs,
            )
        )  # fmt: skip
    return Graph("net", tuple(tensors), tuple(ops), (0,), (len(ops),))


def _count(shape: Sequence[int]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result


def conv(channels: int, kernel: int = 3, stride: int = 1, made: int | None = None) -> dict[str, AttributeValue]:
    """A convolution along rows, of planes of width 1."""
    pad = kernel // 2
    return {
        "constant_shape_1": (made or channels, channels, kernel, 1),
        "kernel_shape": (kernel, 1),
        "strides": (stride, 1),
        "pads": (pad, 0, pad, 0),
    }


def figure() -> Graph:
    """Conv1 -> Conv2 and Conv3 -> Sum, as in MemoriaNova's figure of chromosomes: 2 channels of 6 rows."""
    shape = (1, 2, 6, 1)
    return network(
        shape,
        [
            ("Conv", [0], shape, conv(2)),
            ("Conv", [1], shape, conv(2)),
            ("Conv", [1], shape, conv(2)),
            ("Add", [2, 3], shape, {}),
        ],
    )


def chain(rows: int = 4) -> Graph:
    """Three ops one after the other, of few rows."""
    return network(
        (1, 2, rows, 1),
        [
            ("Conv", [0], (1, 2, rows, 1), conv(2)),
            ("Relu", [1], (1, 2, rows, 1), {}),
            ("Conv", [2], (1, 3, rows, 1), conv(2, made=3)),
        ],
    )


def cluster(
    count: int = 3,
    *,
    bandwidth: float = 8.0,
    latency: float = 0.0,
    mode: Mode = "broadcast",
    memory: int = 1 << 30,
    times: Sequence[LinearTime] = (LinearTime(base=1.0),),
) -> Cluster:
    """Devices whose times repeat ``times``."""
    devices = tuple(Device(f"d{number}", memory, times[number % len(times)]) for number in range(count))
    return Cluster("test", devices, Router(bandwidth, latency, mode))


def rows(op: int, *bounds: int) -> Share:
    return Share(op, "rows", bounds)


def channels(op: int, *bounds: int) -> Share:
    return Share(op, "channels", bounds)


def random_network(seed: int, layers: int = 7) -> Graph:
    """Every third in TFLite's layout, the others in ONNX's."""
    if seed % 3 == 2:
        return read_tflite(tflite_net(seed, layers), "random.tflite", LoadOptions()).graphs[0]
    return read(onnx_net(seed, layers), "random.onnx").graphs[0]


def random_cluster(pick: random.Random) -> Cluster:
    times = [
        LinearTime(pick.random() * 1e-4, pick.random() * 1e-8, pick.random() * 1e-8) for _ in range(pick.randint(1, 3))
    ]
    mode: Mode = pick.choice(["broadcast", "point-to-point"])
    return cluster(
        pick.randint(2, 4), bandwidth=10 ** pick.uniform(5, 8), latency=pick.choice([0.0, 1e-4]), mode=mode, times=times
    )


def random_shares(pick: random.Random, space: Space, devices: int) -> tuple[Share, ...]:
    result = []
    for position, op in enumerate(space.order):
        axis = pick.choice(list(space.divisions[position]))
        division = space.divisions[position][axis]
        cuts = sorted(division.bound_of(pick.randint(0, division.units)) for _ in range(devices - 1))
        result.append(Share(op, axis, (0, *cuts, division.length)))
    return tuple(result)


def random_blocks(pick: random.Random, count: int) -> Blocks:
    cuts = sorted({0, count, *(pick.randrange(count) for _ in range(pick.randint(0, count)))})
    return tuple(itertools.pairwise(cuts))
