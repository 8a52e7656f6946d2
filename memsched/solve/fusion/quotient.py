"""The graph of tasks while fusion works on it: merging two tasks costs what the smaller one's neighbourhood costs.

A task is named by one of its ops, its *representative*. Every fusion here keeps two facts (shown in `monotonic` and
`isolated`), so that reachability between ops, computed once, answers for tasks: a task precedes another exactly when
its representative precedes the other's, and numbering tasks by their representatives is topological.

What a task costs is kept as the cost of its *anchor* step, the one that has its largest footprint whatever dies:

    excess(S) = top - sum of sizes of (before & S) - bytes merged in place by the pairs whose read buffer is in S

where S is the set of read buffers that die in the task, ``before`` those whose last read in the task comes earlier
than the anchor, and ``pairs`` the in-place pairs of the anchor's op.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from enum import IntEnum

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import ancestor_bitsets
from memsched.graph.liveness import Storage, match_in_place

__all__ = ["Fate", "FusionState", "Quotient", "first_excesses"]


class Fate(IntEnum):
    """What becomes of a buffer."""

    DIES = 0
    FREE = 1
    ALIVE = 2


# A buffer with more readers counts as one whose fate is unknown: looking at all of them again and again is quadratic.
_MANY_USERS = 256

# Work after which the caller is asked whether to stop.
_POLLED_AFTER = 200


class FusionState(FrozenValue, frozen=True):
    """What `Quotient` changes, by the names that it has there."""

    members: list[deque[int]]
    preds: list[set[int]]
    succs: list[set[int]]
    creates: list[set[int]]
    reads: list[set[int]]
    users: list[set[int]]
    top: list[int]
    before: list[set[int]]
    pairs: list[tuple[tuple[int, int], ...]]
    work: int

    @staticmethod
    def of(storage: Storage) -> FusionState:
        """Return the state before any fusion."""
        used = [bool(users) or kept for users, kept in zip(storage.users, storage.kept, strict=True)]
        return FusionState(
            members=[deque((op,)) for op in range(len(storage.reads))],
            preds=list(map(set, storage.preds)),
            succs=list(map(set, storage.succs)),
            creates=[{buffer for buffer in created if used[buffer]} for created in storage.creates],
            reads=list(map(set, storage.reads)),
            users=list(map(set, storage.users)),
            top=first_excesses(storage),
            before=[set() for _ in storage.reads],
            pairs=list(storage.takes),
            work=0,
        )


def first_excesses(storage: Storage) -> list[int]:
    """Return per op its excess when nothing dies in it, bytes."""
    sizes = storage.sizes
    return [
        workspace + sum([sizes[buffer] for buffer in created])
        for workspace, created in zip(storage.workspace, storage.creates, strict=True)
    ]


class Quotient:
    """Tasks under fusion, mutable.

    Attributes:
        members: Per representative its ops in order; empty for an op that another one represents.
        preds: Per representative its direct predecessors.
        succs: Per representative its direct successors.
        creates: Per representative the buffers that it creates and that outlive it.
        reads: Per representative the buffers from outside that it reads.
        users: Per buffer the tasks that read it, its creator's left out.
        top, before, pairs: Per representative its cost, see the module.
        work: Effort spent so far, in elementary steps; `budget` is its limit.
    """

    def __init__(
        self,
        storage: Storage,
        reachability_limit: int,
        budget: int,
        stop: Callable[[], bool] | None = None,
        state: FusionState | None = None,
    ) -> None:
        state = state or FusionState.of(storage)
        self.storage = storage
        self.sizes = storage.sizes
        self.kept = storage.kept
        self.members, self.preds, self.succs = state.members, state.preds, state.succs
        self.creates, self.reads, self.users = state.creates, state.reads, state.users
        self.top, self.before, self.pairs = state.top, state.before, state.pairs
        self.work = state.work
        self.budget = budget
        self._stop = stop or (lambda: False)
        self._polled_at, self._stopped = -_POLLED_AFTER, False
        self._ancestors = ancestor_bitsets(storage.preds) if len(storage.reads) <= reachability_limit else None

    @property
    def exhausted(self) -> bool:
        """Whether the permitted effort has been spent, or the caller asked to stop: polled after so much work."""
        if self.work >= self._polled_at + _POLLED_AFTER:
            self._polled_at = self.work
            self._stopped = self._stopped or self._stop()
        return self.work > self.budget or self._stopped

    def tasks(self) -> list[int]:
        """Return the representatives, ascending: a topological order."""
        return [op for op, members in enumerate(self.members) if members]

    def precedes(self, first: int, second: int) -> bool:
        """Whether a path leads from ``first`` to ``second``; on graphs too large for bitsets, whether an edge does."""
        if self._ancestors is None:
            return first in self.preds[second]
        return bool(self._ancestors[second] >> first & 1)

    def fate(self, buffer: int, inside: Collection[int], anchor: int) -> int:
        """Return what becomes of ``buffer`` when all of ``inside`` have been executed, at a moment next to ``anchor``.

        DIES: nobody else needs it. ALIVE: something that follows the anchor does. FREE: that depends on the schedule,
        or is not looked into (too many users; graphs too large for bitsets): both cases must be allowed for.
        """
        if self.kept[buffer]:
            return Fate.ALIVE
        users = self.users[buffer]
        if len(users) > _MANY_USERS:
            return Fate.FREE
        self.work += len(users)
        result = Fate.DIES
        precedes = self.precedes
        for user in users:
            if user in inside or precedes(user, anchor):
                continue
            if user == anchor or precedes(anchor, user):
                return Fate.ALIVE
            result = Fate.FREE
        return result

    def change(self, task: int, inside: Collection[int], anchor: int, dying: int) -> int:
        """Return the change of the residue over ``task``, bytes; fates up to ``dying`` count as death."""
        sizes, users, kept = self.sizes, self.users, self.kept
        result = 0
        for buffer in self.creates[task]:
            result += sizes[buffer]
        for buffer in self.reads[task]:
            # The task is inside and may be the only one that reads it.
            alone = len(users[buffer]) == 1 and not kept[buffer]
            if sizes[buffer] and (alone or self.fate(buffer, inside, anchor) <= dying):
                result -= sizes[buffer]
        self.work += len(self.creates[task]) + len(self.reads[task])
        return result

    def excess(self, task: int, inside: Collection[int], anchor: int, dying: int) -> int:
        """Return the largest footprint of ``task`` above the residue before it; ``dying`` as in `change`."""
        result = self.top[task]
        for buffer in self.before[task]:
            if self.fate(buffer, inside, anchor) <= dying:
                result -= self.sizes[buffer]
        pairs = self.pairs[task]
        if pairs:
            pairs = match_in_place([p for p in pairs if self.fate(p[1], inside, anchor) <= dying], self.sizes)
            result -= sum(self.sizes[created] for created, _ in pairs)
        self.work += 1 + len(self.before[task])
        return result

    def absorb(self, task: int, into: int, in_front: bool) -> None:
        """Give the ops, edges and buffers of ``task`` to ``into``; the cost is left to the caller."""
        front, back = (task, into) if in_front else (into, task)
        self.members[into] = _joined(self.members[front], self.members[back])
        self.members[task] = deque()
        for befores, afters in ((self.preds, self.succs), (self.succs, self.preds)):
            for other in befores[task]:
                afters[other].discard(task)
                if other != into:
                    afters[other].add(into)
                    befores[into].add(other)
            befores[into].discard(task)
            self.work += len(befores[task])
            befores[task] = set()
        for buffer in self.reads[task]:
            self.users[buffer].discard(task)
            if buffer not in self.creates[into]:
                self.users[buffer].add(into)
                self.reads[into].add(buffer)
        for buffer in self.creates[task]:
            self.users[buffer].discard(into)
            self.reads[into].discard(buffer)
        self.creates[into] |= self.creates[task]
        inner = [b for b in self.creates[into] if not self.users[b] and not self.kept[b]]
        self.creates[into].difference_update(inner)
        self.work += len(self.reads[task]) + len(self.creates[into])
        self.reads[task] = set()
        self.creates[task] = set()
        self.before[task] = set()
        self.pairs[task] = ()


def _joined(front: deque[int], back: deque[int]) -> deque[int]:
    """Concatenate by moving the shorter one, so that long chains cost n log n in all."""
    if len(front) >= len(back):
        front.extend(back)
        return front
    back.extendleft(reversed(front))
    return back
