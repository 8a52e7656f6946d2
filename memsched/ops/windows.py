"""Convolutions, transposed convolutions and pools of both formats, in the words of `rules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from memsched.ops.rules import (
    FULL,
    POINTWISE,
    AxisMap,
    ChannelGroups,
    Geometry,
    Operands,
    OpRule,
    RefusedError,
    ShapedOp,
    TransposedWindow,
    Window,
    ruled,
    whole,
)

__all__ = ["RULES", "same_padding"]


def same_padding(length: int, kernel: int, stride: int, dilation: int = 1, *, upper: bool = True) -> tuple[int, int]:
    """Return the padding that SAME means for an axis; an odd one more lies behind (``upper``) or before."""
    outputs = -(-length // stride)
    total = max(0, (outputs - 1) * stride + (kernel - 1) * dilation + 1 - length)
    return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)


def _windows(layer: ShapedOp, kernel: tuple[int, ...], spatial: range) -> list[Window]:
    """Return an ONNX layer's window per spatial axis, padding resolved."""
    rank = len(kernel)
    if len(spatial) != rank or not rank:
        raise RefusedError("its kernel has another rank than its input", "rank")
    ones = (1,) * rank
    strides, dilations = layer.ints("strides", ones), layer.ints("dilations", ones)
    pads = layer.ints("pads", (0,) * (2 * rank))
    auto = layer.text("auto_pad", "NOTSET")
    result = []
    for place, axis in enumerate(spatial):
        pair = (pads[place], pads[place + rank])
        if auto in {"SAME_UPPER", "SAME_LOWER"}:
            upper = auto == "SAME_UPPER"
            pair = same_padding(layer.data[axis], kernel[place], strides[place], dilations[place], upper=upper)
        elif auto == "VALID":
            pair = (0, 0)
        elif auto != "NOTSET":
            raise RefusedError(f"its auto_pad '{auto}' is unknown", "auto-pad")
        result.append(Window(kernel[place], strides[place], dilations[place], *pair))
    return result


def _convolution(weights: int, per_channel: tuple[int, ...]) -> Callable[[ShapedOp], Geometry]:
    """Conv and its kin: data at 0, ``weights`` as (out, in / groups, kernel...), vectors per output channel."""

    def rule(layer: ShapedOp) -> Geometry:
        layer.only(0, weights, *per_channel)
        rank = len(layer.data)
        kernel = layer.shape(weights, rank)
        groups = layer.number("group", 1)
        if groups < 1 or kernel[0] % groups or kernel[1] * groups != layer.data[1]:
            raise RefusedError("its groups do not divide its channels", "channel-groups")
        windows = _windows(layer, kernel[2:], range(2, rank))
        channels = AxisMap(-1, FULL) if groups == 1 else AxisMap(1, ChannelGroups(kernel[1], kernel[0] // groups))
        operands: Operands = {
            0: (AxisMap(0, POINTWISE), channels, *(AxisMap(axis + 2, window) for axis, window in enumerate(windows))),
            weights: (AxisMap(1, POINTWISE), *whole(rank - 1)),
        }
        _vectors(layer, operands, per_channel, 1)
        return layer.geometry(operands, group=(1, kernel[0] // groups) if groups > 1 else None)

    return rule


def _vectors(layer: ShapedOp, operands: Operands, positions: tuple[int, ...], axis: int) -> None:
    """Add the operands of one element per output channel; those of one element stay whole."""
    for position in positions:
        shape = layer.shapes.get(position)
        if shape is None:
            continue
        along = len(shape) == 1 and shape[0] == layer.output[axis]
        operands[position] = (AxisMap(axis, POINTWISE),) if along else whole(len(shape))


def _fused(layer: ShapedOp) -> Geometry:
    """FusedConv: a convolution, a sum with an input of the output's shape, and an activation."""
    geometry = _convolution(1, (2,))(layer) if 3 not in layer.shapes else None
    if geometry is None:
        raise RefusedError("it adds another input", "more-inputs")
    return geometry


def _transposed(layer: ShapedOp) -> Geometry:
    """ConvTranspose: weights are (in, out / groups, kernel...)."""
    layer.only(0, 1, 2)
    rank = len(layer.data)
    kernel = layer.shape(1, rank)
    spatial, groups = rank - 2, layer.number("group", 1)
    ones = (1,) * spatial
    strides, dilations = layer.ints("strides", ones), layer.ints("dilations", ones)
    extra = layer.ints("output_padding", (0,) * spatial)
    pads = layer.ints("pads", (0,) * (2 * spatial))
    auto = layer.text("auto_pad", "NOTSET")
    maps = []
    for place in range(spatial):
        before = pads[place]
        full = strides[place] * (layer.data[place + 2] - 1) + extra[place] + (kernel[place + 2] - 1) * dilations[place]
        total = full + 1 - layer.output[place + 2]
        if auto in {"SAME_UPPER", "SAME_LOWER"} or "output_shape" in layer.op.attributes:
            if total < 0:
                raise RefusedError("its output is larger than what it computes", "output-larger")
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
        elif auto == "VALID":
            before = 0
        maps.append(AxisMap(place + 2, TransposedWindow(kernel[place + 2], strides[place], dilations[place], before)))
    grouped = ChannelGroups(layer.data[1] // groups, kernel[1], divisible=False)
    channels = AxisMap(-1, FULL) if groups == 1 else AxisMap(1, grouped)
    operands: Operands = {0: (AxisMap(0, POINTWISE), channels, *maps)}
    operands[1] = (channels, AxisMap(1, POINTWISE) if groups == 1 else AxisMap(-1, FULL), *whole(spatial))
    _vectors(layer, operands, (2,), 1)
    return layer.geometry(operands, group=(1, kernel[1]) if groups > 1 else None)


def _pool(layer: ShapedOp) -> Geometry:
    """MaxPool, AveragePool, LpPool."""
    layer.only(0)
    rank = len(layer.data)
    if layer.text("auto_pad", "NOTSET").startswith("SAME") and set(layer.ints("dilations", ())) - {1}:
        # Such padding may be wider than the kernel, and runtimes take no pool that states it.
        raise RefusedError("it is dilated, and its padding is left to the runtime (auto_pad)", "auto-pad")
    windows = _windows(layer, layer.ints("kernel_shape"), range(2, rank))
    bounded = layer.kind == "AveragePool" and bool(layer.number("count_include_pad"))
    maps: list[AxisMap] = []
    for axis, one in enumerate(windows):
        maps.append(AxisMap(axis + 2, replace(one, bounded=bounded, most_padding=one.kernel - 1)))
    return layer.geometry({0: (AxisMap(0, POINTWISE), AxisMap(1, POINTWISE), *maps)})


def _global(layer: ShapedOp) -> Geometry:
    rank = len(layer.data)
    return layer.geometry({0: (AxisMap(0, POINTWISE), AxisMap(1, POINTWISE), *whole(rank - 2))})


# TFLite: batch, height, width, channels ---------------------------------------------------------------------------


def _plane(layer: ShapedOp, kernel: tuple[int, ...], dilations: tuple[int, ...]) -> list[AxisMap]:
    strides = layer.ints("strides")
    padding = layer.text("padding")
    if padding not in {"SAME", "VALID"}:
        raise RefusedError("its padding is unknown", "auto-pad")
    maps = []
    for place in range(2):
        one = (kernel[place], strides[place], dilations[place])
        pads = same_padding(layer.data[place + 1], *one) if padding == "SAME" else (0, 0)
        maps.append(AxisMap(place + 1, Window(*one, *pads)))
    return maps


def _conv_2d(layer: ShapedOp) -> Geometry:
    if len(layer.data) != 4:
        raise RefusedError("its input has no four axes", "rank")
    layer.only(0, 1, 2)
    outputs, height, width, channels = layer.shape(1, 4)
    plane = _plane(layer, (height, width), layer.ints("dilations", (1, 1)))
    groups = layer.data[3] // channels if channels else 0
    if not groups or groups * channels != layer.data[3] or outputs % groups:
        raise RefusedError("its groups do not divide its channels", "channel-groups")
    last = AxisMap(-1, FULL) if groups == 1 else AxisMap(3, ChannelGroups(channels, outputs // groups))
    operands: Operands = {0: (AxisMap(0, POINTWISE), *plane, last), 1: (AxisMap(3, POINTWISE), *whole(3))}
    _vectors(layer, operands, (2,), 3)
    return layer.geometry(operands, group=(3, outputs // groups) if groups > 1 else None)


def _depthwise(layer: ShapedOp) -> Geometry:
    if len(layer.data) != 4:
        raise RefusedError("its input has no four axes", "rank")
    layer.only(0, 1, 2)
    one, height, width, outputs = layer.shape(1, 4)
    plane = _plane(layer, (height, width), layer.ints("dilations", (1, 1)))
    inputs = layer.data[3]
    if one != 1 or not inputs or outputs % inputs:
        raise RefusedError("its multiplier does not divide its channels", "channel-groups")
    # depth_multiplier is not stored reliably; the shapes say it. A piece keeps the multiplier: whole input channels.
    last = AxisMap(3, ChannelGroups(1, outputs // inputs, divisible=False)) if inputs > 1 else AxisMap(-1, FULL)
    operands: Operands = {0: (AxisMap(0, POINTWISE), *plane, last), 1: (*whole(3), AxisMap(3, POINTWISE))}
    _vectors(layer, operands, (2,), 3)
    return layer.geometry(operands)


def _transpose_conv(layer: ShapedOp) -> Geometry:
    """TRANSPOSE_CONV: the output's shape at 0, weights (out, h, w, in) at 1, data at 2."""
    layer.only(1, 2, 3)
    data, (_, height, width, _inputs) = layer.shape(2, 4), layer.shape(1, 4)
    strides, padding = layer.ints("strides"), layer.text("padding")
    maps = []
    for place, kernel in enumerate((height, width)):
        stride, length, out = strides[place], data[place + 1], layer.output[place + 1]
        before = same_padding(out, kernel, stride)[0] if padding == "SAME" else 0
        expected = -(-out // stride) if padding == "SAME" else (out + stride - kernel) // stride
        if padding not in {"SAME", "VALID"} or expected != length:
            raise RefusedError("its output's length does not follow from its input's", "lengths-differ")
        maps.append(AxisMap(place + 1, TransposedWindow(kernel, stride, 1, before)))
    operands: Operands = {
        2: (AxisMap(0, POINTWISE), *maps, AxisMap(-1, FULL)),
        1: (AxisMap(3, POINTWISE), *whole(3)),
    }
    _vectors(layer, operands, (3,), 3)
    return layer.geometry(operands)


def _pool_2d(layer: ShapedOp) -> Geometry:
    layer.only(0)
    kernel = layer.ints("kernel")
    if len(layer.data) != 4 or len(kernel) != 2:
        raise RefusedError("its input has no four axes", "rank")
    return layer.geometry({0: (AxisMap(0, POINTWISE), *_plane(layer, kernel, (1, 1)), AxisMap(3, POINTWISE))})


RULES: Final[Mapping[str, OpRule]] = {
    **ruled("window", _convolution(1, (2,)), "Conv", families=("convolution", "windowed")),
    **ruled("window", _convolution(1, (3,)), "ConvInteger", families=("windowed",)),
    **ruled("window", _convolution(3, (4, 5, 8)), "QLinearConv", families=("windowed",)),
    **ruled("window", _fused, "com.microsoft.FusedConv", families=("windowed",)),
    **ruled("window", _transposed, "ConvTranspose"),
    **ruled("window", _pool, "MaxPool", "AveragePool", families=("pool", "windowed")),
    **ruled("window", _pool, "LpPool", families=("norm pool", "windowed")),
    **ruled("reduction", _global, "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
    **ruled("window", _conv_2d, "CONV_2D", families=("convolution", "windowed")),
    **ruled("window", _depthwise, "DEPTHWISE_CONV_2D", families=("convolution", "windowed")),
    **ruled("window", _transpose_conv, "TRANSPOSE_CONV", told=0),
    **ruled("window", _pool_2d, "AVERAGE_POOL_2D", "MAX_POOL_2D", families=("pool", "windowed")),
    **ruled("window", _pool_2d, "L2_POOL_2D", families=("norm pool", "windowed")),
}
