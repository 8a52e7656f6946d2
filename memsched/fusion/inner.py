"""The best order inside a group of tasks that is executed as one: exact, and bounded in its effort."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memsched.fusion.closure import FusionGroup
from memsched.graph.liveness import match_in_place

__all__ = ["InnerCosts", "InnerOrder", "best_inner_order"]


@dataclass(frozen=True, slots=True)
class InnerCosts:
    """What the tasks of a group cost, by their place in the group (see `memsched.fusion.quotient`).

    Attributes:
        top: Per task its excess when nothing dies in it, bytes.
        before: Per task the buffers that lower its excess when they die.
        pairs: Per task the in-place pairs (created, read).
        needs: Per buffer that can die the tasks that must have been executed, as a bitset.
        sizes: Bytes per buffer.
    """

    top: Sequence[int]
    before: Sequence[Sequence[int]]
    pairs: Sequence[Sequence[tuple[int, int]]]
    needs: Mapping[int, int]
    sizes: Sequence[int]

    def excess(self, task: int, after: int) -> int:
        """Return the excess of ``task`` when its execution completes the set ``after``, bytes."""
        result = self.top[task]
        for buffer in self.before[task]:
            if buffer in self.needs and not self.needs[buffer] & ~after:
                result -= self.sizes[buffer]
        if self.pairs[task]:
            possible = [pair for pair in self.pairs[task] if pair[1] in self.needs and not self.needs[pair[1]] & ~after]
            result -= sum(self.sizes[created] for created, _ in match_in_place(possible, self.sizes))
        return result


@dataclass(frozen=True, slots=True)
class InnerOrder:
    """An order of a group's tasks.

    Attributes:
        order: None when the search was given up.
        peak: Bytes above the residue before the group; a lower bound when the search was given up.
        states: Downsets expanded.
    """

    order: tuple[int, ...] | None
    peak: int
    states: int


def best_inner_order(group: FusionGroup, costs: InnerCosts, max_states: int) -> InnerOrder:
    """Return an order of least peak, or none when the search is not finished after ``max_states`` downsets.

    Downsets are taken in order of the peak that reaching them needs, so the first complete one is best. A ready task
    that neither raises the residue nor the peak is executed without branching: doing so earlier never costs more, as
    its change and its excess only fall while others run (`memsched.graph.liveness`).
    """
    count = len(group.preds)
    everything = (1 << count) - 1
    befores = [sum(1 << before for before in preds) for preds in group.preds]
    gains, losses = _changes(group)
    parents: dict[int, tuple[int, int]] = {}
    # Entries: peak, tasks left, executed set, residue, set before, task that led here.
    heap = [(0, count, 0, 0, 0, -1)]
    closed: set[int] = set()
    peak = 0
    while len(closed) < max_states:
        peak, left, done, residue, parent, last = heapq.heappop(heap)
        if done in closed:
            continue
        closed.add(done)
        parents[done] = (parent, last)
        if done == everything:
            return InnerOrder(_path(parents, done), peak, len(closed))
        moves = []
        for task in range(count):
            if done >> task & 1 or befores[task] & ~done:
                continue
            after = done | 1 << task
            reached = max(peak, residue + costs.excess(task, after))
            change = gains[task] - sum(size for size, needs in losses[task] if not needs & ~after)
            moves.append((reached, left - 1, after, residue + change, done, task))
            if reached == peak and change <= 0:
                moves = moves[-1:]
                break
        for move in moves:
            heapq.heappush(heap, move)
    return InnerOrder(None, peak, len(closed))


def _changes(group: FusionGroup) -> tuple[list[int], list[list[tuple[int, int]]]]:
    """Return per task the bytes that it creates, and those it may free with the tasks that must be done by then."""
    gains = [0] * len(group.preds)
    losses: list[list[tuple[int, int]]] = [[] for _ in group.preds]
    for buffer in group.buffers:
        if buffer.creator >= 0:
            gains[buffer.creator] += buffer.size
        if buffer.survives:
            continue
        needs = sum(1 << user for user in buffer.users)
        for user in buffer.users:
            losses[user].append((buffer.size, needs))
    return gains, losses


def _path(parents: Mapping[int, tuple[int, int]], done: int) -> tuple[int, ...]:
    order: list[int] = []
    while done:
        done, task = parents[done]
        order.append(task)
    return tuple(reversed(order))
