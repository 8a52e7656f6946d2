"""The buffers of a schedule as arrays, where they are very many and each lies where it likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Schedule
from memsched.graph.uses import Uses, steps_of

if TYPE_CHECKING:
    from memsched.graph.uses import Numbers

__all__ = ["PlacedColumns", "columns_of"]

_Rows = list[tuple[int, int, int, tuple[int, ...]]]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedColumns:
    """What `memsched.solve.allocate.buffers.buffers` returns, column by column, in the same order.

    Attributes:
        begins: Per buffer the first step that needs it.
        ends: Per buffer the last step that needs it, included.
        sizes: Bytes, not rounded.
        named: Returns per buffer the tensors that share it: of most orders only the sizes are asked for.
    """

    begins: Numbers
    ends: Numbers
    sizes: Numbers
    named: Callable[[], Sequence[tuple[int, ...]]]


def columns_of(graph: Graph, schedule: Schedule, storage: Storage, uses: Uses) -> PlacedColumns | None:
    """Return the buffers of ``schedule``; None where a tensor consists of several, whose distances are then fixed."""
    import numpy as np

    if max(map(len, storage.buffers_of), default=0) > 1:
        return None
    first, last = uses.lifetimes(steps_of(schedule.order))
    begins, ends = np.maximum(first, 0), np.minimum(last, len(schedule.order) - 1)
    made, read = _merged(storage, schedule)
    # Each member of an in-place chain is created where the one before it dies, so that the last one dies last.
    head = _heads(len(first), made, read)
    ending = np.setdiff1d(made, read, assume_unique=True)
    ends[head[ending]] = ends[ending]
    placed = (uses.sizes > 0) & (last >= 0)
    placed[made] = False
    heads = np.flatnonzero(placed)
    rows = _beside(graph, schedule, uses)
    more = [np.array([row[column] for row in rows], dtype=np.int64) for column in range(3)]
    columns = [np.concatenate((one[heads], added)) for one, added in zip((begins, ends, uses.sizes), more, strict=True)]
    beside = np.array([row[3][0] if row[3] else -1 for row in rows], dtype=np.int64)
    firsts = np.concatenate((np.array(storage.tensor_of, dtype=np.int64)[heads], beside))
    order = np.lexsort((firsts, columns[1], columns[0]))

    def named() -> list[tuple[int, ...]]:
        tensors = _tensors(graph, schedule, storage, (made[np.argsort(first[made], kind="stable")], head))
        every = [tensors[buffer] for buffer in heads.tolist()] + [row[3] for row in rows]
        return [every[place] for place in order.tolist()]

    begins, ends, sizes = (column[order] for column in columns)
    return PlacedColumns(begins, ends, sizes, named)


def _merged(storage: Storage, schedule: Schedule) -> tuple[Numbers, Numbers]:
    """Return the buffers that are written in place of others, and those."""
    import numpy as np

    buffers_of, choices = storage.buffers_of, schedule.in_place
    made = np.array([buffers_of[choice.output][0] for choice in choices], dtype=np.int64)
    return made, np.array([buffers_of[choice.input][0] for choice in choices], dtype=np.int64)


def _heads(count: int, made: Numbers, read: Numbers) -> Numbers:
    """Return per buffer the first one of its in-place chain."""
    import numpy as np

    head = np.arange(count)
    head[made] = read
    while len(made):
        # Twice as far each time.
        further = head[head[made]]
        moved = further != head[made]
        head[made] = further
        made = made[moved]
    return head


def _tensors(
    graph: Graph, schedule: Schedule, storage: Storage, chained: tuple[Numbers, Numbers]
) -> list[tuple[int, ...]]:
    """Return the tensors of each buffer, and at the first one of an in-place chain those of all its members.

    Args:
        chained: The buffers that are written in place, by the step that makes them, and per buffer the first one of its
            chain.
    """
    tensors: list[tuple[int, ...]] = list(zip(storage.tensor_of))
    for buffer, inside in _shown(graph, schedule, storage).items():
        tensors[buffer] = inside
    made, head = chained
    members: dict[int, list[int]] = {}
    for buffer, first in zip(made.tolist(), head[made].tolist(), strict=True):
        members.setdefault(first, [first]).append(buffer)
    for first, chain in members.items():
        tensors[first] = tuple([tensor for buffer in chain for tensor in tensors[buffer]])
    return tensors


def _shown(graph: Graph, schedule: Schedule, storage: Storage) -> dict[int, tuple[int, ...]]:
    """Return the tensors of the buffers that views lie in, by the step that makes them."""
    found: dict[int, tuple[int, ...]] = {}
    variables = set(graph.variables)
    if len(storage.tensor_of) == len(storage.buffers_of):
        return found  # each tensor has a buffer of its own
    for number in schedule.order:
        op = graph.ops[number]
        for output in op.outputs if op.views else ():
            if output in variables:
                continue
            (buffer,) = storage.buffers_of[output]
            made = storage.tensor_of[buffer]
            if made != output:
                found[buffer] = (*found.get(buffer, (made,)), output)
    return found


def _beside(graph: Graph, schedule: Schedule, uses: Uses) -> _Rows:
    """Return what needs an address beside the buffers: variables, and what ops need beside their tensors."""
    rows: _Rows = [
        (0, max(len(graph.ops) - 1, 0), graph.tensors[tensor].size, (tensor,))
        for tensor in dict.fromkeys(graph.variables)
        if graph.tensors[tensor].size and not graph.tensors[tensor].external
    ]
    for step, number in enumerate(schedule.order) if uses.workspace.any() else ():
        size = graph.ops[number].workspace
        if size:
            rows.append((step, step, size, ()))
    return rows
