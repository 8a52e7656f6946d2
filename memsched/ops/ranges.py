"""Backward shape deduction: from a region of an op's output to what the op needs to compute exactly that region.

Source: "Deep Fusion", section 3.1, shape deduction (SD). There a convolution's window
[b, e) needs [b * stride, e * stride + kernel); here it is the exact [b * stride, (e - 1) * stride + (kernel - 1) *
dilation + 1), minus the padding before. What lies outside the tensor becomes the piece's own padding.

A piece is the same operator on slices of its operands with pads of its own. Its output is the region, or the region
with a margin (``crop``) where only larger pieces compute the same values. Where no such piece exists, the answer is
a `Refusal`, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.graph.model import AttributeValue, Graph, Op, Region
from memsched.ops.geometry import describe, described
from memsched.ops.rules import (
    AxisMap,
    ChannelGroups,
    Geometry,
    Merge,
    Pointwise,
    Reflection,
    Refusal,
    RefusedError,
    Resampling,
    Rule,
    Shift,
    Stride,
    Subdivision,
    TransposedWindow,
    WholeAxis,
    Window,
)

__all__ = ["ConstantParts", "NeededInput", "PieceNeeds", "WeightSlice", "backward", "constant_parts", "deduce", "whole"]


class NeededInput(FrozenValue, frozen=True):
    """What a piece reads of one input.

    Attributes:
        region: The part of the input tensor; None where the piece does not read it at all.
        pads: Per axis the elements of padding (before, after) that the piece adds around that part. Of a transposed
            convolution: the elements of its full output that the piece drops, as ONNX's ``pads`` mean there.
    """

    region: Region | None
    pads: tuple[tuple[int, int], ...]


ConstantParts = Mapping[int, Mapping[int, tuple[int, int]]]
"""Per operator's position, per axis of the constant there, a half-open range of elements."""


class WeightSlice(FrozenValue, frozen=True):
    """The part [start, stop) along ``axis`` of the constant at the operator's input ``position`` that a piece reads.

    start == stop: the piece does not read the constant at all (a part of a Concat).
    """

    position: int
    axis: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class PieceNeeds:
    """What a piece of an op needs.

    Attributes:
        inputs: Per entry of ``op.inputs``.
        weights: The constants that are sliced, by position and axis; all others are needed whole.
        crop: Per output axis the elements (before, after) that the piece computes beside the region and that are to
            be dropped.
        attributes: Attributes of the piece that differ from the op's, beside pads (which always replace ``pads`` and
            ``auto_pad``) and the output's shape: ``group``, ``depth_multiplier``, ``output_padding``, a slice's ranges.
        macs: Multiply-accumulates of the piece; exact for convolutions and products.
    """

    inputs: tuple[NeededInput, ...]
    weights: tuple[WeightSlice, ...] = ()
    crop: tuple[tuple[int, int], ...] = ()
    attributes: Mapping[str, AttributeValue] = field(default_factory=lambda: MappingProxyType({}))
    macs: int = 0

    def computed(self, region: Region) -> Region:
        """Return what the piece for ``region`` really computes: the region and its margin."""
        return Region(
            tuple(
                (start - low, stop + high) for (start, stop), (low, high) in zip(region.ranges, self.crop, strict=True)
            )
        )


class _PaddedRange(FrozenValue, frozen=True):
    """A range of one operand's axis with the padding around it and the margin of the output that it computes."""

    start: int
    stop: int
    pads: tuple[int, int] = (0, 0)
    crop: tuple[int, int] = (0, 0)
    extra: int = 0


def whole(shape: tuple[int, ...]) -> Region:
    """Return the region that is all of a tensor of this shape."""
    return Region(tuple((0, size) for size in shape))


def backward(graph: Graph, op: int, output_region: Region) -> PieceNeeds | Refusal:
    """Return what op ``op`` needs to compute ``output_region`` of its only output.

    Ranges are clipped to the tensors. Refused is what cannot be computed by the same operator on slices of its
    operands, an empty region, and one outside the output.
    """
    geometry = describe(graph, op)
    return geometry if isinstance(geometry, Refusal) else deduce(geometry, graph.ops[op], output_region)


def deduce(geometry: Geometry, op: Op, region: Region) -> PieceNeeds | Refusal:
    """Return what `backward` does, from an op's description, which need be made only once."""
    try:
        return _deduce(geometry, op, region)
    except RefusedError as error:
        return Refusal(f"op '{op.name}' ({op.type}): {error}", error.code)


def _deduce(geometry: Geometry, op: Op, region: Region) -> PieceNeeds:
    shape = geometry.shape
    if len(region.ranges) != len(shape):
        raise RefusedError(
            f"a region of {len(region.ranges)} axes does not fit an output of {len(shape)}", "bad-region"
        )
    for axis, (start, stop) in enumerate(region.ranges):
        if not 0 <= start < stop <= shape[axis]:
            raise RefusedError(f"[{start}, {stop}) is no part of axis {axis} of length {shape[axis]}", "bad-region")
        if (start, stop) != (0, shape[axis]) and axis in geometry.fixed:
            raise RefusedError(geometry.fixed[axis], "fixed-axis")
    spans = {position: _spans(geometry, position, maps, region) for position, maps in sorted(geometry.operands.items())}
    crop = [(0, 0)] * len(shape)
    for position, maps in geometry.operands.items():
        for one, span in zip(maps, spans[position] or (), strict=False):
            if span.crop != (0, 0):
                crop[one.output] = span.crop
    inputs = []
    for position in op.positions:
        found = spans[position]
        if found is None:
            inputs.append(NeededInput(None, ((0, 0),) * len(geometry.operands[position])))
        else:
            ranges = tuple((span.start, span.stop) for span in found)
            inputs.append(NeededInput(Region(ranges), tuple(span.pads for span in found)))
    if inputs and all(one.region is None for one in inputs):
        raise RefusedError("this part of its output depends on constants alone", "reads-nothing")
    activations = frozenset(op.positions)
    weights = tuple(
        WeightSlice(position, axis, start, stop)
        for position, maps in sorted(geometry.operands.items())
        if position not in activations
        for axis, start, stop in _sliced(geometry.shapes[position], maps, spans[position])
    )
    return PieceNeeds(
        tuple(inputs), weights, tuple(crop), MappingProxyType(_attributes(geometry, op, region, spans)),
        _macs(geometry, op, region, spans),
    )  # fmt: skip


def constant_parts(graph: Graph, op: int, region: Region) -> ConstantParts:
    """Return the parts of op ``op``'s constants that ``region`` of its output needs, of those that it needs in part.

    Raises:
        InternalError: The region is no piece.
    """
    geometry, name = described(graph, op), graph.ops[op].name
    if isinstance(geometry, Refusal):
        raise InternalError(f"op '{name}' is in pieces: {geometry.reason}", code="no-piece")
    read = frozenset(graph.ops[op].positions)
    found: dict[int, dict[int, tuple[int, int]]] = {}
    try:
        for position, maps in geometry.operands.items():
            if position not in read:
                sliced = _sliced(geometry.shapes[position], maps, _spans(geometry, position, maps, region))
                found[position] = {axis: (start, stop) for axis, start, stop in sliced}
    except RefusedError as error:
        raise InternalError(f"op '{name}' is in pieces: {error}", code="no-piece") from error
    return {position: parts for position, parts in found.items() if parts}


_Spans = dict[int, "tuple[_PaddedRange, ...] | None"]


def _sliced(
    shape: tuple[int, ...], maps: tuple[AxisMap, ...], spans: tuple[_PaddedRange, ...] | None
) -> list[tuple[int, int, int]]:
    if spans is None:
        axis = next(axis for axis, one in enumerate(maps) if isinstance(one.rule, Shift))
        return [(axis, 0, 0)]
    return [(axis, s.start, s.stop) for axis, s in enumerate(spans) if (s.start, s.stop) != (0, shape[axis])]


def _spans(
    geometry: Geometry, position: int, maps: tuple[AxisMap, ...], region: Region
) -> tuple[_PaddedRange, ...] | None:
    """Return the span per axis of an operand, or None where the region needs nothing of it."""
    result = []
    for axis, one in enumerate(maps):
        length = geometry.shapes[position][axis]
        if isinstance(one.rule, WholeAxis):
            result.append(_PaddedRange(0, length))
            continue
        start, stop = region.ranges[one.output]
        out = geometry.shape[one.output]
        if (start, stop) == (0, out) and not isinstance(one.rule, Shift | Stride):
            result.append(_untouched(one.rule, length, out))
            continue
        span = _span(one.rule, start, stop, length, out)
        if span is None:
            return None
        result.append(span)
    return tuple(result)


def _untouched(rule: Rule, length: int, out: int) -> _PaddedRange:
    """A whole axis keeps the operator's own padding and reads the whole input."""
    if isinstance(rule, Window | Reflection):
        return _PaddedRange(0, length, (rule.pad_before, rule.pad_after))
    if isinstance(rule, TransposedWindow):
        return _transposed(rule, 0, out, length, widest=True)
    return _PaddedRange(0, length)


def _span(rule: Rule, start: int, stop: int, length: int, out: int) -> _PaddedRange | None:
    if isinstance(rule, Pointwise):
        return _PaddedRange(start, stop)
    if isinstance(rule, Shift):
        low, high = max(start - rule.offset, 0), min(stop - rule.offset, length)
        return _PaddedRange(low, high) if low < high else None
    if isinstance(rule, Stride):
        ends = (rule.begin + rule.step * start, rule.begin + rule.step * (stop - 1))
        return _PaddedRange(min(ends), max(ends) + 1)
    if isinstance(rule, Merge):
        return _PaddedRange(start * rule.size, stop * rule.size)
    if isinstance(rule, Subdivision):
        return _blocks(rule, start, stop)
    if isinstance(rule, ChannelGroups):
        return _grouped(rule, start, stop)
    return _padded_span(rule, start, stop, length, out)


def _padded_span(rule: Rule, start: int, stop: int, length: int, out: int) -> _PaddedRange:
    if isinstance(rule, Window):
        return _window(rule, start, stop, length)
    if isinstance(rule, Reflection):
        return _mirrored(rule, start, stop, length)
    if isinstance(rule, TransposedWindow):
        return _transposed(rule, start, stop, length)
    if isinstance(rule, Resampling):
        return _scaled(rule, start, stop, length, out)
    raise RefusedError(f"{type(rule).__name__} has no meaning for a part", "no-meaning")


def _window(rule: Window, start: int, stop: int, length: int) -> _PaddedRange:
    low = start * rule.stride - rule.pad_before
    high = (stop - 1) * rule.stride - rule.pad_before + (rule.kernel - 1) * rule.dilation + 1
    if rule.bounded and high > length + rule.pad_after:
        raise RefusedError("its last window reaches past the padding, which changes the divisor", "divisor")
    first, last = max(low, 0), min(high, length)
    if first >= last:
        raise RefusedError("this part of its output lies in the padding alone", "padding-alone")
    if rule.most_padding is not None and max(first - low, high - last) > rule.most_padding:
        raise RefusedError(f"a piece would need more padding than its kernel of {rule.kernel} may have", "much-padding")
    return _PaddedRange(first, last, (first - low, high - last))


def _blocks(rule: Subdivision, start: int, stop: int) -> _PaddedRange:
    first, last = start // rule.size, -(-stop // rule.size)
    crop = (start - first * rule.size, last * rule.size - stop)
    if crop != (0, 0) and not rule.croppable:
        raise RefusedError(f"[{start}, {stop}) does not begin and end at multiples of {rule.size}", "not-aligned")
    return _PaddedRange(first, last, crop=crop)


def _grouped(rule: ChannelGroups, start: int, stop: int) -> _PaddedRange:
    first, last = start // rule.outputs, -(-stop // rule.outputs)
    aligned = start % rule.outputs == 0 and stop % rule.outputs == 0
    if not aligned and not (rule.divisible and last - first == 1):
        raise RefusedError(f"[{start}, {stop}) cuts groups of {rule.outputs} channels", "cuts-groups")
    return _PaddedRange(first * rule.inputs, last * rule.inputs)


def _mirrored(rule: Reflection, start: int, stop: int, length: int) -> _PaddedRange:
    """The input elements that padding repeats must be in the piece, even where it then computes more than asked."""
    low, high = start - rule.pad_before, stop - rule.pad_before
    before, after = max(0, -low), max(0, high - length)
    first, last = max(low, 0), min(high, length)
    if before:
        last = max(last, _reach(rule, before))
    if after:
        first = min(first, length - _reach(rule, after))
    return _PaddedRange(first, last, (before, after), (max(0, low - first), max(0, last - high)))


def _reach(rule: Reflection, pad: int) -> int:
    return (1, 1 + pad, pad)[rule.kind]


def _transposed(rule: TransposedWindow, start: int, stop: int, length: int, *, widest: bool = False) -> _PaddedRange:
    """A part of the input computes a stretch of the full output, of which ``pads`` drops both ends."""
    low, high = start + rule.pad_before, stop + rule.pad_before
    reach = (rule.kernel - 1) * rule.dilation + 1
    first = max(0, min(-(-(low - reach + 1) // rule.stride), low // rule.stride))
    last = min(length, (high - 1) // rule.stride + 1)
    if widest:
        first, last = 0, length
    if first >= last:
        raise RefusedError("this part of its output depends on no input", "reads-nothing")
    after = (last - 1) * rule.stride + reach - high
    return _PaddedRange(first, last, (low - first * rule.stride, max(0, after)), extra=max(0, -after))


# Resampling -------------------------------------------------------------------------------------------------------


def _scaled(rule: Resampling, start: int, stop: int, length: int, out: int) -> _PaddedRange:
    """A piece begins and ends where input and output elements meet, so that its coordinates are the whole's."""
    _check_exact(rule, start, stop)
    grid_in, grid_out = rule.scale.denominator, rule.scale.numerator
    ends = int(rule.corners)  # elements that meet are then the corners of pieces, those between two pieces of both
    low = _reads(rule, start, length)[0]
    high = _reads(rule, stop - 1, length)[1]
    block = min(low // grid_in, start // grid_out)
    end = max(-(-(high + 1 - ends) // grid_in), -(-(stop - ends) // grid_out))
    if min(out, end * grid_out + ends) - block * grid_out < rule.least:
        end, block = (end + 1, block) if end * grid_in + ends < length else (end, max(0, block - 1))
    first = block * grid_in
    last = min(length, end * grid_in + ends)
    made = out if last == length else end * grid_out + ends
    if made < stop:
        raise RefusedError("its output is longer than its scale says", "scale")
    return _PaddedRange(first, last, crop=(start - block * grid_out, made - stop))


def _reads(rule: Resampling, index: int, length: int) -> tuple[int, int]:
    """Return the first and the last input element that output element ``index`` reads."""
    at = (index + rule.centre) / rule.scale - rule.back
    if rule.rounding == "linear":
        # Coordinates are clipped before the neighbours are taken, one of which may then have weight 0.
        low = max(0, min(math.floor(at), length - 1))
        return low, min(low + 1, length - 1)
    nearest = _nearest(rule.rounding, at)
    clipped = max(0, min(nearest, length - 1))
    return clipped, clipped


def _nearest(rounding: str, at: Fraction) -> int:
    if rounding == "floor":
        return math.floor(at)
    if rounding == "ceil":
        return math.ceil(at)
    if rounding == "round_prefer_floor":
        return math.ceil(at - Fraction(1, 2))
    if rounding == "round_prefer_ceil":
        return math.floor(at + Fraction(1, 2))
    raise RefusedError(f"its rounding '{rounding}' is unknown", "rounding")


def _check_exact(rule: Resampling, start: int, stop: int) -> None:
    """Runtimes compute coordinates in single precision: a piece's may round otherwise than the whole's.

    They do not where the scale is a power of two. Otherwise linear interpolation differs in its last bits, and
    nearest may pick another element where a coordinate lies (nearly) between two; a quotient that is exactly between
    two is computed exactly, if the scale is exact.
    """
    scale = rule.scale
    if _is_power(scale.numerator) and _is_power(scale.denominator):
        return
    if rule.rounding == "linear":
        raise RefusedError(
            f"its scale {_shown(scale)} is no power of two: its pieces would round otherwise", "rounds-otherwise"
        )
    exact = rule.divides and _is_power(scale.denominator) and scale.numerator < 1 << 24
    edge = Fraction(1, 2) if rule.rounding.startswith("round") else Fraction(0)
    for index in range(start, stop):
        at = (index + rule.centre) / scale - rule.back - edge
        distance = abs(at - round(at))
        if distance <= (abs(at) + 1) / (1 << 20) and not (exact and distance == 0):
            raise RefusedError(
                f"its scale {_shown(scale)} puts elements halfway: its pieces would round otherwise", "rounds-otherwise"
            )


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _shown(scale: Fraction) -> str:
    return str(scale) if scale.denominator < 1000 else f"{float(scale):g}"


# Attributes and work ----------------------------------------------------------------------------------------------


def _attributes(geometry: Geometry, op: Op, region: Region, spans: _Spans) -> dict[str, AttributeValue]:
    result: dict[str, AttributeValue] = {}
    if geometry.group is not None and not op.type.isupper():
        axis, channels = geometry.group
        start, stop = region.ranges[axis]
        result["group"] = -(-stop // channels) - start // channels
    if op.type == "ConvTranspose":
        result["output_padding"] = tuple(span.extra for span in (spans[0] or ())[2:])
    if op.type == "DEPTHWISE_CONV_2D" and geometry.shapes[0][3] == 1:
        result["depth_multiplier"] = region.ranges[3][1] - region.ranges[3][0]
    if op.type in {"Slice", "SLICE", "STRIDED_SLICE"}:
        result.update(_slice_attributes(geometry, op, region))
    return result


def _slice_attributes(geometry: Geometry, op: Op, region: Region) -> dict[str, AttributeValue]:
    """Return a slice of all of what the piece reads: its input is cut to the elements between the ends."""
    rank = len(geometry.shape)
    steps = [one.rule.step if isinstance(one.rule, Stride) else 1 for one in geometry.operands[0]]
    lengths = region.lengths
    begins = [0 if step > 0 else (length - 1) * -step for step, length in zip(steps, lengths, strict=True)]
    # The end of a backwards slice lies before element 0: any number below -length says so.
    ends = [
        begin + length * step if step > 0 else -(begin + 2)
        for begin, length, step in zip(begins, lengths, steps, strict=True)
    ]
    if op.type == "SLICE":
        return {"begin": tuple(begins), "size": lengths}
    if op.type == "STRIDED_SLICE":
        masks = {"begin_mask": 0, "end_mask": sum(1 << axis for axis in range(rank))}
        return {"begin": tuple(begins), "end": tuple(ends), "steps": tuple(steps), **masks}
    # Old forms have no steps: where they can be given, they are stated.
    stepped: dict[str, AttributeValue] = {"steps": tuple(steps)} if "steps" in op.attributes else {}
    return {"starts": tuple(begins), "ends": tuple(ends), "axes": tuple(range(rank)), **stepped}


def _macs(geometry: Geometry, op: Op, region: Region, spans: _Spans) -> int:
    """Return the op's share: by output elements, for transposed convolutions by input elements and output channels."""
    if not op.macs:
        return 0
    if op.type not in {"ConvTranspose", "TRANSPOSE_CONV"}:
        done = math.prod(region.lengths)
        return op.macs * done // math.prod(geometry.shape)
    position, channel = (0, 1) if op.type == "ConvTranspose" else (2, 3)
    read = math.prod(span.stop - span.start for span in spans[position] or ())
    given = math.prod(geometry.shapes[position])
    if isinstance(geometry.operands[position][channel].rule, WholeAxis):
        start, stop = region.ranges[channel]
        read, given = read * (stop - start), given * geometry.shape[channel]
    return op.macs * read // given
