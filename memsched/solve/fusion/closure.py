"""The lowest residue over the inner moments of a group of tasks: a minimum cut (maximum-flow closure)."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.frozen import FrozenValue

__all__ = ["FlowNetwork", "FusionGroup", "InnerBuffer", "lowest_inner_residue"]


class InnerBuffer(FrozenValue, frozen=True):
    """A buffer as a group of tasks sees it. Tasks are named by their place in the group.

    Attributes:
        size: Bytes.
        creator: The creating task; -1 for a buffer from outside the group.
        users: The tasks that read it.
        survives: Whether it is needed after the group too (or may be).
    """

    size: int
    creator: int
    users: tuple[int, ...]
    survives: bool


class FusionGroup(FrozenValue, frozen=True):
    """A group of tasks with the precedence among them, numbered topologically, and the buffers that it touches."""

    preds: tuple[tuple[int, ...], ...]
    buffers: tuple[InnerBuffer, ...]

    def change(self, done: int) -> int:
        """Return the residue after the tasks in the bitset ``done`` less the residue before the group, bytes."""
        total = 0
        for buffer in self.buffers:
            gone = not buffer.survives and all(done >> user & 1 for user in buffer.users)
            if buffer.creator < 0:
                total -= buffer.size if gone else 0
            elif done >> buffer.creator & 1 and not gone:
                total += buffer.size
        return total


def lowest_inner_residue(group: FusionGroup) -> int | None:
    """Return the least `FusionGroup.change` over the downsets that are neither empty nor everything; None without any.

    Every such downset holds a task without predecessors and lacks one without successors. For each pair of these a
    minimum cut gives the best downset between them. The source's side is the downset: an edge without limit from each
    task to its predecessors closes it. Each buffer, however many users it has, is one node. If its creator is on the
    source's side, but not all users are, its size is cut; a buffer from outside costs its size unless all users are on
    the source's side, which is its death seen from the other end.
    """
    count = len(group.preds)
    last = set(range(count)).difference(*group.preds)
    firsts = [task for task in range(count) if not group.preds[task]]
    best: int | None = None
    for first in firsts:
        for end in sorted(last):
            if first == end:
                continue
            value = _lowest_between(group, first, end)
            if value is not None and (best is None or value < best):
                best = value
    return best


def _lowest_between(group: FusionGroup, first: int, end: int) -> int | None:
    count = len(group.preds)
    source, sink = count + len(group.buffers), count + len(group.buffers) + 1
    unlimited = 1 + 2 * sum(buffer.size for buffer in group.buffers)
    network = FlowNetwork(sink + 1)
    network.connect(source, first, unlimited)
    network.connect(end, sink, unlimited)
    for task, befores in enumerate(group.preds):
        for before in befores:
            network.connect(task, before, unlimited)
    dying = 0
    for node, buffer in enumerate(group.buffers, start=count):
        if not buffer.size or (buffer.creator < 0 and buffer.survives):
            continue
        if buffer.creator < 0:
            dying += buffer.size
            network.connect(source, node, buffer.size)
        elif buffer.survives:
            network.connect(buffer.creator, sink, buffer.size)
            continue
        else:
            network.connect(buffer.creator, node, buffer.size)
        for user in buffer.users:
            network.connect(node, user, unlimited)
    flow = network.maximum_flow(source, sink)
    return None if flow >= unlimited else flow - dying


class FlowNetwork:
    """Maximum flow by blocking flows on level graphs (Dinic), on integers, without recursion."""

    def __init__(self, nodes: int) -> None:
        self._edges: list[list[int]] = [[] for _ in range(nodes)]
        self._target: list[int] = []
        self._capacity: list[int] = []

    def connect(self, start: int, target: int, capacity: int) -> None:
        """Add an edge."""
        self._edges[start].append(len(self._target))
        self._edges[target].append(len(self._target) + 1)
        self._target += (target, start)
        self._capacity += (capacity, 0)

    def maximum_flow(self, source: int, sink: int) -> int:
        """Send all flow that can be sent and return how much that is."""
        total = 0
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                return total
            position = [0] * len(levels)
            while pushed := self._push(source, sink, levels, position):
                total += pushed

    def source_side(self, source: int) -> list[bool]:
        """Return per node, after `maximum_flow`, whether it is on the source's side of the smallest minimum cut."""
        return [level >= 0 for level in self._levels(source)]

    def _levels(self, source: int) -> list[int]:
        levels = [-1] * len(self._edges)
        levels[source] = 0
        frontier = [source]
        for node in frontier:
            for edge in self._edges[node]:
                target = self._target[edge]
                if self._capacity[edge] and levels[target] < 0:
                    levels[target] = levels[node] + 1
                    frontier.append(target)
        return levels

    def _push(self, source: int, sink: int, levels: Sequence[int], position: list[int]) -> int:
        """Send flow along one path of rising levels; 0 when none is left."""
        path: list[int] = []
        node = source
        while node != sink:
            edges = self._edges[node]
            while position[node] < len(edges):
                edge = edges[position[node]]
                if self._capacity[edge] and levels[self._target[edge]] == levels[node] + 1:
                    break
                position[node] += 1
            else:
                if not path:
                    return 0
                edge = path.pop()
                node = self._target[edge ^ 1]
                position[node] += 1
                continue
            path.append(edge)
            node = self._target[edge]
        pushed = min(self._capacity[edge] for edge in path)
        for edge in path:
            self._capacity[edge] -= pushed
            self._capacity[edge ^ 1] += pushed
        return pushed
