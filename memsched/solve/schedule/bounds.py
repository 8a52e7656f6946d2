"""Lower bounds on the peak that need no search."""

from __future__ import annotations

from memsched.graph.contraction import Tasks
from memsched.graph.dag import ancestor_bitsets, descendant_bitsets, members
from memsched.graph.liveness import Storage, match_in_place
from memsched.graph.uses import Uses, sums

__all__ = ["BOUND_TASKS", "NECESSARY", "first_and_last_step", "largest_step", "necessary_bytes"]

BOUND_TASKS = 3_000
"""Tasks up to which `necessary_bytes` is worth its time."""

NECESSARY = "tensors that are live during one step in every order"
"""What it proves, in words."""


def largest_step(storage: Storage) -> int:
    """Return the largest footprint, bytes, that a single op has in every order; linear time.

    The trivial bound: an op's own reads, outputs and workspace are live in it, and so is what is always live.
    """
    sizes, kept = storage.sizes, storage.kept
    largest = storage.initial_residue()
    if storage.uses is not None:
        return max(largest, _largest_at_once(storage, storage.uses))
    for op, reads in enumerate(storage.reads):
        own = sum([sizes[buffer] for buffer in reads]) + sum([sizes[buffer] for buffer in storage.creates[op]])
        pairs = [pair for pair in storage.takes[op] if not kept[pair[1]]]
        merged = sum(sizes[created] for created, _ in match_in_place(pairs, sizes)) if pairs else 0
        largest = max(largest, storage.variables + own + storage.workspace[op] - merged)
    return largest


def _largest_at_once(storage: Storage, uses: Uses) -> int:
    """Return the largest footprint that a single op has, by arrays."""
    import numpy as np

    made = uses.creator >= 0
    each = np.repeat(uses.sizes, np.diff(uses.begins))
    own = sums(uses.users, each, len(storage.reads)) + sums(uses.creator[made], uses.sizes[made], len(storage.reads))
    own += uses.workspace
    possible = uses.takes[~uses.kept[uses.takes[:, 2]]]
    ops, where, counts = np.unique(possible[:, 0], return_index=True, return_counts=True)
    written = possible[where, 1]
    # An op that can write one buffer in place saves it, whichever input it takes; several buffers are matched.
    several = possible[:, 1] != np.repeat(written, counts)
    own[ops] -= uses.sizes[written]
    for op in np.unique(possible[several, 0]).tolist():
        pairs = [pair for pair in storage.takes[op] if not storage.kept[pair[1]]]
        own[op] += storage.sizes[pairs[0][0]]
        own[op] -= sum([storage.sizes[created] for created, _ in match_in_place(pairs, storage.sizes)])
    return storage.variables + int(own.max(initial=0))


def first_and_last_step(storage: Storage) -> int:
    """Return the larger of what the first and the last step of any order need at least, bytes; linear time.

    All inputs live in the first step, beside what an op that can come first writes; all outputs in the last one, beside
    what an op that can come last reads.
    """
    first = min((_first(storage, op) for op, before in enumerate(storage.preds) if not before), default=0)
    last = min((_last(storage, op) for op, after in enumerate(storage.succs) if not after), default=0)
    return max(storage.initial_residue() + first, storage.final_residue() + last)


def _first(storage: Storage, op: int) -> int:
    """Return what ``op`` needs beside all inputs where it comes first: what it alone reads can be overwritten."""
    sizes = storage.sizes
    pairs = [pair for pair in storage.takes[op] if not storage.kept[pair[1]] and storage.users[pair[1]] == (op,)]
    merged = sum(sizes[created] for created, _ in match_in_place(pairs, sizes)) if pairs else 0
    return sum(sizes[buffer] for buffer in storage.creates[op]) + storage.workspace[op] - merged


def _last(storage: Storage, op: int) -> int:
    """Return what ``op`` needs beside all that stays where it comes last."""
    sizes, kept = storage.sizes, storage.kept
    pairs = [pair for pair in storage.takes[op] if not kept[pair[1]]]
    merged = sum(sizes[created] for created, _ in match_in_place(pairs, sizes)) if pairs else 0
    leaving = sum(sizes[buffer] for buffer in (*storage.reads[op], *storage.creates[op]) if not kept[buffer])
    return leaving + storage.workspace[op] - merged


def necessary_bytes(tasks: Tasks) -> int:
    """Return the largest sum that is live during one task in every order, bytes.

    A buffer whose creator precedes a task and one of whose users is that task or follows it is live in any order, as
    is a kept buffer after its creator. Takes tasks^2 / 8 bytes and time in proportion to the buffers' spans, so it is
    for graphs of a few thousand tasks.
    """
    before = ancestor_bitsets(tasks.preds)
    after = descendant_bitsets(tasks.succs)
    everything = (1 << len(tasks)) - 1
    creator = [-1] * len(tasks.sizes)
    for task, created in enumerate(tasks.creates):
        for buffer in created:
            creator[buffer] = task
    live = [_always_live(tasks)] * len(tasks)
    for buffer, size in enumerate(tasks.sizes):
        span = after[creator[buffer]] if creator[buffer] >= 0 else everything
        if not tasks.kept[buffer]:
            until = 0
            for user in tasks.users[buffer]:
                until |= before[user] | 1 << user
            span &= until
        for task in members(span):
            live[task] += size
    remaining = sum(size for size, kept in zip(tasks.sizes, tasks.kept, strict=True) if kept)
    largest = max(tasks.initial, _always_live(tasks) + remaining)
    for task, already in enumerate(live):
        dying = [
            buffer
            for buffer in _can_die(tasks, task)
            if not any(after[task] >> user & 1 for user in tasks.users[buffer])
        ]
        largest = max(largest, already + tasks.excess(task, dying))
    return largest


def _always_live(tasks: Tasks) -> int:
    """Bytes live from before the first task to the end that are no crossing buffer (variables, for one)."""
    created = {buffer for made in tasks.creates for buffer in made}
    return tasks.initial - sum(size for buffer, size in enumerate(tasks.sizes) if buffer not in created)


def _can_die(tasks: Tasks, task: int) -> list[int]:
    return [buffer for buffer in tasks.reads[task] if not tasks.kept[buffer]]
