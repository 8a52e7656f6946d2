"""Addresses by greedy planning: buffers are placed one by one, in several orders, and the smallest arena wins.

The orders are those of the common planners: by size (TFLite's "greedy by size"), by breadth (the largest steps
first), by lifetime, by area and by conflicts, each at the lowest and at the tightest gap; and the sweep in order of
time, which is the only one that a graph with very many overlapping pairs gets.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from memsched.allocate.buffers import Buffer, buffers
from memsched.graph.liveness import Storage
from memsched.graph.model import Allocation, Graph, Placement, Schedule

__all__ = ["allocate", "live_bound", "place"]

_MOST_PAIRS = 400_000
"""Overlapping pairs up to which the orders that look at all neighbours of a buffer take a second or so."""

_MOST_SCANNED = 20_000
"""Buffers up to which the lowest gap is looked for among all gaps."""

_ENOUGH = 200
"""Above that many buffers, one part in this many above the bound is near enough: each further order takes seconds."""

_Offsets = list[int]


def allocate(graph: Graph, schedule: Schedule, *, alignment: int, storage: Storage | None = None) -> Allocation:
    """Return addresses for the buffers of ``schedule``; every offset and size is a multiple of ``alignment`` bytes.

    The status is "optimal" when the arena equals the largest sum of rounded sizes that are live at once.

    Args:
        storage: Of ``graph``, where the caller has it already.
    """
    return place(buffers(graph, schedule, storage), alignment=alignment)


def place(wanted: Sequence[Buffer], *, alignment: int) -> Allocation:
    """Return addresses for ``wanted``; see `allocate`."""
    sizes = [-(-buffer.size // alignment) * alignment for buffer in wanted]
    bound = live_bound(wanted, sizes)
    found: list[tuple[int, _Offsets, str]] = []
    for method, plan in _plans(wanted, sizes):
        offsets = plan()
        arena = max([offset + size for offset, size in zip(offsets, sizes, strict=True)], default=0)
        found.append((arena, offsets, method))
        if arena == bound or (len(wanted) > _MOST_SCANNED and arena * _ENOUGH <= bound * (_ENOUGH + 1)):
            break
    arena, offsets, method = min(found, key=lambda one: one[0])
    return Allocation(
        placements=tuple(
            Placement(buffer.tensors, offset, size, buffer.first_step, buffer.last_step)
            for buffer, offset, size in zip(wanted, offsets, sizes, strict=True)
        ),
        arena=arena,
        lower_bound=bound,
        alignment=alignment,
        status="optimal" if arena == bound else "feasible",
        method=method,
    )


def live_bound(wanted: Sequence[Buffer], sizes: Sequence[int]) -> int:
    """Return the largest sum of ``sizes`` live at once, bytes: no arena is smaller."""
    steps = max([buffer.last_step for buffer in wanted], default=-1) + 1
    change = [0] * (steps + 1)
    for buffer, size in zip(wanted, sizes, strict=True):
        change[buffer.first_step] += size
        change[buffer.last_step + 1] -= size
    return max(itertools.accumulate(change), default=0)


def _plans(wanted: Sequence[Buffer], sizes: Sequence[int]) -> Iterator[tuple[str, Callable[[], _Offsets]]]:
    """Yield named planners, the ones that are most often best first."""
    neighbours = _neighbours(wanted) if _pairs(wanted) <= _MOST_PAIRS else None
    if neighbours is not None:
        for name, order in _orders(wanted, sizes, neighbours):
            yield f"greedy by {name}", partial(_in_order, order, sizes, neighbours, tight=False)
            yield f"greedy by {name}, tight", partial(_in_order, order, sizes, neighbours, tight=True)
    backwards = [(-buffer.last_step, -buffer.first_step) for buffer in wanted]
    forwards = [(buffer.first_step, buffer.last_step) for buffer in wanted]
    for name, times in (("time", forwards), ("reversed time", backwards)):
        for tight in (True, False) if len(wanted) <= _MOST_SCANNED else (True,):
            fit = "best" if tight else "first"
            yield f"{fit} fit by {name}", partial(_sweep, times, sizes, tight=tight)


def _pairs(wanted: Sequence[Buffer]) -> int:
    """Return how many pairs of buffers live at the same time."""
    begins = sorted([buffer.first_step for buffer in wanted])
    return sum([bisect.bisect_right(begins, buffer.last_step) for buffer in wanted]) - sum(range(1, len(wanted) + 1))


def _neighbours(wanted: Sequence[Buffer]) -> list[list[int]]:
    """Return per buffer those that live at the same time as it."""
    result: list[list[int]] = [[] for _ in wanted]
    active: dict[int, None] = {}
    ending: list[tuple[int, int]] = []
    for index in sorted(range(len(wanted)), key=lambda i: wanted[i].first_step):
        while ending and ending[0][0] < wanted[index].first_step:
            del active[heapq.heappop(ending)[1]]
        for other in active:
            result[index].append(other)
            result[other].append(index)
        active[index] = None
        heapq.heappush(ending, (wanted[index].last_step, index))
    return result


def _orders(
    wanted: Sequence[Buffer], sizes: Sequence[int], neighbours: Sequence[Sequence[int]]
) -> Iterator[tuple[str, list[int]]]:
    lifetimes = [buffer.last_step - buffer.first_step + 1 for buffer in wanted]
    conflicts = [sum(sizes[other] for other in near) for near in neighbours]
    breadth = _largest_live(wanted, sizes)
    keys: dict[str, Callable[[int], tuple[int, ...]]] = {
        "size": lambda i: (-sizes[i], -lifetimes[i]),
        "breadth": lambda i: (-breadth[i], -sizes[i]),
        "conflict": lambda i: (-conflicts[i], -sizes[i]),
        "lifetime": lambda i: (-lifetimes[i], -sizes[i]),
        "area": lambda i: (-sizes[i] * lifetimes[i], -sizes[i]),
    }
    for name, key in keys.items():
        ranks = [(*key(i), buffer.first_step, i) for i, buffer in enumerate(wanted)]
        yield name, sorted(range(len(wanted)), key=ranks.__getitem__)


def _largest_live(wanted: Sequence[Buffer], sizes: Sequence[int]) -> list[int]:
    """Return per buffer the largest sum of sizes live in one of its steps."""
    steps = sorted({buffer.first_step for buffer in wanted})
    place_of = {step: place for place, step in enumerate(steps)}
    # Sums rise only where a buffer begins, so the steps where one does are enough.
    change = [0] * (len(steps) + 1)
    spans = []
    for buffer, size in zip(wanted, sizes, strict=True):
        begin, end = place_of[buffer.first_step], bisect.bisect_right(steps, buffer.last_step)
        change[begin] += size
        change[end] -= size
        spans.append((begin, end))
    live, current = [], 0
    for difference in change[:-1]:
        current += difference
        live.append(current)
    table = [live]
    while len(table[-1]) > 1 << (len(table) - 1):
        previous, half = table[-1], 1 << (len(table) - 1)
        table.append([max(previous[i], previous[i + half]) for i in range(len(previous) - half)])
    result = []
    for begin, end in spans:
        level = (end - begin).bit_length() - 1
        result.append(max(table[level][begin], table[level][end - (1 << level)]))
    return result


def _in_order(
    order: Sequence[int], sizes: Sequence[int], neighbours: Sequence[Sequence[int]], *, tight: bool
) -> _Offsets:
    """Place buffers in ``order``, each in the lowest or the tightest gap between its placed neighbours."""
    offsets = [-1] * len(sizes)
    for index in order:
        size = sizes[index]
        taken = sorted(
            (offsets[other], offsets[other] + sizes[other]) for other in neighbours[index] if offsets[other] >= 0
        )
        end, chosen, smallest = 0, -1, -1
        for begin, finish in taken:
            gap = begin - end
            if gap >= size and (smallest < 0 or gap < smallest):
                chosen, smallest = end, gap
                if not tight:
                    break
            end = max(end, finish)
        offsets[index] = chosen if chosen >= 0 else end
    return offsets


def _sweep(times: Sequence[tuple[int, int]], sizes: Sequence[int], *, tight: bool) -> _Offsets:
    """Place buffers as they begin, in the lowest or the tightest free gap, looking at gaps only."""
    offsets = [0] * len(sizes)
    gaps = _Gaps()
    ending: list[tuple[int, int]] = []
    ranks = [(begin, -end, -size) for (begin, end), size in zip(times, sizes, strict=True)]
    for index in sorted(range(len(sizes)), key=ranks.__getitem__):
        begin, end = times[index]
        while ending and ending[0][0] < begin:
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
