"""What needs an address: the buffers of a schedule, with in-place chains merged, and workspaces."""

from __future__ import annotations

from dataclasses import dataclass

from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Schedule

__all__ = ["Buffer", "buffers"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that one address is chosen for.

    Attributes:
        size: Bytes, not rounded.
        first_step: The first step that needs them.
        last_step: The last step that needs them, included.
        tensors: The tensors that share them (views and in-place chains), by first use; empty for an op's workspace.
    """

    size: int
    first_step: int
    last_step: int
    tensors: tuple[int, ...]


def buffers(graph: Graph, schedule: Schedule, storage: Storage | None = None) -> tuple[Buffer, ...]:
    """Return the buffers of ``schedule``, by first step.

    Members of an in-place chain with lifetimes [a, b] and [b, c] are one buffer [a, c]. A tensor that consists of
    several buffers (a concatenation of part views) is in the one that holds its own part, if it has any. What costs
    nothing (external tensors, zero sizes, inputs that nobody reads) needs no address. In linear time.
    """
    storage = storage or Storage.of(graph)
    step_of = [0] * len(graph.ops)
    for step, op in enumerate(schedule.order):
        step_of[op] = step
    first, last = _lifetimes(storage, step_of)
    chain = _chains(storage, schedule)
    shown: list[list[int]] = [[] for _ in storage.sizes]
    for tensor in _by_production(graph, schedule):
        places = storage.buffers_of[tensor]
        if len(places) == 1:
            shown[places[0]].append(tensor)
        else:
            for place in places:
                if storage.tensor_of[place] == tensor:
                    shown[place].append(tensor)
    members: dict[int, list[int]] = {}
    # One number per lifetime sorts in half the time of pairs.
    steps = len(graph.ops) + 2
    ranks = [begin * steps + end for begin, end in zip(first, last, strict=True)]
    for buffer in sorted(range(len(storage.sizes)), key=ranks.__getitem__):
        if storage.sizes[buffer] and last[buffer] >= 0:
            members.setdefault(chain[buffer], []).append(buffer)
    result = []
    for chained in members.values():
        head = chained[0]
        if len(chained) == 1:
            result.append(Buffer(storage.sizes[head], first[head], last[head], tuple(shown[head])))
        else:
            end = max([last[buffer] for buffer in chained])
            tensors = tuple([tensor for buffer in chained for tensor in shown[buffer]])
            result.append(Buffer(storage.sizes[head], first[head], end, tensors))
    result += _always_live(graph)
    result += [Buffer(op.workspace, step_of[i], step_of[i], ()) for i, op in enumerate(graph.ops) if op.workspace]
    return tuple(sorted(result, key=lambda b: (b.first_step, b.last_step, b.tensors)))


def _lifetimes(storage: Storage, step_of: list[int]) -> tuple[list[int], list[int]]:
    end = max(len(step_of) - 1, 0)
    first = [step_of[op] if op >= 0 else 0 for op in storage.creator]
    last = []
    for buffer, users in enumerate(storage.users):
        if storage.kept[buffer]:
            last.append(end)
        elif len(users) == 1:
            last.append(step_of[users[0]])
        elif users:
            last.append(max([step_of[op] for op in users]))
        else:
            last.append(first[buffer] if storage.creator[buffer] >= 0 else -1)
    return first, last


def _chains(storage: Storage, schedule: Schedule) -> list[int]:
    """Return per buffer the first buffer of its in-place chain."""
    chain = list(range(len(storage.sizes)))
    step_of = {op: step for step, op in enumerate(schedule.order)}
    for choice in sorted(schedule.in_place, key=lambda choice: step_of[choice.op]):
        (created,), (read,) = storage.buffers_of[choice.output], storage.buffers_of[choice.input]
        chain[created] = chain[read]
    return chain


def _by_production(graph: Graph, schedule: Schedule) -> list[int]:
    """Return the tensors by the step that makes them."""
    variables = set(graph.variables)
    given = [tensor for tensor in dict.fromkeys(graph.inputs) if tensor not in variables]
    return given + [tensor for op in schedule.order for tensor in graph.ops[op].outputs if tensor not in variables]


def _always_live(graph: Graph) -> list[Buffer]:
    end = max(len(graph.ops) - 1, 0)
    return [
        Buffer(graph.tensors[tensor].size, 0, end, (tensor,))
        for tensor in dict.fromkeys(graph.variables)
        if graph.tensors[tensor].size and not graph.tensors[tensor].external
    ]
