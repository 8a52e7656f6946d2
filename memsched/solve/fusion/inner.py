"""The best order inside a group of tasks that is executed as one: exact, and bounded in its effort."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.liveness import match_in_place
from memsched.solve.fusion.closure import FusionGroup

__all__ = ["InnerCosts", "InnerOrder", "best_inner_order", "gains_and_losses"]


class InnerCosts(FrozenValue, frozen=True):
    """What the tasks of a group cost, by their place in the group (see `memsched.solve.fusion.quotient`).

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

    def depends(self, task: int) -> bool:
        """Whether the excess of ``task`` depends on what was executed."""
        return bool(self.pairs[task]) or any(buffer in self.needs for buffer in self.before[task])


class InnerOrder(FrozenValue, frozen=True):
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
    moves = _moves(group, costs)
    parents: dict[int, tuple[int, int]] = {}
    # Per set what led to it best: a peak, the set before, and the task after that.
    led: dict[int, tuple[int, int, int]] = {}
    # Entries: peak, tasks left, executed set, set before, task that led here, residue, tasks that may come next.
    first = sum(1 << task for task, preds in enumerate(group.preds) if not preds)
    heap = [(0, count, 0, 0, -1, 0, first)]
    peak = 0
    while len(parents) < max_states:
        peak, left, done, parent, last, residue, ready = heapq.heappop(heap)
        if done in parents:
            continue
        parents[done] = (parent, last)
        if done == everything:
            return InnerOrder(_path(parents, done), peak, len(parents))
        found = []
        rest = ready
        while rest:
            bit = rest & -rest
            rest ^= bit
            move = moves[bit.bit_length() - 1]
            after = done | bit
            reached = residue + (costs.excess(move.task, after) if move.excess is None else move.excess)
            reached = max(reached, peak)
            change = move.gain
            for size, needs in move.losses:
                if not needs & ~after:
                    change -= size
            if reached == peak and change <= 0:
                found = [(reached, after, change, move)]
                break
            found.append((reached, after, change, move))
        for reached, after, change, move in found:
            way = reached, done, move.task
            known = led.get(after)
            if after not in parents and (known is None or way < known):
                led[after] = way
                left_ready = ready & ~(1 << move.task)
                for bit, befores in move.unlocks:
                    if not befores & ~after:
                        left_ready |= bit
                heapq.heappush(heap, (reached, left - 1, after, done, move.task, residue + change, left_ready))
    return InnerOrder(None, peak, len(parents))


class _InnerMove(FrozenValue, frozen=True):
    """A task of a group.

    Attributes:
        excess: Bytes; None where it depends on what was executed.
        gain: Bytes that it creates.
        losses: (bytes that it may free, tasks that must be done by then as a bitset).
        unlocks: Per task that may come next: (its bit, what comes before it as a bitset).
    """

    task: int
    excess: int | None
    gain: int
    losses: tuple[tuple[int, int], ...]
    unlocks: tuple[tuple[int, int], ...]


def _moves(group: FusionGroup, costs: InnerCosts) -> list[_InnerMove]:
    gains, losses = gains_and_losses(group)
    unlocks: list[list[tuple[int, int]]] = [[] for _ in group.preds]
    for task, preds in enumerate(group.preds):
        befores = sum(1 << before for before in preds)
        for before in preds:
            unlocks[before].append((1 << task, befores))
    excesses = [None if costs.depends(task) else top for task, top in enumerate(costs.top)]
    return [
        _InnerMove(task, excess, gain, tuple(losses[task]), tuple(unlocks[task]))
        for task, (gain, excess) in enumerate(zip(gains, excesses, strict=True))
    ]


def gains_and_losses(group: FusionGroup) -> tuple[list[int], list[list[tuple[int, int]]]]:
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
