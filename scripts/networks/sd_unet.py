"""A small UNet of latent diffusion (Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models").

Of Stable Diffusion's kinds of layers in three depths: latents of 4x64x64, 128 to 256 channels, 8 heads, attention at
32x32 and 16x16 to itself and to 77 tokens of 768. As PyTorch's exporter writes it: a group normalisation is an
InstanceNormalization between two Reshapes, then scale and shift.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import gelu, layer_norm, linear, permuted, reshaped, scaled_attention, silu

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["sd_unet"]

_CHANNELS: Final = (128, 256, 256)
_HEADS: Final = 8
_GROUPS: Final = 32
_TIME: Final = 512


def sd_unet() -> ModelProto:
    """Return the network: the noise in latents, at a time, under a text."""
    net = Builder("sd_unet")
    sample = net.input("sample", 1, 4, 64, 64)
    time = _time(net, net.input("timestep", 1))
    text = net.input("encoder_hidden_states", 1, 77, 768)
    x = net.conv(sample, _CHANNELS[0], 3)
    skips = [x]
    for depth, channels in enumerate(_CHANNELS):
        x = _residual(net, x, channels, time)
        x = _transformer(net, x, text) if depth else x
        skips.append(x)
        if depth < len(_CHANNELS) - 1:
            x = net.conv(x, channels, 3, 2)
            skips.append(x)
    x = _residual(net, _transformer(net, _residual(net, x, x.channels, time), text), x.channels, time)
    for depth, channels in reversed(list(enumerate(_CHANNELS))):
        for _ in range(2):
            x = _residual(net, net.concat([x, skips.pop()]), channels, time)
            x = _transformer(net, x, text) if depth else x
        x = net.conv(net.upsample(x, 2), channels, 3) if depth else x
    return net.model(net.conv(silu(net, _group_norm(net, x)), 4, 3))


def _time(net: Builder, step: Value) -> Value:
    half = _CHANNELS[0] // 2
    rates = np.exp(-math.log(10_000) * np.arange(half) / half).astype(np.float32)[None]
    column = net.node("Unsqueeze", [step, net.integers("axis_1", [1])], (1, 1))
    angles = net.node("Mul", [column, net.array("rates", rates)], (1, half))
    waves = net.concat([net.unary("Cos", angles), net.unary("Sin", angles)])
    return _gemm(net, silu(net, _gemm(net, waves, _TIME)), _TIME)


def _gemm(net: Builder, x: Value, width: int) -> Value:
    weight = net.weight((width, x.channels), x.channels)
    return net.node("Gemm", [x, weight, net.bias(width)], (1, width), mergeable=False, transB=1)


def _group_norm(net: Builder, x: Value) -> Value:
    flat = reshaped(net, x, 1, _GROUPS, math.prod(x.shape[1:]) // _GROUPS)
    ones, zeros = (net.array(name, np.full(_GROUPS, value, np.float32)) for name, value in (("ones", 1), ("zeros", 0)))
    normal = reshaped(net, net.node("InstanceNormalization", [flat, ones, zeros], flat.shape), *x.shape)
    shape = (x.channels, 1, 1)
    scaled = net.node("Mul", [normal, net.floats(f"group_scale_{x.channels}", shape, 0.8, 1.2)], x.shape)
    return net.node("Add", [scaled, net.floats(f"group_shift_{x.channels}", shape, -0.1, 0.3)], x.shape)


def _residual(net: Builder, x: Value, channels: int, time: Value) -> Value:
    y = net.conv(silu(net, _group_norm(net, x)), channels, 3)
    moved = _gemm(net, silu(net, time), channels)
    for axis in (2, 3):
        axes = net.integers(f"axis_{axis}", [axis])
        moved = net.node("Unsqueeze", [moved, axes], (*moved.shape, 1))
    y = net.node("Add", [y, moved], y.shape)
    y = net.conv(silu(net, _group_norm(net, y)), channels, 3)
    return net.add(x if x.channels == channels else net.conv(x, channels), y)


def _transformer(net: Builder, x: Value, text: Value) -> Value:
    _, channels, height, width = x.shape
    y = net.conv(_group_norm(net, x), channels)
    y = reshaped(net, permuted(net, y, 0, 2, 3, 1), 1, height * width, channels)
    normal = layer_norm(net, y)
    y = net.add(_attention(net, normal, normal), y)
    y = net.add(_attention(net, layer_norm(net, y), text), y)
    y = net.add(_gated(net, layer_norm(net, y)), y)
    y = permuted(net, reshaped(net, y, 1, height, width, channels), 0, 3, 1, 2)
    return net.add(net.conv(y, channels), x)


def _attention(net: Builder, x: Value, source: Value) -> Value:
    width = x.shape[-1]
    depth = width // _HEADS
    orders = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    queries, keys, values = (
        permuted(net, reshaped(net, linear(net, of, width, bias=False), 1, of.shape[1], _HEADS, depth), *order)
        for of, order in zip((x, source, source), orders, strict=True)
    )
    mixed = permuted(net, scaled_attention(net, queries, keys, values), 0, 2, 1, 3)
    return linear(net, reshaped(net, mixed, *x.shape), width)


def _gated(net: Builder, x: Value) -> Value:
    width = x.shape[-1]
    inner = (*x.shape[:-1], 4 * width)
    sizes = net.integers(f"split_{4 * width}", [4 * width] * 2)
    values, gates = net.nodes("Split", [linear(net, x, 8 * width), sizes], [inner] * 2, axis=2)
    return linear(net, net.node("Mul", [values, gelu(net, gates)], inner), width)
