"""Rewriting groups of a graph into pieces: slices, pieces of ops, kept halos and the concatenations at their ends.

The ops of a piece follow each other in the group's order, pieces in the order of their regions: a natural order that
the scheduler may improve. Elements at a piece's edges that are wrong or not needed pass through ops that look at one
element at a time, and are cut off where they would do harm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import Attributes, Dialect
from memsched.graph.model import Graph, Op, Region, Tensor
from memsched.graph.replacement import names_of, rebuilt, unused_name
from memsched.ops.geometry import describe
from memsched.ops.ranges import whole
from memsched.ops.rules import Geometry, Pointwise, Refusal, WholeAxis, Window
from memsched.ops.table import families
from memsched.rewrites.tile.join_levels import join_levels
from memsched.rewrites.tile.pieces import Piece, Pieces
from memsched.rewrites.tile.runs import OpPiece, shape_attributes

__all__ = ["RANGED", "TiledGraph", "rewrite"]


RANGED = families("slice")
"""Ops whose attributes state what part of their input they take."""


class TiledGraph(FrozenValue, frozen=True):
    """A graph with some groups in pieces.

    Attributes:
        macs: Multiply-accumulates of all ops.
    """

    graph: Graph
    macs: int


def rewrite(
    graph: Graph,
    groups: Sequence[Pieces],
    dialect: Dialect,
    geometries: Mapping[int, Geometry | Refusal] | None = None,
    *,
    tidy: bool = True,
) -> TiledGraph:
    """Return ``graph`` with each of ``groups``, which do not overlap, computed piece by piece.

    Tensors made and read inside one group only are gone; all others keep their names.

    Args:
        geometries: What `describe` gives for ops of the graph, where the caller has it already.
        tidy: Leave out the tensors that are gone, which takes a pass over the whole graph.
    """
    writer = _GraphWriter(graph, dialect, geometries or {})
    first = {pieces.group.ops[0]: pieces for pieces in groups}
    inside = {op for pieces in groups for op in pieces.group.ops}
    if sum(len(pieces.group.ops) for pieces in groups) != len(inside):
        raise InternalError("groups of one rewrite overlap", code="groups-overlap")
    for op in range(len(graph.ops)):
        if op in first:
            writer.group(first[op])
        elif op not in inside:
            writer.keep(op)
    gone = {tensor for pieces in groups for tensor in pieces.members.inner}
    result = writer.graph(gone if tidy else set())
    return TiledGraph(result, sum(op.macs for op in result.ops))


class _HolderTensor(FrozenValue, frozen=True):
    """A tensor of the new graph that holds ``region`` of a tensor of the old one; ``made``: by a piece."""

    tensor: int
    region: Region
    made: bool


class _GraphWriter:
    def __init__(self, graph: Graph, dialect: Dialect, geometries: Mapping[int, Geometry | Refusal]) -> None:
        self._given, self._dialect = graph, dialect
        self._tensors = list(graph.tensors)
        self._ops: list[Op] = []
        self._place: dict[int, int] = {}
        self._names = names_of(graph)
        self._geometries = {op: found for op, found in geometries.items() if isinstance(found, Geometry)}

    def keep(self, op: int) -> None:
        """Take an op as it is."""
        self._place[op] = len(self._ops)
        self._ops.append(self._given.ops[op])

    def graph(self, gone: set[int]) -> Graph:
        """Return the new graph, without the tensors in ``gone``."""
        return rebuilt(self._given, _fixed(self._tensors), self._ops, self._place, gone)

    def group(self, pieces: Pieces) -> None:
        """Write all pieces of a group and join its outputs."""
        parts: dict[int, list[_HolderTensor]] = {tensor: [] for tensor in pieces.members.outputs}
        left: dict[int, _HolderTensor] = {}
        wanted = _left_behind(pieces.pieces)
        for number, piece in enumerate(pieces.pieces):
            left = self._piece(pieces, piece, number, left, wanted[number], parts)
        for tensor, held in parts.items():
            self._join(tensor, held, pieces)

    # One piece -----------------------------------------------------------------------------------------------------

    def _piece(
        self,
        pieces: Pieces,
        piece: Piece,
        number: int,
        left: Mapping[int, _HolderTensor],
        wanted: Mapping[int, Region],
        parts: Mapping[int, list[_HolderTensor]],
    ) -> dict[int, _HolderTensor]:
        """Write one piece; return what it leaves for the next, ``wanted``."""
        held: dict[int, _HolderTensor] = {tensor: self._all_of(tensor) for tensor in pieces.members.inputs}
        slices: dict[tuple[int, Region], _HolderTensor] = {}
        runs = {run.op: run for run in piece.ops}
        # What this piece has no use for waits for a later one.
        leaves = {tensor: left[tensor] for tensor in wanted if tensor not in piece.needed}
        last_use = self._last_uses(pieces, piece)
        for op in pieces.group.ops:
            tensor = self._given.ops[op].outputs[0]
            if tensor not in piece.needed:
                continue
            made = self._run(runs[op], held, slices, number) if op in runs else None
            held[tensor] = self._whole_piece(tensor, piece, left, made, slices, number)
            if tensor in piece.output and tensor in parts:
                parts[tensor].append(self._cut(tensor, held[tensor], piece.output[tensor], slices, number))
            for done in last_use.get(op, ()):
                if done in wanted and done in piece.needed:
                    leaves[done] = self._cut(done, held[done], wanted[done], slices, number)
        return leaves

    def _last_uses(self, pieces: Pieces, piece: Piece) -> dict[int, list[int]]:
        """Return per op the tensors of the group that it reads last in this piece, or makes for later pieces only."""
        last: dict[int, int] = {}
        runs = {run.op for run in piece.ops}
        for op in pieces.group.ops:
            last.setdefault(self._given.ops[op].outputs[0], op)
            if op in runs:
                last.update((tensor, op) for tensor in self._given.ops[op].inputs)
        result: dict[int, list[int]] = {}
        for tensor, op in last.items():
            result.setdefault(op, []).append(tensor)
        return result

    def _whole_piece(
        self,
        tensor: int,
        piece: Piece,
        left: Mapping[int, _HolderTensor],
        made: _HolderTensor | None,
        slices: dict[tuple[int, Region], _HolderTensor],
        number: int,
    ) -> _HolderTensor:
        """Return the part of a tensor that the piece works on: what was kept, and what was made."""
        kept = piece.kept.get(tensor)
        if kept is None:
            if made is None:
                raise InternalError(f"nothing makes '{self._given.tensors[tensor].name}' in a piece", code="not-made")
            return made
        old = left[tensor]
        if made is None:
            return old
        axis = next(axis for axis, pair in enumerate(kept.ranges) if pair != piece.needed[tensor].ranges[axis])
        fresh = Region(
            tuple(
                (kept.ranges[place][1], pair[1]) if place == axis else pair
                for place, pair in enumerate(piece.needed[tensor].ranges)
            )
        )
        made = self._cut(tensor, made, fresh, slices, number)
        joined = self._concat(tensor, [old.tensor, made.tensor], axis, piece.needed[tensor], f"#{number}.joined")
        return _HolderTensor(joined, piece.needed[tensor], True)

    def _run(
        self,
        run: OpPiece,
        held: Mapping[int, _HolderTensor],
        slices: dict[tuple[int, Region], _HolderTensor],
        number: int,
    ) -> _HolderTensor:
        """Write one run of an op, on whatever more its inputs hold where that does no harm."""
        op = self._given.ops[run.op]
        geometry = self._geometry(run.op)
        extents = self._wider(op, geometry, run, held)
        if extents is not None:
            reads = tuple(held[tensor] for tensor in op.inputs)
            return self._write(run, reads, extents, number)
        reads = tuple(
            self._cut(tensor, held[tensor], region, slices, number)
            for tensor, region in zip(op.inputs, run.reads, strict=True)
        )
        if run.padding:
            reads = (self._pad(op.inputs[0], reads[0], run.padding, number), *reads[1:])
        return self._write(run, reads, run.computed, number)

    def _wider(self, op: Op, geometry: Geometry, run: OpPiece, held: Mapping[int, _HolderTensor]) -> Region | None:
        """Return the output for all that the inputs hold, where the op looks at one element at a time; None if not."""
        extents = list(run.computed.ranges)
        wider = False
        if run.padding or run.computed != run.wanted or op.type in RANGED:
            return None
        for position, tensor, wanted in zip(op.positions, op.inputs, run.reads, strict=True):
            have = held[tensor].region
            for axis, (own, asked) in enumerate(zip(have.ranges, wanted.ranges, strict=True)):
                one = geometry.operands[position][axis]
                if own == asked:
                    # Another operand may be wider here, which this one then is not.
                    if not isinstance(one.rule, WholeAxis) and extents[one.output] != run.computed.ranges[one.output]:
                        return None
                    continue
                if not held[tensor].made or not _looks_at_one(one.rule):
                    return None
                if wider and extents[one.output] != own:
                    return None
                extents[one.output] = own
                wider = True
        if not wider or self._disagrees(op, geometry, held, extents):
            return None
        return Region(tuple(extents))

    @staticmethod
    def _disagrees(
        op: Op, geometry: Geometry, held: Mapping[int, _HolderTensor], extents: Sequence[tuple[int, int]]
    ) -> bool:
        return any(
            _looks_at_one(one.rule) and held[tensor].region.ranges[axis] != extents[one.output]
            for position, tensor in zip(op.positions, op.inputs, strict=True)
            for axis, one in enumerate(geometry.operands[position])
        )

    def _geometry(self, op: int) -> Geometry:
        if op not in self._geometries:
            found = describe(self._given, op)
            if isinstance(found, Refusal):
                raise InternalError(found.reason, code="judged-differently")
            self._geometries[op] = found
        return self._geometries[op]

    def _write(self, run: OpPiece, reads: Sequence[_HolderTensor], extents: Region, number: int) -> _HolderTensor:
        op = self._given.ops[run.op]
        tensor = op.outputs[0]
        made = self._new(tensor, extents.lengths, f"#{number}")
        geometry = self._geometry(run.op)
        work, attributes = run.macs, run.attributes
        if extents != run.computed:
            attributes = {**attributes, **shape_attributes(op.type, op.attributes, extents.lengths)}
        if op.macs and extents != run.computed:
            work = max(work, op.macs * math.prod(extents.lengths) // math.prod(geometry.shape))
        # Piece by piece this is written very often: replace() would take several times as long.
        self._ops.append(
            Op(
                name=unused_name(f"{op.name}#{number}", self._names),
                type=op.type,
                inputs=tuple(one.tensor for one in reads),
                outputs=(made,),
                workspace=op.workspace,
                attributes=attributes,
                positions=op.positions,
                macs=work,
                origin=op.origin or op.name,
                region=extents,
            )
        )
        return _HolderTensor(made, extents, True)

    # Helpers -------------------------------------------------------------------------------------------------------

    def _all_of(self, tensor: int) -> _HolderTensor:
        return _HolderTensor(tensor, whole(self._given.tensors[tensor].shape or ()), False)

    def _cut(
        self,
        tensor: int,
        held: _HolderTensor,
        region: Region,
        slices: dict[tuple[int, Region], _HolderTensor],
        number: int,
    ) -> _HolderTensor:
        """Return exactly ``region`` of a tensor, of which ``held`` has at least that."""
        if held.region == region:
            return held
        key = (held.tensor, region)
        if key not in slices:
            origin = [start for start, _ in held.region.ranges]
            starts = [start - base for (start, _), base in zip(region.ranges, origin, strict=True)]
            ends = [stop - base for (_, stop), base in zip(region.ranges, origin, strict=True)]
            made = self._new(tensor, region.lengths, f"#{number}.slice")
            attributes = self._dialect.slice_attributes(held.region.lengths, starts, ends)
            self._help(self._dialect.slice_type, (held.tensor,), made, attributes)
            slices[key] = _HolderTensor(made, region, True)
        return slices[key]

    def _pad(self, tensor: int, held: _HolderTensor, pads: Sequence[tuple[int, int]], number: int) -> _HolderTensor:
        shape = [size + before + after for size, (before, after) in zip(held.region.lengths, pads, strict=True)]
        made = self._new(tensor, shape, f"#{number}.padded")
        self._help(self._dialect.pad_type, (held.tensor,), made, self._dialect.pad_attributes(pads))
        return _HolderTensor(made, held.region, True)

    def _join(self, tensor: int, parts: Sequence[_HolderTensor], pieces: Pieces) -> None:
        """Lay the pieces of an output one after the other: along the last cut axis first."""
        axes, counts = pieces.group.axes, pieces.group.counts
        current: Sequence[_HolderTensor] = parts
        for axis, count in reversed(list(zip(axes, counts, strict=True))[1:]):
            rows = [current[at : at + count] for at in range(0, len(current), count)]
            current = [
                self._strip(tensor, self._few(tensor, row, axis), axis, f"#row{number}")
                for number, row in enumerate(rows)
            ]
        current = self._few(tensor, current, axes[0])
        attributes = self._dialect.concat_attributes(axes[0])
        self._help(self._dialect.concat_type, [part.tensor for part in current], tensor, attributes)

    def _few(self, tensor: int, parts: Sequence[_HolderTensor], axis: int) -> Sequence[_HolderTensor]:
        """Return ``parts``, neighbours joined until one concatenation takes them: as few as that needs."""
        for sizes in join_levels(len(parts), self._dialect.most_joined):
            joined: list[_HolderTensor] = []
            at = 0
            for size in sizes:
                chunk = parts[at : at + size]
                joined.append(self._strip(tensor, chunk, axis, "#joined") if size > 1 else chunk[0])
                at += size
            parts = joined
        return parts

    def _strip(self, tensor: int, row: Sequence[_HolderTensor], axis: int, suffix: str) -> _HolderTensor:
        ranges = list(row[0].region.ranges)
        ranges[axis] = (ranges[axis][0], row[-1].region.ranges[axis][1])
        region = Region(tuple(ranges))
        return _HolderTensor(self._concat(tensor, [part.tensor for part in row], axis, region, suffix), region, True)

    def _concat(self, tensor: int, parts: Sequence[int], axis: int, region: Region, suffix: str) -> int:
        made = self._new(tensor, region.lengths, suffix)
        self._help(self._dialect.concat_type, parts, made, self._dialect.concat_attributes(axis))
        return made

    def _help(self, kind: str, inputs: Sequence[int], output: int, attributes: Attributes) -> None:
        name = self._tensors[output].name
        self._ops.append(
            Op(
                name=name if name not in self._names else unused_name(f"{name}#{kind.lower()}", self._names),
                type=kind,
                inputs=tuple(inputs),
                outputs=(output,),
                attributes=attributes,
                positions=tuple(range(len(inputs))),
            )
        )

    def _new(self, like: int, shape: Sequence[int], suffix: str) -> int:
        """Add a tensor of the type of the given graph's tensor ``like``."""
        given = self._given.tensors[like]
        elements = math.prod(given.shape or ())
        # Sizes of parts follow the whole's, packed types included.
        size = -(-given.size * math.prod(shape) // elements) if elements else 0
        name = unused_name(f"{given.name}{suffix}", self._names)
        self._tensors.append(Tensor(name, size, tuple(shape), given.dtype))
        return len(self._tensors) - 1


def _fixed(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return ``tensors`` as the file in pieces states them: in full, as it holds for one size alone."""
    return tuple(tensor if tensor.stated is None else replace(tensor, stated=None) for tensor in tensors)


def _left_behind(pieces: Sequence[Piece]) -> list[dict[int, Region]]:
    """Return per piece the parts of tensors that the next piece to work on them takes over."""
    result: list[dict[int, Region]] = [{}]
    for piece in reversed(pieces[1:]):
        later = {tensor: region for tensor, region in result[-1].items() if tensor not in piece.needed}
        result.append({**later, **piece.kept})
    return result[::-1]


def _looks_at_one(rule: object) -> bool:
    """Whether element i of the output follows from element i of the input alone."""
    return isinstance(rule, Pointwise) or rule == Window(1)
