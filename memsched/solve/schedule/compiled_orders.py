"""The depth-first orders of graphs of very many ops by the compiled core: the same as those in Python."""

from __future__ import annotations

import ctypes

from memsched.core.library import library
from memsched.graph.uses import Uses

__all__ = ["post_order"]


def post_order(uses: Uses | None, *, last_first: bool) -> tuple[int, ...] | None:
    """Return an order in which each op follows its predecessors; None where the core or the arrays are missing.

    A depth-first walk against the edges, from the ops that no other needs.

    Args:
        last_first: Of several, the last of the file comes first; else the first does.

    Raises:
        MemoryError: There is no room for it.
    """
    core = library() if uses is not None else None
    if core is None or uses is None:
        return None
    import numpy as np

    befores, begins = uses.befores
    order = np.empty(len(begins) - 1, dtype=np.int64)
    given, out = (ctypes.c_void_p(one.ctypes.data) for one in (begins, befores)), ctypes.c_void_p(order.ctypes.data)
    if core.memsched_post_order(*given, ctypes.c_int64(len(order)), ctypes.c_int32(last_first), out):
        raise MemoryError
    return tuple(order.tolist())
