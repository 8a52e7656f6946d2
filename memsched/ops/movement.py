"""Rules, as `rules` defines them, for resampling and for ops that move elements without computing."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from memsched.ops.rules import (
    FULL,
    POINTWISE,
    AxisMap,
    Geometry,
    Merge,
    Operands,
    OpRule,
    Reflection,
    RefusedError,
    Resampling,
    Rule,
    ShapedOp,
    Shift,
    Stride,
    Subdivision,
    Window,
    ratio,
    ruled,
    same,
    whole,
)

__all__ = ["RULES"]

_HALF: Final = Fraction(1, 2)


def _concat(layer: ShapedOp) -> Geometry:
    rank = len(layer.output)
    axis = layer.axis(layer.number("axis"), rank)
    operands: Operands = {}
    offset = position = 0
    while offset < layer.output[axis]:
        shape = layer.shape(position, rank)
        maps = same(rank)
        maps[axis] = AxisMap(axis, Shift(offset))
        operands[position] = tuple(maps)
        offset += shape[axis]
        position += 1
        if position > max(layer.shapes):
            break
    if offset != layer.output[axis]:
        raise RefusedError("the lengths of its inputs are not known", "unknown-shape")
    # Empty operands behind the last full one.
    for extra in sorted(layer.shapes):
        operands.setdefault(extra, (*same(rank)[:axis], AxisMap(axis, Shift(offset)), *same(rank)[axis + 1 :]))
    return layer.geometry(operands)


def _split(layer: ShapedOp) -> Geometry:
    rank = len(layer.data)
    axis = layer.axis(layer.number("axis"))
    maps = same(rank)
    maps[axis] = AxisMap(-1, FULL)
    operands: Operands = {0: tuple(maps), **({1: whole(1)} if 1 in layer.shapes else {})}
    return layer.geometry(operands, {axis: "its outputs lie one behind the other along it"})


def _transpose(layer: ShapedOp) -> Geometry:
    layer.only(0)
    rank = len(layer.data)
    perm = layer.ints("perm", tuple(reversed(range(rank))) if layer.kind == "Transpose" else None)
    if sorted(perm) != list(range(rank)):
        raise RefusedError("its permutation does not fit its input", "bad-axes")
    return layer.geometry({0: tuple(AxisMap(perm.index(axis), POINTWISE) for axis in range(rank))})


def _reshape(layer: ShapedOp) -> Geometry:
    """Axes are matched in groups of equal products; a part of a group is known along its outermost axis only."""
    layer.only(0)
    given, made = layer.data, layer.output
    if math.prod(given) != math.prod(made) or not math.prod(made):
        raise RefusedError("it does not keep the number of its elements", "elements-differ")
    maps: list[AxisMap] = [AxisMap(-1, FULL)] * len(given)
    fixed: dict[int, str] = {}
    for inputs, outputs in _equal_products(given, made):
        for inner in outputs[1:]:
            fixed[inner] = f"axis {inner} is an inner part of axes that are reshaped together"
        outer_in, outer_out = inputs[0], outputs[0]
        rest_in, rest_out = given[outer_in + 1 : inputs[-1] + 1], made[outer_out + 1 : outputs[-1] + 1]
        if math.prod(rest_in) == math.prod(rest_out):
            maps[outer_in] = AxisMap(outer_out, POINTWISE)
        elif math.prod(rest_in) == 1:
            maps[outer_in] = AxisMap(outer_out, Merge(math.prod(rest_out)))
        elif math.prod(rest_out) == 1:
            maps[outer_in] = AxisMap(outer_out, Subdivision(math.prod(rest_in), croppable=False))
        else:
            fixed[outer_out] = f"axis {outer_out} is reshaped together with others"
    return layer.geometry({0: tuple(maps)}, fixed)


def _equal_products(given: Sequence[int], made: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest groups of consecutive axes longer than 1 whose products are equal."""
    left = [axis for axis, size in enumerate(given) if size != 1]
    right = [axis for axis, size in enumerate(made) if size != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        inputs, outputs = [left[i]], [right[j]]
        product, target = given[left[i]], made[right[j]]
        while product != target:
            if product < target:
                i += 1
                inputs.append(left[i])
                product *= given[left[i]]
            else:
                j += 1
                outputs.append(right[j])
                target *= made[right[j]]
        groups.append((inputs, outputs))
        i, j = i + 1, j + 1
    return groups


def _expand(layer: ShapedOp) -> Geometry:
    layer.only(0)
    shift = len(layer.output) - len(layer.data)
    if shift < 0:
        raise RefusedError("its input has more axes than its output", "rank")
    maps = []
    for axis, size in enumerate(layer.data):
        equal = size == layer.output[axis + shift]
        if not equal and size != 1:
            raise RefusedError("its shapes do not broadcast", "no-broadcast")
        maps.append(AxisMap(axis + shift, POINTWISE) if equal else AxisMap(-1, FULL))
    return layer.geometry({0: tuple(maps)})


def _tile(layer: ShapedOp) -> Geometry:
    """Tile: along an axis that is repeated, element i is element i modulo its length."""
    layer.only(0)
    maps, fixed = same(len(layer.data)), {}
    for axis, (given, made) in enumerate(zip(layer.data, layer.output, strict=True)):
        if given != made:
            maps[axis] = AxisMap(-1, FULL)
            fixed[axis] = "it is repeated along it"
    return layer.geometry({0: tuple(maps)}, fixed)


def _blocks(layer: ShapedOp) -> tuple[int, tuple[int, int], int]:
    """Return the length of a block, its two axes, and that of the channels."""
    onnx = not layer.kind.isupper()
    size = layer.number("blocksize" if onnx else "block_size")
    if len(layer.data) != 4 or size < 1:
        raise RefusedError("its input has no four axes or its block size is unknown", "rank")
    return (size, (2, 3), 1) if onnx else (size, (1, 2), 3)


def _depth_to_space(layer: ShapedOp) -> Geometry:
    size, spatial, channel = _blocks(layer)
    maps = same(4)
    for axis in spatial:
        maps[axis] = AxisMap(axis, Subdivision(size))
    adjacent = size == 1 or layer.text("mode", "DCR") == "CRD"
    maps[channel] = AxisMap(channel, Merge(size * size)) if adjacent else AxisMap(-1, FULL)
    fixed = {} if adjacent else {channel: "the channels of its blocks are interleaved"}
    return layer.geometry({0: tuple(maps)}, fixed)


def _space_to_depth(layer: ShapedOp) -> Geometry:
    size, spatial, channel = _blocks(layer)
    maps = same(4)
    for axis in spatial:
        maps[axis] = AxisMap(axis, Merge(size))
    if size == 1:
        return layer.geometry({0: tuple(maps)})
    maps[channel] = AxisMap(-1, FULL)
    return layer.geometry({0: tuple(maps)}, {channel: "the channels of its blocks are interleaved"})


# Pad and Slice ----------------------------------------------------------------------------------------------------

_MODES: Final[Mapping[str, int]] = {"edge": 0, "reflect": 1, "symmetric": 2}


def _pad(layer: ShapedOp) -> Geometry:
    layer.only(0)
    rank = len(layer.data)
    if layer.kind == "Pad":
        pads, mode = layer.ints("pads", layer.ints("paddings", ())), layer.text("mode", "constant")
        if 3 in layer.shapes and "axes" not in layer.op.attributes:
            raise RefusedError("its axes are not constant", "not-constant")
        axes = [layer.axis(axis) for axis in layer.ints("axes", tuple(range(rank)))]
        pairs = dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=False), strict=False))
    else:
        pads = layer.ints("paddings")
        mode = ("reflect", "symmetric")[layer.number("mode")] if layer.kind == "MIRROR_PAD" else "constant"
        pairs = {axis: (pads[2 * axis], pads[2 * axis + 1]) for axis in range(len(pads) // 2)}
    if not pads or len(pads) % 2:
        raise RefusedError("its pads are not constant", "not-constant")
    maps, fixed = same(rank), {}
    for axis, (before, after) in pairs.items():
        if (before, after) == (0, 0):
            continue
        rule: Rule = Window(1, 1, 1, before, after)
        if before < 0 or after < 0:
            fixed[axis] = "its padding is negative"
        elif mode in _MODES:
            rule = Reflection(before, after, _MODES[mode])
        elif mode != "constant":
            fixed[axis] = f"its padding mode is {mode}"
        maps[axis] = AxisMap(axis, rule)
    return layer.geometry({0: tuple(maps)}, fixed)


def _slice(layer: ShapedOp) -> Geometry:
    layer.only(0)
    rank = len(layer.data)
    starts = layer.ints("starts")
    if (3 in layer.shapes and "axes" not in layer.op.attributes) or (
        4 in layer.shapes and "steps" not in layer.op.attributes
    ):
        raise RefusedError("its axes or steps are not constant", "not-constant")
    axes = layer.ints("axes", tuple(range(len(starts))))
    steps = layer.ints("steps", (1,) * len(starts))
    maps = same(rank)
    for start, stated, step in zip(starts, axes, steps, strict=True):
        axis = layer.axis(stated)
        length = layer.data[axis]
        begin = start + length if start < 0 else start
        begin = max(0, min(begin, length if step > 0 else length - 1))
        maps[axis] = AxisMap(axis, Stride(begin, step))
    return layer.geometry({0: tuple(maps)})


def _tflite_slice(layer: ShapedOp) -> Geometry:
    layer.only(0)
    maps = [AxisMap(axis, Stride(begin, 1)) for axis, begin in enumerate(layer.ints("begin"))]
    return layer.geometry({0: tuple(maps)})


def _strided_slice(layer: ShapedOp) -> Geometry:
    layer.only(0)
    begins, steps = layer.ints("begin"), layer.ints("steps")
    if any(layer.number(f"{name}_mask") for name in ("ellipsis", "new_axis", "shrink_axis")):
        raise RefusedError("it adds or removes axes", "rank")
    if len(begins) != len(layer.data):
        raise RefusedError("it does not name all axes", "bad-axes")
    maps = []
    for axis, (begin, step, length) in enumerate(zip(begins, steps, layer.data, strict=True)):
        start = begin + length if begin < 0 else begin
        if layer.number("begin_mask") >> axis & 1:
            start = 0 if step > 0 else length - 1
        maps.append(AxisMap(axis, Stride(max(0, min(start, length - (step < 0))), step)))
    return layer.geometry({0: tuple(maps)})


# Resampling -------------------------------------------------------------------------------------------------------


def _resize(layer: ShapedOp) -> Geometry:
    """Resize of opset 10 (data, scales) and later ones, Upsample."""
    legacy = layer.kind == "Upsample" or (len({*layer.shapes, 0}) == 2 and not {2, 3} & set(layer.shapes))
    legacy = (
        legacy and "sizes" not in layer.op.attributes and "coordinate_transformation_mode" not in layer.op.attributes
    )
    layer.only(0)
    rank = len(layer.data)
    mode = layer.text("mode", "nearest")
    transformation = layer.text("coordinate_transformation_mode", "asymmetric" if legacy else "half_pixel")
    rounding = layer.text("nearest_mode", "simple" if legacy else "round_prefer_floor")
    if layer.number("antialias") or layer.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise RefusedError("it filters or keeps an aspect ratio", "filters")
    scales = _scales(layer, rank)
    maps, fixed = same(rank), {}
    for axis, scale in enumerate(scales):
        # An axis of scale 1 may still be interpolated over, with weights 1 and 0; batch and channels are not.
        outer = rank >= 4 and axis < 2
        if scale == 1 and layer.data[axis] == layer.output[axis] and (mode == "nearest" or outer):
            continue
        centre, back = _HALF, _HALF
        if transformation in {"asymmetric", "align_corners"}:
            centre, back = Fraction(0), Fraction(0)
        elif transformation == "tf_half_pixel_for_nn":
            back = Fraction(0)
        exact = scale * layer.data[axis] == layer.output[axis]
        known = {"asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn"}
        if exact:
            known.add("half_pixel_symmetric")
        corners = transformation == "align_corners" and "sizes" in layer.op.attributes
        met = _between_ends(layer, axis) if corners else scale
        if corners and met:
            known.add("align_corners")
        maps[axis] = AxisMap(-1, FULL)
        if transformation not in known or (transformation == "pytorch_half_pixel" and layer.output[axis] <= 1):
            fixed[axis] = f"its coordinates ({transformation}) depend on the lengths of whole axes"
        elif mode not in {"nearest", "linear"}:
            fixed[axis] = f"its interpolation ({mode}) reads too far"
        else:
            how = rounding if mode == "nearest" else "linear"
            how = how if how != "simple" else ("floor" if scale >= 1 else "ceil")
            least = 2 if transformation == "pytorch_half_pixel" else 1
            maps[axis] = AxisMap(axis, Resampling(met, centre, back, how, least, corners=corners))
    return layer.geometry({0: tuple(maps)}, fixed)


def _between_ends(layer: ShapedOp, axis: int) -> Fraction:
    """Return the scale of what lies between an axis's ends; 0 where no elements meet but the ends themselves."""
    given, made = layer.data[axis] - 1, layer.output[axis] - 1
    return Fraction(made, given) if given > 0 and made > 0 and math.gcd(given, made) > 1 else Fraction(0)


def _scales(layer: ShapedOp, rank: int) -> list[Fraction]:
    sizes, scales = layer.reals("sizes"), layer.reals("scales")
    axes = [layer.axis(axis) for axis in layer.ints("axes", tuple(range(rank)))]
    if len(axes) != len(sizes or scales):
        raise RefusedError("its scales are not constant", "not-constant")
    result = [Fraction(1)] * rank
    for place, axis in enumerate(axes):
        result[axis] = ratio(layer.output[axis], layer.data[axis]) if sizes else _single(scales[place])
    return result


def _single(value: float) -> Fraction:
    """Return a scale exactly as a single-precision number has it."""
    return Fraction(struct.unpack("<f", struct.pack("<f", value))[0])


def _tflite_resize(layer: ShapedOp) -> Geometry:
    layer.only(0)
    if len(layer.data) != 4:
        raise RefusedError("its input has no four axes", "rank")
    nearest = layer.kind == "RESIZE_NEAREST_NEIGHBOR"
    centred = bool(layer.number("half_pixel_centers"))
    maps, fixed = same(4), {}
    for axis in (1, 2):
        scale = ratio(layer.output[axis], layer.data[axis])
        if scale == 1:
            continue
        maps[axis] = AxisMap(-1, FULL)
        corners = bool(layer.number("align_corners"))
        if corners:
            scale = _between_ends(layer, axis)
        if not scale or (corners and centred):
            fixed[axis] = "its coordinates (align_corners) depend on the lengths of whole axes"
            continue
        centre = _HALF if centred else Fraction(0)
        back = Fraction(0) if nearest else centre
        how = ("round_prefer_ceil" if corners else "floor") if nearest else "linear"
        maps[axis] = AxisMap(axis, Resampling(scale, centre, back, how, divides=False, corners=corners))
    return layer.geometry({0: tuple(maps)}, fixed)


_RESHAPES: Final = ("Flatten", "Squeeze", "Unsqueeze", "SQUEEZE", "EXPAND_DIMS")

RULES: Final[Mapping[str, OpRule]] = {
    **ruled("movement", _concat, "Concat", "CONCATENATION", families=("concatenation",)),
    **ruled("movement", _split, "Split", alike=True, families=("selection",)),
    **ruled("movement", _transpose, "Transpose", "TRANSPOSE", families=("transpose",)),
    **ruled("movement", _reshape, *_RESHAPES, families=("reshape", "view")),
    **ruled("movement", _reshape, "Reshape", "RESHAPE", families=("reshape", "view"), told=1),
    **ruled("movement", _expand, "Expand", "BROADCAST_TO", families=("expansion",), told=1),
    **ruled("movement", _tile, "Tile", "TILE", families=("repetition",)),
    **ruled("movement", _depth_to_space, "DepthToSpace", "DEPTH_TO_SPACE"),
    **ruled("movement", _space_to_depth, "SpaceToDepth", "SPACE_TO_DEPTH"),
    **ruled("movement", _pad, "Pad", "PAD", families=("pad",)),
    **ruled("movement", _pad, "PADV2", families=("valued pad",)),
    **ruled("movement", _pad, "MIRROR_PAD", families=("mirror pad",)),
    **ruled("movement", _slice, "Slice", families=("selection", "slice")),
    **ruled("movement", _tflite_slice, "SLICE", families=("selection", "slice")),
    **ruled("movement", _strided_slice, "STRIDED_SLICE", families=("selection", "slice")),
    **ruled("window", _resize, "Resize", "Upsample", families=("resize",)),
    **ruled("window", _tflite_resize, "RESIZE_BILINEAR", families=("interpolation",)),
    **ruled("window", _tflite_resize, "RESIZE_NEAREST_NEIGHBOR", families=("resize",)),
}
