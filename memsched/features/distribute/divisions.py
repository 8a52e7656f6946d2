"""Ways in which an op's output can be divided, and what a part of it needs, as tables per boundary.

What a part needs follows from region deduction (`memsched.ops`). Along an axis, where a part begins says where
the data that it needs begin, and where it ends says where they end; so one entry per possible boundary says all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import lru_cache

from memsched.base.frozen import FrozenValue
from memsched.features.distribute.boxes import Extents
from memsched.graph.distribution import Axis
from memsched.graph.model import Op, Region
from memsched.ops.ranges import deduce
from memsched.ops.rules import (
    AxisMap,
    ChannelGroups,
    Geometry,
    Pointwise,
    Reflection,
    Refusal,
    Resampling,
    Rule,
    Shift,
    Stride,
    Subdivision,
    WholeAxis,
)

__all__ = ["Division", "Reach", "WeightPart", "divide", "undivided"]

_MOST_UNITS = 4096
"""Most boundaries along an axis; longer axes are divided in steps of more than one element."""


class Reach(FrozenValue, frozen=True):
    """What parts of an output need along one axis of an operand.

    Attributes:
        first: Per unit at which a part may begin, where the data that it needs begin.
        last: Per unit before which a part may end, where the data that it needs end; entry 0 is not used.
        whole: What the whole output needs.
    """

    first: tuple[int, ...]
    last: tuple[int, ...]
    whole: tuple[int, int]

    def of(self, start: int, stop: int, units: int) -> tuple[int, int]:
        """Return the range that the units [start, stop) need; (0, 0) for nothing."""
        if start >= stop:
            return (0, 0)
        found = self.whole if (start, stop) == (0, units) else (self.first[start], self.last[stop])
        return found if found[0] < found[1] else (0, 0)


class WeightPart(FrozenValue, frozen=True):
    """A constant of ``size`` bytes, of ``length`` elements along the axis that is cut; no reach: needed whole."""

    size: int
    length: int = 1
    reach: Reach | None = None


class Division(FrozenValue, frozen=True):
    """One way of dividing an op's output.

    Attributes:
        length: The axis's length; 1 for "whole".
        unit: Boundaries are at multiples of it, and at the end.
        channels: Per activation that the op reads, each once: its channels that a part needs, a `Reach` or a range
            that every part needs.
        rows: Likewise its rows.
        weights: The constants.
    """

    axis: Axis
    length: int
    unit: int
    tensors: tuple[int, ...]
    channels: tuple[tuple[Reach | tuple[int, int], ...], ...]
    rows: tuple[tuple[Reach | tuple[int, int], ...], ...]
    weights: tuple[WeightPart, ...]

    @property
    def units(self) -> int:
        """How many units there are."""
        return -(-self.length // self.unit)

    def unit_of(self, bound: int) -> int:
        """Return the number of the unit that begins at ``bound``, which is a multiple of the unit or the end."""
        return -(-bound // self.unit)

    def bound_of(self, unit: int) -> int:
        """Return where a unit begins."""
        return min(self.length, unit * self.unit)

    def weight_bytes(self, start: int, stop: int) -> int:
        """Return the bytes of the constants that the part [start, stop) reads."""
        if start >= stop:
            return 0
        total = 0
        for part in self.weights:
            if part.reach is None:
                total += part.size
            else:
                low, high = part.reach.of(self.unit_of(start), self.unit_of(stop), self.units)
                total += part.size * (high - low) // part.length
        return total


def undivided(op: Op, extents: tuple[Extents, ...], weights: Iterable[int]) -> Division:
    """Return the division in which one device computes all of an op and needs all of its inputs."""
    tensors = tuple(dict.fromkeys(op.inputs))
    return Division(
        "whole",
        1,
        1,
        tensors,
        tuple(((0, extents[tensor].channels),) for tensor in tensors),
        tuple(((0, extents[tensor].rows),) for tensor in tensors),
        tuple(WeightPart(size) for size in weights),
    )


def divide(
    op: Op, geometry: Geometry, axis: Axis, extents: tuple[Extents, ...], weights: dict[int, int]
) -> Division | None:
    """Return the division of an op's output along ``axis``; None where its parts cannot be computed by themselves.

    An axis is not divided if a part would have to compute a margin around what is asked of it.

    Args:
        weights: Bytes per position of the op's constants.
    """
    output = extents[op.outputs[0]].axis(axis)
    if output < 0 or output in geometry.fixed:
        return None
    if any(isinstance(one.rule, Shift) for place in weights for one in geometry.operands.get(place, ())):
        return None  # constants that are joined with activations would have to be cut with them
    length = geometry.shape[output]
    maps = [one for operand in geometry.operands.values() for one in operand if one.output == output]
    unit = _unit([one.rule for one in maps], length)
    if -(-length // unit) < 2:
        return None
    found: dict[int, tuple[list[Reach | tuple[int, int]], list[Reach | tuple[int, int]]]] = {}
    for position, tensor in zip(op.positions, op.inputs, strict=True):
        shown = extents[tensor]
        reaches = _reaches(geometry, position, output, unit)
        if reaches is None:
            return None
        channels, rows = found.setdefault(tensor, ([], []))
        channels.append(reaches[shown.channel_axis] if shown.channel_axis >= 0 else (0, 1))
        rows.append(reaches[shown.row_axis] if shown.row_axis >= 0 else (0, 1))
    parts = []
    for position, size in sorted(weights.items()):
        part = _weight_part(geometry, position, output, unit, size)
        if part is None:
            return None
        parts.append(part)
    result = Division(
        axis,
        length,
        unit,
        tuple(found),
        tuple(tuple(channels) for channels, _ in found.values()),
        tuple(tuple(rows) for _, rows in found.values()),
        tuple(parts),
    )
    return result if _pieces_exist(op, geometry, output, result) else None


def _unit(rules: list[Rule], length: int) -> int:
    unit = 1
    for rule in rules:
        if isinstance(rule, ChannelGroups):
            unit = math.lcm(unit, rule.outputs)
        elif isinstance(rule, Subdivision):
            unit = math.lcm(unit, rule.size)
        elif isinstance(rule, Resampling):
            unit = math.lcm(unit, rule.scale.numerator)
    # A power of two keeps the steps multiples of what the rules ask for.
    while unit < length and -(-length // unit) > _MOST_UNITS:
        unit *= 2
    return unit


def _reaches(geometry: Geometry, position: int, output: int, unit: int) -> list[Reach | tuple[int, int]] | None:
    """Return per axis of an operand what a part of the output's axis ``output`` needs; all of the other axes.

    On other axes a slice's parts need what the slice takes; the whole slice, though, is executed as it is.
    """
    result: list[Reach | tuple[int, int]] = []
    made = geometry.shape[output]
    for one, length in zip(geometry.operands[position], geometry.shapes[position], strict=True):
        reach: Reach | None
        if isinstance(one.rule, Stride) and one.output != output:
            out = geometry.shape[one.output]
            found, entries = _range(one.rule, length, out, 0, out), -(-made // unit) + 1
            reach = found and Reach((found[0],) * entries, (found[1],) * entries, (0, length))
        elif isinstance(one.rule, WholeAxis) or one.output != output:
            result.append((0, length))
            continue
        else:
            reach = _reach(one.rule, length, made, unit)
        if reach is None:
            return None
        result.append(reach)
    return result


def _weight_part(geometry: Geometry, position: int, output: int, unit: int, size: int) -> WeightPart | None:
    """Return what parts read of a constant, which at most one axis follows; None where it is not known."""
    maps = geometry.operands.get(position, ())
    axes = [axis for axis, one in enumerate(maps) if one.output == output and not isinstance(one.rule, WholeAxis)]
    if not axes:
        return WeightPart(size)
    length = geometry.shapes[position][axes[0]]
    reach = _reach(maps[axes[0]].rule, length, geometry.shape[output], unit)
    if len(axes) > 1 or reach is None or not length or size % length:
        return None
    return WeightPart(size, length, reach)


@lru_cache(maxsize=4096)
def _reach(rule: Rule, length: int, out: int, unit: int) -> Reach | None:
    """Return the tables of a rule; None where a part is refused.

    All of an output needs all of its operand: then the op is executed as it is.
    """
    starts = [*range(0, out, unit), out]
    if isinstance(rule, Pointwise):
        return Reach(tuple(starts), tuple(starts), (0, length))
    if isinstance(rule, Shift):
        found = tuple(min(max(start - rule.offset, 0), length) for start in starts)
        return Reach(found, found, (0, length))
    if isinstance(rule, Reflection) or (isinstance(rule, Stride) and rule.step < 0):
        return None  # where such a part's data begin does not follow from where the part begins
    first, last = [], [0]
    for start, stop in itertools.pairwise(starts):
        one = _range(rule, length, out, start, stop)
        if one is None:
            return None
        first.append(one[0])
        last.append(one[1])
    return Reach((*first, length), tuple(last), (0, length))


def _range(rule: Rule, length: int, out: int, start: int, stop: int) -> tuple[int, int] | None:
    """Return what region deduction says about [start, stop) of a tensor that has only this axis."""
    alone = Geometry((out,), {0: (length,)}, {0: (AxisMap(0, rule),)})
    found = deduce(alone, Op("axis", "", (0,), (1,), positions=(0,)), Region(((start, stop),)))
    if isinstance(found, Refusal):
        return None
    region = found.inputs[0].region
    if region is None:
        return None
    return region.ranges[0] if found.crop == ((0, 0),) else None


def _pieces_exist(op: Op, geometry: Geometry, output: int, division: Division) -> bool:
    """Whether every unit by itself is a piece that the operator can compute, with no margin around it.

    Where only some units are refused (a constant part of a Concat), there is no division either.
    """
    whole = [(0, size) for size in geometry.shape]
    suspicious = any(
        isinstance(one.rule, Shift) for operand in geometry.operands.values() for one in operand
    )  # each axis alone was asked already; only a concatenation can refuse what its axes permit
    probes = range(division.units) if suspicious else (division.units // 2,)
    for unit in probes:
        ranges = [*whole]
        ranges[output] = (division.bound_of(unit), division.bound_of(unit + 1))
        found = deduce(geometry, op, Region(tuple(ranges)))
        if isinstance(found, Refusal) or any(margin != (0, 0) for margin in found.crop):
            return False
    return True
