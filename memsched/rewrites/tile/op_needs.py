"""What each op of a graph needs at least: whole, or in the pieces of a group that is cut along some axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op, Tensor
from memsched.graph.parts import readers_of
from memsched.lowering.prices import Prices
from memsched.ops.rules import ChannelGroups, Geometry, Pointwise, Refusal, Rule, WholeAxis, Window
from memsched.rewrites.tile.least_reads import lengths_made, lengths_read
from memsched.targets.model import Target

__all__ = ["MOST_OPS", "UNKNOWN", "WHOLE", "OpNeeds", "OpsNeeds", "kept_by_kind"]

MOST_OPS: Final = 1_000
"""Ops of a graph up to which groups are told apart by their axes, and loops by their first and last op."""

WHOLE: Final = -1
"""Each piece makes all of it."""

UNKNOWN: Final = -2
"""It may be cut along any axes."""

_ONE = Graph("one", (Tensor("one", 1, (1,)),), (), (), ())


class OpNeeds(FrozenValue, frozen=True):
    """What an op needs, bytes; infinite where it cannot be so.

    Attributes:
        whole: All at once.
        runs: In any number of runs together.
        cut: Per choice of axes what each run needs at least where a group is cut along them, and what is kept for one
            more.
        joined: Per choice of axes where pieces of it are what a group makes.
        begun: Per choice of axes where a group begins with it.
        before: Per choice of axes what all pieces of a group together hold at least that goes on with it; without end
            where none does.
        follows: Its inputs are cut along no other axes than its output.
        chained: It is all that reads what the op before it makes.
        sources: Per choice of axes the one along which that is cut then, `WHOLE` or `UNKNOWN`.
        mixed: Ops before it may be cut along other axes than those behind it, which are no part of one chain.
    """

    whole: int
    runs: float
    cut: tuple[tuple[float, int], ...]
    joined: tuple[int, ...]
    begun: tuple[float, ...]
    before: tuple[float, ...]
    follows: bool
    chained: bool
    sources: tuple[int, ...]
    mixed: bool


class OpsNeeds:
    """Finds what ops need.

    Attributes:
        readers: Per tensor the ops that read it.
        sharing: Types of ops that may write over what they read, or show it.
        axes: The choices of axes that a group may be cut along: any one, or two that windows move over. Of large graphs
            it is all of them at once.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        dialect: Dialect,
        geometries: Mapping[int, Geometry | Refusal],
        prices: Prices | None,
    ) -> None:
        self._graph, self._target, self._dialect = graph, target, dialect
        self._geometries, self._prices = geometries, prices
        self._parts = {name for part in target.part_views for name in part.ops}
        self._views = {name for rule in target.views for name in rule.ops} | self._parts
        self._writers = {name for write in target.in_place for name in write.ops}
        self.sharing = frozenset(self._views | self._writers | {*target.pads_over_inputs})
        self.readers = readers_of(graph)
        self._tied = {op for pair in graph.dependencies for op in pair}
        self._results = set(graph.outputs)
        self._free = {tensor for tensor in graph.inputs if target.inputs != "arena"}
        self._block = self._blocks()
        self._large = len(graph.ops) > MOST_OPS
        self.axes = self._choices_of_axes()

    # Bytes ---------------------------------------------------------------------------------------------------------

    def size(self, tensor: int) -> int:
        """Return the bytes that a tensor takes among what is planned."""
        value = self._graph.tensors[tensor]
        return 0 if value.external or tensor in self._free else value.size

    def together(self, tensors: Iterable[int]) -> int:
        """Return bytes that tensors that live at once take at least: of those that may share, the largest."""
        largest: dict[int, int] = {}
        for tensor in tensors:
            largest[self._block[tensor]] = max(largest.get(self._block[tensor], 0), self.size(tensor))
        return sum(largest.values())

    def kept(self, kind: str) -> int:
        """Return what the runtime keeps at least for one more op of a kind, bytes."""
        return 0 if self._prices is None else kept_by_kind(self._prices, self._target, kind)

    def _kept_for(self, op: Op) -> int:
        """Return what it keeps at least for one more run of an op that makes all of the last axis."""
        return 0 if self._prices is None else _unrounded(self._prices, self._target, self._graph, op)

    def _blocks(self) -> list[int]:
        """Return per tensor a number that it has in common with all that its bytes could ever be shared with."""
        block = list(range(len(self._graph.tensors)))

        def root(tensor: int) -> int:
            while block[tensor] != tensor:
                block[tensor] = block[block[tensor]]
                tensor = block[tensor]
            return tensor

        for op in self._graph.ops:
            if op.type in self._views:
                for tensor in (*op.inputs, *op.outputs):
                    block[root(tensor)] = root(op.outputs[0])
        return [root(tensor) for tensor in range(len(block))]

    def _bytes(self, tensor: int, elements: int) -> float:
        return self.size(tensor) * elements / max(1, math.prod(self._graph.tensors[tensor].shape or ()))

    # Ops -----------------------------------------------------------------------------------------------------------

    def _choices_of_axes(self) -> list[frozenset[int]]:
        moved: set[int] = set()
        long: set[int] = set()
        for geometry in self._geometries.values():
            if isinstance(geometry, Geometry):
                long |= {axis for axis, length in enumerate(geometry.shape) if length > 1}
                moved |= {one.output for one in geometry.operands.get(0, ()) if isinstance(one.rule, Window)}
        if self._large:
            # What is cut along all of them at once needs no more than what any group needs.
            return [frozenset(long)]
        pairs = [frozenset(pair) for pair in itertools.combinations(sorted(moved & long), 2)]
        return pairs + [frozenset({axis}) for axis in sorted(long) if not any(axis in pair for pair in pairs)]

    def find(self) -> list[OpNeeds]:
        """Return what each op needs; what is left of a group follows from the ops behind, so the last is first."""
        graph = self._graph
        refusing = frozenset(
            number
            for number in range(len(graph.ops))
            if isinstance(self._geometries[number], Refusal) or number in self._tied
        )
        lengths = lengths_made(graph, self._geometries, self.readers, refusing)
        several = len(self.axes)
        found: list[OpNeeds] = []
        mixed = False
        for number in range(len(graph.ops) - 1, -1, -1):
            op, geometry = graph.ops[number], self._geometries[number]
            if isinstance(geometry, Refusal) or number in refusing:
                found.append(self._uncut(number, op))
                mixed = False
                continue
            made = lengths[op.outputs[0]]
            known = made is not None and len(made) == len(geometry.shape)
            one = self._uncut(
                number,
                op,
                runs=self._in_runs(op, made, _read(op, geometry, made)) if known and made is not None else 0.0,
                cut=(self._least_run(op, geometry),) * several,
                before=(0.0,) * several,
            )
            if not self._large:
                if known and made is not None and _follows(op, geometry):
                    one = self._in_pieces(one, number, geometry, made, found[-1] if found else None)
                elif one.chained:
                    one = replace(one, sources=self._turned(number, geometry))
                mixed = mixed or not one.follows
                one = replace(one, mixed=True) if mixed else one
            found.append(one)
        return found[::-1]

    def _uncut(
        self,
        number: int,
        op: Op,
        *,
        runs: float = math.inf,
        cut: tuple[tuple[float, int], ...] = (),
        before: tuple[float, ...] = (),
    ) -> OpNeeds:
        """Return what an op needs, in pieces no more than what is given; nothing where it cannot be cut."""
        both = (self.together(op.inputs), self.together(op.outputs))
        several = len(self.axes)
        copies = 1 if self._dialect.concat_type in self.sharing else 2
        return OpNeeds(
            whole=max(both) if op.type in self.sharing else sum(both),
            runs=runs,
            cut=cut or ((math.inf, 0),) * several,
            joined=(copies * both[1],) * several,
            begun=(0.0,) * several,
            before=before or (math.inf,) * several,
            follows=False,
            chained=not self._large and number > 0 and self._only_reader(number - 1) == number,
            sources=(UNKNOWN,) * several,
            mixed=False,
        )

    def _only_reader(self, number: int) -> int | None:
        outputs = self._graph.ops[number].outputs
        readers = {reader for tensor in outputs for reader in self.readers[tensor]}
        return readers.pop() if len(readers) == 1 and self._results.isdisjoint(outputs) else None

    def _in_pieces(
        self, one: OpNeeds, number: int, geometry: Geometry, made: Sequence[int], behind: OpNeeds | None
    ) -> OpNeeds:
        """Return what an op needs in pieces that are cut along the same axes before it as behind it."""
        op = self._graph.ops[number]
        chained = set(self._graph.ops[number - 1].outputs) if one.chained else set()
        size = self._bytes(op.outputs[0], math.prod(made))
        left = [size if behind is None else min(size, least) for least in (behind.before if behind else one.before)]
        joined, begun, before, sources = [], [], [], []
        for choice, (axes, least, need) in enumerate(zip(self.axes, left, one.joined, strict=True)):
            scattered = len(axes) == 1 and _scattered(geometry.shape, min(axes))
            joined.append(need * (2 if scattered and self._dialect.concat_type in self._parts else 1))
            begun.append(self._begun(op, geometry, made, axes, least))
            cut = [_rules_cut(geometry, axes, place) for place in _places(op, chained)]
            sources.append(choice if all(cut) else WHOLE)
            if not one.chained or (all(cut) and not _even(axes, cut)):
                before.append(0.0)
            else:
                before.append(least if all(cut) else math.inf)
        return replace(
            one,
            cut=tuple(self._run_along(op, geometry, made, axes) for axes in self.axes),
            joined=tuple(joined),
            begun=tuple(begun),
            before=tuple(before),
            follows=True,
            sources=tuple(sources),
        )

    def _turned(self, number: int, geometry: Geometry) -> tuple[int, ...]:
        """Return per choice of axes the one along which the op before an op is cut that turns them."""
        op = self._graph.ops[number]
        places = _places(op, set(self._graph.ops[number - 1].outputs))
        found = []
        for axes in self.axes:
            cut = axes.difference(geometry.fixed)
            read = [
                {axis for axis, one in enumerate(geometry.operands[place]) if one.output in cut} for place in places
            ]
            choices = [choice for choice, others in enumerate(self.axes) if others.issuperset(set[int]().union(*read))]
            found.append(WHOLE if not all(read) else choices[0] if choices else UNKNOWN)
        return tuple(found)

    def _begun(self, op: Op, geometry: Geometry, made: Sequence[int], axes: frozenset[int], left: float) -> float:
        """Return what is needed when the last piece of a group that begins with an op takes its part of the input.

        The others hold ``left`` bytes in shares by then; the last has its share as well.
        """
        if len(op.inputs) != 1 or op.type in self.sharing:
            return 0.0
        tensor, position = op.inputs[0], op.positions[0]
        cut, slices = _rules_cut(geometry, axes, position), self._dialect.slice_type
        if not cut:
            return self.size(tensor) + left
        shown = slices in self._parts and not _scattered(self._graph.tensors[tensor].shape or (), min(axes))
        if shown or slices in self._writers or not _even(axes, [cut]):
            return 0.0
        return self.size(tensor) + min(left, self._bytes(tensor, math.prod(lengths_read(geometry, position, made))))

    def _in_runs(self, op: Op, made: Sequence[int], read: Mapping[int, int]) -> float:
        """Return bytes that an op makes and reads.

        Args:
            made: Positions of each axis.
            read: Elements of each input.
        """
        written = self._bytes(op.outputs[0], math.prod(made))
        sizes = [self._bytes(tensor, elements) for tensor, elements in read.items()]
        apart = len({self._block[tensor] for tensor in read}) == len(read)
        taken = sum(sizes) if apart else max(sizes, default=0.0)
        return max(written, taken) if op.type in self.sharing else written + taken

    def _run_along(self, op: Op, geometry: Geometry, made: Sequence[int], axes: frozenset[int]) -> tuple[float, int]:
        """Return what one run needs at least where a group is cut along ``axes``, and what is kept for one more."""
        cut = axes.difference(geometry.fixed)
        part = [min(1, length) if axis in cut else length for axis, length in enumerate(made)]
        read: dict[int, int] = {}
        for position, tensor in zip(op.positions, op.inputs, strict=True):
            lengths = zip(geometry.operands[position], lengths_read(geometry, position, made), strict=True)
            elements = math.prod(min(1, length) if one.output in cut else length for one, length in lengths)
            read[tensor] = max(read.get(tensor, 0), elements)
        whole = bool(part) and part[-1] == geometry.shape[-1]
        return self._in_runs(op, part, read), self._kept_for(op) if whole else self.kept(op.type)

    def _least_run(self, op: Op, geometry: Geometry) -> tuple[float, int]:
        """Return the same whatever it is cut along: a run has all of the axes that cannot be cut."""
        made = [length if axis in geometry.fixed else min(1, length) for axis, length in enumerate(geometry.shape)]
        read: dict[int, int] = {}
        for tensor, position in zip(op.inputs, op.positions, strict=True):
            shape = self._graph.tensors[tensor].shape or ()
            whole = [
                length
                for one, length in zip(geometry.operands[position], shape, strict=True)
                if isinstance(one.rule, WholeAxis) or (isinstance(one.rule, Pointwise) and one.output in geometry.fixed)
            ]
            read[tensor] = max(read.get(tensor, 0), math.prod(whole) if all(shape) else 0)
        return self._in_runs(op, made, read), self.kept(op.type)


def kept_by_kind(prices: Prices, target: Target, kind: str) -> int:
    """Return what a runtime keeps at least for an op of a kind with one output, bytes."""
    return _unrounded(prices, target, _ONE, Op(kind, kind, (0,), (0,)))


def _unrounded(prices: Prices, target: Target, graph: Graph, op: Op) -> int:
    # Prices round up to the alignment for each op, which several may have in common.
    return max(0, prices.of_op(graph, op).persistent - target.alignment_bytes)


def _scattered(shape: Sequence[int], axis: int) -> bool:
    """Return whether parts of a tensor along an axis lie scattered over its bytes."""
    return math.prod(shape[:axis]) != 1


def _places(op: Op, tensors: set[int]) -> list[int]:
    """Return the positions at which an op reads some tensors."""
    return [position for position, tensor in zip(op.positions, op.inputs, strict=True) if tensor in tensors]


def _rules_cut(geometry: Geometry, axes: frozenset[int], position: int) -> list[Rule]:
    """Return how an operand is read along axes that are cut; nothing where the whole of it is."""
    cut = axes.difference(geometry.fixed)
    return [one.rule for one in geometry.operands[position] if one.output in cut]


def _even(axes: frozenset[int], cut: Sequence[Sequence[Rule]]) -> bool:
    """Return whether pieces have the same share of what is read as of what is made of it."""
    rules = [rule for each in cut for rule in each]
    return len(axes) == 1 and all(
        isinstance(rule, Pointwise) or (isinstance(rule, ChannelGroups) and not rule.divisible) for rule in rules
    )


def _follows(op: Op, geometry: Geometry) -> bool:
    """Return whether what an op reads is cut along no other axes than what it makes."""
    operands = [geometry.operands[position] for position in op.positions]
    return all(
        len(maps) == len(geometry.shape) and all(one.output in {axis, -1} for axis, one in enumerate(maps))
        for maps in operands
    )


def _read(op: Op, geometry: Geometry, made: Sequence[int]) -> dict[int, int]:
    """Return per input how many elements of it are read at least for so many positions of the output's axes."""
    found: dict[int, int] = {}
    for position, tensor in zip(op.positions, op.inputs, strict=True):
        found[tensor] = max(found.get(tensor, 0), math.prod(lengths_read(geometry, position, made)))
    return found
