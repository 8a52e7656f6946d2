"""Rules, as `rules` defines them, for ops that read or write where other tensors say: gathers and scatters.

Indices count from the beginning of whole axes. So an axis that they point along is needed whole, or is written whole;
every other axis can be cut. Constants among the operands stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from memsched.ops.rules import FULL, POINTWISE, AxisMap, Geometry, OpRule, RefusedError, ShapedOp, ruled, same, whole

__all__ = ["RULES"]

_WHOLE: Final = AxisMap(-1, FULL)


def _with_whole_constants(
    layer: ShapedOp, operands: Mapping[int, Sequence[AxisMap]], fixed: Mapping[int, str]
) -> Geometry:
    """Return a geometry in which no axis of the output is cut that a constant goes along with."""
    read = frozenset(layer.op.positions)
    reasons = dict(fixed)
    for position, maps in operands.items():
        if position not in read:
            along = (one.output for one in maps if one.output >= 0)
            reasons.update(dict.fromkeys(along, f"its input {position} is a constant that goes along with it"))
    return layer.geometry({at: tuple(maps) for at, maps in operands.items() if at in read}, reasons)


def _gather(layer: ShapedOp) -> Geometry:
    """Gather, and GATHER with axes that both of its inputs share."""
    data = layer.shape(0)
    axis = layer.axis(layer.number("axis"))
    ranks = len(layer.output) - len(data) + 1  # of the indices, beside the shared axes
    shared = layer.number("batch_dims")
    if not 0 <= shared <= axis or ranks < 0:
        raise RefusedError("its shared axes are counted from the end, or do not fit its axis", "shared-axes")
    maps = [AxisMap(at, POINTWISE) for at in range(axis)]
    maps += [_WHOLE, *(AxisMap(at - 1 + ranks, POINTWISE) for at in range(axis + 1, len(data)))]
    indices = [AxisMap(at if at < shared else axis + at - shared, POINTWISE) for at in range(ranks + shared)]
    return _with_whole_constants(layer, {0: maps, 1: indices}, {})


def _gather_nd(layer: ShapedOp) -> Geometry:
    data, indices = layer.shape(0), layer.shape(1)
    shared, depth = layer.number("batch_dims"), indices[-1]
    maps = [AxisMap(at, POINTWISE) for at in range(shared)]
    maps += [_WHOLE] * depth
    maps += [AxisMap(at - shared - depth + len(indices) - 1, POINTWISE) for at in range(shared + depth, len(data))]
    return _with_whole_constants(layer, {0: maps, 1: [*same(len(indices) - 1), _WHOLE]}, {})


def _scatter_nd(layer: ShapedOp) -> Geometry:
    indices, updates = layer.shape(1), layer.shape(2)
    depth, outer = indices[-1], len(indices) - 1
    written = [_WHOLE] * outer + [AxisMap(at - outer + depth, POINTWISE) for at in range(outer, len(updates))]
    operands = {0: same(len(layer.data)), 1: whole(len(indices)), 2: written}
    return _with_whole_constants(layer, operands, dict.fromkeys(range(depth), "its indices point along it"))


def _gather_elements(layer: ShapedOp) -> Geometry:
    data, indices = layer.shape(0), layer.shape(1)
    axis = layer.axis(layer.number("axis"))
    fixed = {at: reason for at, reason in _unlike(data, indices).items() if at != axis}
    maps = [_WHOLE if at == axis or at in fixed else one for at, one in enumerate(same(len(data)))]
    return _with_whole_constants(layer, {0: maps, 1: same(len(indices))}, fixed)


def _scatter_elements(layer: ShapedOp) -> Geometry:
    data, indices = layer.shape(0), layer.shape(1)
    fixed = {**_unlike(data, indices), layer.axis(layer.number("axis")): "its indices point along it"}
    maps = [_WHOLE if at in fixed else one for at, one in enumerate(same(len(indices)))]
    return _with_whole_constants(layer, {0: same(len(data)), 1: maps, 2: maps}, fixed)


def _unlike(data: Sequence[int], indices: Sequence[int]) -> dict[int, str]:
    """Return the axes along which there are fewer indices than data, with the reason not to cut them."""
    pairs = enumerate(zip(data, indices, strict=True))
    return {axis: "it has fewer indices than elements" for axis, (given, told) in pairs if given != told}


RULES: Final[Mapping[str, OpRule]] = {
    **ruled("gather", _gather, "Gather", "GATHER", families=("selection",)),
    **ruled("gather", _gather_nd, "GatherND", "GATHER_ND", families=("selection",)),
    **ruled("gather", _gather_elements, "GatherElements", families=("selection",)),
    **ruled("gather", _scatter_nd, "ScatterND"),
    **ruled("gather", _scatter_elements, "ScatterElements"),
}
