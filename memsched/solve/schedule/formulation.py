"""The integer program of "Iterative Graph Optimization" (IV-A) in the variables that CP-SAT solves fastest.

The paper's variables, with steps s = 0..n-1: O[i, s], task i runs in step s; T[j, s], buffer j is stored when step
s begins. Its constraints, reconstructed from their description (p(j): the task that creates j; S: sizes; E: extra):

    (1)  sum_i O[i, s] = 1                            one task per step
    (2)  sum_s O[i, s] = 1                            every task once
    (3)  O[i, s] <= T[j, s]                           for every buffer j that i reads
    (4)  T[j, s] <= T[j, s-1] + O[p(j), s-1]
    (5)  T[j, 0] = 0                                  unless j is given from outside
    (6)  sum_j S[j] T[j, s] + sum_i (outputs of i + E[i]) O[i, s] <= M,   minimise M
    (7)  O[i, s] = 0   for s < ancestors of i                             (8)  T[j, s] = 0   for s <= ancestors of p(j)
    (9)  O[i, s] = 0   for s >= n - descendants of i                      (10) T[j, s] = 0   after all readers' windows

Here the sums done[i, s] = sum_{t < s} O[i, t] ("task i runs before step s") take the place of O, which is then
O[i, s] = done[i, s+1] - done[i, s]. What becomes of the constraints stands where they are stated. T is needed only
for buffers that several tasks may be the last to read; for the others T[j, s] = done[p(j), s] - done[last reader, s]
is linear. On the nine networks of the paper, fused, this has half the variables and is about ten times faster.

Beyond the paper: several outputs per task, inputs that stay to the end, order without a tensor, and tasks whose
footprint depends on which buffers die in them (in-place writes, hyper-nodes), as `Tasks.excess` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks
from memsched.graph.dag import ancestor_bitsets, descendant_bitsets

__all__ = ["Credit", "IntegerProgram", "StoredBuffer", "formulate"]

_MOST_DYING_SETS = 4096


class Credit(FrozenValue, frozen=True):
    """A task's footprint is ``saved`` bytes smaller when the tasks ``after`` have all run before it."""

    after: tuple[int, ...]
    saved: int


class StoredBuffer(FrozenValue, frozen=True):
    """A buffer that needs T: several ``readers``, none before another, may be last. Creator -1: given from outside."""

    size: int
    creator: int
    readers: tuple[int, ...]


class IntegerProgram(FrozenValue, frozen=True):
    """The integer program before it is given to a solver.

    The residue before step s is constant + sum_i change[i] done[i, s] + sum of the sizes of the stored buffers.

    Attributes:
        earliest: Per task the first step of its window, (7).
        latest: Per task the last step of its window, (9).
        before: Per task its direct predecessors that no other of them implies.
        constant: Bytes of the residue that no variable changes.
        change: Per task what its having run adds to the residue, apart from the stored buffers, bytes.
        stored: The buffers that need T.
        excess: Per task its footprint above the residue before it when as little as possible dies in it, bytes.
        credits: Per task what lowers that. Of those whose condition holds, one applies: that which saves most.
    """

    earliest: tuple[int, ...]
    latest: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    constant: int
    change: tuple[int, ...]
    stored: tuple[StoredBuffer, ...]
    excess: tuple[int, ...]
    credits: tuple[tuple[Credit, ...], ...]

    def stored_steps(self, buffer: StoredBuffer) -> range:
        """Return the steps at whose begin ``buffer`` may be stored: (5), (8) and (10)."""
        first = self.earliest[buffer.creator] + 1 if buffer.creator >= 0 else 0
        return range(first, max(self.latest[reader] for reader in buffer.readers) + 1)

    def size(self) -> int:
        """Return an upper bound of the number of Boolean variables, without making any."""
        spans = [last - first for first, last in zip(self.earliest, self.latest, strict=True)]
        credited = sum((span + 1) * len(credit) for span, credit in zip(spans, self.credits, strict=True))
        return sum(spans) + sum(len(self.stored_steps(buffer)) for buffer in self.stored) + credited


def formulate(tasks: Tasks, *, prune: bool = True) -> IntegerProgram | None:
    """Return the integer program for ``tasks``, of which there must be one at least.

    Args:
        prune: Apply (7) to (10); without it every task may run in every step, as in the paper's ablation (V-B4).

    Returns:
        None when a task's footprint depends on more dying sets than can be listed.
    """
    ancestors = ancestor_bitsets(tasks.preds)
    descendants = descendant_bitsets(tasks.succs)
    last = len(tasks) - 1
    excess: list[int] = []
    credits_of: list[tuple[Credit, ...]] = []
    for task in range(len(tasks)):
        costs = _costs(tasks, task, ancestors)
        if costs is None:
            return None
        excess.append(costs[0])
        credits_of.append(costs[1])
    constant, change, stored = _residue(tasks, ancestors)
    return IntegerProgram(
        earliest=tuple(bits.bit_count() if prune else 0 for bits in ancestors),
        latest=tuple(last - bits.bit_count() if prune else last for bits in descendants),
        before=tuple(_last_of(befores, ancestors) for befores in tasks.preds),
        constant=constant,
        change=change,
        stored=stored,
        excess=tuple(excess),
        credits=tuple(credits_of),
    )


def _last_of(tasks: Iterable[int], ancestors: Sequence[int]) -> tuple[int, ...]:
    """Return those of ``tasks`` that precede no other of them: when they have run, all have."""
    chosen = tuple(tasks)
    implied = 0
    for task in chosen:
        implied |= ancestors[task]
    return tuple(task for task in chosen if not implied >> task & 1)


def _residue(tasks: Tasks, ancestors: Sequence[int]) -> tuple[int, tuple[int, ...], tuple[StoredBuffer, ...]]:
    """Return constant, change and stored of the program."""
    creator = [-1] * len(tasks.sizes)
    for task, created in enumerate(tasks.creates):
        for buffer in created:
            creator[buffer] = task
    constant = tasks.initial
    change = [0] * len(tasks)
    stored: list[StoredBuffer] = []
    for buffer, size in enumerate(tasks.sizes):
        readers = () if tasks.kept[buffer] else _last_of(tasks.users[buffer], ancestors)
        if len(readers) > 1:
            stored.append(StoredBuffer(size, creator[buffer], readers))
            constant -= size if creator[buffer] < 0 else 0
            continue
        if creator[buffer] >= 0:
            change[creator[buffer]] += size
        if readers:
            change[readers[0]] -= size
    return constant, tuple(change), tuple(stored)


def _costs(tasks: Tasks, task: int, ancestors: Sequence[int]) -> tuple[int, tuple[Credit, ...]] | None:
    """Return a task's excess and credits; None when there are too many dying sets to look at.

    A buffer that another task reads after every run of this one never dies here, one whose other readers all precede
    it always does. Sets of the others are listed by growing them, as long as more of them dying saves more bytes;
    a set counts only if each buffer in it does.
    """
    always: list[int] = []
    maybe: dict[int, tuple[int, ...]] = {}
    for buffer in tasks.reads[task]:
        others = tuple(user for user in tasks.users[buffer] if user != task)
        if tasks.kept[buffer] or any(ancestors[user] >> task & 1 for user in others):
            continue
        parallel = _last_of((user for user in others if not ancestors[task] >> user & 1), ancestors)
        if parallel:
            maybe[buffer] = parallel
        else:
            always.append(buffer)
    sharing = tuple(maybe)
    known: dict[frozenset[int], int] = {}

    def excess(dying: Iterable[int]) -> int:
        key = frozenset(dying)
        if key not in known:
            known[key] = tasks.excess(task, {*always, *key})
        return known[key]

    base = excess(())
    credits_found: list[Credit] = []
    frontier: list[tuple[tuple[int, ...], int]] = [((), 0)]
    while frontier:
        dying, start = frontier.pop()
        cost = excess(dying)
        if dying and all(excess(set(dying) - {buffer}) > cost for buffer in dying):
            after = _last_of(sorted({user for buffer in dying for user in maybe[buffer]}), ancestors)
            credits_found.append(Credit(after, base - cost))
        if start < len(sharing) and excess((*dying, *sharing[start:])) < cost:
            frontier.extend(((*dying, sharing[k]), k + 1) for k in range(start, len(sharing)))
        if len(known) > _MOST_DYING_SETS:
            return None
    return base, tuple(sorted(credits_found, key=lambda credit: (-credit.saved, credit.after)))
