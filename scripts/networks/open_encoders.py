"""Six encoders of real widths with random weights whose batch and length stay open, as exporters write them.

BERT-base (Devlin et al.), ModernBERT-base (Warner et al.: rotary positions, gated units, local attention in two of
three layers), Whisper base's encoder (Radford et al.), a Conformer (Gulati et al., absolute positions), ViT-B/16
(Dosovitskiy et al., without a class token, positions by sine), and GPT-2 without its last layer (Radford et al.).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from scripts.networks.open_layers import OpenBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["bert_open", "conformer_open", "gpt2_open", "modernbert_open", "padding", "vit_open", "whisper_open"]

_LEAST: Final = float(np.finfo(np.float32).min)
_BANDS: Final = 80
_TOKENS: Final = 30_522
_LOCAL: Final = 128


def bert_open(layers: int = 6, width: int = 768, heads: int = 12) -> ModelProto:
    """Return BERT with embeddings of tokens and positions, and a mask of tokens that count."""
    net = OpenBuilder("bert_open", width, heads)
    x = net.op("Gather", net.weight(_TOKENS, width, fan_in=1), net.input("input_ids", "batch", "length", integers=True))
    x = net.norm(net.op("Add", x, _waves(net, x)))
    mask = padding(net, net.input("attention_mask", "batch", "length", integers=True))
    for _ in range(layers):
        x = net.norm(net.op("Add", net.linear(net.attention(x, mask), width, width), x))
        inner = net.gelu(net.linear(x, width, 4 * width))
        x = net.norm(net.op("Add", net.linear(inner, 4 * width, width), x))
    return net.model(x, "batch", "length", width)


def modernbert_open(layers: int = 6, width: int = 768, heads: int = 12) -> ModelProto:
    """Return ModernBERT with masks of local and of global attention as exporters expand them."""
    net = OpenBuilder("modernbert_open", width, heads)
    x = net.op("Gather", net.weight(_TOKENS, width, fan_in=1), net.input("input_ids", "batch", "length", integers=True))
    mask = net.input("attention_mask", "batch", "length", integers=True)
    x = net.norm(x)
    shape = net.op("Concat", net.size(x, 0), net.integers(1), net.size(x, 1), net.size(x, 1), axis=0)
    everywhere = net.op("Expand", padding(net, mask), shape)
    places = net.places(x)
    rows, columns = net.op("Unsqueeze", places, net.integers(1)), net.op("Unsqueeze", places, net.integers(0))
    near = net.op("LessOrEqual", net.op("Abs", net.op("Sub", columns, rows)), net.constant(_LOCAL // 2, np.int64))
    here = net.op("Where", near, everywhere, net.constant(_LEAST))
    angles = _angles(net, x)
    for layer in range(layers):
        normed = net.norm(x)
        parts = net.ops(
            "Split", 3, net.linear(normed, width, 3 * width, bias=False), net.integers(*(width,) * 3), axis=-1
        )
        queries, keys, values = (net.split_heads(part, 0, 2, 1, 3) for part in parts)
        turned = net.op("Transpose", _rotated(net, keys, angles), perm=[0, 1, 3, 2])
        mixed = net.mixed(_rotated(net, queries, angles), turned, values, here if layer % 3 else everywhere)
        x = net.op("Add", x, net.linear(net.join_heads(mixed), width, width, bias=False))
        gate = net.ops(
            "Split",
            2,
            net.linear(net.norm(x), width, 3 * width, bias=False),
            net.integers(*(3 * width // 2,) * 2),
            axis=-1,
        )
        inner = net.op("Mul", net.gelu(gate[0]), gate[1])
        x = net.op("Add", x, net.linear(inner, 3 * width // 2, width, bias=False))
    return net.model(net.norm(x), "batch", "length", width)


def whisper_open(layers: int = 6, width: int = 512, heads: int = 8) -> ModelProto:
    """Return the encoder of Whisper for any number of frames; every second one becomes a token."""
    net = OpenBuilder("whisper_open", width, heads)
    x = net.input("input_features", "batch", _BANDS, "frames")
    for channels, stride in ((_BANDS, 1), (width, 2)):
        weight, bias = net.weight(width, channels, 3, fan_in=3 * channels), net.vector(width)
        x = net.gelu(net.op("Conv", x, weight, bias, kernel_shape=[3], strides=[stride], pads=[1, 1]))
    x = net.op("Transpose", x, perm=[0, 2, 1])
    x = net.op("Add", x, _waves(net, x))
    for _ in range(layers):
        x = net.op("Add", x, net.linear(net.attention(net.norm(x)), width, width))
        inner = net.gelu(net.linear(net.norm(x), width, 4 * width))
        x = net.op("Add", x, net.linear(inner, 4 * width, width))
    return net.model(net.norm(x), "batch", "tokens", width)


def conformer_open(layers: int = 8, width: int = 256, heads: int = 4) -> ModelProto:
    """Return a Conformer behind two convolutions that leave a quarter of the frames."""
    net = OpenBuilder("conformer_open", width, heads)
    x = net.op("Unsqueeze", net.input("features", "batch", "frames", _BANDS), net.integers(1))
    for channels in (1, 32):
        weight, bias = net.weight(32, channels, 3, 3, fan_in=9 * channels), net.vector(32)
        x = net.op("Relu", net.op("Conv", x, weight, bias, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    x = net.op("Transpose", x, perm=[0, 2, 1, 3])
    x = net.linear(net.reshaped(x, net.size(x, 0), net.size(x, 1), 32 * _BANDS // 4), 32 * _BANDS // 4, width)
    x = net.op("Add", x, _waves(net, x))
    for _ in range(layers):
        x = net.op("Add", x, net.op("Mul", _swish_layer(net, x), net.constant(0.5)))
        x = net.op("Add", x, net.linear(net.attention(net.norm(x)), width, width))
        x = net.op("Add", x, _convolved(net, net.norm(x)))
        x = net.norm(net.op("Add", x, net.op("Mul", _swish_layer(net, x), net.constant(0.5))))
    return net.model(x, "batch", "tokens", width)


def vit_open(layers: int = 6, width: int = 768, heads: int = 12) -> ModelProto:
    """Return a vision transformer for images whose height and width are multiples of 16."""
    net = OpenBuilder("vit_open", width, heads)
    image = net.input("pixel_values", "batch", 3, "height", "width")
    weight = net.weight(width, 3, 16, 16, fan_in=768)
    x = net.op("Conv", image, weight, net.vector(width), kernel_shape=[16, 16], strides=[16, 16])
    x = net.reshaped(x, net.size(x, 0), width, -1)
    x = net.op("Transpose", x, perm=[0, 2, 1])
    x = net.op("Add", x, _waves(net, x))
    for _ in range(layers):
        x = net.op("Add", x, net.linear(net.attention(net.norm(x)), width, width))
        inner = net.gelu(net.linear(net.norm(x), width, 4 * width))
        x = net.op("Add", x, net.linear(inner, 4 * width, width))
    return net.model(net.norm(x), "batch", "tokens", width)


def gpt2_open(layers: int = 6, width: int = 768, heads: int = 12) -> ModelProto:
    """Return GPT-2 up to its last normalisation, where each token sees those before it."""
    net = OpenBuilder("gpt2_open", width, heads)
    x = net.op("Gather", net.weight(_TOKENS, width, fan_in=1), net.input("input_ids", "batch", "length", integers=True))
    x = net.op("Add", x, _waves(net, x))
    places = net.places(x)
    earlier = net.op(
        "LessOrEqual",
        net.op("Unsqueeze", places, net.integers(0)),
        net.op("Unsqueeze", places, net.integers(1)),
    )
    shape = net.op("Concat", net.integers(1, 1), net.size(x, 1), net.size(x, 1), axis=0)
    earlier = net.op("Reshape", earlier, shape)
    for _ in range(layers):
        parts = net.ops("Split", 3, net.flat_linear(net.norm(x), width, 3 * width), net.integers(*(width,) * 3), axis=2)
        orders = (0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)
        queries, keys, values = (net.split_heads(part, *order) for part, order in zip(parts, orders, strict=True))
        scores = net.op("Div", net.op("MatMul", queries, keys), net.constant(float(np.sqrt(net.depth))))
        seen = net.op("Where", earlier, scores, net.constant(_LEAST))
        mixed = net.op("MatMul", net.op("Softmax", seen, axis=-1), values)
        x = net.op("Add", x, net.flat_linear(net.join_heads(mixed), width, width))
        inner = net.tanh_gelu(net.flat_linear(net.norm(x), width, 4 * width))
        x = net.op("Add", x, net.flat_linear(inner, 4 * width, width))
    return net.model(net.norm(x), "batch", "length", width)


def padding(net: OpenBuilder, mask: str) -> str:
    """Return what is added to scores: nothing where a token counts, the least number elsewhere."""
    wide = net.op("Cast", net.op("Unsqueeze", mask, net.integers(1, 2)), to=1)
    return net.op("Mul", net.op("Sub", net.constant(1.0), wide), net.constant(_LEAST))


def _angles(net: OpenBuilder, x: str) -> str:
    """Return the angles of rotary positions: tokens by half a head, twice."""
    rates = net.constant(10_000.0 ** (-np.arange(0, net.depth, 2) / net.depth))
    places = net.op("Unsqueeze", net.op("Cast", net.places(x), to=1), net.integers(1))
    angles = net.op("Mul", places, rates)
    return net.op("Concat", angles, angles, axis=-1)


def _rotated(net: OpenBuilder, x: str, angles: str) -> str:
    half = net.depth // 2
    axis, least, most = net.integers(3), net.integers(0), net.integers(np.iinfo(np.int64).max)
    first = net.op("Slice", x, least, net.integers(half), axis)
    second = net.op("Slice", x, net.integers(half), most, axis)
    turned = net.op("Concat", net.op("Neg", second), first, axis=-1)
    return net.op("Add", net.op("Mul", x, net.op("Cos", angles)), net.op("Mul", turned, net.op("Sin", angles)))


def _waves(net: OpenBuilder, x: str) -> str:
    """Return positions by sine and cosine for the tokens of ``x``."""
    rates = net.constant(10_000.0 ** (-np.arange(0, net.width, 2) / net.width))
    places = net.op("Unsqueeze", net.op("Cast", net.places(x), to=1), net.integers(1))
    angles = net.op("Mul", places, rates)
    return net.op("Concat", net.op("Sin", angles), net.op("Cos", angles), axis=-1)


def _swish_layer(net: OpenBuilder, x: str) -> str:
    inner = net.silu(net.linear(net.norm(x), net.width, 4 * net.width))
    return net.linear(inner, 4 * net.width, net.width)


def _convolved(net: OpenBuilder, x: str) -> str:
    """Return the convolutions of a Conformer's block: a gated unit, a depthwise one along time, a linear one."""
    x = net.op("Transpose", x, perm=[0, 2, 1])
    wide = net.op("Conv", x, net.weight(2 * net.width, net.width, 1, fan_in=net.width), kernel_shape=[1])
    parts = net.ops("Split", 2, wide, net.integers(net.width, net.width), axis=1)
    gated = net.op("Mul", parts[0], net.op("Sigmoid", parts[1]))
    weight, bias = net.weight(net.width, 1, 31, fan_in=31), net.vector(net.width)
    deep = net.op("Conv", gated, weight, bias, kernel_shape=[31], pads=[15, 15], group=net.width)
    out = net.op("Conv", net.silu(deep), net.weight(net.width, net.width, 1, fan_in=net.width), kernel_shape=[1])
    return net.op("Transpose", out, perm=[0, 2, 1])
