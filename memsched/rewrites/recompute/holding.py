"""How executing ops changes the set of values that are held: the pebble game that the exact search plays.

A state is the set of tensors that are held, and which of the tasks that must be executed but whose results nothing
asks for have been. Executing a task needs the tensors that it reads, and bytes as `memsched.graph.liveness` counts
them; what is held may be dropped at any time, and costs its computation when it is needed again. Tasks are ops, or
groups of ops that are executed as one.

Nothing is gained by holding a value twice: the readers of both may read one, which then is needed no longer than the
two were, and is written over where the later one was. Two rules of targets are an exception, as they look at more than
the tensor that is written over (`relaxed`): what is written over has a single reader, and lies in one concatenation
only. There, and where an op with several results is repeated while a view of one of them is held, the game is more
generous than memory is. So its minimum is always a lower bound, and its sequences must be judged by liveness.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Final

from msgspec import structs

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks, contract
from memsched.graph.dag import members
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Op
from memsched.lowering.apply import apply_target
from memsched.targets.model import Target

__all__ = ["IMPOSSIBLE", "Game", "Move", "TooLargeError", "relaxed"]

IMPOSSIBLE: Final = -1
"""Instead of a set of tasks: what is needed can never be had again."""

_MOST_READ: Final = 8
"""Buffers that a group of ops may read from others: what dies in it is looked at in every combination."""


def relaxed(graph: Graph, target: Target) -> Graph:
    """Return ``graph`` as ``target`` executes it at best, for any choice of repeated ops.

    What may be shared between tensors of ``graph``, or of copies of them, is shared here: an op writes over an input
    that others read as well, and a tensor lies in as many concatenations as read it.
    """
    rules = tuple(structs.replace(rule, sole_reader=False) for rule in target.in_place)
    views = tuple(structs.replace(rule, sole_reader=False) for rule in target.views)
    lowered = apply_target(graph, structs.replace(target, in_place=rules, views=views))
    joins = {name for part in target.part_views if part.kind == "concatenation" for name in part.ops}
    if not any(op.type in joins for op in lowered.ops):
        return lowered
    writers = {name for rule in target.in_place for name in rule.ops}
    return replace(lowered, ops=tuple(_generous(lowered, op, joins, writers) for op in lowered.ops))


def _generous(graph: Graph, op: Op, joins: set[str], writers: set[str]) -> Op:
    """Return ``op`` with what it may share where no tensor lay in a concatenation before."""
    if not op.outputs:
        return op
    made = op.outputs[0]
    if op.type in joins and not op.views:
        return replace(op, views=tuple((made, read) for read in dict.fromkeys(op.inputs)), in_place=())
    if op.type in writers and not op.views:
        same = [read for read in op.inputs if graph.tensors[read].size == graph.tensors[made].size]
        return replace(op, in_place=tuple(dict.fromkeys((made, read) for read in same)))
    return op


class TooLargeError(Exception):
    """A group of ops reads too much to be looked at in full."""


class Move(FrozenValue, frozen=True):
    """An execution of a task.

    Attributes:
        held: The tensors that are held afterwards and may be read again, as a bitset.
        footprint: Bytes.
    """

    held: int
    footprint: int


class Game:
    """The moves on sets of held tensors; sets are bitsets.

    Args:
        graph: With the target's rules applied, its ops in an order of execution.
        costs: Per op what one execution costs.
        repeat: Per op whether it may be executed again.
        groups: A partition of the ops into sequences that are executed as one; None for each op alone.

    Raises:
        TooLargeError: A group reads more than `_MOST_READ` buffers.

    Attributes:
        members: Per task its ops.
        costs: Per task what one execution costs.
        start: The tensors held before the first execution.
        flagged: The tasks whose execution a state remembers: those that may not be repeated, and those that nothing
            reads from.
        unit: Bytes that divide whatever is needed beside the variables.
        variables: Bytes that are always live.
        moves: How many moves were looked at: the effort of a search, on any machine.
    """

    def __init__(
        self,
        graph: Graph,
        costs: Sequence[int],
        repeat: Sequence[bool],
        groups: Sequence[Sequence[int]] | None = None,
    ) -> None:
        storage = Storage.of(graph)
        tasks = contract(storage, groups or [(op,) for op in range(len(graph.ops))])
        self._tasks = tasks
        self.members = tasks.members
        self.count = len(tasks)
        self.costs = tuple(sum(costs[op] for op in ops) for ops in tasks.members)
        self.moves = 0
        self._repeat = [all(repeat[op] for op in ops) for ops in tasks.members]
        self.variables = storage.variables
        self.unit = math.gcd(*storage.sizes, *storage.workspace) or 1
        self._number(graph, storage, tasks)
        readers = [0] * len(self._maker)
        for task, read in enumerate(self._reads):
            for tensor in members(read):
                readers[tensor] |= 1 << task
        self._readers = readers
        unread = [not any(readers[tensor] for tensor in members(made)) for made in self._made]
        self.flagged = sum(1 << task for task in range(self.count) if unread[task] or not self._repeat[task])
        self._before = [0] * self.count
        of_op = {op: task for task, ops in enumerate(tasks.members) for op in ops}
        for first, after in graph.dependencies:
            if of_op[first] != of_op[after]:
                self._before[of_op[after]] |= 1 << of_op[first]
        self._takes = [self._taken(task) for task in range(self.count)]
        self._bytes: dict[int, tuple[int, int]] = {}
        self._useful: dict[int, int] = {}

    def _number(self, graph: Graph, storage: Storage, tasks: Tasks) -> None:
        """Number the tensors that more than one task sees, and say which buffers they lie in."""
        of_op = {op: task for task, ops in enumerate(tasks.members) for op in ops}
        crossing = {buffer: number for number, buffer in enumerate(tasks.buffers)}
        maker = [-1] * len(graph.tensors)
        seen: list[set[int]] = [set() for _ in graph.tensors]
        for number, op in enumerate(graph.ops):
            for tensor in op.outputs:
                maker[tensor] = of_op[number]
            for tensor in op.inputs:
                seen[tensor].add(of_op[number])
        outside = {*graph.variables}
        kept = set(graph.outputs)
        self._maker: list[int] = []
        self._lies: list[int] = []
        self._made = [0] * self.count
        self._reads = [0] * self.count
        self._inside = [0] * len(tasks.buffers)
        self.start = self._stays = 0
        # By makers, which are numbered topologically: a tensor's readers make later ones.
        made = (tensor for op in graph.ops for tensor in op.outputs)
        for tensor in sorted((*graph.inputs, *made), key=maker.__getitem__):
            using = seen[tensor] - {maker[tensor]}
            if tensor in outside or not (using or tensor in kept):
                continue
            bit = 1 << len(self._maker)
            self._maker.append(maker[tensor])
            self._lies.append(0)
            self._stays |= bit if tensor in kept else 0
            for buffer in storage.buffers_of[tensor]:
                self._lies[-1] |= 1 << crossing[buffer]
                self._inside[crossing[buffer]] |= bit
            if maker[tensor] >= 0:
                self._made[maker[tensor]] |= bit
            else:
                self.start |= bit
            for task in using:
                self._reads[task] |= bit
        self._sizes = tasks.sizes
        self._loose = sum(1 << number for number, size in enumerate(self._sizes) if size)
        self._read_buffers = [self._buffers_of(read) for read in self._reads]
        self._made_buffers = [self._buffers_of(made) for made in self._made]
        self._created = [sum(1 << buffer for buffer in made) for made in tasks.creates]

    def _buffers_of(self, held: int) -> int:
        buffers = 0
        for tensor in members(held):
            buffers |= self._lies[tensor]
        return buffers

    def _taken(self, task: int) -> list[tuple[int, int]]:
        """Return (buffers, bytes above what is held): what dies in the task to save bytes; nothing first."""
        tasks = self._tasks
        may = members(self._read_buffers[task] & self._loose & ~self._made_buffers[task])
        most = len(may)
        if len(self.members[task]) == 1:
            # An op writes over no more inputs than it makes.
            takes = tasks.storage.takes[self.members[task][0]]
            may = [buffer for buffer in may if any(read == tasks.buffers[buffer] for _, read in takes)]
            most = len({made for made, _ in takes})
        elif most > _MOST_READ:
            raise TooLargeError
        found: list[tuple[int, int]] = []
        for dying in chain.from_iterable(combinations(may, count) for count in range(most + 1)):
            bits = sum(1 << buffer for buffer in dying)
            excess = tasks.excess(task, dying)
            if all(excess < above for other, above in found if other & ~bits == 0):
                found.append((bits, excess))
        return found

    # States --------------------------------------------------------------------------------------------------------

    def needed(self, held: int, done: int) -> int:
        """Return the tasks that must be executed from a state on; `IMPOSSIBLE` where one no longer can be."""
        waiting = self.flagged & ~done
        tasks = 0
        while waiting:
            task = waiting.bit_length() - 1
            waiting ^= 1 << task
            tasks |= 1 << task
            for tensor in members(self._reads[task] & ~held):
                maker = self._maker[tensor]
                if maker < 0 or done >> maker & 1:
                    return IMPOSSIBLE
                if not tasks >> maker & 1:
                    waiting |= 1 << maker
        return tasks

    def cost(self, tasks: int) -> int:
        """Return what executing each of ``tasks`` once costs."""
        return sum(self.costs[task] for task in members(tasks))

    def bytes(self, held: int) -> tuple[int, int]:
        """Return the bytes that hold ``held``, variables included, and the buffers that they lie in."""
        known = self._bytes.get(held)
        if known is None:
            buffers = self._buffers_of(held)
            known = self._bytes[held] = self.variables + sum(self._sizes[one] for one in members(buffers)), buffers
        return known

    def useful(self, done: int) -> int:
        """Return the tensors that may be read after ``done``, or stay."""
        known = self._useful.get(done)
        if known is None:
            known = 0
            for tensor in range(len(self._maker) - 1, -1, -1):
                if self._stays >> tensor & 1 or any(
                    not done >> task & 1 if self.flagged >> task & 1 else self._made[task] & known
                    for task in members(self._readers[tensor])
                ):
                    known |= 1 << tensor
            self._useful[done] = known
        return known

    def free_move(self, task: int, held: int, done: int, budget: int) -> Move | None:
        """Return what executing ``task`` leaves where that can be undone by dropping, and nothing is dropped for it."""
        if self._reads[task] & ~held or self._made[task] & held or not self._repeat[task] or done >> task & 1:
            return None
        self.moves += 1
        footprint = self.bytes(held)[0] + self._takes[task][0][1]
        if footprint > budget:
            return None
        after = done | (self.flagged & 1 << task)
        left = (held | self._made[task]) & self.useful(after)
        return None if left == held and after == done else Move(left, footprint)

    def moves_of(self, task: int, held: int, done: int, budget: int) -> Iterator[Move]:
        """Yield what executing ``task`` may leave, each with no more dropped than ``budget`` bytes ask for."""
        if self._reads[task] & ~held or self._before[task] & ~done:
            return
        flag = 1 << task
        again = self._made[task] & held
        if done & flag or (again == self._made[task] and not self.flagged & flag):
            return
        after = done | (self.flagged & flag)
        alone = self._without(held, self._created[task]) if again else held
        if not self._stays & held & ~alone:
            yield from self._executed(task, alone, after, budget)
        if alone | self._made[task] != held | self._made[task]:
            # Views of the results made before are held on: the new bytes beside the old ones.
            yield from self._executed(task, held, after, budget)

    def _without(self, held: int, buffers: int) -> int:
        for buffer in members(buffers):
            held &= ~self._inside[buffer]
        return held

    def _executed(self, task: int, held: int, done: int, budget: int) -> Iterator[Move]:
        bytes_, live = self.bytes(held)
        stay = self._buffers_of(held & self._stays)
        may = live & self._loose & ~self._read_buffers[task] & ~stay
        items = sorted([(self._sizes[buffer], 1 << buffer) for buffer in members(may)], reverse=True)
        useful = self.useful(done)
        used: list[tuple[int, int, int]] = []
        for dying, excess in self._takes[task]:
            over = bytes_ + excess - budget
            if dying & stay:
                continue
            if any(known & ~dying == 0 and before <= 0 for known, before, _ in used):
                continue
            used.append((dying, over, excess))
            for dropped, saved in _least_sets(items, over):
                self.moves += 1
                if any(known & ~dying == 0 and known != dying and before <= saved for known, before, _ in used):
                    # What dies in the task needs not die for this.
                    continue
                left = self._without(held, dropped | dying) if dropped | dying else held
                yield Move((left | self._made[task]) & useful, bytes_ + excess - saved)


def _least_sets(items: Sequence[tuple[int, int]], over: int) -> Iterator[tuple[int, int]]:
    """Yield (bitset, sum) of the sets of (size, bit), largest first, that reach ``over`` with nothing to spare."""
    if over <= 0:
        yield 0, 0
        return
    left = [0]
    for size, _ in reversed(items):
        left.append(left[-1] + size)
    left.reverse()
    stack = [(0, 0, 0)]
    while stack:
        place, chosen, saved = stack.pop()
        if saved + left[place] < over:
            continue
        size, bit = items[place]
        stack.append((place + 1, chosen, saved))
        if saved + size >= over:
            yield chosen | bit, saved + size
        else:
            stack.append((place + 1, chosen | bit, saved + size))
