"""What a graph needs at least, whichever groups of consecutive layers are computed in pieces or loops, in any order.

Four things hold whatever is cut, and however. All inputs lie in memory before the first op, all outputs behind the
last. An op that stays whole has its inputs and outputs at once. A tensor that crosses a border between groups, or
between a group and whole ops, is whole at one moment, beside its pieces where joining them copies. And an op that runs
n times has a run with an n-th of what it reads and makes; each run more is an op more, for which some runtimes keep
bytes. A dynamic program over the order finds the groups that need least by these alone. Halos, and what lies in memory
beside, only add to that.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping

from memsched.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op, Tensor
from memsched.graph.parts import readers_of
from memsched.graph.prices import Kept, Prices
from memsched.regions.rules import Geometry, Pointwise, Refusal, WholeAxis, Window
from memsched.targets.model import Target

__all__ = ["MOST_RUNS", "least_in_pieces"]

MOST_RUNS = 400
"""Runs of an op in one group that pieces and loops are limited to."""

_EXACT = 4_096
"""Where more than the largest step counts, ranges of its size are halved until they are this part of it."""

_OPS_OF_LOOP = 6
"""Ops that each form of a loop adds at least."""


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
        run: In each of them at least.
        joined: Where pieces of it are what a group makes.
        kept: For one more run of it.
    """

    whole: int
    runs: float
    run: float
    joined: int
    kept: int


class _Floor:
    def __init__(
        self,
        graph: Graph,
        target: Target,
        dialect: Dialect,
        geometries: Mapping[int, Geometry | Refusal],
        prices: Prices | None,
    ) -> None:
        self._graph, self._target, self._geometries, self._prices = graph, target, geometries, prices
        self._views = {name for rule in target.views for name in rule.ops}
        self._views |= {name for part in target.part_views for name in part.ops}
        writers = {name for write in target.in_place for name in write.ops}
        self._sharing = self._views | writers | {*target.pads_over_inputs}
        self._loops = dialect.loop is not None
        self._copies = 1 if dialect.concat_type in self._sharing else 2
        self._tied = {op for pair in graph.dependencies for op in pair}
        self._readers = readers_of(graph)
        self._free = {tensor for tensor in graph.inputs if target.inputs != "arena"}
        self._block = self._blocks()
        self._joined = self._kept(dialect.concat_type)
        self._loop = _OPS_OF_LOOP * min(self._joined, self._kept(dialect.slice_type))
        self._ops = self._needs()
        self._borders = self._crossing()

    def least(self) -> int:
        """Return the bound."""
        ends = max(self._together(self._read_inputs()), self._together(self._graph.outputs))
        worst = max((one.whole for one in self._ops), default=0)
        if self._prices is None:
            return max(ends, self._least_level(worst))
        return self._least_required(self._prices, max(ends, 1), max(ends, worst, 1))

    def _least_required(self, prices: Prices, lowest: int, highest: int) -> int:
        """Return the least that is required in all where the largest step has a size from ``lowest`` to ``highest``.

        In a range of sizes no less than its lowest is needed, and no less is kept than at its highest.
        """

        def bounded(low: int, high: int) -> Iterator[tuple[int, int, int]]:
            cost = self._least_kept(high)
            if cost is not None:
                yield prices.required(low, Kept(cost)), low, high

        waiting = list(bounded(lowest, highest))
        while waiting:
            least, low, high = heapq.heappop(waiting)
            if high - low <= low // _EXACT:
                return least
            middle = (low + high) // 2
            for part in (*bounded(low, middle), *bounded(middle + 1, high)):
                heapq.heappush(waiting, part)
        return lowest

    # What ops need -------------------------------------------------------------------------------------------------

    def _size(self, tensor: int) -> int:
        value = self._graph.tensors[tensor]
        return 0 if value.external or tensor in self._free else value.size

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

    def _together(self, tensors: Iterable[int]) -> int:
        """Return bytes that tensors that live at once take at least: of those that may share, the largest."""
        largest: dict[int, int] = {}
        for tensor in tensors:
            largest[self._block[tensor]] = max(largest.get(self._block[tensor], 0), self._size(tensor))
        return sum(largest.values())

    def _read_inputs(self) -> list[int]:
        return [tensor for tensor in self._graph.inputs if self._readers[tensor]]

    def _needs(self) -> list[_OpNeeds]:
        """Return what each op needs, the last first: how much of an input is needed follows from its readers."""
        graph = self._graph
        results = set(graph.outputs)
        needed: dict[int, int] = {}
        found = []
        for number in range(len(graph.ops) - 1, -1, -1):
            op = graph.ops[number]
            made = {
                tensor: self._elements(tensor) if tensor in results else needed.get(tensor, 0) for tensor in op.outputs
            }
            read = self._reads(number, made)
            for tensor, elements in read.items():
                needed[tensor] = max(needed.get(tensor, 0), elements)
            both = (self._together(op.inputs), self._together(op.outputs))
            whole = max(both) if op.type in self._sharing else sum(both)
            runs = run = math.inf
            if not self._refuses(number):
                runs, run = self._in_runs(op, made, read), self._in_runs(op, *self._least_run(number))
            found.append(_OpNeeds(whole, runs, run, self._copies * both[1], self._kept(op.type)))
        return found[::-1]

    def _refuses(self, number: int) -> bool:
        return isinstance(self._geometries[number], Refusal) or number in self._tied

    def _in_runs(self, op: Op, made: Mapping[int, int], read: Mapping[int, int]) -> float:
        written = sum(self._bytes(tensor, elements) for tensor, elements in made.items())
        taken = max((self._bytes(tensor, elements) for tensor, elements in read.items()), default=0.0)
        if len({self._block[tensor] for tensor in read}) == len(read):
            taken = sum(self._bytes(tensor, elements) for tensor, elements in read.items())
        return max(written, taken) if op.type in self._sharing else written + taken

    def _least_run(self, number: int) -> tuple[dict[int, int], dict[int, int]]:
        """Return how many elements one run makes and reads at least: it has all of the axes that cannot be cut."""
        op, geometry = self._graph.ops[number], self._geometries[number]
        if isinstance(geometry, Refusal):
            return {}, {}
        made = math.prod(geometry.shape[axis] for axis in geometry.fixed)
        read: dict[int, int] = {}
        for tensor, position in zip(op.inputs, op.positions, strict=True):
            shape = self._graph.tensors[tensor].shape or ()
            whole = [
                length
                for one, length in zip(geometry.operands.get(position, ()), shape, strict=False)
                if isinstance(one.rule, WholeAxis) or (isinstance(one.rule, Pointwise) and one.output in geometry.fixed)
            ]
            read[tensor] = max(read.get(tensor, 0), math.prod(whole) if all(shape) else 0)
        return {op.outputs[0]: made if all(geometry.shape) else 0}, read

    def _elements(self, tensor: int) -> int:
        return math.prod(self._graph.tensors[tensor].shape or ())

    def _bytes(self, tensor: int, elements: int) -> float:
        return self._size(tensor) * elements / max(1, self._elements(tensor))

    def _reads(self, number: int, made: Mapping[int, int]) -> dict[int, int]:
        """Return per input how many elements of it are needed at least for so many of the outputs."""
        op, geometry = self._graph.ops[number], self._geometries[number]
        whole = all(elements == self._elements(tensor) for tensor, elements in made.items())
        if isinstance(geometry, Refusal):
            return {tensor: self._elements(tensor) if whole else 0 for tensor in op.inputs}
        found: dict[int, int] = {}
        for tensor, position in zip(op.inputs, op.positions, strict=True):
            shape, maps = self._graph.tensors[tensor].shape, geometry.operands.get(position)
            elements = 0
            if whole and shape is not None and maps is not None and len(maps) == len(shape):
                elements = math.prod(
                    _lengths_read(one.rule, length, geometry.shape[one.output] if one.output >= 0 else length)
                    for one, length in zip(maps, shape, strict=True)
                )
            found[tensor] = max(found.get(tensor, 0), elements)
        return found

    def _kept(self, kind: str) -> int:
        """Return what the runtime keeps at least for one more op of a kind, bytes."""
        if self._prices is None:
            return 0
        graph = Graph("one", (Tensor("one", 1, (1,)),), (), (), ())
        # Prices round up to the alignment for each op, which several may have in common.
        return max(0, self._prices.of_op(graph, Op(kind, kind, (0,), (0,))).persistent - self._target.alignment_bytes)

    # What groups need ----------------------------------------------------------------------------------------------

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

    def _least_level(self, worst: int) -> int:
        """Return the least size of the largest step that some groups might bring all steps to."""
        low, high = 0, worst
        while low < high:
            middle = (low + high) // 2
            if self._least_kept(middle) is None:
                low = middle + 1
            else:
                high = middle
        return high

    def _least_kept(self, level: int) -> int | None:
        """Return what is kept at least for ops of groups with which no step exceeds ``level``; None for no groups."""
        at_border: float = 0
        in_pieces = in_loop = math.inf
        for number, op in enumerate(self._ops):
            run = op.runs <= level * MOST_RUNS and op.run <= level
            more = (max(1, math.ceil(op.runs / level)) - 1) * op.kept if run and level else 0
            in_pieces = min(in_pieces, at_border + self._joined) + more if run else math.inf
            in_loop = min(in_loop, at_border + self._loop) if run and self._loops else math.inf
            whole = at_border if op.whole <= level else math.inf
            joined = in_pieces if op.joined <= level else math.inf
            at_border = min(whole, joined, in_loop) if self._borders[number + 1] <= level else math.inf
        return None if math.isinf(at_border) else int(at_border)


def _lengths_read(rule: object, length: int, made: int) -> int:
    """Return how many positions along an axis of so many are needed for ``made`` positions of the output."""
    if isinstance(rule, WholeAxis):
        return length
    if isinstance(rule, Pointwise):
        return min(length, made)
    if isinstance(rule, Window):
        return _window_reads(rule, length, made)
    return min(length, 1)


@functools.cache
def _window_reads(rule: Window, length: int, made: int) -> int:
    begins = (place * rule.stride - rule.pad_before for place in range(made))
    return len({begin + rule.dilation * tap for begin in begins for tap in range(rule.kernel)} & {*range(length)})
