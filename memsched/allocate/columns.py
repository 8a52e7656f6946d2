"""The buffers of a schedule as arrays, where they are very many and each lies where it likes."""

from __future__ import annotations

from collections.abc import Sequence
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
    """What `memsched.allocate.buffers.buffers` returns, column by column, in the same order.

    Attributes:
        begins: Per buffer the first step that needs it.
        ends: Per buffer the last step that needs it, included.
        sizes: Bytes, not rounded.
        tensors: The tensors that share it.
    """

    begins: Numbers
    ends: Numbers
    sizes: Numbers
    tensors: Sequence[tuple[int, ...]]


def columns_of(graph: Graph, schedule: Schedule, storage: Storage, uses: Uses) -> PlacedColumns | None:
    """Return the buffers of ``schedule``; None where a tensor consists of several, whose distances are then fixed."""
    import numpy as np

    if max(map(len, storage.buffers_of), default=0) > 1:
        return None
    steps = steps_of(schedule.order)
    first, last = uses.lifetimes(steps)
    begins, ends = np.maximum(first, 0), np.minimum(last, len(schedule.order) - 1)
    chained = _chains(storage, schedule, steps)
    # Each member is created where the one before it dies, so that the last one dies last.
    ends[list(chained)] = ends[[members[-1] for members in chained.values()]]
    placed = (uses.sizes > 0) & (last >= 0)
    placed[[buffer for members in chained.values() for buffer in members[1:]]] = False
    tensors: list[tuple[int, ...]] = list(zip(storage.tensor_of))
    for buffer, inside in _shown(graph, schedule, storage).items():
        tensors[buffer] = inside
    for head, members in chained.items():
        tensors[head] = tuple([tensor for buffer in members for tensor in tensors[buffer]])
    heads = np.flatnonzero(placed)
    rows = _beside(graph, schedule, uses)
    more = [np.array([row[column] for row in rows], dtype=np.int64) for column in range(3)]
    columns = [np.concatenate((one[heads], added)) for one, added in zip((begins, ends, uses.sizes), more, strict=True)]
    named = [tensors[head] for head in heads.tolist()] + [row[3] for row in rows]
    beside = np.array([row[3][0] if row[3] else -1 for row in rows], dtype=np.int64)
    firsts = np.concatenate((np.array(storage.tensor_of, dtype=np.int64)[heads], beside))
    order = np.lexsort((firsts, columns[1], columns[0]))
    begins, ends, sizes = (column[order] for column in columns)
    return PlacedColumns(begins, ends, sizes, [named[place] for place in order.tolist()])


def _chains(storage: Storage, schedule: Schedule, steps: Numbers) -> dict[int, list[int]]:
    """Return the buffers of each in-place chain by its first one."""
    import numpy as np

    head: dict[int, int] = {}
    found: dict[int, list[int]] = {}
    made_at = steps[np.array([choice.op for choice in schedule.in_place], dtype=np.int64)]
    by_step: list[int] = np.argsort(made_at, kind="stable").tolist()
    for number in by_step:
        choice = schedule.in_place[number]
        (created,), (read,) = storage.buffers_of[choice.output], storage.buffers_of[choice.input]
        head[created] = head.get(read, read)
        found.setdefault(head[created], [head[created]]).append(created)
    return found


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
