"""What a group of consecutive ops costs, whole or in pieces, without looking at the rest of the graph again.

The group is cut out as a graph of its own, lowered for the target and run through liveness in its natural order.
Tensors that merely stay live meanwhile are added as a constant. Whole graphs are still judged afterwards.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from memsched.base.frozen import FrozenValue
from memsched.core.library import library
from memsched.graph.dialect import Dialect
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.graph.parts import readers_of
from memsched.lowering.apply import apply_target
from memsched.lowering.litert_kernels import lasting_bytes
from memsched.lowering.prices import NOTHING_KEPT, Kept, Prices
from memsched.ops.geometry import describe
from memsched.ops.rules import Geometry, Pointwise, Refusal
from memsched.rewrites.tile.compiled import CompiledPieces, PieceFigures, WrittenFigures, compiled_pieces, without_kept
from memsched.rewrites.tile.loop import LoopGroup
from memsched.rewrites.tile.pieces import Members, Pieces, Runs, TilingGroup, members_of, plan_pieces
from memsched.rewrites.tile.rewrite import rewrite
from memsched.targets.model import Target

__all__ = ["Group", "GroupCost", "Interval", "Intervals", "halo_tensors", "looks_at_one"]


Group = TilingGroup | LoopGroup
"""Consecutive ops that are computed piece by piece, or in a loop."""


class GroupCost(FrozenValue, frozen=True):
    """A group with what it costs: its largest footprint in bytes, extra multiply-accumulates, and what else is kept.

    Attributes:
        time: Extra, as `Pace` counts it; 0 where nothing is known of it.
    """

    group: Group
    peak: int
    extra_macs: int
    kept: Kept = NOTHING_KEPT
    time: float = 0.0


class Interval(FrozenValue, frozen=True):
    """Ops [first, last] of a graph in its order of execution.

    Attributes:
        base: Bytes that stay live meanwhile although nothing of the group reads them.
        floor: Bytes that no way of computing the group in pieces goes below: its inputs and outputs, and ``base``.
        peak: Largest footprint of the ops as they are.
    """

    first: int
    last: int
    base: int
    floor: int
    peak: int


class _LocalGroup(FrozenValue, frozen=True):
    """An interval's ops as a graph of their own.

    Attributes:
        number: Per tensor of the whole graph its number there.
        geometries: Per op there.
        members: In the whole graph.
        stays: Per input whether something reads it afterwards.
        macs: Multiply-accumulates of all ops.
        lasting: Bytes that their kernels keep.
        kept: What their runtime keeps for the ops.
        time: What they take of it.
    """

    graph: Graph
    number: Mapping[int, int]
    geometries: Mapping[int, Geometry | Refusal]
    members: Members
    stays: tuple[bool, ...]
    macs: int
    lasting: int
    kept: Kept
    time: float


class Intervals:
    """Judges intervals of ``graph``, which is in order of execution and not lowered, under ``target``.

    Args:
        prices: What the runtime keeps for every op; None for nothing.
        exact: Only cuts that give the same bits.
    """

    def __init__(
        self, graph: Graph, target: Target, dialect: Dialect, prices: Prices | None = None, *, exact: bool = False
    ) -> None:
        self._prices = prices
        self.graph, self.target, self.dialect = graph, target, dialect
        lowered = apply_target(graph, target)
        self._storage = Storage.of(lowered)
        profile = evaluate(self._storage, range(len(graph.ops)))
        self.footprints = profile.footprints
        self.residues = profile.residues
        self.geometries: dict[int, Geometry | Refusal] = {
            op: describe(graph, op, exact=exact) for op in range(len(graph.ops))
        }
        self._last = [
            len(graph.ops) if kept else max(users, default=creator)
            for users, kept, creator in zip(self._storage.users, self._storage.kept, self._storage.creator, strict=True)
        ]
        self.readers = readers_of(graph)
        self._inputs = set(graph.inputs)
        self._runs: Runs = {}
        self._local: dict[tuple[int, int], _LocalGroup] = {}
        self._live: dict[int, list[int]] = {}
        self._loop_floors: dict[tuple[int, int], int] = {}
        rules = [rule.ops for rule in target.views] + [rule.ops for rule in target.part_views]
        rules += [rule.ops for rule in target.in_place]
        self._sharing = frozenset(name for names in rules for name in names)

    def refusals(self) -> Iterator[tuple[int, str]]:
        """Yield the ops that end a group, with the reasons: unknown ones, and those cut along one axis at most."""
        for op, geometry in self.geometries.items():
            if isinstance(geometry, Refusal):
                yield op, geometry.reason
                continue
            axes = [axis for axis, size in enumerate(geometry.shape) if size > 1]
            groups = [TilingGroup((op,), (axis,), (2,)) for axis in axes]
            alone = [
                plan_pieces(self.graph, group, self.dialect, self.geometries, readers=self.readers) for group in groups
            ]
            reasons = [found.reason for found in alone if isinstance(found, Refusal)]
            if len(reasons) > 1 or (reasons and len(reasons) == len(axes)):
                yield op, reasons[0]

    def kept_by_op(self) -> list[int]:
        """Return per op what the runtime keeps for it, bytes."""
        graph, prices = self.graph, self._prices
        return [0 if prices is None else prices.of_op(graph, op).persistent for op in graph.ops]

    def interval(self, first: int, last: int) -> Interval:
        """Return what is known of an interval without cutting it."""
        storage = self._storage
        read = {buffer for op in range(first, last + 1) for buffer in storage.reads[op]}
        base, entering = storage.variables, 0
        for buffer in self._live_before(first):
            if buffer in read:
                entering += storage.sizes[buffer]
            elif self._last[buffer] > last:
                base += storage.sizes[buffer]
        made = (buffer for op in range(first, last + 1) for buffer in storage.creates[op])
        leaving = sum(storage.sizes[buffer] for buffer in made if self._last[buffer] > last)
        return Interval(first, last, base, base + entering + leaving, max(self.footprints[first : last + 1]))

    def loop_floor(self, first: int, last: int) -> int:
        """Return bytes that no loop over an interval goes below: what lies beside it, and its largest input."""
        if (first, last) not in self._loop_floors:
            ops = self.graph.ops[first : last + 1]
            made = {tensor for op in ops for tensor in op.outputs}
            read = (tensor for op in ops for tensor in op.inputs if tensor not in made)
            largest = max((self.graph.tensors[tensor].size for tensor in read), default=0)
            self._loop_floors[first, last] = self.interval(first, last).base + largest
        return self._loop_floors[first, last]

    def _live_before(self, op: int) -> list[int]:
        """Return the buffers that earlier ops made, or the caller, and that this one or later ones need."""
        if op not in self._live:
            creator = self._storage.creator
            self._live[op] = [buffer for buffer, end in enumerate(self._last) if creator[buffer] < op <= end]
        return self._live[op]

    def judge(
        self, interval: Interval, group: TilingGroup, most_macs: int, rivals: Sequence[GroupCost] = ()
    ) -> GroupCost | Refusal:
        """Return what ``group``, whose ops are the interval's, costs in pieces, or why it is not to be cut so.

        Args:
            rivals: Other ways of cutting the interval; one that is as good in both respects refuses the group.
        """
        local = self._local_group(interval)
        core = self._core
        figures = None if core is None else core.plan(group, local.members, local.stays, local.macs + most_macs)
        planned = core is not None and figures is not None
        pieces: Pieces | Refusal | None = None
        if figures is None:
            pieces = self._pieces(local, group, most_macs)
            figures = pieces if isinstance(pieces, Refusal) else self._figures(local.graph, pieces)
        if isinstance(figures, Refusal):
            return figures
        least, least_extra = interval.base + figures.least, figures.macs - local.macs
        least_kept = self._least_kept(local.graph, figures.runs)
        if least >= interval.peak or any(
            one.peak <= least and one.extra_macs <= least_extra and one.kept <= least_kept for one in rivals
        ):
            return Refusal("another way needs less", "needs-more")
        if core is not None and planned:
            found = core.evaluate()
            if found is not None and (self._prices is None or self._prices.uniform or not found.cuts_last_axis):
                peak = found.peak + interval.base - local.lasting
                more, slower = self._more(local, figures.runs, found)
                return GroupCost(group, peak, found.macs - local.macs, more, slower)
        pieces = pieces or self._pieces(local, group, most_macs)
        return pieces if isinstance(pieces, Refusal) else self._cost(interval, local, group, pieces)

    def _pieces(self, local: _LocalGroup, group: TilingGroup, most_macs: int) -> Pieces | Refusal:
        """Return the pieces of a group in the graph that was cut out for its ops."""
        moved = replace(
            group,
            ops=tuple(range(len(local.graph.ops))),
            kept=tuple(local.number[tensor] for tensor in group.kept),
            padded=tuple(op - group.ops[0] for op in group.padded),
        )
        return plan_pieces(local.graph, moved, self.dialect, local.geometries, self._runs, local.macs + most_macs)

    def _figures(self, graph: Graph, pieces: Pieces) -> PieceFigures:
        runs = Counter(run.op for piece in pieces.pieces for run in piece.ops)
        return PieceFigures(self._least(graph, pieces), pieces.macs, tuple(runs[op] for op in range(len(graph.ops))))

    def _cost(self, interval: Interval, local: _LocalGroup, group: TilingGroup, pieces: Pieces) -> GroupCost:
        """Return what a group costs, found by writing its pieces."""
        rewritten = rewrite(local.graph, [pieces], self.dialect, local.geometries, tidy=False)
        profile = evaluate(
            Storage.of(apply_target(rewritten.graph, self._local_target(interval))), range(len(rewritten.graph.ops))
        )
        # What the group's kernels keep is in the base already.
        kept = lasting_bytes(local.graph) if self.target.kernels_keep_memory else 0
        more, slower = NOTHING_KEPT, 0.0
        if self._prices is not None:
            more = self._prices.of_ops(rewritten.graph, rewritten.graph.ops) - local.kept
            pace = self._prices.pace
            slower = 0.0 if pace is None else pace.of_graph(rewritten.graph) - local.time
        return GroupCost(group, profile.peak + interval.base - kept, rewritten.macs - local.macs, more, slower)

    def _more(self, local: _LocalGroup, runs: Sequence[int], found: WrittenFigures) -> tuple[Kept, float]:
        """Return what is kept beyond that for the group's ops, and their extra time.

        Args:
            runs: Per op how often it is run.
        """
        if self._prices is None:
            return NOTHING_KEPT, 0.0
        slices, concats, pads = self._helpers
        more = slices * found.slices + concats * found.concats + pads * found.pads - local.kept
        for op, times in zip(local.graph.ops, runs, strict=True):
            more += self._prices.of_op(local.graph, op) * times
        pace, count = self._prices.pace, sum(runs) + found.slices + found.concats + found.pads
        if pace is None:
            return more, 0.0
        return more, pace.of_counted(count, found.macs, found.moved, found.weights) - local.time

    @functools.cached_property
    def _helpers(self) -> tuple[Kept, Kept, Kept]:
        """What is kept for a slice, a concatenation and a padding."""
        if self._prices is None:
            return NOTHING_KEPT, NOTHING_KEPT, NOTHING_KEPT
        graph = Graph("helper", (Tensor("helper", 1, (1,)),), (), (), ())
        kinds = (self.dialect.slice_type, self.dialect.concat_type, self.dialect.pad_type)
        slices, concats, pads = (self._prices.of_op(graph, Op(kind, kind, (0,), (0,))) for kind in kinds)
        return slices, concats, pads

    def _least_kept(self, graph: Graph, runs: Sequence[int]) -> Kept:
        """Return what is kept for the group's own ops in pieces, beside what is kept for them as they are.

        Args:
            runs: Per op how often it is run.
        """
        if self._prices is None:
            return NOTHING_KEPT
        total = NOTHING_KEPT
        for op, times in zip(graph.ops, runs, strict=True):
            total += self._prices.of_op(graph, op) * (times - 1)
        return total

    def _least(self, graph: Graph, pieces: Pieces) -> int:
        """Return bytes that the pieces cannot do without: what one op of a piece reads and makes within the group."""
        unit: dict[int, float] = {}
        for op in graph.ops:
            for tensor in (*op.inputs, *op.outputs):
                value = graph.tensors[tensor]
                unit[tensor] = value.size / max(1, math.prod(value.shape or ()))
        given = set(pieces.members.inputs)
        largest = before = 0.0
        for piece in pieces.pieces:
            for run in piece.ops:
                op = graph.ops[run.op]
                made = unit[op.outputs[0]] * math.prod(run.computed.lengths)
                read = sum(
                    unit[tensor] * math.prod(region.lengths)
                    for tensor, region in dict(zip(op.inputs, run.reads, strict=True)).items()
                    if tensor not in given
                )
                both = max(made, read) if op.type in self._sharing else made + read
                largest = max(largest, before + both)
            before += sum(unit[tensor] * math.prod(region.lengths) for tensor, region in piece.output.items())
        return int(largest)

    def _local_group(self, interval: Interval) -> _LocalGroup:
        """Return the interval's ops as a graph of their own, made once."""
        key = interval.first, interval.last
        if key not in self._local:
            graph, number = self._cut_out(interval)
            members = members_of(self.graph, range(interval.first, interval.last + 1), self.readers)
            staying = set(graph.outputs)
            self._local[key] = _LocalGroup(
                graph,
                number,
                {op: self.geometries[interval.first + op] for op in range(len(graph.ops))},
                members,
                tuple(number[tensor] in staying for tensor in members.inputs),
                sum(op.macs for op in graph.ops),
                self._lasting(graph),
                *self._given(graph),
            )
        return self._local[key]

    def _given(self, graph: Graph) -> tuple[Kept, float]:
        """Return what is kept for the ops as they are, and their time."""
        if self._prices is None:
            return NOTHING_KEPT, 0.0
        pace = self._prices.pace
        return self._prices.of_ops(graph, graph.ops), 0.0 if pace is None else pace.of_graph(graph)

    def _lasting(self, graph: Graph) -> int:
        """Return what kernels keep, without constants that are made once, however many pieces read them."""
        if not self.target.kernels_keep_memory:
            return 0
        ops = tuple(replace(op, attributes=without_kept(op.attributes)) for op in graph.ops)
        return lasting_bytes(replace(graph, ops=ops))

    @functools.cached_property
    def _core(self) -> CompiledPieces | None:
        core = library()
        if core is None:
            return None
        return compiled_pieces(self.graph, self.target, self.dialect, self.geometries, self._sharing, self._runs, core)

    def _cut_out(self, interval: Interval) -> tuple[Graph, dict[int, int]]:
        """Return the interval as a graph, and the number of each of its tensors there."""
        ops = range(interval.first, interval.last + 1)
        members = members_of(self.graph, ops, self.readers)
        tensors = (*members.inputs, *(tensor for op in ops for tensor in self.graph.ops[op].outputs))
        number = {tensor: place for place, tensor in enumerate(tensors)}
        values = [self.graph.tensors[tensor] for tensor in tensors]
        for place, tensor in enumerate(tensors):
            # What the caller owns costs nothing, and what is kept to the end is in the base.
            if tensor in self._inputs and self.target.inputs != "arena":
                values[place] = replace(values[place], external=True)
        moved = [self._moved(self.graph.ops[op], number) for op in ops]
        results = {*self.graph.outputs, *members.outputs}
        outputs = [
            number[tensor]
            for tensor in tensors
            if tensor in results or any(op > interval.last for op in self.readers[tensor])
        ]
        inputs = tuple(range(len(members.inputs)))
        graph = Graph("group", tuple(values), tuple(moved), inputs, tuple(outputs), cut_for=self.graph.cut_for)
        return graph, number

    @staticmethod
    def _moved(op: Op, number: dict[int, int]) -> Op:
        return replace(op, inputs=tuple(number[t] for t in op.inputs), outputs=tuple(number[t] for t in op.outputs))

    def _local_target(self, interval: Interval) -> Target:
        """Return the target's rules for a group whose inputs and outputs are not, in general, the graph's."""
        ops = self.graph.ops[interval.first : interval.last + 1]
        given = any(tensor in self._inputs for op in ops for tensor in op.inputs)
        results = any(tensor in self.graph.outputs for op in ops for tensor in op.outputs)
        return structs.replace(
            self.target,
            inputs="arena",
            overwrite_inputs=self.target.overwrite_inputs if given else True,
            outputs_own=self.target.outputs_own and results,
        )


def looks_at_one(geometry: Geometry | Refusal) -> bool:
    """Whether an op's output elements follow from the input elements at the same place."""
    if isinstance(geometry, Refusal):
        return False
    rules = [one.rule for one in geometry.operands.get(0, ())]
    return bool(rules) and all(isinstance(rule, Pointwise) for rule in rules)


def halo_tensors(graph: Graph, geometries: dict[int, Geometry | Refusal], ops: Sequence[int]) -> list[int]:
    """Return the tensors made in a group whose neighbouring pieces overlap, narrowest first."""
    made = {graph.ops[op].outputs[0] for op in ops}
    wide: set[int] = set()
    for op in reversed(ops):
        geometry = geometries[op]
        if isinstance(geometry, Refusal):
            continue
        output = graph.ops[op].outputs[0]
        looks_around = any(getattr(one.rule, "kernel", 1) > 1 for one in geometry.operands.get(0, ()))
        for tensor in graph.ops[op].inputs:
            if tensor in made and (looks_around or output in wide):
                wide.add(tensor)
    return sorted(wide, key=lambda tensor: (graph.tensors[tensor].size, tensor))
