"""Random small quantised networks with convolutions, pools and residual sums, for loops."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

__all__ = ["branched_net", "looped_net"]

_KINDS = {"INT8": (np.int8, -128, 127), "INT16": (np.int16, -32768, 32767), "FLOAT32": (np.float32, 0, 0)}


@dataclass
class _Net:
    rng: random.Random
    dtype: str
    tensors: list[T] = field(default_factory=list)
    ops: list[O] = field(default_factory=list)

    def value(self, shape: Sequence[int], scale: float, zero: int) -> int:
        scales = () if self.dtype == "FLOAT32" else (scale,)
        self.tensors.append(T(f"t{len(self.tensors)}", shape, self.dtype, scales=scales, zero_point=zero))
        return len(self.tensors) - 1

    def zero(self) -> int:
        return self.rng.choice([-128, -128, -3, 0, 127]) if self.dtype == "INT8" else 0

    def weights(self, shape: Sequence[int], scale: float, channels: int, axis: int) -> tuple[int, int]:
        numbers = np.random.default_rng(self.rng.randrange(1 << 30))
        if self.dtype == "FLOAT32":
            data, bias = numbers.normal(size=shape).astype(np.float32), numbers.normal(size=channels).astype(np.float32)
            self.tensors.append(T(f"w{len(self.tensors)}", shape, "FLOAT32", data.tobytes()))
            self.tensors.append(T(f"b{len(self.tensors)}", (channels,), "FLOAT32", bias.tobytes()))
        else:
            scales = [float(np.float32(one)) for one in numbers.uniform(0.005, 0.02, channels)]
            whole = numbers.integers(-127, 128, shape).astype(np.int8)
            wide = np.int64 if self.dtype == "INT16" else np.int32
            bias = numbers.integers(-500, 500, channels).astype(wide)
            self.tensors.append(T(f"w{len(self.tensors)}", shape, "INT8", whole.tobytes(), scales=scales, axis=axis))
            kind = "INT64" if self.dtype == "INT16" else "INT32"
            bias_scales = [one * scale for one in scales]
            self.tensors.append(T(f"b{len(self.tensors)}", (channels,), kind, bias.tobytes(), scales=bias_scales))
        return len(self.tensors) - 2, len(self.tensors) - 1


_LAYERS = ("conv", "conv", "depthwise", "depthwise", "pointwise", "residual", "pool", "pad", "relu")


def looped_net(seed: int, layers: int = 6, *, side: tuple[int, int] = (8, 20), sliced: bool = False) -> bytes:
    """Return a random network of so many layers or a few more.

    Args:
        side: The least and the most rows, and columns, of its input.
        sliced: Some layers are slices, with steps or without.
    """
    rng = random.Random(seed)
    net = _Net(rng, rng.choice(["INT8", "INT8", "INT8", "INT16", "FLOAT32"]))
    shape = [1, rng.randint(*side), rng.randint(*side), rng.randint(1, 4)]
    given = net.value(shape, 0.05, net.zero())
    current = given
    for _ in range(layers):
        current = _layer(net, current, (*_LAYERS, *["slice"] * 3) if sliced else _LAYERS)
    return build(Sub(net.tensors, net.ops, (given,), (current,)))


def branched_net(
    seed: int, layers: int = 7, *, side: tuple[int, int] = (6, 14), sliced: bool = False, pooled: bool = False
) -> bytes:
    """Return a random network whose layers read any earlier value, with sums and joins of several values.

    All values that nothing reads are outputs, and at times others are. See `looped_net`.

    Args:
        pooled: Many layers are pools of stride one whose windows reach past the image.
    """
    rng = random.Random(seed)
    net = _Net(rng, rng.choice(["INT8", "INT8", "INT8", "INT16", "FLOAT32"]))
    shape = [rng.choice([1, 1, 1, 2]), rng.randint(*side), rng.randint(*side), rng.randint(1, 4)]
    inputs = [net.value(shape, 0.05, net.zero()) for _ in range(rng.choice([1, 1, 2]))]
    values, unread = list(inputs), set(inputs)
    for _ in range(layers):
        source = values[-1] if rng.random() < 0.6 else rng.choice(values)
        before = len(net.ops)
        if rng.random() < 0.4:
            made = _joined(net, source, values)
        else:
            made = _layer(net, source, (*_LAYERS, *["slice"] * 3 * sliced, *["padded pool"] * 6 * pooled))
        unread -= {tensor for op in net.ops[before:] for tensor in op.inputs}
        inner = [op.outputs[0] for op in net.ops[before:]]
        values += inner
        unread.add(made)
    outputs = [one for one in values if one in unread or (one not in inputs and rng.random() < 0.05)]
    return build(Sub(net.tensors, net.ops, inputs, [one for one in outputs if one not in inputs]))


def _joined(net: _Net, source: int, values: Sequence[int]) -> int:
    """Return a sum, a product or a concatenation of a value and others of its height and width, maybe of itself."""
    shape = net.tensors[source].shape
    beside = [one for one in values if net.tensors[one].shape[:3] == shape[:3] and one != source]
    alike = [one for one in beside if net.tensors[one].shape == shape]
    given = net.tensors[source]
    # What is joined has one quantisation.
    same = [
        one
        for one in beside
        if net.tensors[one].scales == given.scales and net.tensors[one].zero_point == given.zero_point
    ]
    if same and net.rng.random() < 0.5:
        chosen = [source, *net.rng.sample(same, min(len(same), net.rng.choice([1, 1, 2])))]
        net.rng.shuffle(chosen)
        made = _like(net, source, [*shape[:3], sum(net.tensors[one].shape[3] for one in chosen)])
        net.ops.append(O("CONCATENATION", chosen, (made,), options("ConcatenationOptions", axis=3)))
        return made
    if net.rng.random() < 0.1:
        alike = [source]
    other = net.rng.choice(alike) if alike else _layer(net, source, ["relu"])
    if net.tensors[other].shape != shape:
        return other
    pair = (source, other) if net.rng.random() < 0.5 else (other, source)
    kind = net.rng.choice(["Add", "Add", "Sub", "Mul"])
    made = net.value(shape, 0.07, net.zero())
    net.ops.append(O(kind.upper(), pair, (made,), options(f"{kind}Options")))
    return made


def _layer(net: _Net, current: int, kinds: Sequence[str]) -> int:
    kind = net.rng.choice(kinds)
    shape = net.tensors[current].shape
    if min(shape[1:3]) < 4 and kind in {"conv", "depthwise", "pool"}:
        kind = "pointwise"
    if kind == "residual":
        inner = _convolution(net, current, depthwise=False, kernel=(1, 1), stride=1, channels=shape[3] * 2)
        inner = _convolution(net, inner, depthwise=True, kernel=(3, 3), stride=1, channels=shape[3] * 2, same=True)
        inner = _convolution(net, inner, depthwise=False, kernel=(1, 1), stride=1, channels=shape[3])
        made = net.value(shape, 0.07, net.zero())
        net.ops.append(O("ADD", (current, inner), (made,), options("AddOptions")))
        return made
    if kind == "pool":
        made = _like(net, current, [shape[0], shape[1] // 2, shape[2] // 2, shape[3]])
        stated = options("Pool2DOptions", padding=1, strideH=2, strideW=2, filterHeight=2, filterWidth=2)
        net.ops.append(O(net.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"]), (current,), (made,), stated))
        return made
    if kind == "padded pool":
        return _padded_pool(net, current)
    if kind == "pad":
        pads = [0, 0, *(net.rng.randint(0, 2) for _ in range(4)), 0, 0]
        made = _like(net, current, [shape[0], shape[1] + pads[2] + pads[3], shape[2] + pads[4] + pads[5], shape[3]])
        net.tensors.append(T(f"p{len(net.tensors)}", (4, 2), "INT32", int32s(*pads)))
        net.ops.append(O("PAD", (current, len(net.tensors) - 1), (made,), options("PadOptions")))
        return made
    if kind == "slice":
        return _slice(net, current)
    if kind == "relu" and net.dtype != "INT16":
        made = _like(net, current, shape)
        net.ops.append(O("RELU", (current,), (made,)))
        return made
    small = kind in {"pointwise", "relu"}
    kernel = (1, 1) if small else net.rng.choice([(3, 3), (3, 3), (1, 3), (5, 3)])
    stride = 1 if small else net.rng.choice([1, 1, 2])
    depthwise = kind == "depthwise"
    channels = shape[3] * net.rng.choice([1, 1, 2]) if depthwise else net.rng.randint(1, 6)
    return _convolution(net, current, depthwise=depthwise, kernel=kernel, stride=stride, channels=channels)


def _padded_pool(net: _Net, current: int) -> int:
    made = _like(net, current, net.tensors[current].shape)
    height, width = net.rng.choice([(3, 3), (3, 3), (2, 2), (5, 3), (1, 3), (4, 15)])
    sides = {"strideH": 1, "strideW": 1, "filterHeight": height, "filterWidth": width}
    stated = options("Pool2DOptions", padding=0, fusedActivationFunction=net.rng.choice([0, 0, 1, 3]), **sides)
    net.ops.append(O(net.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"]), (current,), (made,), stated))
    return made


def _slice(net: _Net, current: int) -> int:
    shape = net.tensors[current].shape
    step = net.rng.choice([1, 1, 2])
    begin = [0, *(net.rng.randint(0, size // 3) for size in shape[1:3]), 0]
    length = [net.rng.randint(1 + (size - at) // 2, size - at) for size, at in zip(shape[1:3], begin[1:3], strict=True)]
    lengths = (shape[0], *length, shape[3])
    made = _like(net, current, [shape[0], *(-(-size // step) for size in length), shape[3]])
    ends = [at + size for at, size in zip(begin, lengths, strict=True)]
    kind = "SLICE" if step == 1 and net.rng.random() < 0.5 else "STRIDED_SLICE"
    stated = {"SLICE": (begin, lengths), "STRIDED_SLICE": (begin, ends, (1, step, step, 1))}[kind]
    net.tensors += [T(f"s{len(net.tensors)}{place}", (4,), "INT32", int32s(*one)) for place, one in enumerate(stated)]
    constants = range(len(net.tensors) - len(stated), len(net.tensors))
    net.ops.append(
        O(kind, (current, *constants), (made,), options(f"{'' if kind == 'SLICE' else 'Strided'}SliceOptions"))
    )
    return made


def _like(net: _Net, current: int, shape: Sequence[int]) -> int:
    given = net.tensors[current]
    return net.value(shape, given.scales[0] if given.scales else 0.0, given.zero_point)


def _convolution(
    net: _Net,
    current: int,
    *,
    depthwise: bool,
    kernel: tuple[int, int],
    stride: int,
    channels: int,
    same: bool | None = None,
) -> int:
    given = net.tensors[current]
    shape = given.shape
    if same is None:
        same = kernel == (1, 1) or net.rng.random() < 0.8 or min(shape[1:3]) < 6
    lengths = [
        -(-size // stride) if same else (size - window) // stride + 1
        for size, window in zip(shape[1:3], kernel, strict=True)
    ]
    form = (1, *kernel, channels) if depthwise else (channels, *kernel, shape[3])
    scale = given.scales[0] if given.scales else 1.0
    weights, bias = net.weights(form, scale, channels, 3 if depthwise else 0)
    made = net.value([shape[0], *lengths, channels], 0.05, net.zero())
    stated = {"padding": 0 if same else 1, "strideH": stride, "strideW": stride}
    stated |= {"dilationHFactor": 1, "dilationWFactor": 1}
    if net.dtype != "INT16":
        stated["fusedActivationFunction"] = net.rng.choice([0, 1, 3])
    if depthwise:
        stated["depthMultiplier"] = channels // shape[3]
    table = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    net.ops.append(O(kind, (current, weights, bias), (made,), options(table, **stated)))
    return made
