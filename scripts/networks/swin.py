"""Swin-T (Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", table 7), 224x224.

Windows of 7x7 places, every second block's shifted by 3. As PyTorch's exporter writes it: a shift is Slices and
Concats, windows are cut by Reshape and Transpose, the bias by relative position is a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from scripts.networks.builder import Builder, Value
from scripts.networks.layers import gelu, layer_norm, linear, permuted, reshaped, scaled_attention

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

__all__ = ["swin_t"]

# Channels, heads, blocks.
_STAGES: Final = ((96, 3, 2), (192, 6, 2), (384, 12, 6), (768, 24, 2))
_WINDOW: Final = 7
_SHIFT: Final = 3
_HIDDEN: Final = -100.0


def swin_t() -> ModelProto:
    """Return the network for classes of ImageNet."""
    net = Builder("swin_t")
    x = net.conv(net.input("input", 1, 3, 224, 224), 96, 4, 4, padding=0)
    x = layer_norm(net, permuted(net, x, 0, 2, 3, 1))
    for number, (channels, heads, blocks) in enumerate(_STAGES):
        x = _merged(net, x, channels) if number else x
        for block in range(blocks):
            shift = _SHIFT if block % 2 and x.shape[1] > _WINDOW else 0
            x = net.add(x, _attention(net, layer_norm(net, x), heads, shift))
            x = net.add(x, linear(net, gelu(net, linear(net, layer_norm(net, x), 4 * channels)), channels))
    x = permuted(net, layer_norm(net, x), 0, 3, 1, 2)
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x], (1, x.channels, 1, 1))], (1, x.channels), axis=1)
    return net.model(net.classifier(x, 1000))


def _slice(net: Builder, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    shape = list(x.shape)
    shape[axis] = -(-(end - start) // step)
    return net.node("Slice", [x, *(net.integers(f"at_{at}", [at]) for at in (start, end, axis, step))], shape)


def _merged(net: Builder, x: Value, channels: int) -> Value:
    """Add what makes one place of four."""
    height, width = x.shape[1:3]
    rows = [_slice(net, x, 1, start, height, 2) for start in (0, 1)]
    parts = [_slice(net, part, 2, start, width, 2) for start in (0, 1) for part in rows]
    return linear(net, layer_norm(net, net.concat(parts, axis=3)), channels, bias=False)


def _rolled(net: Builder, x: Value, shift: int) -> Value:
    """Add what moves rows and columns by ``shift`` places to the front, round the end."""
    for axis in (1, 2):
        length = x.shape[axis]
        at = shift % length
        x = net.concat([_slice(net, x, axis, at, length), _slice(net, x, axis, 0, at)], axis=axis)
    return x


def _attention(net: Builder, x: Value, heads: int, shift: int) -> Value:
    _, height, width, channels = x.shape
    rows, columns, places = height // _WINDOW, width // _WINDOW, _WINDOW * _WINDOW
    windows, depth = rows * columns, channels // heads
    moved = _rolled(net, x, shift) if shift else x
    cut = permuted(net, reshaped(net, moved, 1, rows, _WINDOW, columns, _WINDOW, channels), 0, 1, 3, 2, 4, 5)
    cut = reshaped(net, cut, windows, places, channels)
    split = reshaped(net, linear(net, cut, 3 * channels), windows, places, 3, heads, depth)
    parts = permuted(net, split, 2, 0, 3, 1, 4)
    queries, keys, values = (
        net.node("Gather", [parts, net.integer(f"part_{number}", number)], parts.shape[1:], axis=0)
        for number in range(3)
    )
    bias = net.own_floats((1, heads, places, places), -0.5, 0.5)
    keys = permuted(net, keys, 0, 1, 3, 2)
    if shift:
        hidden = net.array(f"hidden_{rows}", _hidden(rows)[:, None])
        mixed = scaled_attention(net, queries, keys, values, [bias, hidden])
    else:
        mixed = scaled_attention(net, queries, keys, values, [bias])
    joined = linear(net, reshaped(net, permuted(net, mixed, 0, 2, 1, 3), windows, places, channels), channels)
    whole = permuted(net, reshaped(net, joined, 1, rows, columns, _WINDOW, _WINDOW, channels), 0, 1, 3, 2, 4, 5)
    back = reshaped(net, whole, *x.shape)
    return _rolled(net, back, -shift) if shift else back


def _hidden(windows: int) -> NDArray[np.float32]:
    """Return [windows, places, places]: what keeps places apart that a shift has brought together."""
    length = windows * _WINDOW
    areas = np.zeros(length, np.int64)
    areas[length - _WINDOW : length - _SHIFT], areas[length - _SHIFT :] = 1, 2
    plane = areas[:, None] * 3 + areas
    cut = plane.reshape(windows, _WINDOW, windows, _WINDOW).transpose(0, 2, 1, 3).reshape(windows**2, _WINDOW**2)
    apart = cut[:, :, None] != cut[:, None, :]
    return np.asarray(_HIDDEN * apart, np.float32)
