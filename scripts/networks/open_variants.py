"""Encoders as other exports have them: BERT with stored positions and a square mask, a Conformer of relative ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from scripts.networks.open_layers import OpenBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["bert_square_open", "by_distance", "conformer_relative_open"]

_LEAST: Final = float(np.finfo(np.float32).min)
_BANDS: Final = 80
_MOST: Final = int(np.iinfo(np.int64).max)


def bert_square_open(
    layers: int = 6, width: int = 768, heads: int = 12, tokens: int = 30_522, positions: int = 8192
) -> ModelProto:
    """Return BERT (Devlin et al.) whose mask is expanded to [batch, 1, length, length].

    Args:
        positions: How many have embeddings, 512 in the publication.
    """
    net = OpenBuilder("bert_square_open", width, heads)
    ids = net.input("input_ids", "batch", "length", integers=True)
    mask = net.input("attention_mask", "batch", "length", integers=True)
    batch, length = net.size(ids, 0), net.size(ids, 1)
    numbers, kinds = (
        net.op("Slice", net.constant(values[None], np.int64), net.integers(0), length, net.integers(1), net.integers(1))
        for values in (np.arange(positions), np.zeros(positions))
    )
    chosen = (tokens, ids), (2, _expanded(net, kinds, batch, length)), (positions, numbers)
    words, types, places = (net.op("Gather", net.weight(count, width, fan_in=1), one) for count, one in chosen)
    x = net.norm(net.op("Add", net.op("Add", words, types), places))
    for axis in (1, 2):
        mask = net.op("Unsqueeze", mask, net.integers(axis))
    shown = net.op("Cast", _expanded(net, mask, batch, net.integers(1), length, length), to=1)
    hidden = net.op("Mul", net.op("Sub", net.constant(1.0), shown), net.constant(_LEAST))
    for _ in range(layers):
        x = net.norm(net.op("Add", net.linear(net.attention(x, hidden), width, width), x))
        inner = net.gelu(net.linear(x, width, 4 * width))
        x = net.norm(net.op("Add", net.linear(inner, 4 * width, width), x))
    return net.model(net.named(x, "last_hidden_state"), "batch", "length", width)


def _expanded(net: OpenBuilder, x: str, *sizes: str) -> str:
    """Add ``x.expand(sizes)``, which keeps what is -1."""
    from onnx import helper

    wanted = net.op("Concat", *sizes, axis=0)
    ones = net.op("ConstantOfShape", net.integers(len(sizes)), value=helper.make_tensor("value", 7, [1], [1]))
    kept = net.op("Equal", wanted, net.op("Mul", ones, net.constant(-1, np.int64)))
    return net.op("Expand", x, net.op("Where", kept, ones, wanted))


def conformer_relative_open(
    layers: int = 8, width: int = 256, heads: int = 4, channels: int = 256, positions: int = 8192
) -> ModelProto:
    """Return a Conformer (Gulati et al.) whose scores have a term of relative positions, as in Transformer-XL.

    Args:
        channels: Of the two convolutions that leave a quarter of the frames and bands.
        positions: The greatest number of tokens.
    """
    net = OpenBuilder("conformer_relative_open", width, heads)
    x = net.op("Unsqueeze", net.input("features", "batch", "frames", _BANDS), net.integers(1))
    for before in (1, channels):
        weight, bias = net.weight(channels, before, 3, 3, fan_in=5 * before), net.vector(channels)
        x = net.op("Relu", net.op("Conv", x, weight, bias, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    x = net.op("Transpose", x, perm=[0, 2, 1, 3])
    flat = channels * _BANDS // 4
    x = net.linear(net.reshaped(x, net.size(x, 0), net.size(x, 1), flat), flat, width)
    x = net.op("Mul", x, net.constant(math.sqrt(width)))
    offsets = _offsets(net, x, positions)
    for _ in range(layers):
        x = net.op("Add", x, net.op("Mul", _feed_forward(net, x), net.constant(0.5)))
        x = net.op("Add", x, net.linear(_relative(net, net.norm(x), offsets), width, width))
        x = net.op("Add", x, _convolved(net, net.norm(x)))
        x = net.norm(net.op("Add", x, net.op("Mul", _feed_forward(net, x), net.constant(0.5))))
    return net.model(net.named(x, "outputs"), "batch", "tokens", width)


def _offsets(net: OpenBuilder, x: str, positions: int) -> str:
    """Cut [1, 2 * length - 1, width] out of the waves of all offsets, the greatest first."""
    rates = 10_000.0 ** (-np.arange(0, net.width, 2) / net.width)
    angles = np.arange(positions - 1, -positions, -1)[:, None] * rates
    table = net.constant(np.stack([np.sin(angles), np.cos(angles)], -1).reshape(1, 2 * positions - 1, net.width))
    length = net.length(x, 1)
    start = net.op("Sub", net.constant(positions, np.int64), length)
    end = net.op("Sub", net.op("Add", net.constant(positions, np.int64), length), net.constant(1, np.int64))
    bounds = (net.op("Unsqueeze", one, net.integers(0)) for one in (start, end))
    return net.op("Slice", table, *bounds, net.integers(1), net.integers(1))


def _relative(net: OpenBuilder, x: str, offsets: str) -> str:
    width, heads, depth = net.width, net.heads, net.depth
    queries, keys, values = (net.linear(x, width, width) for _ in range(3))
    queries = net.reshaped(queries, net.size(x, 0), net.size(x, 1), heads, depth)
    places = net.reshaped(net.linear(offsets, width, width, bias=False), net.size(offsets, 0), -1, heads, depth)
    biased = (net.op("Add", queries, net.weight(heads, depth, fan_in=10)) for _ in range(2))
    by_content, by_place = (net.op("Transpose", one, perm=[0, 2, 1, 3]) for one in biased)
    content = net.op("MatMul", by_content, net.split_heads(keys, 0, 2, 3, 1))
    place = by_distance(net, net.op("MatMul", by_place, net.op("Transpose", places, perm=[0, 2, 3, 1])))
    place = net.op("Slice", place, net.integers(0), net.size(content, 3), net.integers(3), net.integers(1))
    scores = net.op("Div", net.op("Add", content, place), net.constant(math.sqrt(depth)))
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), net.split_heads(values, 0, 2, 1, 3))
    return net.join_heads(mixed)


def by_distance(net: OpenBuilder, scores: str) -> str:
    """Move row ``i`` of [batch, heads, rows, offsets] so that its offsets begin at column 0: pad, reshape, cut."""
    batch, rows, columns = net.size(scores, 0), net.size(scores, 2), net.size(scores, 3)
    wider = net.op("Pad", scores, net.integers(0, 0, 0, 1, 0, 0, 0, 0), net.constant(0.0), mode="constant")
    turned = net.reshaped(wider, batch, net.heads, -1, rows)
    cut = net.op("Slice", turned, net.integers(1), net.integers(_MOST), net.integers(2), net.integers(1))
    return net.reshaped(cut, batch, net.heads, rows, columns)


def _feed_forward(net: OpenBuilder, x: str) -> str:
    return net.linear(net.silu(net.linear(net.norm(x), net.width, 4 * net.width)), 4 * net.width, net.width)


def _convolved(net: OpenBuilder, x: str) -> str:
    width = net.width
    x = net.op("Transpose", x, perm=[0, 2, 1])
    x = _along(net, x, 2 * width, 1)
    values, gates = net.ops("Split", 2, x, net.integers(width, width), axis=1)
    x = net.op("Mul", values, net.op("Sigmoid", gates))
    x = net.silu(_along(net, x, width, 31, group=width))
    return net.op("Transpose", _along(net, x, width, 1), perm=[0, 2, 1])


def _along(net: OpenBuilder, x: str, after: int, kernel: int, group: int = 1) -> str:
    depth = net.width // group
    weight, bias = net.weight(after, depth, kernel, fan_in=depth * kernel), net.vector(after)
    ends = [kernel // 2] * 2
    return net.op("Conv", x, weight, bias, dilations=[1], group=group, kernel_shape=[kernel], pads=ends, strides=[1])
