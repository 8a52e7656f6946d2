"""Packing by the compiled core: what `search`, `rebuild` and `greedy` choose and find, many times faster."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsched.core.library import StopCallback
from memsched.graph.packing import Block
from memsched.solve.allocate.conflicts import Conflicts
from memsched.solve.allocate.preprocess import PackingProblem

if TYPE_CHECKING:
    from memsched.graph.uses import Numbers

__all__ = ["CompiledAttempts", "CompiledOrders", "attempts_at", "rebuilt", "swept"]

_STATUSES = ("found", "infeasible", "unknown", "stopped", "no memory")


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A problem that equals only itself: comparing all of its numbers would take longer than an attempt."""

    problem: PackingProblem

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.problem is other.problem

    def __hash__(self) -> int:
        return id(self.problem)


class _PackingArrays(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("items", "sections", "irregular")),
        *(
            (name, ctypes.c_void_p)
            for name in ("shifts", "widths", "above", "lowest", "highest", "alignments", "slack")
        ),
        *((name, ctypes.c_void_p) for name in ("fixed", "sections_begin", "sections_of", "meets_begin", "meets")),
        *((name, ctypes.c_void_p) for name in ("twins_begin", "twins")),
    )


def attempts_at(problem: PackingProblem, core: ctypes.CDLL) -> CompiledAttempts:
    """Return what attempts ``problem``; its numbers are handed over once for many attempts in a row."""
    return _attempts_at(_Same(problem), core)


@functools.lru_cache(maxsize=2)
def _attempts_at(same: _Same, core: ctypes.CDLL) -> CompiledAttempts:
    return CompiledAttempts(same.problem, core)


class _Arrays:
    """Numbers that C++ reads, kept as long as it may."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def longs(self, values: Sequence[int]) -> int:
        return self._at((ctypes.c_int64 * len(values))(*values))

    def ints(self, values: Sequence[int]) -> int:
        return self._at((ctypes.c_int32 * len(values))(*values))

    def lists(self, lists: Sequence[Sequence[int]]) -> tuple[int, int]:
        begins = list(itertools.accumulate((len(one) for one in lists), initial=0))
        return self.ints(begins), self.ints(list(itertools.chain.from_iterable(lists)))

    def _at(self, array: Any) -> int:
        self._kept.append(array)
        return ctypes.addressof(array)


class _GreedyArrays(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("sizes", "alignments", "near_begin", "near", "apart_begin", "apart", "apart_low", "apart_high")
    )


class CompiledOrders:
    """Blocks placed in orders by the compiled core; see `GreedyPlanner.in_order`."""

    def __init__(self, blocks: Sequence[Block], conflicts: Conflicts, core: ctypes.CDLL) -> None:
        self._core, self._count = core, len(blocks)
        self._arrays = known = _Arrays()
        apart = list(itertools.chain.from_iterable(conflicts.apart))
        self._blocks = _GreedyArrays(
            known.longs([block.size for block in blocks]),
            known.longs([block.alignment for block in blocks]),
            *known.lists(conflicts.near),
            *known.lists([[other for other, _, _ in one] for one in conflicts.apart]),
            known.longs([low for _, low, _ in apart]),
            known.longs([high for _, _, high in apart]),
        )

    def place(self, order: Sequence[int], first: Sequence[int], *, tight: bool) -> list[int]:
        """Return addresses, bytes: ``first`` with those of the blocks in ``order``.

        Raises:
            MemoryError: There is no room for it.
        """
        offsets = (ctypes.c_int64 * self._count)(*first)
        numbers = (ctypes.c_int32 * len(order))(*order)
        blocks, count = ctypes.byref(self._blocks), ctypes.c_int32(len(order))
        if self._core.memsched_greedy_order(blocks, numbers, count, ctypes.c_int32(tight), offsets):
            raise MemoryError
        return list(offsets)


def swept(
    core: ctypes.CDLL,
    begins: Sequence[int] | Numbers,
    ends: Sequence[int] | Numbers,
    sizes: Sequence[int],
    *,
    tight: bool,
) -> list[int]:
    """Return what `memsched.solve.allocate.greedy.sweep` does.

    Raises:
        MemoryError: There is no room for it.
    """
    import numpy as np

    arrays = [np.ascontiguousarray(one, dtype=np.int64) for one in (begins, ends, sizes)]
    offsets = np.zeros(len(sizes), dtype=np.int64)
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (*arrays, offsets)]
    count = ctypes.c_int64(len(sizes))
    if core.memsched_sweep(*pointers[:3], count, ctypes.c_int32(tight), pointers[3]):
        raise MemoryError
    found: list[int] = offsets.tolist()
    return found


class CompiledAttempts:
    """Attempts at one problem by the compiled core."""

    def __init__(self, problem: PackingProblem, core: ctypes.CDLL) -> None:
        self._core, self._items = core, len(problem.widths)
        self._arrays = known = _Arrays()
        self._problem = _PackingArrays(
            len(problem.widths),
            problem.section_count,
            problem.irregular,
            known.longs(problem.shifts),
            known.longs(problem.widths),
            known.longs(problem.above),
            known.longs(problem.lowest),
            known.longs(problem.highest),
            known.longs(problem.alignments),
            known.longs(problem.slack),
            known.ints(problem.fixed),
            *known.lists(problem.sections),
            *known.lists(problem.meets),
            *known.lists(problem.twins),
        )

    def run(
        self, capacity: int, nodes: int, rule: int, prefer: Sequence[float], stop: Callable[[], bool]
    ) -> tuple[str, tuple[int, ...], int, int]:
        """Return how an attempt ended ("stopped" by ``stop``), positions, the least capacity, and the nodes made.

        Args:
            capacity: In the problem's units.
            nodes: Placements and refusals allowed.
            rule: Place of the rule for sections in `search`.
            prefer: A rank per item, lower first.

        Raises:
            MemoryError: There is no room for it.
        """
        callback = StopCallback(stop)
        positions = (ctypes.c_int64 * self._items)()
        least, made = ctypes.c_int64(), ctypes.c_int64()
        status = _STATUSES[
            self._core.memsched_packing_attempt(
                ctypes.byref(self._problem),
                ctypes.c_int64(capacity),
                ctypes.c_int32(rule),
                (ctypes.c_double * self._items)(*prefer),
                ctypes.c_int64(nodes),
                callback.pointer,
                positions,
                ctypes.byref(least),
                ctypes.byref(made),
            )
        ]
        callback.raise_again()
        if status == "no memory":
            raise MemoryError
        return status, tuple(positions), least.value, made.value


class _RebuildArrays(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("items", "sections")),
        *((name, ctypes.c_void_p) for name in ("widths", "above", "lowest", "areas", "sizes")),
        *((name, ctypes.c_void_p) for name in ("ranges_begin", "ranges", "meets_begin", "meets")),
    )


def rebuilt(
    core: ctypes.CDLL,
    problem: PackingProblem,
    ranks: tuple[Sequence[int], Sequence[int]],
    capacity: int,
    nodes: int,
    chance: int,
    stop: Callable[[], bool],
) -> tuple[str, tuple[int, ...], int]:
    """Return how rebuilding ended, as an attempt does, positions and the nodes made.

    Args:
        ranks: Per item by area and by width, lower first.
        capacity: In the problem's units.
        nodes: Items put back or left out, at most.
        chance: Where the numbers by chance begin, below 2^64.

    Raises:
        MemoryError: There is no room for it.
    """
    known, count = _Arrays(), len(problem.widths)
    ranges = [_ranges(live) for live in problem.sections]
    begins = itertools.accumulate((len(one) for one in ranges), initial=0)
    arrays = _RebuildArrays(
        count,
        problem.section_count,
        known.longs(problem.widths),
        known.longs(problem.above),
        known.longs(problem.lowest),
        known.ints(ranks[0]),
        known.ints(ranks[1]),
        known.ints(list(begins)),
        known.ints([end for one in ranges for pair in one for end in pair]),
        *known.lists(problem.meets),
    )
    callback = StopCallback(stop)
    positions, made = (ctypes.c_int64 * count)(), ctypes.c_int64()
    status = _STATUSES[
        core.memsched_rebuild(
            ctypes.byref(arrays),
            ctypes.c_int64(capacity),
            ctypes.c_uint64(chance),
            ctypes.c_int64(nodes),
            callback.pointer,
            positions,
            ctypes.byref(made),
        )
    ]
    callback.raise_again()
    if status == "no memory":
        raise MemoryError
    return status, tuple(positions), made.value


def _ranges(sections: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first section and the end of each run of ``sections``, which ascend."""
    result: list[tuple[int, int]] = []
    for section in sections:
        if result and result[-1][1] == section:
            result[-1] = (result[-1][0], section + 1)
        else:
            result.append((section, section + 1))
    return result
