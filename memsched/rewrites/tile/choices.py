"""Ways of cutting a group: what to try first for an interval of ops, and what lies near a way already judged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from memsched.graph.model import Graph
from memsched.ops.rules import Geometry, Refusal, Window
from memsched.rewrites.tile.local import Intervals, halo_tensors
from memsched.rewrites.tile.pieces import TilingGroup, members_of
from memsched.rewrites.tile.runs import POOLS

__all__ = ["TilingChoices"]

_MOST_PIECES = 144
"""Per group: beyond that, slices and concatenations take more time than the little memory they save is worth."""

_MOST_RUNS = 16_384
"""Runs of ops in pieces of a long group."""

_MOST_TURNED = 48
"""Halos and paddings of a group up to which each is tried the other way: one of more changes next to nothing."""

_FIRST_COUNTS = (2, 4, 8, 16, 32)
_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)


class TilingChoices:
    """The ways of cutting the ops [first, last] of the graph that ``intervals`` knows."""

    def __init__(self, intervals: Intervals, first: int, last: int) -> None:
        self._graph: Graph = intervals.graph
        self.ops = tuple(range(first, last + 1))
        self._geometries = intervals.geometries
        self._halos = halo_tensors(self._graph, intervals.geometries, self.ops)
        outputs = members_of(self._graph, self.ops, intervals.readers).outputs
        shapes = [self._graph.tensors[tensor].shape or () for tensor in outputs]
        rank = min((len(shape) for shape in shapes), default=0)
        self._sizes = [min(shape[axis] for shape in shapes) for axis in range(rank)]
        self._spatial = [axis for axis in self._window_axes() if axis < rank and self._sizes[axis] > 1]
        self._others = [axis for axis in range(rank) if axis not in self._spatial and self._sizes[axis] > 1]
        explicit = intervals.dialect
        self._padable = tuple(
            op
            for op in self.ops
            if explicit.pads_by_size(self._graph.ops[op]) and self._graph.ops[op].type not in POOLS and self._moves(op)
        )

    def _window_axes(self) -> list[int]:
        found: dict[int, None] = {}
        for op in self.ops:
            geometry = self._geometries[op]
            if isinstance(geometry, Geometry):
                maps = geometry.operands.get(0, ())
                found.update((one.output, None) for one in maps if isinstance(one.rule, Window))
        return sorted(found)

    def _moves(self, op: int) -> bool:
        geometry = self._geometries[op]
        maps = () if isinstance(geometry, Refusal) else geometry.operands.get(0, ())
        return any(isinstance(one.rule, Window) and one.rule.kernel > 1 for one in maps)

    def ladders(self) -> Iterator[list[TilingGroup]]:
        """Yield series of ways with more and more pieces; a series may be left where it gets worse."""
        rows, others = self._spatial[:1], self._others[::-1]
        if rows:
            # Beside windows: channels and the batch.
            others = [axis for axis in others if axis in {0, others[0]}]
        narrow = tuple(self._halos[: (len(self._halos) + 1) // 2])
        for kept in dict.fromkeys(((), narrow)):
            for axis in rows:
                yield [
                    TilingGroup(self.ops, (axis,), (count,), kept, self._padable)
                    for count in _FIRST_COUNTS
                    if count <= self._sizes[axis]
                ]
        for axis in others:
            yield [TilingGroup(self.ops, (axis,), (count,)) for count in _FIRST_COUNTS if count <= self._sizes[axis]]
        if len(self._spatial) > 1:
            first, second = self._spatial[:2]
            yield [
                TilingGroup(self.ops, (first, second), (count, 2), (), self._padable)
                for count in _FIRST_COUNTS[1:]
                if count <= self._sizes[first]
            ]

    def streamed(self) -> list[TilingGroup]:
        """Return ways with more and more pieces along rows, every halo kept: through long groups, all else costs more.

        With few pieces, rows to come count twice. What halos take does not depend on where they are made.
        """
        halos = tuple(sorted(self._halos))
        return [
            TilingGroup(self.ops, (axis,), (count,), halos, self._padable)
            for axis in self._spatial[:1]
            for count in dict.fromkeys((*_FIRST_COUNTS[2:], min(self._sizes[axis], _MOST_PIECES)))
            if count <= self._sizes[axis] and count * len(self.ops) <= _MOST_RUNS
        ]

    def near(self, group: TilingGroup) -> Iterator[TilingGroup]:
        """Yield the ways that differ from ``group`` in one respect, of not too many pieces."""
        return (one for one in self._near(group) if math.prod(one.counts) <= _MOST_PIECES)

    def _near(self, group: TilingGroup) -> Iterator[TilingGroup]:
        for place, axis in enumerate(group.axes):
            for count in self._around(group.counts[place], self._sizes[axis]):
                counts = (*group.counts[:place], count, *group.counts[place + 1 :])
                if count > 1:
                    yield replace(group, counts=counts)
                elif len(counts) > 1:
                    left = 1 - place
                    yield replace(group, axes=(group.axes[left],), counts=(counts[left],))
        if len(group.axes) == 2:
            # More pieces along one axis pay for fewer along the other.
            (first, second), sizes = group.counts, [self._sizes[axis] for axis in group.axes]
            for one in self._around(first, sizes[0]):
                for other in self._around(second, sizes[1]):
                    if (one < first) != (other < second) and min(one, other) > 1:
                        yield replace(group, counts=(one, other))
        if len(group.axes) == 1 and group.axes[0] in self._spatial:
            yield from self._kept_near(group)
            for axis in self._spatial[:2]:
                if axis > group.axes[0] and self._sizes[axis] > 1:
                    yield replace(group, axes=(group.axes[0], axis), counts=(group.counts[0], 2), kept=())
        for op in self._padable if len(self._padable) <= _MOST_TURNED else ():
            padded = set(group.padded) ^ {op}
            yield replace(group, padded=tuple(sorted(padded)))

    def _kept_near(self, group: TilingGroup) -> Iterator[TilingGroup]:
        for tensor in self._halos if len(self._halos) <= _MOST_TURNED else ():
            yield replace(group, kept=tuple(sorted({*group.kept} ^ {tensor})))

    @staticmethod
    def _around(count: int, size: int) -> list[int]:
        ladder = [step for step in (*_COUNTS, size) if step <= size]
        lower = max((step for step in ladder if step < count), default=None)
        upper = min((step for step in ladder if step > count), default=None)
        return [step for step in (lower, upper) if step is not None]
