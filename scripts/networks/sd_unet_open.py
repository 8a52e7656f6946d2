"""The UNet of Stable Diffusion 1.5 (Rombach et al., as `sd_unet` names them) without its last depth, image open.

320, 640 and 1,280 channels, 8 heads, attention at each depth to itself and to a text of 768 wide tokens; one residual
block a depth where the original has two, so that the file stays below 2 GB. Any height and width from 4: what is
enlarged takes those of what it is joined with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from scripts.networks.open_image_layers import attended, channels_joined, conv, group_norm, residual, resized_like
from scripts.networks.open_layers import OpenBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["sd_unet_open"]

_TEXT: Final = 768


def sd_unet_open(
    layers: int = 1, widths: Sequence[int] = (320, 640, 1280), heads: int = 8, groups: int = 32
) -> ModelProto:
    """Return the network: the noise in latents, at a time, under a text.

    Args:
        layers: Residual blocks of each depth on the way down; there is one more on the way up.
        widths: Channels of each depth.
    """
    return _Unet(layers, widths, heads, groups).model()


class _Unet:
    def __init__(self, layers: int, widths: Sequence[int], heads: int, groups: int) -> None:
        self.net = OpenBuilder("sd_unet_open", widths[0], heads)
        self.layers, self.widths, self.groups = layers, widths, groups
        self.sample = self.net.input("sample", "batch", 4, "height", "width")
        step = self.net.input("timestep", 1, integers=True)
        self.text = self.net.input("encoder_hidden_states", "batch", "tokens", _TEXT)
        self.time = self._time(step)

    def model(self) -> ModelProto:
        net, widths = self.net, self.widths
        width = widths[0]
        x = conv(net, self.sample, 4, width)
        skips = [(x, width)]
        for depth, after in enumerate(widths):
            for _ in range(self.layers):
                x = self._transformer(self._residual(x, width, after), after)
                width = after
                skips.append((x, width))
            if depth < len(widths) - 1:
                x = conv(net, x, width, width, stride=2)
                skips.append((x, width))
        x = self._transformer(self._residual(x, width, width), width)
        x = self._residual(x, width, width)
        for depth, after in reversed(list(enumerate(widths))):
            for _ in range(self.layers + 1):
                skip, more = skips.pop()
                x = self._transformer(self._residual(channels_joined(net, [x, skip]), width + more, after), after)
                width = after
            if depth:
                x = conv(net, resized_like(net, x, skips[-1][0]), width, width)
        x = conv(net, net.silu(group_norm(net, x, width, self.groups, epsilon=1e-5)), width, 4)
        return net.model(net.named(x, "out_sample"), "batch", 4, "height", "width")

    def _time(self, step: str) -> str:
        net, width = self.net, self.widths[0]
        wanted = net.op("Concat", net.size(self.sample, 0), axis=0)
        ones = net.constant([1], np.int64)
        same = net.op("Equal", wanted, net.op("Mul", ones, net.constant(-1, np.int64)))
        steps = net.op("Expand", step, net.op("Where", same, ones, wanted))
        rates = net.constant(np.exp(-math.log(10_000) * np.arange(width // 2) / (width // 2))[None])
        angles = net.op("Mul", net.op("Cast", net.op("Unsqueeze", steps, net.integers(1)), to=1), rates)
        waves = net.op("Concat", net.op("Cos", angles), net.op("Sin", angles), axis=-1)
        return self._gemm(net.silu(self._gemm(waves, width)), 4 * width)

    def _gemm(self, x: str, before: int) -> str:
        net, after = self.net, 4 * self.widths[0]
        weight = net.weight(after, before, fan_in=before)
        return net.op("Gemm", x, weight, net.vector(after), alpha=1.0, beta=1.0, transB=1)

    def _residual(self, x: str, before: int, after: int) -> str:
        return residual(self.net, x, before, after, self.groups, self.time, 4 * self.widths[0])

    def _transformer(self, x: str, width: int) -> str:
        net = self.net
        batch, height, across = net.size(x, 0), net.length(x, 2), net.length(x, 3)
        y = conv(net, group_norm(net, x, width, self.groups), width, width, 1)
        places = net.op("Unsqueeze", net.op("Mul", height, across), net.integers(0))
        y = net.reshaped(net.op("Transpose", y, perm=[0, 2, 3, 1]), batch, places, width)
        normal = self._norm(y, width)
        y = net.op("Add", self._attention(normal, normal, width, width), y)
        y = net.op("Add", self._attention(self._norm(y, width), self.text, width, _TEXT), y)
        values, gates = self._halves(net.linear(self._norm(y, width), width, 8 * width))
        y = net.op("Add", net.linear(net.op("Mul", values, net.gelu(gates)), 4 * width, width), y)
        sides = (net.op("Unsqueeze", one, net.integers(0)) for one in (height, across))
        y = net.op("Transpose", net.reshaped(y, batch, *sides, width), perm=[0, 3, 1, 2])
        return net.op("Add", conv(net, y, width, width, 1), x)

    def _norm(self, x: str, width: int) -> str:
        net = self.net
        return net.op("LayerNormalization", x, net.vector(width, 1), net.vector(width), axis=-1, epsilon=1e-5)

    def _attention(self, x: str, source: str, width: int, source_width: int) -> str:
        net = self.net
        parts = [net.linear(x, width, width, bias=False)]
        parts += [net.linear(source, source_width, width, bias=False) for _ in range(2)]
        batch = net.size(x, 0)
        split = (net.reshaped(part, batch, -1, net.heads, width // net.heads) for part in parts)
        mixed = attended(net, *(net.op("Transpose", part, perm=[0, 2, 1, 3]) for part in split))
        joined = net.reshaped(net.op("Transpose", mixed, perm=[0, 2, 1, 3]), batch, -1, width)
        return net.linear(joined, width, width)

    def _halves(self, x: str) -> list[str]:
        """Cut the last axis into halves, whose bounds are computed as exporters do for ``chunk``."""
        net = self.net
        axis = net.integers(-1)
        length = net.op("Gather", net.op("Shape", x), axis, axis=0)
        half = net.op("Div", net.op("Add", length, net.integers(1)), net.integers(2))
        ends = [net.op("Mul", half, net.integers(number)) for number in (1, 2)]
        return [
            net.op("Slice", x, start, end, axis) for start, end in zip((net.integers(0), ends[0]), ends, strict=True)
        ]
