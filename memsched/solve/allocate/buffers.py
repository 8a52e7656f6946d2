"""What needs an address: the buffers of a schedule, with in-place chains merged, and workspaces.

The pieces of a concatenation that lie inside it are buffers with lifetimes of their own, at fixed distances from each
other: a group, which is one block to the allocators.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from memsched.base.errors import GraphError
from memsched.base.frozen import FrozenValue
from memsched.graph.addresses import own_range, view_distances
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Schedule
from memsched.graph.packing import Block, BlockPart

__all__ = ["Buffer", "PackingInput", "blocks", "buffers"]


class Buffer(FrozenValue, frozen=True):
    """Bytes that one address is chosen for.

    Attributes:
        size: Bytes, not rounded.
        first_step: The first step that needs them.
        last_step: The last step that needs them, included.
        tensors: The tensors that share them (views and in-place chains), by first use; empty for an op's workspace.
        group: The same number for buffers whose distances are fixed; None for a buffer that lies where it likes.
        distance: Bytes from the beginning of the group.
    """

    size: int
    first_step: int
    last_step: int
    tensors: tuple[int, ...]
    group: int | None = None
    distance: int = 0


class PackingInput(FrozenValue, frozen=True):
    """Buffers as the allocators pack them.

    Attributes:
        blocks: One per buffer without a group, and one per group.
        block_of: Per buffer the index of its block; its address is the block's plus its distance.
        sizes: Per buffer its bytes, rounded up to the alignment or to where the next piece of its group begins.
    """

    blocks: tuple[Block, ...]
    block_of: tuple[int, ...]
    sizes: tuple[int, ...]


def blocks(wanted: Sequence[Buffer], alignment: int) -> PackingInput:
    """Return the blocks that hold the buffers ``wanted``; addresses are multiples of ``alignment`` bytes."""
    sizes = [-(-buffer.size // alignment) * alignment for buffer in wanted]
    found: list[Block] = []
    block_of: list[int] = []
    members: dict[int, list[int]] = {}
    for index, buffer in enumerate(wanted):
        if buffer.group is None or buffer.group not in members:
            found.append(Block.whole(sizes[index], buffer.first_step, buffer.last_step + 1, alignment))
            block_of.append(len(found) - 1)
        else:
            block_of.append(block_of[members[buffer.group][0]])
        if buffer.group is not None:
            members.setdefault(buffer.group, []).append(index)
    for group in members.values():
        begins = sorted({wanted[index].distance for index in group})
        following = dict(itertools.pairwise(begins))
        parts = []
        for index in group:
            buffer = wanted[index]
            low = buffer.distance
            high = min(-(-(low + buffer.size) // alignment) * alignment, following.get(low, 1 << 62))
            sizes[index] = max(high - low, buffer.size)
            parts.append(BlockPart(buffer.first_step, buffer.last_step + 1, low, low + sizes[index]))
        found[block_of[group[0]]] = Block(max(part.high for part in parts), tuple(parts), alignment)
    return PackingInput(tuple(found), tuple(block_of), tuple(sizes))


def buffers(graph: Graph, schedule: Schedule, storage: Storage | None = None) -> tuple[Buffer, ...]:
    """Return the buffers of ``schedule``, by first step.

    Members of an in-place chain with lifetimes [a, b] and [b, c] are one buffer [a, c]. A tensor that consists of
    several buffers (a concatenation of part views) is in the one that holds its own part, if it has any. What costs
    nothing (external tensors, zero sizes, inputs that no op reads) needs no address. In linear time.

    Raises:
        GraphError: The views of ``graph`` contradict each other: no addresses fit them.
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
    grouped = _Groups.of(graph, storage, chain, list(members)).found
    result = []
    for number, chained in members.items():
        head = chained[0]
        if len(chained) == 1:
            one = Buffer(storage.sizes[head], first[head], last[head], tuple(shown[head]))
        else:
            end = max([last[buffer] for buffer in chained])
            tensors = tuple([tensor for buffer in chained for tensor in shown[buffer]])
            one = Buffer(storage.sizes[head], first[head], end, tensors)
        if number in grouped:
            group, distance = grouped[number]
            one = replace(one, group=group, distance=distance)
        result.append(one)
    if grouped:
        _check_groups(graph, result)
    result += _always_live(graph)
    result += [Buffer(op.workspace, step_of[i], step_of[i], ()) for i, op in enumerate(graph.ops) if op.workspace]
    return tuple(sorted(result, key=lambda b: (b.first_step, b.last_step, b.tensors)))


class _Groups:
    """Buffers tied to each other at fixed distances: a forest in which each knows its distance to the one above it."""

    def __init__(self, graph: Graph, chain: Sequence[int]) -> None:
        self._graph = graph
        self._chain = chain
        self._above: dict[int, tuple[int, int]] = {}
        self.found: dict[int, tuple[int, int]] = {}
        """Per buffer in a group of several: the group's number and the distance from its lowest buffer."""

    @staticmethod
    def of(graph: Graph, storage: Storage, chain: Sequence[int], placed: Sequence[int]) -> _Groups:
        """Tie what concatenations hold; ``placed`` are the buffers that need an address, in their order."""
        groups = _Groups(graph, chain)
        if not any(len(places) > 1 for places in storage.buffers_of):
            return groups
        groups._tie_all(storage)
        members: dict[int, list[tuple[int, int]]] = {}
        for buffer in placed:
            root, distance = groups._root(buffer)
            members.setdefault(root, []).append((buffer, distance))
        for number, group in enumerate([group for group in members.values() if len(group) > 1]):
            lowest = min(distance for _, distance in group)
            groups.found.update({buffer: (number, distance - lowest) for buffer, distance in group})
        return groups

    def _tie_all(self, storage: Storage) -> None:
        graph, variables = self._graph, set(self._graph.variables)
        # Per tensor a buffer and the tensor's distance from its beginning.
        place = [(self._chain[places[0]], 0) if places else None for places in storage.buffers_of]
        for op in graph.ops:
            fresh: dict[int, None] = {}
            for output, read, distance in view_distances(graph, op) if op.views else ():
                source = place[read]
                if output in variables or source is None:
                    continue
                here = source[0], source[1] + distance
                if not storage.sizes[source[0]]:
                    # What costs nothing ties nothing, but shows where its views would lie.
                    place[output] = here if output not in fresh else place[output]
                    continue
                known = place[output]
                if output in fresh and known is not None:
                    self._tie(known, here, output)
                else:
                    fresh[output] = None
                    place[output] = here
            for output in fresh:
                at, own = place[output], storage.buffers_of[output][-1]
                if at is not None and storage.tensor_of[own] == output and storage.sizes[own]:
                    self._tie(at, (self._chain[own], -own_range(graph, op, output)[0]), output)

    def _root(self, buffer: int) -> tuple[int, int]:
        """Return the topmost buffer of a group and the distance of ``buffer`` from it."""
        total = 0
        path: list[tuple[int, int]] = []
        while buffer in self._above:
            path.append((buffer, total))
            above, distance = self._above[buffer]
            buffer, total = above, total + distance
        for one, before in path:
            self._above[one] = buffer, total - before
        return buffer, total

    def _tie(self, first: tuple[int, int], second: tuple[int, int], tensor: int) -> None:
        """Fix that both places, each a buffer and a distance from its beginning, are one address."""
        root, distance = self._root(first[0])
        other, its_distance = self._root(second[0])
        # address(root) + distance + first[1] == address(other) + its_distance + second[1]
        between = distance + first[1] - its_distance - second[1]
        if root != other:
            self._above[other] = root, between
        elif between:
            name = self._graph.tensors[tensor].name
            raise GraphError(
                f"the pieces of '{name}' cannot lie inside it: other views fix other distances",
                code="pieces-unplaceable",
            )


def _check_groups(graph: Graph, found: Sequence[Buffer]) -> None:
    """No two buffers of a group may be the same bytes while both are live: no address would help."""
    groups: dict[int, list[Buffer]] = {}
    for buffer in found:
        if buffer.group is not None:
            groups.setdefault(buffer.group, []).append(buffer)
    for group in groups.values():
        group.sort(key=lambda one: one.distance)
        for index, low in enumerate(group):
            for high in itertools.takewhile(lambda one: one.distance < low.distance + low.size, group[index + 1 :]):  # noqa: B023
                if low.first_step <= high.last_step and high.first_step <= low.last_step:
                    names = f"'{graph.tensors[low.tensors[0]].name}' and '{graph.tensors[high.tensors[0]].name}'"
                    raise GraphError(f"{names} are views that share bytes while both are needed", code="views-conflict")


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
