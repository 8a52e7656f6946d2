"""A graph seen as fewer, larger steps: tasks, each a fixed sequence of ops that is executed as one.

Fusion chooses the tasks, the solvers order them. What a task costs comes from liveness: its inner order is simulated,
so a hyper-node keeps its own peak and residue profile, shared inputs and in-place writes included.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field

from memsched.base.errors import GraphError
from memsched.graph.dag import successors_of, topological_order
from memsched.graph.liveness import Storage, simulate

__all__ = ["Tasks", "contract", "restrict", "single_op_tasks"]


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks over the buffers that cross between them ("Iterative Graph Optimization", IV-B: the graph of hyper-nodes).

    Tasks are numbered topologically. Buffers that live and die inside one task appear only in its excess.

    Attributes:
        storage: The ops and buffers underneath.
        members: Per task its ops in their fixed inner order.
        preds: Per task its direct predecessors, ascending.
        succs: Per task its direct successors, ascending.
        buffers: The crossing buffers, as indices into ``storage``.
        sizes: Bytes per crossing buffer.
        users: Per crossing buffer the tasks that read it, ascending.
        kept: Per crossing buffer whether it is live to the end.
        creates: Per task the crossing buffers it creates.
        reads: Per task the crossing buffers it reads.
        initial: Residue before the first task, bytes.
    """

    storage: Storage
    members: tuple[tuple[int, ...], ...]
    preds: tuple[tuple[int, ...], ...]
    succs: tuple[tuple[int, ...], ...]
    buffers: tuple[int, ...]
    sizes: tuple[int, ...]
    users: tuple[tuple[int, ...], ...]
    kept: tuple[bool, ...]
    creates: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    initial: int
    _excesses: dict[tuple[int, frozenset[int]], int] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __len__(self) -> int:
        return len(self.members)

    def expand(self, task_order: Sequence[int]) -> tuple[int, ...]:
        """Return the order of ops that an order of tasks stands for."""
        return tuple(op for task in task_order for op in self.members[task])

    def profile(self, task: int, dying: Collection[int]) -> tuple[list[int], list[int]]:
        """Return (footprints, residues) of the task's steps, relative to the residue before it, bytes.

        Args:
            dying: The read crossing buffers whose other users have all been executed before.
        """
        storage = self.storage
        members = self.members[task]
        uses: dict[int, int] = {}
        for op in members:
            for buffer in storage.reads[op]:
                uses[buffer] = uses.get(buffer, 0) + 1
        remaining = _FutureUses(storage)
        for crossing in self.reads[task]:
            buffer = self.buffers[crossing]
            # One use more than this task has: it does not die here.
            remaining[buffer] = uses[buffer] if crossing in dying else uses[buffer] + 1
        footprints, residues, _ = simulate(storage, members, remaining, 0)
        return footprints, residues

    def run(self, order: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return (largest footprint per task, residue after each task) of an order of all tasks, bytes."""
        ops = self.expand(order)
        uses: dict[int, int] = {}
        for op in ops:
            for buffer in self.storage.reads[op]:
                uses[buffer] = uses.get(buffer, 0) + 1
        remaining = _FutureUses(self.storage)
        for buffer, kept in zip(self.buffers, self.kept, strict=True):
            # What others need after these tasks does not die in them.
            remaining[buffer] = uses.get(buffer, 0) + kept
        by_op, residues, _ = simulate(self.storage, ops, remaining, self.initial)
        footprints: list[int] = []
        after: list[int] = []
        begin = 0
        for task in order:
            end = begin + len(self.members[task])
            footprints.append(max(by_op[begin:end]))
            after.append(residues[end - 1])
            begin = end
        return footprints, after

    def excess(self, task: int, dying: Collection[int]) -> int:
        """Return the task's largest footprint above the residue before it, bytes; ``dying`` as in `profile`.

        More dying buffers never give a larger excess. Kept once it was found: bounds and searches ask the same again.
        """
        key = task, frozenset(dying)
        found = self._excesses.get(key)
        if found is None:
            found = self._excesses[key] = max(self.profile(task, dying)[0])
        return found


class _FutureUses(dict[int, int]):
    """Uses to come, looked up on demand: a short task must not pay for all buffers of a large graph."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage

    def __missing__(self, buffer: int) -> int:
        return len(self._storage.users[buffer]) + self._storage.kept[buffer]


def single_op_tasks(storage: Storage) -> Tasks:
    """Return the trivial contraction: one task per op, numbered as the ops."""
    return contract(storage, [(op,) for op in range(len(storage.reads))])


def contract(storage: Storage, groups: Sequence[Sequence[int]]) -> Tasks:
    """Return the tasks that ``groups``, a partition of the ops into fixed sequences, make.

    Raises:
        GraphError: The groups are no partition, or contracting them makes a cycle.
    """
    count = len(storage.reads)
    if sorted(op for group in groups for op in group) != list(range(count)) or not all(groups):
        raise GraphError("the groups of a contraction must hold every op exactly once", code="not-a-partition")
    members = _numbered(storage, [tuple(group) for group in groups])
    task_of = _task_of(members)
    preds = _task_predecessors(storage, members, task_of)
    number: dict[int, int] = {}
    users: list[tuple[int, ...]] = []
    initial = storage.initial_residue()
    for buffer, op in enumerate(storage.creator):
        using = tuple(sorted({task_of[user] for user in storage.users[buffer]}))
        inner = op >= 0 and using in ((), (task_of[op],)) and not storage.kept[buffer]
        if not inner and (using or storage.kept[buffer]):
            number[buffer] = len(number)
            users.append(tuple(task for task in using if op < 0 or task != task_of[op]))
    creates: list[list[int]] = [[] for _ in members]
    reads: list[list[int]] = [[] for _ in members]
    for crossing, buffer in enumerate(number):
        if storage.creator[buffer] >= 0:
            creates[task_of[storage.creator[buffer]]].append(crossing)
        for task in users[crossing]:
            reads[task].append(crossing)
    return Tasks(
        storage=storage,
        members=members,
        preds=preds,
        succs=tuple(successors_of(preds)),
        buffers=tuple(number),
        sizes=tuple(storage.sizes[buffer] for buffer in number),
        users=tuple(users),
        kept=tuple(storage.kept[buffer] for buffer in number),
        creates=tuple(map(tuple, creates)),
        reads=tuple(map(tuple, reads)),
        initial=initial,
    )


def _task_of(groups: Sequence[Sequence[int]]) -> dict[int, int]:
    return {op: task for task, group in enumerate(groups) for op in group}


def _task_predecessors(
    storage: Storage, members: Sequence[Sequence[int]], task_of: Mapping[int, int]
) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(sorted({task_of[before] for op in group for before in storage.preds[op]} - {task}))
        for task, group in enumerate(members)
    )


def _numbered(storage: Storage, groups: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Number the groups topologically, ties by their first op in file order."""
    task_of = _task_of(groups)
    for group in groups:
        done: set[int] = set()
        for op in group:
            if any(task_of[before] == task_of[op] and before not in done for before in storage.preds[op]):
                raise GraphError("a group of a contraction is not in execution order", code="group-order")
            done.add(op)
    preds = _task_predecessors(storage, groups, task_of)
    order = topological_order(preds, [min(group) for group in groups])
    if len(order) != len(groups):
        raise GraphError("contracting these groups makes a cycle", code="cycle")
    return tuple(groups[task] for task in order)


def restrict(tasks: Tasks, subset: Sequence[int], executed: Container[int], residue: int) -> Tasks:
    """Return the tasks of ``subset`` alone, as they run after ``executed`` and before all others.

    Buffers that others need later are kept, those that others made before are inputs, and what merely stays live
    meanwhile is part of the initial residue. Task i of the result is ``subset[i]``. Time linear in the part.

    Args:
        tasks: The whole.
        subset: Tasks to keep, ascending.
        executed: The tasks executed before; with ``subset`` they must be closed under predecessors.
        residue: The residue of ``tasks`` after ``executed``, bytes.
    """
    local = {task: index for index, task in enumerate(subset)}
    number: dict[int, int] = {}
    users: list[tuple[int, ...]] = []
    kept: list[bool] = []
    for buffer in sorted({b for task in subset for b in (*tasks.reads[task], *tasks.creates[task])}):
        number[buffer] = len(number)
        using = tasks.users[buffer]
        users.append(tuple(local[task] for task in using if task in local))
        kept.append(tasks.kept[buffer] or any(task not in local and task not in executed for task in using))
    return Tasks(
        storage=tasks.storage,
        members=tuple(tasks.members[task] for task in subset),
        preds=tuple(tuple(local[p] for p in tasks.preds[task] if p in local) for task in subset),
        succs=tuple(tuple(local[s] for s in tasks.succs[task] if s in local) for task in subset),
        buffers=tuple(tasks.buffers[buffer] for buffer in number),
        sizes=tuple(tasks.sizes[buffer] for buffer in number),
        users=tuple(users),
        kept=tuple(kept),
        creates=tuple(tuple(number[b] for b in tasks.creates[task]) for task in subset),
        reads=tuple(tuple(number[b] for b in tasks.reads[task]) for task in subset),
        initial=residue,
    )
