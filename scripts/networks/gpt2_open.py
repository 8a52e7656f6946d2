"""GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners") with its scores, any length.

768 wide, 12 heads, 50,257 tokens, positions up to 8,192 where the original has 1,024; the scores of the last position
alone, as generation asks for them. The causal mask is a stored triangle, cut by Slices and applied by Where.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scripts.networks.open_layers import OpenBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["gpt2_cached_open", "gpt2_prefill_open"]

_LEAST = float(np.finfo(np.float32).min)


def gpt2_prefill_open(
    layers: int = 6, width: int = 768, heads: int = 12, tokens: int = 50_257, positions: int = 8192
) -> ModelProto:
    """Return the decoder for a whole text, without a cache."""
    net = OpenBuilder("gpt2_prefill_open", width, heads)
    return _decoder(net, layers, tokens, positions, None)


def gpt2_cached_open(
    layers: int = 6, width: int = 768, heads: int = 12, tokens: int = 50_257, positions: int = 8192
) -> ModelProto:
    """Return the decoder that reads and gives keys and values of each layer; the past may be empty."""
    net = OpenBuilder("gpt2_cached_open", width, heads)
    return _decoder(net, layers, tokens, positions, _Cache(net))


@dataclass(slots=True)
class _Cache:
    net: OpenBuilder
    past: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)

    def start(self, layers: int) -> None:
        """Add the inputs."""
        for number in range(layers):
            for what in ("key", "value"):
                self.past.append(self.net.input(f"past_key_values.{number}.{what}", *self.shape("past")))

    def shape(self, length: str) -> tuple[str | int, ...]:
        return "batch", self.net.heads, length, self.net.depth

    def joined(self, value: str) -> str:
        """Put the past before ``value``: each layer's keys, then its values."""
        number, what = divmod(len(self.present), 2)
        whole = self.net.op("Concat", self.past[len(self.present)], value, axis=-2)
        self.present.append(self.net.named(whole, f"present.{number}.{('key', 'value')[what]}"))
        return self.present[-1]


def _decoder(net: OpenBuilder, layers: int, tokens: int, positions: int, cache: _Cache | None) -> ModelProto:
    width = net.width
    ids = net.input("input_ids", "batch", "length", integers=True)
    if cache:
        cache.start(layers)
    triangle = net.constant(np.tril(np.ones((1, 1, positions, positions), np.bool_)), np.bool_)
    length = net.length(ids, 1)
    start = net.length(cache.past[0], 2) if cache else net.constant(0, np.int64)
    end = net.op("Add", length, start) if cache else length
    numbers = net.op("Unsqueeze", net.op("Range", start, end, net.constant(1, np.int64)), net.integers(0))
    table = net.weight(tokens, width, fan_in=100)
    words = net.op("Gather", table, net.reshaped(ids, -1, net.op("Unsqueeze", length, net.integers(0))))
    x = net.op("Add", words, net.op("Gather", net.weight(positions, width, fan_in=100), numbers))
    for _ in range(layers):
        mixed = _attention(net, net.norm(x), triangle, cache)
        x = net.op("Add", net.flat_linear(mixed, width, width), x)
        inner = net.tanh_gelu(net.flat_linear(net.norm(x), width, 4 * width))
        x = net.op("Add", x, net.flat_linear(inner, 4 * width, width))
    most = net.integers(np.iinfo(np.int64).max)
    last = net.op("Slice", net.norm(x), net.integers(-1), most, net.integers(1), net.integers(1))
    scores = net.named(net.op("MatMul", last, net.op("Transpose", table, perm=[1, 0])), "logits")
    further = [(name, cache.shape("past + length")) for name in cache.present] if cache else []
    return net.model(scores, "batch", 1, tokens, further=further)


def _attention(net: OpenBuilder, x: str, triangle: str, cache: _Cache | None) -> str:
    sizes = net.integers(*(net.width,) * 3)
    parts = net.ops("Split", 3, net.flat_linear(x, net.width, 3 * net.width), sizes, axis=2)
    queries = net.split_heads(parts[0], 0, 2, 1, 3)
    if cache:
        keys = cache.joined(net.split_heads(parts[1], 0, 2, 1, 3))
        values = cache.joined(net.split_heads(parts[2], 0, 2, 1, 3))
        turned = net.op("Transpose", keys, perm=[0, 1, 3, 2])
    else:
        turned, values = net.split_heads(parts[1], 0, 2, 3, 1), net.split_heads(parts[2], 0, 2, 1, 3)
    rows, columns = net.length(queries, 2), net.length(turned, 3)
    start = net.op("Unsqueeze", net.op("Sub", columns, rows), net.integers(0))
    end = net.op("Unsqueeze", columns, net.integers(0))
    lower = net.op("Slice", triangle, start, end, net.integers(2), net.integers(1))
    seen = net.op("Slice", lower, net.integers(0), end, net.integers(3), net.integers(1))
    scores = net.op("Div", net.op("MatMul", queries, turned), net.constant(math.sqrt(net.depth)))
    scores = net.op("Where", seen, scores, net.constant(_LEAST))
    return net.join_heads(net.op("MatMul", net.op("Softmax", scores, axis=-1), values))
