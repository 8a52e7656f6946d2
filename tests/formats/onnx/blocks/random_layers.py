"""Random networks of layers whose batch and length stay open, and how they compare in blocks."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto, checker, shape_inference

from memsched.formats.blocks import Range
from memsched.formats.onnx.blocks import sums
from memsched.formats.onnx.blocks.body import write
from memsched.formats.onnx.blocks.fused import kernel_points
from memsched.formats.onnx.blocks.probes import OpenValues, probe
from memsched.formats.onnx.blocks.sums import sum_points
from memsched.formats.onnx.blocks.tokens import groups
from memsched.formats.onnx.light import lighten
from tests.formats.onnx.blocks.layers import Layers

__all__ = ["compare", "compare_kernels", "compare_sums", "random_model"]

_RANGES: Final = {"batch": Range(1, 8), "length": Range(2, 4096)}

_NUDGE: Final = 1e-7
_LEEWAY: Final = 10
"""How many times as far as last bits of inputs move outputs another order of sums may move them."""


def random_model(seed: int, *, summed: bool = False) -> ModelProto:
    """Return a network of two to five layers, each added to what it reads.

    Args:
        summed: Its output is added up over all tokens at the end.
    """
    numbers = random.Random(seed)
    net = Layers(heads=numbers.choice([1, 2, 4]))
    mask = net.padding_mask() if numbers.random() < 0.5 else None
    x = "x"
    for _ in range(numbers.randint(2, 5)):
        layer = numbers.choice(_LAYERS)
        y = layer(net, x, mask, numbers)
        x = net.op("Add", x, y) if numbers.random() < 0.8 else y
    if not summed:
        return net.model(x)
    model = net.model(numbers.choice(_SUMS)(net, x, mask, numbers))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return shape_inference.infer_shapes(model)


def compare(seed: int, sizes: list[tuple[int, int]]) -> int:
    """Check that blocks compute what the model as given does at every size; return the number of loops."""
    model = random_model(seed)
    graph, nests = groups(model, _values(model))
    _run(seed, model, write(model, graph, nests, random.Random(seed).choice([1, 5000, 100_000, 4 << 20])), sizes)
    return sum(len(nest) for nest in nests)


def compare_kernels(seed: int, sizes: list[tuple[int, int]]) -> int:
    """Check the same of kernels for attention, alone and with the rest in blocks; return the number of kernels."""
    model = random_model(seed)
    points = kernel_points(model, _values(model))[:2]
    for point in points:
        _run(seed, model, ModelProto.FromString(point.build()), sizes, other_sums=True)
    return sum(row.kind == "kernel" for point in points[:1] for row in point.rows)


def compare_sums(seed: int, sizes: list[tuple[int, int]]) -> int:
    """Check the same of sums in loops, alone and with the rest in blocks; return the number of loops that add up."""
    model = random_model(seed, summed=True)
    with mock.patch.object(sums, "BLOCKS", (random.Random(seed).choice([1, 5000, 100_000, 4 << 20]),)):
        points = sum_points(model, _values(model))
        for point in points:
            _run(seed, model, ModelProto.FromString(point.build()), sizes, other_sums=True)
    return sum(row.name.startswith("sums") for point in points[:1] for row in point.rows)


def _values(model: ModelProto) -> OpenValues:
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, Path())
    return probe(light, _RANGES)


def _run(
    seed: int, model: ModelProto, written: ModelProto, sizes: list[tuple[int, int]], *, other_sums: bool = False
) -> None:
    """Compare outputs.

    Args:
        other_sums: Sums are added up in another order: networks may magnify that as they do the last bits of inputs.
    """
    checker.check_model(written)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    sessions = [onnxruntime.InferenceSession(one.SerializeToString(), options) for one in (model, written)]
    for batch, length in sizes:
        feeds = _feeds(model, batch, length)
        expected, found = (session.run(None, feeds)[0] for session in sessions)
        assert found.shape == expected.shape, (seed, batch, length)
        worst = np.abs(found - expected).max()
        most = 1e-5 * max(np.abs(expected).max(), 1e-3)
        if worst > most and other_sums:
            near = sessions[0].run(None, {**feeds, "x": feeds["x"] * np.float32(1 + _NUDGE)})[0]
            most = max(most, _LEEWAY * np.abs(near - expected).max())
        assert worst <= most, (seed, batch, length, worst)


def _feeds(model: ModelProto, batch: int, length: int) -> dict[str, npt.NDArray[Any]]:
    numbers = np.random.default_rng(length)
    feeds: dict[str, npt.NDArray[Any]] = {"x": numbers.standard_normal((batch, length, 16)).astype(np.float32)}
    if any(value.name == "attention_mask" for value in model.graph.input):
        feeds["attention_mask"] = numbers.integers(0, 2, (batch, length))
        feeds["attention_mask"][:, 0] = 1
    return feeds


_Layer = Callable[[Layers, str, "str | None", random.Random], str]


def _attention(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    return net.attention(x, mask if numbers.random() < 0.7 else None, causal=numbers.random() < 0.4)


def _flat_attention(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    """Attend with batch and heads in one axis, as bmm does."""
    depth = net.width // net.heads
    parts = []
    orders: tuple[tuple[int, ...], ...] = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    for order in orders:
        heads = net.split_heads(net.linear(x, net.width, net.width), order)
        tail = (net.integers(depth), net.size(x, 1)) if order[2] == 3 else (net.size(x, 1), net.integers(depth))
        parts.append(net.op("Reshape", heads, net.op("Concat", net.integers(-1), *tail, axis=0)))
    mixed = net.op("MatMul", net.op("Softmax", net.op("MatMul", parts[0], parts[1]), axis=-1), parts[2])
    shape = net.op("Concat", net.size(x, 0), net.integers(net.heads), net.size(x, 1), net.integers(depth), axis=0)
    moved = net.op("Transpose", net.op("Reshape", mixed, shape), perm=[0, 2, 1, 3])
    whole = net.op("Concat", net.size(x, 0), net.size(x, 1), net.integers(net.width), axis=0)
    return net.op("Reshape", moved, whole)


def _feed_forward(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    return net.feed_forward(x, flat=numbers.random() < 0.5)


def _gated(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    wide = net.linear(x, net.width, 16 * net.width)
    first, second = net.split(wide, 8 * net.width)
    return net.linear(net.op("Mul", first, net.op("Sigmoid", second)), 8 * net.width, net.width)


def _normed(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    wide = net.op("Softmax", net.linear(x, net.width, 12 * net.width), axis=-1)
    mean = net.op("ReduceMean", wide, axes=[-1], keepdims=1)
    return net.linear(
        net.op("Div", net.op("Sub", wide, mean), net.op("Add", mean, net.op("Exp", mean))), 12 * net.width, net.width
    )


def _summed(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    """Multiply by a matrix that all tokens make together."""
    turned = net.op("Softmax", net.op("Transpose", x, perm=[0, 2, 1]), axis=-1)
    return net.op("MatMul", x, net.op("MatMul", turned, x))


def _apart(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    """Weight tokens by how far apart they are, every pair of them."""
    rows, columns = net.op("Unsqueeze", x, net.integers(2)), net.op("Unsqueeze", x, net.integers(1))
    apart = net.op("ReduceSum", net.op("Abs", net.op("Sub", rows, columns)), net.integers(-1), keepdims=0)
    return net.op("MatMul", net.op("Softmax", net.op("Neg", apart), axis=-1), x)


def _first(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    token = net.op("Gather", x, net.constant(np.int64(0)), axis=1)
    shape = net.op("Concat", net.size(x, 0), net.size(x, 1), net.integers(net.width), axis=0)
    return net.op("Expand", net.op("Unsqueeze", token, net.integers(1)), shape)


def _rising(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    return net.op("Tanh", net.op("CumSum", net.linear(x, net.width, net.width), net.constant(np.int64(1))))


_LAYERS: Final[tuple[_Layer, ...]] = (
    *(_attention, _attention, _flat_attention, _feed_forward, _gated, _normed, _summed, _apart, _first, _rising),
)


def _pooled(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    wide = net.op(numbers.choice(["Relu", "Sigmoid", "Abs"]), net.linear(x, net.width, 8 * net.width))
    kind, keep = numbers.choice(["ReduceSum", "ReduceMean", "ReduceMax"]), numbers.randint(0, 1)
    if kind == "ReduceSum":
        return net.op(kind, wide, net.integers(1), keepdims=keep)
    return net.op(kind, wide, axes=[1], keepdims=keep)


def _attended(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    """Let some vectors attend to all tokens, or one head of them."""
    rows, depth = numbers.choice([1, 5]), net.width // net.heads
    queries = net.op("Transpose", net.weight(1, rows, net.heads, depth), perm=[0, 2, 1, 3])
    keys = net.split_heads(net.linear(x, net.width, net.width), (0, 2, 3, 1))
    values = net.split_heads(net.linear(x, net.width, net.width), (0, 2, 1, 3))
    scores = net.op("MatMul", queries, keys)
    scores = net.op("Add", scores, mask) if mask is not None and numbers.random() < 0.7 else scores
    return net.op("MatMul", net.op("Softmax", scores, axis=-1), values)


def _multiplied(net: Layers, x: str, mask: str | None, numbers: random.Random) -> str:
    """Multiply what all tokens make by other things that they make, shares of all tokens or not."""
    wide = net.linear(x, net.width, 8 * net.width)
    wide = net.op("Softmax", wide, axis=1) if numbers.random() < 0.6 else wide
    turned = net.op("Transpose", wide, perm=[0, 2, 1])
    sums_of = net.op("MatMul", turned, net.linear(x, net.width, net.width))
    return net.op("MatMul", net.linear(x, net.width, 8 * net.width), sums_of) if numbers.random() < 0.5 else sums_of


_SUMS: Final[tuple[_Layer, ...]] = (_pooled, _attended, _multiplied)
