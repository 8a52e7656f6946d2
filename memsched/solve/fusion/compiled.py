"""The best order inside a group by the compiled core: the same orders, peaks and states as `inner` finds."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

from memsched.base.units import MOST_BYTES
from memsched.core.library import Core, library
from memsched.solve.fusion.closure import FusionGroup
from memsched.solve.fusion.inner import InnerCosts, InnerOrder, best_inner_order, gains_and_losses

__all__ = ["inner_order", "inner_order_by_core"]

_STATUSES = ("ordered", "given up", "no memory")

_Losses = Sequence[Sequence[tuple[int, int]]]


class _GroupArrays(ctypes.Structure):
    _fields_ = (
        ("tasks", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("gains", "excesses", "losses_begin", "losses", "losses_needs")),
        *((name, ctypes.c_void_p) for name in ("falls_begin", "falls", "falls_needs", "befores")),
    )


def inner_order(group: FusionGroup, costs: InnerCosts, max_states: int) -> InnerOrder:
    """Return what `best_inner_order` does: by the core, unless there is none or a group is large or in place."""
    suits = 0 < len(group.preds) <= Core.WORD_BITS and not any(costs.pairs)
    core = library() if suits and sum(costs.sizes) + sum(costs.top) < MOST_BYTES else None
    if core is None:
        return best_inner_order(group, costs, max_states)
    return inner_order_by_core(group, costs, max_states, core)


def inner_order_by_core(group: FusionGroup, costs: InnerCosts, max_states: int, core: ctypes.CDLL) -> InnerOrder:
    """Return what `best_inner_order` does, for up to 64 tasks without in-place pairs.

    Raises:
        MemoryError: There is no room for it.
    """
    count = len(group.preds)
    gains, losses = gains_and_losses(group)
    falls = [[(costs.sizes[b], costs.needs[b]) for b in before if b in costs.needs] for before in costs.before]
    befores = [sum(1 << before for before in preds) for preds in group.preds]
    arrays: tuple[ctypes.Array[Any], ...] = (
        *((ctypes.c_int64 * count)(*numbers) for numbers in (gains, costs.top)),
        *_lists(losses),
        *_lists(falls),
        (ctypes.c_uint64 * count)(*befores),
    )
    problem = _GroupArrays(count, *(ctypes.addressof(array) for array in arrays))
    order, peak, states = (ctypes.c_int32 * count)(), ctypes.c_int64(), ctypes.c_int64()
    told = ctypes.byref(problem), ctypes.c_int64(max_states), order, ctypes.byref(peak), ctypes.byref(states)
    status = _STATUSES[core.memsched_inner_order(*told)]
    if status == "no memory":
        raise MemoryError
    return InnerOrder(tuple(order) if status == "ordered" else None, peak.value, states.value)


def _lists(
    lists: _Losses,
) -> tuple[ctypes.Array[ctypes.c_int32], ctypes.Array[ctypes.c_int64], ctypes.Array[ctypes.c_uint64]]:
    """Return where each task's begins, sizes in bytes, and the tasks that must be done by then."""
    begins = list(itertools.accumulate((len(one) for one in lists), initial=0))
    flat = [pair for one in lists for pair in one]
    return (
        (ctypes.c_int32 * len(begins))(*begins),
        (ctypes.c_int64 * len(flat))(*(size for size, _ in flat)),
        (ctypes.c_uint64 * len(flat))(*(needs for _, needs in flat)),
    )
