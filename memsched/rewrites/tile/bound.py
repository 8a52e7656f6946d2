"""What a graph needs at least, whichever groups of consecutive layers are computed in pieces or loops, in any order.

What holds whatever is cut, and however: all inputs lie in memory before the first op, all outputs behind the last. An
op that stays whole has its inputs and outputs at once. A tensor that crosses a border between groups, or between a
group and whole ops, is whole at one moment, beside its pieces where joining them copies. An op that runs n times has a
run with an n-th of what it reads and makes, and each run more is an op more, for which some runtimes keep bytes; so
does each loop, which adds ops of its own. A dynamic program over the order finds the groups that need least by these
alone, with any amount of extra work. Halos, and what lies in memory beside, only add to that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op, Tensor
from memsched.graph.parts import readers_of
from memsched.lowering.prices import Kept, Prices
from memsched.ops.rules import Geometry, Pointwise, Refusal, WholeAxis
from memsched.rewrites.tile.least_reads import lengths_made, lengths_read
from memsched.rewrites.tile.loop_cost import ADDED
from memsched.targets.model import Target

__all__ = ["MOST_RUNS", "least_in_pieces"]

MOST_RUNS = 400
"""Runs of an op in one group that pieces and loops are limited to."""

_EXACT = 4_096
"""Where more than the largest step counts, ranges of its size are halved until they are this part of it."""

_ONE: Final = Graph("one", (Tensor("one", 1, (1,)),), (), (), ())


def least_in_pieces(
    graph: Graph,
    target: Target,
    dialect: Dialect,
    geometries: Mapping[int, Geometry | Refusal],
    prices: Prices | None = None,
) -> int:
    """Return bytes that no pieces or loops of ``graph``, made once, go below, whatever their order and extra work.

    Args:
        graph: Not lowered, its ops in an order of execution; groups are consecutive in it.
        geometries: Per op what `describe` gives.
        prices: What the runtime keeps for every op; None: the largest step is all that counts.
    """
    return _Floor(graph, target, dialect, geometries, prices).least()


class _OpNeeds(FrozenValue, frozen=True):
    """What an op needs, bytes; infinite where it cannot be so.

    Attributes:
        whole: All at once.
        runs: In any number of runs together.
        run: In one run at least, whatever it is cut along.
        more: What is kept for one more run.
        joined: Where pieces of it are what a group makes.
    """

    whole: int
    runs: float
    run: float
    more: int
    joined: int


class _Floor:
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
        rules = [rule.ops for rule in target.views] + [rule.ops for rule in target.part_views]
        views = {name for names in rules for name in names}
        writers = {name for write in target.in_place for name in write.ops}
        self._sharing = views | writers | {*target.pads_over_inputs}
        self._block = self._blocks(views)
        self._readers = readers_of(graph)
        self._free = {tensor for tensor in graph.inputs if target.inputs != "arena"}
        self._joined = self._kept(dialect.concat_type)
        self._ops = self._needs()
        self._borders = self._crossing()
        read = [tensor for tensor in graph.inputs if self._readers[tensor]]
        self._ends = max(self._together(read), self._together(graph.outputs))
        self._worst = max((one.whole for one in self._ops), default=0)
        self._looped = dialect.loop is not None
        self._loop = ADDED.least * min(self._joined, self._kept(dialect.slice_type))

    def least(self) -> int:
        """Return the bound."""
        if self._prices is None:
            return max(self._ends, self._least_level(self._worst))
        return self._least_required(self._prices, max(self._ends, 1), max(self._ends, self._worst, 1))

    def _least_required(self, prices: Prices, lowest: int, highest: int) -> int:
        """Return the least that is required in all where the largest step has a size from ``lowest`` to ``highest``.

        In a range of sizes no less than its lowest is needed, and no less is kept than at its highest.
        """

        def bounded(low: int, high: int) -> Iterator[tuple[int, int, int]]:
            cost = self._least_kept(high)
            if not math.isinf(cost):
                yield prices.required(low, Kept(int(cost))), low, high

        waiting = list(bounded(lowest, highest))
        while waiting:
            least, low, high = heapq.heappop(waiting)
            if high - low <= low // _EXACT:
                return least
            middle = (low + high) // 2
            for part in (*bounded(low, middle), *bounded(middle + 1, high)):
                heapq.heappush(waiting, part)
        return lowest

    def _least_level(self, worst: int) -> int:
        """Return the least size of the largest step that some groups might bring all steps to."""
        low, high = 0, worst
        while low < high:
            middle = (low + high) // 2
            if math.isinf(self._least_kept(middle)):
                low = middle + 1
            else:
                high = middle
        return high

    def _least_kept(self, level: int) -> float:
        """Return what is kept at least for ops of groups with which no step exceeds ``level``; infinite for no groups.

        Ops of a group may each be cut along other axes.
        """
        at_border: float = 0
        in_pieces = in_loop = math.inf
        for number, op in enumerate(self._ops):
            if op.run <= level and op.runs <= level * MOST_RUNS:
                more = (math.ceil(op.runs / level) - 1) * op.more if op.runs > level else 0
                in_pieces = min(in_pieces, at_border + self._joined) + more
                in_loop = min(in_loop, at_border + self._loop) if self._looped else math.inf
            else:
                in_pieces = in_loop = math.inf
            whole = at_border if op.whole <= level else math.inf
            joined = in_pieces if op.joined <= level else math.inf
            at_border = min(whole, joined, in_loop) if self._borders[number + 1] <= level else math.inf
        return at_border

    # Bytes ---------------------------------------------------------------------------------------------------------

    def _size(self, tensor: int) -> int:
        """Return the bytes that a tensor takes among what is planned."""
        value = self._graph.tensors[tensor]
        return 0 if value.external or tensor in self._free else value.size

    def _bytes(self, tensor: int, elements: int) -> float:
        return self._size(tensor) * elements / max(1, math.prod(self._graph.tensors[tensor].shape or ()))

    def _together(self, tensors: Iterable[int]) -> int:
        """Return bytes that tensors that live at once take at least: of those that may share, the largest."""
        largest: dict[int, int] = {}
        for tensor in tensors:
            largest[self._block[tensor]] = max(largest.get(self._block[tensor], 0), self._size(tensor))
        return sum(largest.values())

    def _kept(self, kind: str) -> int:
        """Return what the runtime keeps at least for one more op of a kind, bytes."""
        if self._prices is None:
            return 0
        # Prices round up to the alignment for each op, which several may have in common.
        kept = self._prices.of_op(_ONE, Op(kind, kind, (0,), (0,))).persistent
        return max(0, kept - self._target.alignment_bytes)

    def _blocks(self, views: set[str]) -> list[int]:
        """Return per tensor a number that it has in common with all that its bytes could ever be shared with."""
        block = list(range(len(self._graph.tensors)))

        def root(tensor: int) -> int:
            while block[tensor] != tensor:
                block[tensor] = block[block[tensor]]
                tensor = block[tensor]
            return tensor

        for op in self._graph.ops:
            if op.type in views:
                for tensor in (*op.inputs, *op.outputs):
                    block[root(tensor)] = root(op.outputs[0])
        return [root(tensor) for tensor in range(len(block))]

    def _crossing(self) -> list[int]:
        """Return per place between ops the largest tensor that is made before it and read behind it."""
        graph = self._graph
        largest = [0] * (len(graph.ops) + 1)
        ends: list[list[int]] = [[] for _ in range(len(graph.ops) + 1)]
        for number, op in enumerate(graph.ops):
            for tensor in op.outputs:
                last = max(self._readers[tensor], default=number)
                if last > number:
                    ends[number + 1].append(tensor)
        live: dict[int, int] = {}
        for place in range(1, len(graph.ops) + 1):
            for tensor in ends[place]:
                live[tensor] = max(self._readers[tensor])
            live = {tensor: last for tensor, last in live.items() if last >= place}
            largest[place] = max((self._size(tensor) for tensor in live), default=0)
        return largest

    # Ops -----------------------------------------------------------------------------------------------------------

    def _needs(self) -> list[_OpNeeds]:
        """Return what each op needs."""
        graph, copies = self._graph, 1 if self._dialect.concat_type in self._sharing else 2
        tied = {op for pair in graph.dependencies for op in pair}
        whole = {op for op, geometry in self._geometries.items() if isinstance(geometry, Refusal)} | tied
        lengths = lengths_made(graph, self._geometries, self._readers, frozenset(whole))
        found = []
        for number, op in enumerate(graph.ops):
            geometry = self._geometries[number]
            both = (self._together(op.inputs), self._together(op.outputs))
            runs, run, more = math.inf, math.inf, 0
            if number not in whole and isinstance(geometry, Geometry):
                made = lengths[op.outputs[0]]
                known = made is not None and len(made) == len(geometry.shape)
                runs = self._in_runs(op, made, _read(op, geometry, made)) if known and made is not None else 0.0
                run, more = self._least_run(op, geometry), self._kept(op.type)
            taken = max(both) if op.type in self._sharing else sum(both)
            found.append(_OpNeeds(taken, runs, run, more, copies * both[1]))
        return found

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
        return max(written, taken) if op.type in self._sharing else written + taken

    def _least_run(self, op: Op, geometry: Geometry) -> float:
        """Return what one run needs at least whatever it is cut along: it has all of the axes that cannot be cut."""
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
        return self._in_runs(op, made, read)


def _read(op: Op, geometry: Geometry, made: Sequence[int]) -> dict[int, int]:
    """Return per input how many elements of it are read at least for so many positions of the output's axes."""
    found: dict[int, int] = {}
    for position, tensor in zip(op.positions, op.inputs, strict=True):
        found[tensor] = max(found.get(tensor, 0), math.prod(lengths_read(geometry, position, made)))
    return found
