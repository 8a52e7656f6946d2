"""The moves of a threshold search over downsets, forwards from the inputs and backwards from the outputs."""

from __future__ import annotations

from collections.abc import Callable

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks
from memsched.graph.dag import bitset

__all__ = ["Moves", "backward_moves", "final_residue", "forward_moves"]


def final_residue(tasks: Tasks) -> int:
    """Return the bytes live after the last task: what was there from the start or created, and never dies."""
    created = sum(tasks.sizes[b] for made in tasks.creates for b in made)
    dying = sum(size for size, users, kept in zip(tasks.sizes, tasks.users, tasks.kept, strict=True) if not kept)
    return tasks.initial + created - dying


class Moves(FrozenValue, frozen=True):
    """One direction's moves over states S, the bitsets of tasks taken so far.

    Attributes:
        needs: Per task the bitset that S must hold before the task can be taken.
        unlocks: Per task the tasks that may become ready after it.
        shared: Per task, per read buffer that others read too and that is not kept: (others as bitset, size).
        last_reader: True forwards: a shared buffer dies when all others are in S; False: when none is.
        change: Per task the residue's change, bytes, when no shared buffer dies in it.
        excess: (task, bitset over its shared buffers that die) -> footprint above the residue of S, bytes.
        sign: What a dying shared buffer adds to the residue's change per byte.
    """

    needs: tuple[int, ...]
    unlocks: tuple[tuple[int, ...], ...]
    shared: tuple[tuple[tuple[int, int], ...], ...]
    last_reader: bool
    change: tuple[int, ...]
    excess: Callable[[int, int], int]
    sign: int


def forward_moves(tasks: Tasks) -> Moves:
    """Return the moves from the inputs to the outputs."""
    shared, own, change = _split_reads(tasks)

    def excess(task: int, dying: int) -> int:
        buffers = [b for i, b in enumerate(shared[task]) if dying >> i & 1]
        return tasks.excess(task, {*own[task], *buffers})

    return Moves(
        needs=tuple(bitset(befores) for befores in tasks.preds),
        unlocks=tasks.succs,
        shared=_others(tasks, shared),
        last_reader=True,
        change=change,
        excess=excess,
        sign=-1,
    )


def backward_moves(tasks: Tasks) -> Moves:
    """Return the moves from the outputs to the inputs."""
    shared, own, change = _split_reads(tasks)

    def excess(task: int, dying: int) -> int:
        buffers = [b for i, b in enumerate(shared[task]) if dying >> i & 1]
        later = change[task] - sum(tasks.sizes[b] for b in buffers)
        return tasks.excess(task, {*own[task], *buffers}) - later

    return Moves(
        needs=tuple(bitset(afters) for afters in tasks.succs),
        unlocks=tasks.preds,
        shared=_others(tasks, shared),
        last_reader=False,
        change=tuple(-bytes_ for bytes_ in change),
        excess=excess,
        sign=1,
    )


def _split_reads(tasks: Tasks) -> tuple[list[list[int]], list[list[int]], tuple[int, ...]]:
    """Return per task the reads shared with others, the reads of its own, and the change when only those die."""
    shared = [[b for b in reads if not tasks.kept[b] and len(tasks.users[b]) > 1] for reads in tasks.reads]
    own = [[b for b in reads if not tasks.kept[b] and len(tasks.users[b]) == 1] for reads in tasks.reads]
    change = tuple(
        sum(tasks.sizes[b] for b in created if tasks.users[b] or tasks.kept[b]) - sum(tasks.sizes[b] for b in dying)
        for created, dying in zip(tasks.creates, own, strict=True)
    )
    return shared, own, change


def _others(tasks: Tasks, shared: list[list[int]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    return tuple(
        tuple((bitset(tasks.users[b]) & ~(1 << task), tasks.sizes[b]) for b in buffers)
        for task, buffers in enumerate(shared)
    )
