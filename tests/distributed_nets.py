"""Small random networks, random plans for them, and plans executed in this process, for tests of distribution."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

from memsched.features.distribute.plan import Blocks, plan_in
from memsched.features.distribute.space import Space
from memsched.graph.distribution import Axis, Distribution, Share
from memsched.graph.model import Graph
from memsched.runtimes.devices.program import ArrayAssembly, DeviceProgram, Send
from memsched.targets.cluster import Cluster, Device, LinearTime, Mode, Router
from tests.small_models import floats, model_of

__all__ = ["Net", "classifier", "cluster_of", "plan_of", "play", "random_net", "random_plan", "reference"]
__all__ += ["wide_first"]

Array = np.ndarray[Any, Any]

GB = 1 << 30


def cluster_of(count: int, *, memory: int = GB, mode: Mode = "broadcast") -> Cluster:
    """Return equal devices."""
    time = LinearTime(1e-6, 1e-9, 1e-10)
    devices = tuple(Device(f"board-{number}", memory, time) for number in range(count))
    return Cluster("boards", devices, Router(1e8, 1e-5, mode))


def plan_of(
    graph: Graph,
    shares: Sequence[Share],
    cluster: Cluster,
    *,
    blocks: Blocks | None = None,
    home: int = 0,
    weights: Mapping[int, Mapping[int, int]] | None = None,
) -> Distribution:
    """Return the plan of shares, one per op in order of execution; see `plan_in`."""
    return plan_in(Space.of(graph, [share.op for share in shares], weights), shares, cluster, blocks=blocks, home=home)


@dataclass
class Net:
    """Builds a network layer by layer; values are names, whose shapes are kept."""

    seed: int = 0
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)

    def given(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = shape
        return name

    def weights(self, *shape: int) -> str:
        rng = np.random.default_rng(self.seed + len(self.constants))
        name = f"w{len(self.constants)}"
        scale = 1 / max(1.0, np.sqrt(np.prod(shape[1:])))
        self.constants.append(numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name))
        return name

    def node(self, kind: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"op_{name}", **attributes))
        self.shapes[name] = tuple(shape)
        return name

    def conv(self, x: str, channels: int, kernel: int = 3, stride: int = 1, group: int = 1, dilation: int = 1) -> str:
        batch, given, height, width = self.shapes[x]
        pad = dilation * (kernel // 2)
        sides = [(size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for size in (height, width)]
        inputs = [x, self.weights(channels, given // group, kernel, kernel), self.weights(channels)]
        more = {"pads": [pad] * 4, "strides": [stride] * 2, "group": group, "dilations": [dilation] * 2}
        return self.node("Conv", inputs, (batch, channels, *sides), **more)

    def pool(self, x: str, kind: str, kernel: int = 3, stride: int = 2, pad: int = 1) -> str:
        batch, channels, height, width = self.shapes[x]
        sides = [(size + 2 * pad - kernel) // stride + 1 for size in (height, width)]
        more = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        return self.node(kind, [x], (batch, channels, *sides), **more)

    def same(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.node(kind, inputs, self.shapes[inputs[0]], **attributes)

    def concat(self, inputs: Sequence[str]) -> str:
        batch, _, *sides = self.shapes[inputs[0]]
        channels = sum(self.shapes[name][1] for name in inputs)
        return self.node("Concat", inputs, (batch, channels, *sides), axis=1)

    def normalised(self, x: str) -> str:
        channels = self.shapes[x][1]
        rng = np.random.default_rng(self.seed + len(self.constants))
        variance = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(rng.uniform(0.5, 2, channels).astype(np.float32), variance))
        return self.same("BatchNormalization", x, *(self.weights(channels) for _ in range(3)), variance)

    def head(self, x: str, classes: int) -> str:
        """Pooled, flattened, two products and a softmax."""
        batch, channels, *_ = self.shapes[x]
        x = self.node("GlobalAveragePool", [x], (batch, channels, 1, 1))
        x = self.node("Flatten", [x], (batch, channels), axis=1)
        hidden = [x, self.weights(2 * channels, channels), self.weights(2 * channels)]
        x = self.same("Relu", self.node("Gemm", hidden, (batch, 2 * channels), transB=1))
        x = self.node("MatMul", [x, self.weights(2 * channels, classes)], (batch, classes))
        x = self.same("Add", x, self.weights(classes))
        return self.same("Softmax", x, axis=-1)

    def model(self, *outputs: str) -> bytes:
        given = [floats(name, self.shapes[name]) for name in self.inputs]
        return model_of(self.nodes, given, [floats(name, self.shapes[name]) for name in outputs], self.constants)


def classifier() -> bytes:
    """A convolution, pooling, a separable and a grouped convolution, a sum, a concatenation, products and softmax."""
    net = Net()
    x = net.same("Relu", net.conv(net.given(1, 3, 20, 20), 16, 3, 2))
    x = net.pool(x, "MaxPool", 3, 1, 1)
    y = net.conv(net.conv(x, 16, 3, 1, 16), 16, 1)
    x = net.same("Add", x, y)
    x = net.concat([x, net.conv(x, 24, 3, 1, 4)])
    return net.model(net.head(x, 10))


def wide_first(branches: int = 6) -> bytes:
    """Branches of a wide convolution and one that shrinks it, stored with all wide ones first: the worst order."""
    net = Net()
    x = net.given(1, 4, 16, 16)
    wide = [net.conv(x, 16) for _ in range(branches)]
    return net.model(net.head(net.concat([net.conv(one, 2, 3, 2) for one in wide]), 10))


def random_net(seed: int) -> bytes:
    """A random network of 4 to 14 layers on small images."""
    r = random.Random(seed)
    net = Net(seed)
    shape = (1, r.choice([2, 3, 4, 8]), r.randint(4, 13), r.randint(4, 9))
    values = [net.given(*shape) for _ in range(r.choice([1, 1, 2]))]
    for _ in range(r.randint(3, 12)):
        values.append(_layer(r, net, r.choice(values[-3:]), values))
    read = {name for node in net.nodes for name in node.input}
    ends = [name for name in values if name not in read]
    if r.random() < 0.4:
        ends[-1] = net.head(ends[-1], r.randint(2, 9))
    outputs = [*ends, *([values[-2]] if r.random() < 0.3 and values[-2] not in {*ends, *net.inputs} else [])]
    return net.model(*(name for name in outputs if name not in net.inputs))


def _layer(r: random.Random, net: Net, x: str, values: Sequence[str]) -> str:
    _, channels, height, width = net.shapes[x]
    kinds: list[Callable[[], str]] = [
        lambda: net.conv(x, r.choice([3, 4, 6, 8]), r.choice([1, 3]), r.choice([1, 1, 2])),
        lambda: net.conv(x, r.choice([4, 5, 8]), 3, 1, 1, 2),
        lambda: net.conv(x, channels * r.choice([1, 2]), 3, r.choice([1, 2]), channels),
        lambda: net.same(r.choice(["Relu", "Sigmoid", "Elu", "Tanh"]), x),
        lambda: net.normalised(x),
        lambda: net.same("Mul", x, net.weights(1, channels, 1, 1)),
    ]
    if min(height, width) > 2:
        kinds.append(
            lambda: net.pool(x, r.choice(["MaxPool", "AveragePool"]), *r.choice([(3, 1, 1), (3, 2, 1), (2, 2, 0)]))
        )
    if channels % 2 == 0:
        kinds.append(lambda: net.conv(x, r.choice([4, 8]), 3, 1, 2))
    alike = [name for name in values if net.shapes[name] == net.shapes[x] and name != x]
    if alike:
        kinds += [lambda: net.same(r.choice(["Add", "Mul", "Max"]), x, r.choice(alike))] * 3
    beside = [name for name in values if net.shapes[name][2:] == net.shapes[x][2:]]
    kinds += [lambda: net.concat([x, r.choice(beside)])] * 2
    if height * width < 60:
        scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), f"s{len(net.nodes)}")
        kinds.append(lambda: _enlarged(net, x, scales))
    return r.choice(kinds)()


def _enlarged(net: Net, x: str, scales: Any) -> str:
    net.constants.append(scales)
    batch, channels, height, width = net.shapes[x]
    more = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return net.node("Resize", [x, "", scales.name], (batch, channels, 2 * height, 2 * width), **more)


def random_plan(
    graph: Graph,
    seed: int,
    weights: Mapping[int, Mapping[int, int]] | None = None,
    refused: Collection[tuple[int, Axis]] = (),
) -> Distribution:
    """A random share of every op, random blocks without synchronisation, a random home, half with overlap."""
    r = random.Random(seed)
    count = r.randint(2, 4)
    space = Space.of(graph, None, weights, refused)
    shares = []
    for position in range(len(graph.ops)):
        axes: list[Axis] = [axis for axis in ("channels", "rows", "whole") if axis in space.divisions[position]]
        axis = r.choice(axes[:2] if r.random() < 0.8 else axes)
        division = space.divisions[position][axis]
        inner = sorted(r.randint(0, division.units) for _ in range(count - 1))
        bounds = (0, *(division.bound_of(unit) for unit in inner), division.length)
        shares.append(Share(position, axis, bounds))
    ends = sorted({*(end for end in range(1, len(shares)) if r.random() < 0.7), len(shares)})
    blocks = tuple(zip([0, *ends], ends, strict=False))
    cluster = cluster_of(count, mode=r.choice(["broadcast", "point-to-point"]))
    home = r.randrange(count)
    router = replace(cluster.router, overlap=r.random() < 0.5)
    return plan_in(space, shares, replace(cluster, router=router), blocks=blocks, home=home)


# Execution ----------------------------------------------------------------------------------------------------------


def _session(model: str | bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def reference(model: str | bytes, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs of a model by name."""
    session = _session(model)
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def play(
    programs: Sequence[DeviceProgram],
    given: Sequence[Sequence[Send]],
    part: Callable[[int, int], bytes],
    feeds: Mapping[str, Array],
    opened: Callable[[bytes], Any] | None = None,
) -> tuple[dict[str, Array], list[int]]:
    """Execute programs in this process; return the outputs, and the most bytes held by each at the end of a half.

    Args:
        opened: Returns what runs a model; None for ONNX Runtime.
    """
    held: list[dict[str, Array]] = [{} for _ in programs]
    most = [0] * len(programs)

    def note() -> None:
        for device, arrays in enumerate(held):
            most[device] = max(most[device], sum(array.nbytes for array in arrays.values()))

    for step, sends in enumerate(given):
        wire = {(step, one.transfer): _made(one.value, feeds) for one in sends}
        for device, program in enumerate(programs):
            wire.update({(step, one.transfer): _made(one.value, held[device]) for one in program.steps[step].sends})
        for device, program in enumerate(programs):
            for one in program.steps[step].receives:
                array = held[device].setdefault(one.key, _unset(one.shape, one.dtype))
                array[_slices(one.place)] = wire[step, one.transfer]
            for gather in program.steps[step].gathers:
                empty = _unset(gather.value.shape, gather.value.dtype)
                array = held[device].setdefault(gather.key, empty)
                for cut in gather.value.cuts:
                    array[_slices(cut.target)] = held[device][cut.key][_slices(cut.source)]
        note()
        ahead = {
            (step, one.transfer): _made(one.value, held[device])
            for device, program in enumerate(programs)
            for one in program.steps[step].sends_ahead
        }
        for device, program in enumerate(programs):
            _compute(held[device], program, step, device, part, opened or _session)
        for device, program in enumerate(programs):
            for one in program.steps[step].receives_ahead:
                array = held[device].setdefault(one.key, _unset(one.shape, one.dtype))
                array[_slices(one.place)] = ahead[step, one.transfer]
        note()
        for device, program in enumerate(programs):
            for key in program.steps[step].done:
                del held[device][key]
    outputs = {
        name: _made(value, held[device]) for device, program in enumerate(programs) for name, value in program.outputs
    }
    return outputs, most


def _compute(
    held: dict[str, Array],
    program: DeviceProgram,
    step: int,
    device: int,
    part: Callable[[int, int], bytes],
    opened: Callable[[bytes], Any],
) -> None:
    one = program.steps[step]
    for key in one.sent:
        del held[key]
    if one.run is not None:
        session = opened(part(device, step))
        results = session.run([name for name, _ in one.run.outputs], {name: held[key] for name, key in one.run.inputs})
        held.update({key: array for (_, key), array in zip(one.run.outputs, results, strict=True)})


def _unset(shape: Sequence[int], dtype: str) -> Array:
    """An array of what shows when it is read before it is written."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 1, dtype)


def _made(value: ArrayAssembly, held: Mapping[str, Array]) -> Array:
    made = _unset(value.shape, value.dtype)
    for cut in value.cuts:
        made[_slices(cut.target)] = held[cut.key][_slices(cut.source)]
    return made


def _slices(ranges: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in ranges)
