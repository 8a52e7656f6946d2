"""Shape transfer: what a group of ops needs, tensor by tensor, for a region of what the group produces.

Source: "Deep Fusion", section 3.1, shape transfer (ST): the deduction of each op is called on what
its readers need, from the last op to the first. There a group is a chain; here it is any set of ops, and a tensor that
several ops read is needed in the bounding box of their regions.

Two ways to compute a group in pieces: each piece by itself, with the rows that pieces overlap in (the halo) computed
again (``recompute``), or with the rows that the previous piece had kept for the next one (``keep``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeVar

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph, Region
from memsched.ops.geometry import describe
from memsched.ops.ranges import PieceNeeds, deduce, whole
from memsched.ops.rules import Geometry, Refusal

__all__ = ["AxisChoice", "PieceTrace", "TransferGroup", "TransferPieces", "axes", "cuts", "tile", "trace"]

Halo = Literal["recompute", "keep"]


class PieceTrace(FrozenValue, frozen=True):
    """What one piece of a group needs and computes.

    Attributes:
        regions: Per tensor the part that must be there: of tensors given from outside the group, of inner ones and of
            the outputs. What is not needed is absent.
        computed: Per tensor that the group produces the part that this piece computes, without margins. With kept
            halos it is the part of ``regions`` that the previous piece did not have; absent where that is nothing.
        kept: Per tensor the part of ``regions`` that the previous piece had; empty without kept halos.
        needed: Per op of the group that this piece executes.
        macs: Multiply-accumulates of the piece.
    """

    regions: Mapping[int, Region]
    computed: Mapping[int, Region]
    kept: Mapping[int, Region]
    needed: Mapping[int, PieceNeeds]
    macs: int


class TransferPieces(FrozenValue, frozen=True):
    """A group in pieces.

    Attributes:
        pieces: In order.
        extra_macs: Per op what all its pieces compute beyond the op itself; below 0 where parts are never needed.
    """

    pieces: tuple[PieceTrace, ...]
    extra_macs: Mapping[int, int]


class AxisChoice(FrozenValue, frozen=True):
    """Where a group can be cut along an axis of its output.

    Attributes:
        axis: Of the output.
        positions: Elements at which a piece may end and the next begin.
        natural: Those of them at which no op computes anything that is dropped.
        refusal: Why there is no position at all; None where there is one.
    """

    axis: int
    positions: tuple[int, ...]
    natural: tuple[int, ...]
    refusal: Refusal | None


class TransferGroup:
    """A set of ops that is computed in pieces; their descriptions are made once.

    Attributes:
        refusal: Why an op of the group cannot be tiled at all; None where each can.
        inputs: Tensors that the group reads and does not produce, ascending.
        outputs: Tensors that the group produces and that the graph or an op outside reads, ascending.
    """

    def __init__(self, graph: Graph, ops: Sequence[int]) -> None:
        self.graph = graph
        self.ops = tuple(sorted(set(ops)))
        self._geometry: dict[int, Geometry] = {}
        self._deduced: dict[tuple[int, Region], PieceNeeds | Refusal] = {}
        self.refusal: Refusal | None = None
        for op in self.ops:
            found = describe(graph, op)
            if isinstance(found, Refusal):
                self.refusal = self.refusal or found
            else:
                self._geometry[op] = found
        members = set(self.ops)
        produced = {tensor for op in self.ops for tensor in graph.ops[op].outputs}
        read = {tensor for op in self.ops for tensor in graph.ops[op].inputs}
        outside = {tensor for op, one in enumerate(graph.ops) if op not in members for tensor in one.inputs}
        self.inputs = tuple(sorted(read - produced))
        self.outputs = tuple(sorted(produced & (outside | set(graph.outputs))))

    def trace(self, regions: Mapping[int, Region], before: Mapping[int, Region] | None = None) -> PieceTrace | Refusal:
        """Return what the group needs for ``regions`` of tensors that it produces.

        Args:
            regions: Per tensor; several where the group has several outputs.
            before: `PieceTrace.regions` of the previous piece, whose halo is kept; None to compute all of it again.
        """
        if self.refusal is not None:
            return self.refusal
        required = dict(regions)
        computed: dict[int, Region] = {}
        kept: dict[int, Region] = {}
        needed: dict[int, PieceNeeds] = {}
        # The order of a graph's ops is an execution order: backwards, an op comes after all its readers.
        for op in reversed(self.ops):
            one = self.graph.ops[op]
            tensor = one.outputs[0]
            if tensor not in required:
                continue
            region: Region | None = required[tensor]
            if before is not None and tensor in before:
                held = _intersection(required[tensor], before[tensor])
                region = _remainder(required[tensor], held)
                if held is not None and region != required[tensor]:
                    kept[tensor] = held
            if region is None:
                continue
            found = self._deduce(op, region)
            if isinstance(found, Refusal):
                return found
            computed[tensor], needed[op] = region, found
            for read, entry in zip(one.inputs, found.inputs, strict=True):
                if entry.region is not None:
                    required[read] = _union(required[read], entry.region) if read in required else entry.region
        if before is not None:
            for tensor in self.inputs:
                held = None
                if tensor in required and tensor in before:
                    held = _intersection(required[tensor], before[tensor])
                if held is not None:
                    kept[tensor] = held
        macs = sum(found.macs for found in needed.values())
        return PieceTrace(_frozen(required), _frozen(computed), _frozen(kept), _frozen(needed), macs)

    def _deduce(self, op: int, region: Region) -> PieceNeeds | Refusal:
        """Searches ask for the same regions again and again."""
        found = self._deduced.get((op, region))
        if found is None:
            found = self._deduced[op, region] = deduce(self._geometry[op], self.graph.ops[op], region)
        return found

    def tile(self, pieces: Sequence[Mapping[int, Region]], halo: Halo = "recompute") -> TransferPieces | Refusal:
        """Return the group in pieces, each given as in `trace`; with ``halo="keep"`` each follows the one before."""
        result: list[PieceTrace] = []
        total = dict.fromkeys(self.ops, 0)
        for regions in pieces:
            found = self.trace(regions, result[-1].regions if result and halo == "keep" else None)
            if isinstance(found, Refusal):
                return found
            result.append(found)
            for op, one in found.needed.items():
                total[op] += one.macs
        extra = {op: macs - self.graph.ops[op].macs for op, macs in total.items()}
        return TransferPieces(tuple(result), MappingProxyType(extra))

    def choices(self, tensor: int, candidates: Sequence[int] | None = None) -> tuple[AxisChoice, ...]:
        """Return, per axis of the group's output ``tensor``, where it can be cut in two.

        Args:
            candidates: Positions to look at; None for all.
        """
        shape = self.graph.tensors[tensor].shape or ()
        return tuple(self._choice(tensor, axis, shape, candidates) for axis in range(len(shape)))

    def _choice(self, tensor: int, axis: int, shape: tuple[int, ...], candidates: Sequence[int] | None) -> AxisChoice:
        positions, natural = [], []
        reason: Refusal | None = None
        for at in range(1, shape[axis]) if candidates is None else candidates:
            if not 0 < at < shape[axis]:
                continue
            exact = True
            for part in ((0, at), (at, shape[axis])):
                region = Region((*whole(shape).ranges[:axis], part, *whole(shape).ranges[axis + 1 :]))
                found = self.trace({tensor: region})
                if isinstance(found, Refusal):
                    reason = reason or found
                    break
                exact = exact and all(pair == (0, 0) for one in found.needed.values() for pair in one.crop)
            else:
                positions.append(at)
                if exact:
                    natural.append(at)
        if not positions and reason is None:
            reason = Refusal(f"axis {axis} has length {shape[axis]}")
        return AxisChoice(axis, tuple(positions), tuple(natural), None if positions else reason)


def trace(graph: Graph, ops: Sequence[int], regions: Mapping[int, Region]) -> PieceTrace | Refusal:
    """Return what the ops need, tensor by tensor, for ``regions`` of tensors that they produce.

    Args:
        ops: Indices of the group's ops, in any order; they may branch and join.
        regions: Per tensor that the group produces, normally its outputs.
    """
    return TransferGroup(graph, ops).trace(regions)


def tile(
    graph: Graph, ops: Sequence[int], pieces: Sequence[Mapping[int, Region]], halo: Halo = "recompute"
) -> TransferPieces | Refusal:
    """Return the ops computed in pieces; see `TransferGroup.tile`."""
    return TransferGroup(graph, ops).tile(pieces, halo)


def axes(graph: Graph, ops: Sequence[int], tensor: int) -> tuple[AxisChoice, ...]:
    """Return, per axis of output ``tensor``, where the group of ``ops`` can be cut; see `TransferGroup.choices`."""
    return TransferGroup(graph, ops).choices(tensor)


def cuts(shape: tuple[int, ...], axis: int, positions: Sequence[int]) -> tuple[Region, ...]:
    """Return the regions that a tensor of this shape falls into when cut at ascending ``positions`` of ``axis``."""
    return tuple(_cut(shape, axis, [0, *positions, shape[axis]]))


def _cut(shape: tuple[int, ...], axis: int, ends: Sequence[int]) -> Iterator[Region]:
    rest = whole(shape).ranges
    for start, stop in itertools.pairwise(ends):
        yield Region((*rest[:axis], (start, stop), *rest[axis + 1 :]))


_Value = TypeVar("_Value")


def _frozen(found: dict[int, _Value]) -> Mapping[int, _Value]:
    return MappingProxyType(dict(sorted(found.items())))


# Boxes ------------------------------------------------------------------------------------------------------------


def _union(one: Region, other: Region) -> Region:
    """Return the bounding box of two regions."""
    pairs = zip(one.ranges, other.ranges, strict=True)
    return Region(tuple((min(a, c), max(b, d)) for (a, b), (c, d) in pairs))


def _intersection(one: Region, other: Region) -> Region | None:
    pairs = zip(one.ranges, other.ranges, strict=True)
    ranges = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in pairs)
    return Region(ranges) if all(start < stop for start, stop in ranges) else None


def _remainder(region: Region, held: Region | None) -> Region | None:
    """Return the smallest box that covers what of ``region`` is not in ``held`` (a part of it); None for nothing."""
    if held is None:
        return region
    differing = [axis for axis, pair in enumerate(region.ranges) if pair != held.ranges[axis]]
    if not differing:
        return None
    if len(differing) > 1:
        return region
    axis = differing[0]
    (start, stop), (low, high) = region.ranges[axis], held.ranges[axis]
    if low == start:
        part = (high, stop)
    elif high == stop:
        part = (start, low)
    else:
        return region
    return Region((*region.ranges[:axis], part, *region.ranges[axis + 1 :]))
