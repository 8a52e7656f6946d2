"""How much of every tensor is made at least, whichever layers are computed in pieces: what its readers need.

What leaves a group is made whole. What stays inside one is made as far as the group's layers read it, which the rules
of their axes say: a window with a stride may step over elements, and a crop leaves some out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

from memsched.graph.model import Graph
from memsched.ops.rules import (
    ChannelGroups,
    Geometry,
    Merge,
    Pointwise,
    Reflection,
    Refusal,
    Rule,
    Shift,
    Stride,
    Subdivision,
    WholeAxis,
    Window,
)

__all__ = ["lengths_made", "lengths_read"]

_Lengths = tuple[int, ...]


def lengths_made(
    graph: Graph,
    geometries: Mapping[int, Geometry | Refusal],
    readers: Sequence[Sequence[int]],
    whole: frozenset[int],
) -> list[_Lengths | None]:
    """Return per tensor how many positions of each axis are made at least; None where nothing is known.

    Args:
        whole: Ops that are never in pieces.
    """
    results = set(graph.outputs)
    found: list[_Lengths | None] = [tensor.shape for tensor in graph.tensors]
    claimed: dict[int, _Lengths] = {}
    for number in range(len(graph.ops) - 1, -1, -1):
        op, geometry = graph.ops[number], geometries[number]
        for tensor in op.outputs:
            leaves = tensor in results or not readers[tensor] or not whole.isdisjoint(readers[tensor])
            if not leaves and found[tensor] is not None:
                found[tensor] = claimed.get(tensor)
        if isinstance(geometry, Refusal):
            continue
        made = found[op.outputs[0]]
        for position, tensor in zip(op.positions, op.inputs, strict=True):
            if made is not None:
                # Of what several layers read, as much is made as one of them reads.
                read = lengths_read(geometry, position, made)
                claimed[tensor] = max(claimed.get(tensor, read), read, key=math.prod)
    return found


def lengths_read(geometry: Geometry, position: int, made: Sequence[int]) -> _Lengths:
    """Return how many positions of each axis of an operand are read at least for so many of the output's axes."""
    return tuple(
        length if one.output < 0 else _length_read(one.rule, length, geometry.shape[one.output], made[one.output])
        for one, length in zip(geometry.operands[position], geometry.shapes[position], strict=True)
    )


def _length_read(rule: Rule, length: int, full: int, made: int) -> int:
    """Return how many positions of an axis are read for ``made`` of the ``full`` positions of the output's."""
    if not made or isinstance(rule, WholeAxis):
        return length if made else 0
    if isinstance(rule, Window):
        return _window_reads(rule, length, full, made)
    if isinstance(rule, Shift | Reflection):
        # Others may be what other operands give, or padding.
        return max(0 if isinstance(rule, Shift) else 1, made - max(0, full - length))
    if isinstance(rule, ChannelGroups):
        return min(length, -(-made // rule.outputs) * rule.inputs)
    if isinstance(rule, Merge | Subdivision):
        return min(length, made * rule.size if isinstance(rule, Merge) else -(-made // rule.size))
    return min(length, made if isinstance(rule, Pointwise | Stride) else 1)


@functools.cache
def _window_reads(rule: Window, length: int, full: int, made: int) -> int:
    if made == full:
        end = (full - 1) * rule.stride - rule.pad_before + rule.kernel
        if rule.dilation == 1 and rule.kernel >= rule.stride:
            return max(0, min(length, end) - max(0, -rule.pad_before))
        begins = range(-rule.pad_before, full * rule.stride - rule.pad_before, rule.stride)
        read = {begin + rule.dilation * tap for begin in begins for tap in range(rule.kernel)}
        return len(read & {*range(length)})
    # Each position of the output has an element of its own under one tap, where that lies in no padding.
    most = max(_places_inside(rule, length, full, rule.dilation * tap - rule.pad_before) for tap in range(rule.kernel))
    return max(min(length, 1), made - (full - most))


def _places_inside(rule: Window, length: int, full: int, begin: int) -> int:
    """Return for how many places of a window one of its elements lies inside, of which the first is at ``begin``."""
    return max(0, min(full - 1, (length - 1 - begin) // rule.stride) - max(0, -(begin // rule.stride)) + 1)
