"""Which part of its inputs a node needs for a block of its output: the same block of some, and all of the others.

A block is a range of one axis of a value. Where a reshape has merged this axis with those before it (tokens of all
texts of a batch in one axis) the block is merged with them as well: such values exist only within a loop's body.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from onnx import NodeProto

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.open_rules import OpenRules
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.structure import op_type
from memsched.ops.rules import POINTWISE, AxisMap, Geometry, WholeAxis
from memsched.ops.table import FROM_NUMBERS, SHAPED, class_of

__all__ = ["Cut", "Needs", "integers_of", "is_cheap", "is_elementwise", "needs"]


class Cut(FrozenValue, frozen=True):
    """A block of a value.

    Attributes:
        axis: The axis of which it is a range.
        merged: This axis holds those before it, too.
    """

    axis: int
    merged: bool = False


Needs = tuple["Cut | None", ...]
"""Per input of a node its block; None: all of it."""

_TOLD_SIZES: Final = {"Resize": 3}
"""Operators that may be told it, and are then not computed in blocks."""

_CHEAP: Final = frozenset({"elementwise", "channelwise", "movement", "gather"})


def is_elementwise(kind: str) -> bool:
    """Return whether such a node computes each element from those of its inputs at the same place."""
    return class_of(kind) == "elementwise"


def is_cheap(kind: str) -> bool:
    """Return whether computing such a node again costs about as much as reading its output."""
    return class_of(kind) in _CHEAP or kind in FROM_NUMBERS


def needs(node: NodeProto, cut: Cut, rules: OpenRules) -> Needs | None:
    """Return what of its inputs a node needs for a block of its outputs; None where that is not known.

    Args:
        cut: The block of every output.
    """
    kind = op_type(node)
    output = rules.values.shapes.get(node.output[0])
    if output is None or cut.axis >= len(output):
        return None
    if kind == "Reshape":
        return _reshaped(node, output, cut, rules)
    if kind == "ConstantOfShape":
        return None if cut.merged or None in output else (None,)
    place = _TOLD_SIZES.get(kind, len(node.input))
    if place < len(node.input) and node.input[place]:
        return None
    found = {_needs(node, geometry, cut) for geometry in rules.of(node)}
    return found.pop() if len(found) == 1 else None


def _needs(node: NodeProto, geometry: Geometry, cut: Cut) -> Needs | None:
    """Return what the rule of one of a node's outputs says."""
    if cut.axis in geometry.fixed:
        return None
    found: list[Cut | None] = []
    for place, name in enumerate(node.input):
        maps = geometry.operands.get(place, ()) if name else ()
        along = [axis for axis, one in enumerate(maps) if _follows(one, cut.axis)]
        if len(along) > 1 or any(maps[axis].rule != POINTWISE for axis in along):
            return None
        if cut.merged and any(not _in_order(maps, axis, cut.axis) for axis in along):
            return None
        found.append(Cut(along[0], cut.merged) if along else None)
    return tuple(found) if any(found) or op_type(node) in SHAPED else None


def _follows(one: AxisMap, axis: int) -> bool:
    return one.output == axis and not isinstance(one.rule, WholeAxis)


def _in_order(maps: Sequence[AxisMap], axis: int, output: int) -> bool:
    """Whether the axes before one of an operand are those before it in the output, as far as they are in both."""
    before = [one.output for one in maps[:axis] if one.output >= 0]
    after = [one.output for one in maps[axis + 1 :] if one.output >= 0]
    return before == sorted(before) and max(before, default=-1) < output < min(after, default=output + 1)


def _reshaped(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, rules: OpenRules) -> Needs | None:
    """Follow a block through a reshape: lengths are matched from the left, group by group."""
    shape = rules.values.shapes.get(node.input[0])
    if shape is None or attribute_of(node, "allowzero", 0):
        return None
    groups = _groups(shape, output, rules.sizes)
    others = (None,) * (len(node.input) - 1)
    for sources, results in groups or ():
        if cut.axis not in results:
            continue
        before = [axis for axis in sources if not _is_one(shape[axis])]
        after = [axis for axis in results if not _is_one(output[axis])]
        if len(before) == 1 and len(after) == 1:
            return Cut(before[0], cut.merged), *others
        if not cut.merged and len(before) == 1 and after and after[-1] == cut.axis:
            return Cut(before[0], merged=True), *others
        if cut.merged and len(after) == 1 and before:
            return Cut(before[-1]), *others
    return None


def _groups(
    shape: Sequence[Polynomial | None], output: Sequence[Polynomial | None], sizes: Mapping[str, int]
) -> list[tuple[list[int], list[int]]] | None:
    """Return the smallest groups of axes with equal products, in order; None where a length is unknown."""
    if any(one is None for one in (*shape, *output)):
        return None
    first = [one.at(sizes) for one in shape if one is not None]
    second = [one.at(sizes) for one in output if one is not None]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(first) or j < len(second):
        sources, results = ([i] if i < len(first) else []), ([j] if j < len(second) else [])
        i, j = i + len(sources), j + len(results)
        while (left := math.prod(first[one] for one in sources)) != (
            right := math.prod(second[one] for one in results)
        ):
            if left < right and i < len(first):
                sources.append(i)
                i += 1
            elif right < left and j < len(second):
                results.append(j)
                j += 1
            else:
                return None
        groups.append((sources, results))
    return groups


def _is_one(length: Polynomial | None) -> bool:
    return length is not None and length.constant() == 1


def integers_of(node: NodeProto, position: int, values: OpenValues) -> list[int] | None:
    """Return the constants that an input holds; None where it is missing or no constant."""
    name = node.input[position] if len(node.input) > position else ""
    known = [one.constant() for one in values.integers.get(name, ())]
    found = [one for one in known if one is not None]
    return found if name in values.integers and len(found) == len(known) else None
