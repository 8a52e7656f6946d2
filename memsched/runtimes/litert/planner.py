"""LiteRT's own planner, repeated: how large the arena becomes in which it lays tensors.

Source: ``tflite/arena_planner.cc`` and ``simple_memory_arena.cc``. What lives from the first operator to the end comes
first; the rest follows by falling size, of equal sizes the earlier one first, each in the smallest gap that is large
enough between those placed that live at the same time, and behind them where there is none. Where the size of an output
is known in operation only, what follows that operator is planned later, around what is placed by then.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.lowering.litert_kernels import ALIGNMENT

__all__ = ["MOST_REQUESTS", "LiteRtRequest", "arena_bytes"]

MOST_REQUESTS = 5_000
"""Buffers up to which the planner is repeated: each looks at all before it."""


class LiteRtRequest(FrozenValue, frozen=True):
    """A buffer that the planner is asked for.

    Attributes:
        size: Bytes.
        first: The operator from which it is needed.
        last: The operator until which it is needed, included.
        always: It is needed from the first operator to the end.
        stage: How often LiteRT has planned before.
    """

    size: int
    first: int
    last: int
    always: bool = False
    stage: int = 0


def arena_bytes(requests: Sequence[LiteRtRequest]) -> int:
    """Return the bytes of LiteRT's arena for at most `MOST_REQUESTS` buffers; quadratic in their number."""
    order = sorted(requests, key=lambda one: (-1, 0, 0) if one.always else (one.stage, -one.size, one.first))
    placed: list[tuple[int, int, int, int]] = []
    height = 0
    for request in order:
        if not request.size:
            continue
        offset = _best_gap(request, placed)
        bisect.insort(placed, (offset, offset + request.size, request.first, request.last))
        height = max(height, offset + request.size)
    return height


def _best_gap(request: LiteRtRequest, placed: Sequence[tuple[int, int, int, int]]) -> int:
    current, best, fit = 0, -1, float("inf")
    for offset, end, first, last in placed:
        if last < request.first or first > request.last:
            continue
        start = -(-current // ALIGNMENT) * ALIGNMENT
        if start + request.size <= offset and offset - start < fit:
            best, fit = start, offset - current
        current = max(current, end)
        if not fit:
            break
    return best if best >= 0 else -(-current // ALIGNMENT) * ALIGNMENT
