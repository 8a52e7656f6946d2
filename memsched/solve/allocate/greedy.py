"""Addresses by greedy planning: blocks are placed one by one, in several orders, and the lowest packing wins.

The orders are those of the common planners: by size (TFLite's "greedy by size"), by breadth (the largest times
first), by lifetime, by area and by conflicts, each at the lowest and at the tightest gap; and the sweep in order of
time, which is the only one that very many overlapping pairs get.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from memsched.base.units import MOST_BYTES
from memsched.core.library import library
from memsched.graph.packing import Block, height_of
from memsched.solve.allocate.compiled import CompiledOrders, swept
from memsched.solve.allocate.conflicts import Conflicts, conflicts_of, overlapping_pairs

if TYPE_CHECKING:
    from memsched.graph.uses import Numbers

__all__ = ["MOST_SCANNED", "GreedyPlanner", "near_enough", "sweep"]

_MOST_PAIRS = 400_000
"""Overlapping pairs up to which the orders that look at all neighbours of a block take a second or so."""

MOST_SCANNED = 20_000
"""Blocks up to which the lowest gap is looked for among all gaps."""

_ENOUGH = 200
"""Above that many blocks, one part in this many above the bound is near enough: each further order takes seconds."""

_Offsets = list[int]


class GreedyPlanner:
    """The greedy planners for one set of blocks, whose parts must not be empty nor overlap within a block.

    Attributes:
        conflicts: Which blocks meet; None where too many do.
        found: What `run` tried: (height, offsets, method), in the order tried.
        orders: Of those plans that are an order of the blocks: method to (order, whether the tightest gap is taken).
        order_steps: Neighbours that are looked at to place all blocks in an order, and the blocks.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self.sizes = [block.size for block in blocks]
        self.conflicts = conflicts_of(blocks) if overlapping_pairs(blocks) <= _MOST_PAIRS else None
        self.order_steps = len(blocks)
        if self.conflicts is not None:
            self.order_steps += sum(map(len, self.conflicts.near)) + sum(map(len, self.conflicts.apart))
        self.found: list[tuple[int, _Offsets, str]] = []
        self.orders: dict[str, tuple[list[int], bool]] = {}
        self._fixed = [-1 if block.offset is None else block.offset for block in blocks]
        self._free = [index for index, block in enumerate(blocks) if block.offset is None]
        self._compiled: CompiledOrders | None = None
        largest = max((block.alignment for block in blocks), default=1) + max(self._fixed, default=0)
        core = library() if sum(self.sizes) + largest < MOST_BYTES else None
        if core is not None and self.conflicts is not None:
            self._compiled = CompiledOrders(blocks, self.conflicts, core)

    def run(self, goal: int, stop: Callable[[], bool] | None = None) -> tuple[int, _Offsets, str]:
        """Return the lowest packing as (height, offsets, method); the first one of at most ``goal`` bytes ends it."""
        for method, plan in self._plans():
            offsets = plan()
            height = height_of(self.blocks, offsets)
            self.found.append((height, offsets, method))
            enough = len(self.blocks) > MOST_SCANNED and near_enough(height, goal)
            if height <= goal or enough or (stop is not None and stop()):
                break
        return min(self.found, key=lambda one: one[0])

    def in_order(self, order: Sequence[int], *, tight: bool, first: _Offsets | None = None) -> _Offsets:
        """Place blocks in ``order``, each in the lowest or the tightest gap between its placed neighbours.

        Args:
            first: Addresses that are taken already; -1 for none. By default those that were given.
        """
        conflicts = self.conflicts
        if conflicts is None:
            raise ValueError("too many blocks meet for an order")
        offsets = list(self._fixed if first is None else first)
        if self._compiled is not None:
            return self._compiled.place(order, offsets, tight=tight)
        sizes, near, apart = self.sizes, conflicts.near, conflicts.apart
        for index in order:
            alignment, size = self.blocks[index].alignment, sizes[index]
            taken = [(at - size, at + sizes[other]) for other in near[index] if (at := offsets[other]) >= 0]
            if apart[index]:
                taken += [(at + low, at + high) for other, low, high in apart[index] if (at := offsets[other]) >= 0]
            taken.sort()
            address, chosen, smallest = 0, -1, -1
            for low, high in taken:
                gap = low - address
                if gap >= 0 and (smallest < 0 or gap < smallest):
                    chosen, smallest = address, gap
                    if not tight:
                        break
                if high > address:
                    address = high if alignment == 1 else -(-high // alignment) * alignment
            offsets[index] = chosen if chosen >= 0 else address
        return offsets

    def _plans(self) -> Iterator[tuple[str, Callable[[], _Offsets]]]:
        """Yield named planners, the ones that are most often best first; for very many blocks the quickest."""
        swept = self._sweeps()
        if self.conflicts is not None and any(block.hint is not None for block in self.blocks):
            yield "hints", partial(self._with_hints, self.conflicts)
        if len(self.blocks) > MOST_SCANNED:
            yield next(swept)
        if self.conflicts is not None:
            for name, order in self._orders(self.conflicts):
                for tight in (False, True):
                    method = f"greedy by {name}, tight" if tight else f"greedy by {name}"
                    self.orders[method] = order, tight
                    yield method, partial(self.in_order, order, tight=tight)
        yield from swept

    def _sweeps(self) -> Iterator[tuple[str, Callable[[], _Offsets]]]:
        spans = [_span(self.blocks[index]) for index in self._free]
        backwards = [(-end, -begin) for begin, end in spans]
        for name, times in (("time", spans), ("reversed time", backwards)):
            for tight in (True, False) if len(self.blocks) <= MOST_SCANNED else (True,):
                fit = "best" if tight else "first"
                yield f"{fit} fit by {name}", partial(self._swept, times, tight=tight)

    def _orders(self, conflicts: Conflicts) -> Iterator[tuple[str, list[int]]]:
        blocks, sizes = self.blocks, self.sizes
        begins = [_span(block)[0] for block in blocks]
        lifetimes = [sum([part.end - part.begin for part in block.parts]) for block in blocks]
        areas = [sum([(p.end - p.begin) * (p.high - p.low) for p in block.parts]) for block in blocks]
        met = [sum([sizes[other] for other in conflicts.neighbours(index)]) for index in range(len(blocks))]
        breadth = _largest_live(blocks)
        keys: dict[str, Callable[[int], tuple[int, ...]]] = {
            "size": lambda i: (-sizes[i], -lifetimes[i]),
            "breadth": lambda i: (-breadth[i], -sizes[i]),
            "conflict": lambda i: (-met[i], -sizes[i]),
            "lifetime": lambda i: (-lifetimes[i], -sizes[i]),
            "area": lambda i: (-areas[i], -sizes[i]),
        }
        for name, key in keys.items():
            ranks = {i: (*key(i), begins[i], i) for i in self._free}
            yield name, sorted(self._free, key=ranks.__getitem__)

    def _with_hints(self, conflicts: Conflicts) -> _Offsets:
        """Place blocks at their hints, lowest first, as far as those are free; the others by size."""
        offsets = list(self._fixed)
        for index in sorted(self._free, key=lambda i: (self.blocks[i].hint or 0, i)):
            hint, size = self.blocks[index].hint, self.sizes[index]
            if hint is None or hint < 0 or hint % self.blocks[index].alignment:
                continue
            near = [(other, -size, self.sizes[other]) for other in conflicts.near[index]]
            met = [*near, *conflicts.apart[index]]
            if not any(offsets[other] >= 0 and low < hint - offsets[other] < high for other, low, high in met):
                offsets[index] = hint
        rest = [index for index in self._free if offsets[index] < 0]
        return self.in_order(sorted(rest, key=lambda i: (-self.sizes[i], i)), tight=False, first=offsets)

    def _swept(self, times: Sequence[tuple[int, int]], *, tight: bool) -> _Offsets:
        """Sweep over the free blocks as if each were plain, above all given addresses, on a grid that suits all."""
        grid = math.lcm(*[block.alignment for block in self.blocks])
        given = [block.offset + block.size for block in self.blocks if block.offset is not None]
        base = -(-max(given, default=0) // grid) * grid
        sizes = [-(-self.sizes[index] // grid) * grid for index in self._free]
        offsets = list(self._fixed)
        found = sweep([begin for begin, _ in times], [end for _, end in times], sizes, tight=tight)
        for index, offset in zip(self._free, found, strict=True):
            offsets[index] = base + offset
        return offsets


def near_enough(height: int, goal: int) -> bool:
    """Whether a packing of very many blocks is so low that seconds more would not be worth it."""
    return height * _ENOUGH <= goal * (_ENOUGH + 1)


def _span(block: Block) -> tuple[int, int]:
    """Return the first time of a block and the end of its last one."""
    parts = block.parts
    if len(parts) == 1:
        return parts[0].begin, parts[0].end
    return min([part.begin for part in parts], default=0), max([part.end for part in parts], default=0)


def _largest_live(blocks: Sequence[Block]) -> list[int]:
    """Return per block the largest sum of bytes in use at one of its times."""
    parts = [(part, index) for index, block in enumerate(blocks) for part in block.parts]
    times = sorted({part.begin for part, _ in parts})
    place_of = {time: place for place, time in enumerate(times)}
    # Sums rise only where a part begins, so the times where one does are enough.
    change = [0] * (len(times) + 1)
    spans = []
    for part, _ in parts:
        begin, end = place_of[part.begin], bisect.bisect_left(times, part.end)
        change[begin] += part.high - part.low
        change[end] -= part.high - part.low
        spans.append((begin, end))
    table = [list(itertools.accumulate(change[:-1]))]
    while len(table[-1]) > 1 << (len(table) - 1):
        previous, half = table[-1], 1 << (len(table) - 1)
        table.append([max(previous[i], previous[i + half]) for i in range(len(previous) - half)])
    result = [0] * len(blocks)
    for (_, index), (begin, end) in zip(parts, spans, strict=True):
        level = (end - begin).bit_length() - 1
        result[index] = max(result[index], table[level][begin], table[level][end - (1 << level)])
    return result


def sweep(
    begins: Sequence[int] | Numbers, ends: Sequence[int] | Numbers, sizes: Sequence[int], *, tight: bool
) -> _Offsets:
    """Place ranges, which do not reach their ends, as they begin: in the lowest or the tightest free gap."""
    core = library() if sizes and sum(sizes) < MOST_BYTES else None
    if core is not None:
        return swept(core, begins, ends, sizes, tight=tight)
    offsets = [0] * len(sizes)
    gaps = _Gaps()
    ending: list[tuple[int, int]] = []
    ranks = [(begin, -end, -size) for begin, end, size in zip(begins, ends, sizes, strict=True)]
    for index in sorted(range(len(sizes)), key=ranks.__getitem__):
        begin, end = begins[index], ends[index]
        while ending and ending[0][0] <= begin:
            gone = heapq.heappop(ending)[1]
            gaps.give(offsets[gone], sizes[gone])
        offsets[index] = gaps.take(sizes[index], tight=tight)
        heapq.heappush(ending, (end, index))
    return offsets


class _Gaps:
    """The free ranges of an arena without end: below ``top`` as listed, above it all."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        self._top = 0

    def take(self, size: int, *, tight: bool) -> int:
        """Return the offset of ``size`` bytes that are now taken."""
        begin = self._tightest(size) if tight else self._lowest(size)
        if begin is None:
            # The last gap may reach the top: the buffer then starts inside it.
            begin = self._top
            if self._begins and self._ends[self._begins[-1]] == self._top:
                begin = self._begins[-1]
                self._remove(begin)
            self._top = begin + size
            return begin
        end = self._ends[begin]
        self._remove(begin)
        if begin + size < end:
            self._add(begin + size, end)
        return begin

    def give(self, begin: int, size: int) -> None:
        """Free a range, joined with the gaps beside it."""
        if not size:
            return
        end = begin + size
        at = bisect.bisect_left(self._begins, begin)
        if at < len(self._begins) and self._begins[at] == end:
            following = self._begins[at]
            end = self._ends[following]
            self._remove(following)
        if at and self._ends[self._begins[at - 1]] == begin:
            begin = self._begins[at - 1]
            self._remove(begin)
        self._add(begin, end)

    def _tightest(self, size: int) -> int | None:
        at = bisect.bisect_left(self._by_size, (size, -1))
        return self._by_size[at][1] if at < len(self._by_size) else None

    def _lowest(self, size: int) -> int | None:
        return next((begin for begin in self._begins if self._ends[begin] - begin >= size), None)

    def _add(self, begin: int, end: int) -> None:
        bisect.insort(self._begins, begin)
        self._ends[begin] = end
        bisect.insort(self._by_size, (end - begin, begin))

    def _remove(self, begin: int) -> None:
        end = self._ends.pop(begin)
        self._begins.pop(bisect.bisect_left(self._begins, begin))
        self._by_size.pop(bisect.bisect_left(self._by_size, (end - begin, begin)))
