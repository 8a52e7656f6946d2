"""Divisions that a format has no words for: of an op whose padding follows from the size of its input, for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memsched.features.distribute.divisions import Division
from memsched.features.distribute.space import Space
from memsched.graph.dialect import Dialect
from memsched.graph.distribution import Axis
from memsched.graph.model import Graph, Region
from memsched.ops.ranges import PieceNeeds, deduce
from memsched.ops.rules import Refusal
from memsched.rewrites.tile.runs import run_of

__all__ = ["inexpressible"]


def inexpressible(
    graph: Graph, dialect: Dialect, weights: Mapping[int, Mapping[int, int]] | None = None
) -> frozenset[tuple[int, Axis]]:
    """Return (op, axis) along which no part of an op can be written that reads what it needs and no more.

    Args:
        weights: As for `Space.of`.
    """
    space = Space.of(graph, None, weights)
    return frozenset(
        (number, axis)
        for number, divisions in enumerate(space.divisions)
        for axis, division in divisions.items()
        if axis != "whole" and not _written(space, number, division, dialect)
    )


def _written(space: Space, number: int, division: Division, dialect: Dialect) -> bool:
    op, geometry = space.graph.ops[number], space.geometries[number]
    # Of a concatenation only those inputs are read that a part needs.
    if geometry is None or op.type == dialect.concat_type:
        return True
    for wanted in _probes(space, number, division):
        needed = deduce(geometry, op, wanted)
        run = run_of(op, number, geometry, wanted, dialect, padded=True)
        if isinstance(needed, PieceNeeds) and (
            isinstance(run, Refusal) or run.reads != tuple(one.region for one in needed.inputs)
        ):
            return False
    return True


def _probes(space: Space, number: int, division: Division) -> Iterator[Region]:
    """Yield a part at either end of an axis and one in the middle."""
    extents = space.extents[space.graph.ops[number].outputs[0]]
    for unit in sorted({0, division.units // 2, division.units - 1}):
        yield extents.region(extents.slab(division.axis, division.bound_of(unit), division.bound_of(unit + 1)))
