"""Which part of every tensor each piece of a group computes: shape transfer, with halos recomputed or kept.

Source: "Deep Fusion", section 3.1, shape transfer (ST): the regions of a group's outputs are handed
from op to op, last to first. Beyond the paper a group may be any DAG, cut along one axis or two, and a tensor's
halo may be kept from the piece before instead of being computed again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Region
from memsched.graph.parts import readers_of
from memsched.ops.geometry import describe
from memsched.ops.rules import Geometry, Refusal, RefusedError
from memsched.rewrites.tile.runs import OpPiece, run_of

__all__ = [
    "Members",
    "Piece",
    "Pieces",
    "Runs",
    "TilingGroup",
    "hull",
    "members_of",
    "plan_pieces",
]


class TilingGroup(FrozenValue, frozen=True):
    """Consecutive ops that are computed piece by piece.

    Attributes:
        ops: Indices into the graph, consecutive and ascending.
        axes: The axes of the outputs that are cut, one or two.
        counts: Into how many pieces, per axis.
        kept: Tensors made in the group whose halo is kept from the piece before; only with one axis.
        padded: Ops that, where the format cannot give a piece pads of its own, run on an input that is padded first.
            All others pad by size if they do so anyway, and have elements at inner edges that are wrong and cut off.
    """

    ops: tuple[int, ...]
    axes: tuple[int, ...]
    counts: tuple[int, ...]
    kept: tuple[int, ...] = ()
    padded: tuple[int, ...] = ()

    def coarser(self) -> Iterator[TilingGroup]:
        """Yield the group with half as many pieces along one axis, the last one first."""
        for place in reversed(range(len(self.axes))):
            count = -(-self.counts[place] // 2)
            if count > 1 and count < self.counts[place]:
                yield replace(self, counts=(*self.counts[:place], count, *self.counts[place + 1 :]))
            elif len(self.axes) > 1:
                others = slice(1 - place, 2 - place)
                yield replace(self, axes=self.axes[others], counts=self.counts[others])


class Piece(FrozenValue, frozen=True):
    """One piece of a group.

    Attributes:
        ops: Its runs of ops, in the group's order; an op has none if all of its output is kept.
        needed: Per tensor made in the group the part that this piece works on.
        kept: Per tensor the part of ``needed`` that the piece before has left.
        output: Per output of the group the part that this piece contributes.
    """

    ops: tuple[OpPiece, ...]
    needed: Mapping[int, Region]
    kept: Mapping[int, Region]
    output: Mapping[int, Region]


class Members(FrozenValue, frozen=True):
    """What a set of ops reads from outside and gives to the outside.

    Attributes:
        inputs: Tensors made elsewhere, in order of first use.
        inner: Tensors made and read inside only.
        outputs: Tensors that others read, or that are the graph's outputs.
    """

    ops: tuple[int, ...]
    inputs: tuple[int, ...]
    inner: tuple[int, ...]
    outputs: tuple[int, ...]


class Pieces(FrozenValue, frozen=True):
    """A group as it will be computed."""

    group: TilingGroup
    members: Members
    pieces: tuple[Piece, ...]
    macs: int


Runs = dict[tuple[str, Region, bool], OpPiece]
"""Name of an op, the part asked for and whether its input may be padded, to its run."""


def members_of(graph: Graph, ops: Sequence[int], readers: Sequence[Sequence[int]] | None = None) -> Members:
    """Return what ``ops`` read and make.

    Args:
        readers: Per tensor the ops that read it, where the caller has them.
    """
    inside = set(ops)
    readers = readers_of(graph) if readers is None else readers
    results = set(graph.outputs)
    made = [tensor for op in ops for tensor in graph.ops[op].outputs]
    own = set(made)
    inputs = dict.fromkeys(tensor for op in ops for tensor in graph.ops[op].inputs if tensor not in own)
    outputs = tuple(
        tensor
        for tensor in made
        if tensor in results or not readers[tensor] or any(op not in inside for op in readers[tensor])
    )
    leaving = set(outputs)
    return Members(tuple(ops), tuple(inputs), tuple(tensor for tensor in made if tensor not in leaving), outputs)


def plan_pieces(
    graph: Graph,
    group: TilingGroup,
    dialect: Dialect,
    geometries: Mapping[int, Geometry | Refusal] | None = None,
    known: Runs | None = None,
    most_macs: int | None = None,
    readers: Sequence[Sequence[int]] | None = None,
) -> Pieces | Refusal:
    """Return the regions of all pieces of ``group``, or why it cannot be cut so.

    Args:
        geometries: What `describe` gives for the group's ops, where the caller has it already.
        known: Runs that were found before for ops of these names; new ones are added.
        most_macs: Multiply-accumulates that all pieces together may take.
        readers: Per tensor the ops that read it, where the caller has them.
    """
    try:
        members = members_of(graph, group.ops, readers)
        return _PiecePlanner(graph, group, members, dialect, geometries or {}, {} if known is None else known).plan(
            most_macs
        )
    except RefusedError as error:
        return error.refusal


def hull(first: Region, second: Region) -> Region:
    """Return the smallest region that holds both."""
    pairs = zip(first.ranges, second.ranges, strict=True)
    return Region(tuple((min(a, c), max(b, d)) for (a, b), (c, d) in pairs))


class _PiecePlanner:
    def __init__(
        self,
        graph: Graph,
        group: TilingGroup,
        members: Members,
        dialect: Dialect,
        geometries: Mapping[int, Geometry | Refusal],
        known: Runs,
    ) -> None:
        self._graph, self._group, self._dialect, self._known = graph, group, dialect, known
        self._members = members
        self._geometries: dict[int, Geometry] = {}
        for op in group.ops:
            found = geometries[op] if op in geometries else describe(graph, op)
            if isinstance(found, Refusal):
                raise RefusedError(found.reason, found.code)
            self._geometries[op] = found
        self._outputs = set(self._members.outputs)
        self._macs = 0

    def plan(self, most_macs: int | None) -> Pieces:
        tied = {op for pair in self._graph.dependencies for op in pair}
        if tied & set(self._group.ops):
            raise RefusedError("an op of the group works on a state", "state")
        before: dict[int, Region] = {}
        pieces = []
        for index in itertools.product(*(range(count) for count in self._group.counts)):
            piece = self._piece(index, before)
            before = {**before, **piece.needed}
            pieces.append(piece)
            if most_macs is not None and self._macs > most_macs:
                raise RefusedError("it takes more extra work than is permitted", "much-work")
        return Pieces(self._group, self._members, tuple(pieces), self._macs)

    def _contributions(self, index: Sequence[int]) -> dict[int, Region]:
        """Return what a piece adds to each output: an even part of the last one, the same share of others."""
        main = self._shape(self._members.outputs[-1])
        result = {}
        for tensor in self._members.outputs:
            shape = self._shape(tensor)
            ranges = [(0, size) for size in shape]
            for place, axis, count in zip(index, self._group.axes, self._group.counts, strict=True):
                if axis >= min(len(shape), len(main)) or min(shape[axis], main[axis]) < count:
                    name = self._graph.tensors[tensor].name
                    raise RefusedError(f"'{name}' cannot be cut into {count} pieces along axis {axis}", "many-pieces")
                ends = [main[axis] * at // count * shape[axis] // main[axis] for at in (place, place + 1)]
                ranges[axis] = (ends[0], shape[axis] if place + 1 == count else ends[1])
            result[tensor] = Region(tuple(ranges))
        return result

    def _shape(self, tensor: int) -> tuple[int, ...]:
        shape = self._graph.tensors[tensor].shape
        if shape is None:
            raise RefusedError(f"the shape of '{self._graph.tensors[tensor].name}' is unknown", "unknown-shape")
        return shape

    def _piece(self, index: Sequence[int], before: Mapping[int, Region]) -> Piece:
        output = self._contributions(index)
        needed: dict[int, Region] = dict(output)
        kept: dict[int, Region] = {}
        runs: list[OpPiece] = []
        made = {self._graph.ops[op].outputs[0] for op in self._group.ops}
        for op in reversed(self._group.ops):
            tensor = self._graph.ops[op].outputs[0]
            if tensor not in needed:
                continue
            fresh: Region | None = needed[tensor]
            if tensor in self._group.kept and tensor in before:
                kept_part, fresh = self._split(needed[tensor], before[tensor])
                if kept_part is not None:
                    kept[tensor] = kept_part
            if fresh is None:
                continue
            run = self._run(op, fresh)
            runs.append(run)
            for read, region in zip(self._graph.ops[op].inputs, run.reads, strict=True):
                if read in made:
                    needed[read] = hull(needed[read], region) if read in needed else region
        return Piece(tuple(reversed(runs)), needed, kept, output)

    def _split(self, wanted: Region, before: Region) -> tuple[Region | None, Region | None]:
        """Return what of ``wanted`` lies in ``before``, and what remains to be computed."""
        axis = self._group.axes[0]
        if axis >= len(wanted.ranges):  # behind a reshape the tensor has no such axis
            return None, wanted
        (start, stop), (first, end) = wanted.ranges[axis], before.ranges[axis]
        others = [
            a == b for place, (a, b) in enumerate(zip(wanted.ranges, before.ranges, strict=True)) if place != axis
        ]
        if len(self._group.axes) > 1 or not all(others) or not first <= start < end:
            return None, wanted
        middle = min(end, stop)
        return _with_range(wanted, axis, start, middle), _with_range(
            wanted, axis, middle, stop
        ) if middle < stop else None

    def _run(self, op: int, wanted: Region) -> OpPiece:
        key = (self._graph.ops[op].name, wanted, op in self._group.padded)
        if key not in self._known:
            found = run_of(
                self._graph.ops[op], op, self._geometries[op], wanted, self._dialect, padded=op in self._group.padded
            )
            if isinstance(found, Refusal):
                raise RefusedError(found.reason, found.code)
            self._known[key] = found
        run = self._known[key]
        self._macs += run.macs
        return run if run.op == op else replace(run, op=op)


def _with_range(region: Region, axis: int, start: int, stop: int) -> Region:
    ranges = list(region.ranges)
    ranges[axis] = (start, stop)
    return Region(tuple(ranges))
