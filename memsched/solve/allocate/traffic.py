"""How many bytes a schedule writes and reads in each of its buffers.

A tensor is written once by what produces it and read once by each op that reads it, whole. A view moves nothing: who
reads it reads the bytes that it shows. Graph inputs are written, and graph outputs read, by the caller; variables are
written by the ops that produce them. A workspace counts as written once and read once.
"""

from __future__ import annotations

from collections.abc import Sequence

from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Op, Schedule
from memsched.solve.allocate.buffers import Buffer

__all__ = ["traffic_of"]


def traffic_of(graph: Graph, schedule: Schedule, wanted: Sequence[Buffer], storage: Storage) -> tuple[int, ...]:
    """Return per buffer of ``wanted`` the bytes that are written to it and read from it in one inference."""
    traffic = _per_storage_buffer(graph, storage)
    place_of = {tensor: index for index, buffer in enumerate(wanted) for tensor in buffer.tensors}
    result = [0] * len(wanted)
    for tensor, moved in zip(storage.tensor_of, traffic, strict=True):
        if tensor in place_of:
            result[place_of[tensor]] += moved
    variables = set(graph.variables)
    for op in graph.ops:
        for tensor in (*dict.fromkeys(op.inputs), *op.outputs):
            if tensor in variables and tensor in place_of:
                result[place_of[tensor]] += graph.tensors[tensor].size
    for index, buffer in enumerate(wanted):
        if not buffer.tensors:
            result[index] = 2 * graph.ops[schedule.order[buffer.first_step]].workspace
    return tuple(result)


def _per_storage_buffer(graph: Graph, storage: Storage) -> list[int]:
    """Return per buffer of ``storage`` the bytes moved in it."""
    traffic = [0] * len(storage.sizes)
    shown: list[dict[int, int]] = [{} for _ in graph.tensors]

    def count(tensor: int) -> None:
        for buffer, moved in shown[tensor].items():
            traffic[buffer] += moved

    for tensor in graph.inputs:
        shown[tensor] = {buffer: storage.sizes[buffer] for buffer in storage.buffers_of[tensor]}
        count(tensor)
    for op in graph.ops:
        for output in op.outputs:
            shown[output] = _bytes_shown(graph, storage, op, output, shown)
        viewed = {read for _, read in op.views}
        moving = not op.views or any(output not in {made for made, _ in op.views} for output in op.outputs)
        for tensor in dict.fromkeys(op.inputs):
            if moving or tensor not in viewed:
                count(tensor)
        for output in op.outputs:
            inner = {buffer for made, read in op.views if made == output for buffer in shown[read]}
            for buffer, moved in shown[output].items():
                if buffer not in inner:
                    traffic[buffer] += moved
    for tensor in graph.outputs:
        count(tensor)
    return traffic


def _bytes_shown(
    graph: Graph, storage: Storage, op: Op, output: int, shown: Sequence[dict[int, int]]
) -> dict[int, int]:
    """Return how many bytes of which buffers a reader of ``output`` reads."""
    buffers = storage.buffers_of[output]
    size = graph.tensors[output].size
    if len(buffers) == 1:
        return {buffers[0]: min(size, storage.sizes[buffers[0]])}
    left = size
    result: dict[int, int] = {}
    for made, read in op.views:
        for buffer, moved in shown[read].items() if made == output else ():
            result[buffer] = min(result.get(buffer, 0) + moved, storage.sizes[buffer])
    for buffer in buffers:
        result.setdefault(buffer, storage.sizes[buffer])
    # A slice of a concatenation shows less than all of it; the graph does not say which pieces, so the first ones
    # count.
    for buffer, moved in result.items():
        result[buffer] = min(moved, left)
        left -= result[buffer]
    return result
