"""Isolated sub-graph fusion ("Iterative Graph Optimization", IV-B2, Theorem IV.2 and Algorithm 1).

A group P of tasks becomes one task when

 (b) every task outside precedes all of P, follows all of P, or is unrelated to all of P;
 (c) for each downset X of P that is neither empty nor all of P,
     f(X) >= f(empty) when every free buffer that X has read completely is counted as dead, and
     f(X) >= f(P) when no free buffer is; both by minimum cuts, not along one order;
 (d) the least peak of P, over all inner orders, is the same in both cases.

Here f(X) is the residue after X less the residue before P. A buffer that P reads is *free* when a task outside reads
it that is unrelated to P; when all its readers outside precede P it dies in P, and when one follows P (or it is kept)
it does not. P is then executed in an inner order of least peak with no free buffer dying. Without free buffers (d)
holds by itself, and this is the theorem with its condition (a) widened: an input may be shared with tasks before or
after P.

*Proof.* Take an optimal order of the graph. Let Y range over the sets of outside tasks executed at the moments from
just before the first task of P to just after the last one, and choose the moment whose f(Y), P not counted, is least.
By (b) all tasks outside that run between are unrelated to P, so all of P can be executed at that moment instead.
- A task before the moment ran after Y + X and now runs after Y. By submodularity the residue falls, (c) first part; the
  buffers that no longer die in it because P has not read them cannot have died in X either, which leaves room for them
  (as in `monotonic`).
- A task after the moment ran after Y + X and now runs after Y + P. f(Y + P) - f(Y + X) is largest when nothing else
  dies, so it is <= 0 by (c), second part; the excess falls at most.
- P itself: in the given order its tasks had some inner order, each task of it ran at a residue of at least f(Y) + f(X)
  with free buffers dying. So the peak was at least the least f(Y) plus the least inner peak with free buffers dying.
  Now it is the least f(Y) plus at most the inner peak with none dying: the same by (d).
So the peak does not rise. The excess of the new task is one number, whatever dies. By (b) fusing relates no two tasks
outside that were unrelated, and any member represents P.

Groups are found as in Algorithm 1: from each task, taken along or left out, the group grows by what depends on
nothing else, up to a number of members; each time that nothing leaves it but to tasks that follow all of it, it is a
candidate. A group whose residue once falls below the one before it fails (c) however it goes on, so growth ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from memsched.solve.fusion.closure import FusionGroup, InnerBuffer, lowest_inner_residue
from memsched.solve.fusion.compiled import inner_order
from memsched.solve.fusion.inner import InnerCosts, InnerOrder
from memsched.solve.fusion.quotient import Fate, Quotient

__all__ = ["SOURCES", "Growth", "fuse_group"]

# Entry in place of a task: the group grows from the tasks that depend on nothing.
SOURCES = -1


@dataclass(slots=True)
class Growth:
    """Grows a group from an entry; after the candidates have been taken, ``touched`` is what the result rests on."""

    graph: Quotient
    entry: int
    with_entry: bool
    max_members: int
    tasks: list[int] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    # Per task inside the tasks inside that precede it, itself included; per task at the border those that do.
    _inside: dict[int, int] = field(default_factory=dict)
    _border: dict[int, int] = field(default_factory=dict)
    _uses_left: dict[int, int] = field(default_factory=dict)
    _residue: int = 0

    def candidates(self) -> Iterator[tuple[int, ...]]:
        """Yield the groups of two tasks and more that condition (b) holds for, growing."""
        ready = self._entries()
        queued = set(ready)
        heapq.heapify(ready)
        while ready and len(self.tasks) < self.max_members and not self.graph.exhausted:
            if self._residue < 0:
                break
            task = heapq.heappop(ready)
            self._add(task)
            for after in self.graph.succs[task]:
                if after not in queued and self._depends_on_nothing_else(after):
                    queued.add(after)
                    heapq.heappush(ready, after)
            full = (1 << len(self.tasks)) - 1
            if len(self.tasks) > 1 and all(reached == full for reached in self._border.values()):
                yield tuple(self.tasks)
        self.touched.update(self._border)
        for task in self._border:
            self.touched.update(self.graph.preds[task])

    def _entries(self) -> list[int]:
        if self.with_entry:
            return [self.entry]
        afters = self.graph.tasks() if self.entry == SOURCES else sorted(self.graph.succs[self.entry])
        return [task for task in afters if self._depends_on_nothing_else(task)]

    def _depends_on_nothing_else(self, task: int) -> bool:
        graph = self.graph
        graph.work += len(graph.preds[task])
        return all(
            before in self._inside
            or before == self.entry
            or (self.entry != SOURCES and graph.precedes(before, self.entry))
            for before in graph.preds[task]
        )

    def _add(self, task: int) -> None:
        graph = self.graph
        reached = self._border.pop(task, 0) | 1 << len(self.tasks)
        self.tasks.append(task)
        self.touched.add(task)
        self._inside[task] = reached
        for after in graph.succs[task]:
            self._border[after] = self._border.get(after, 0) | reached
        for buffer in graph.creates[task]:
            self._residue += graph.sizes[buffer]
            self._uses_left[buffer] = len(graph.users[buffer]) + graph.kept[buffer]
        for buffer in graph.reads[task]:
            if buffer not in self._uses_left:
                self._uses_left[buffer] = len(graph.users[buffer]) + graph.kept[buffer]
            self._uses_left[buffer] -= 1
            if not self._uses_left[buffer]:
                self._residue -= graph.sizes[buffer]
        graph.work += len(graph.succs[task]) + len(graph.creates[task]) + len(graph.reads[task]) + 4


def fuse_group(graph: Quotient, tasks: Sequence[int], max_states: int) -> int | None:
    """Fuse ``tasks``, for which (b) holds, if (c) and (d) hold; return the representative, None if they do not.

    Args:
        tasks: In a topological order.
        max_states: Effort for the inner order; a group that needs more is left alone.
    """
    found = _inner_order(graph, tasks, max_states)
    if found is None or found.order is None:
        return None
    into, *others = (tasks[index] for index in found.order)
    for task in others:
        graph.absorb(task, into, in_front=False)
    graph.top[into], graph.before[into], graph.pairs[into] = found.peak, set(), ()
    return into


def _inner_order(graph: Quotient, tasks: Sequence[int], max_states: int) -> InnerOrder | None:
    """Return the order to execute the tasks in; None if (c) or (d) does not hold or is not decided."""
    buffers, fates = _buffers(graph, tasks)
    lax = _group(graph, tasks, buffers, [fate < Fate.ALIVE for fate in fates])
    strict = _group(graph, tasks, buffers, [fate == Fate.DIES for fate in fates])
    everything = (1 << len(tasks)) - 1
    final = strict.change(everything)
    graph.work += len(tasks) * len(buffers)
    for count in range(1, len(tasks)):
        prefix = (1 << count) - 1
        if lax.change(prefix) < 0 or strict.change(prefix) < final:
            return None
    # Without free buffers the two are equal.
    groups = (strict,) if lax == strict else (strict, lax)
    for group, limit in zip(groups, (max(final, 0) if lax == strict else final, 0), strict=False):
        graph.work += 10 * len(tasks) * len(buffers)
        lowest = lowest_inner_residue(group)
        if lowest is not None and lowest < limit:
            return None
    found = []
    for group in groups:
        found.append(inner_order(group, _costs(graph, tasks, buffers, group), max_states))
        graph.work += found[-1].states * len(tasks)
        if found[-1].order is None or found[-1].peak != found[0].peak:
            return None
    return found[0]


def _buffers(graph: Quotient, tasks: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the buffers that the tasks create for others or read, and what becomes of each by the end of the group."""
    inside = set(tasks)
    created = {buffer for task in tasks for buffer in graph.creates[task]}
    read = {buffer for task in tasks for buffer in graph.reads[task]}
    fates: list[int] = []
    for buffer in sorted(created | read):
        if buffer in created:
            fates.append(Fate.ALIVE if graph.kept[buffer] or not graph.users[buffer] <= inside else Fate.DIES)
        else:
            fates.append(graph.fate(buffer, inside, tasks[0]))
    return sorted(created | read), fates


def _group(graph: Quotient, tasks: Sequence[int], buffers: Sequence[int], dies: Sequence[bool]) -> FusionGroup:
    place = {task: index for index, task in enumerate(tasks)}
    creator = {buffer: place[task] for task in tasks for buffer in graph.creates[task]}
    users: dict[int, list[int]] = {}
    for task in tasks:
        for buffer in graph.reads[task]:
            users.setdefault(buffer, []).append(place[task])
    preds = tuple(tuple(sorted(place[before] for before in graph.preds[task] if before in place)) for task in tasks)
    inner = (
        InnerBuffer(graph.sizes[buffer], creator.get(buffer, -1), tuple(users.get(buffer, ())), not dead)
        for buffer, dead in zip(buffers, dies, strict=True)
    )
    return FusionGroup(preds, tuple(inner))


def _costs(graph: Quotient, tasks: Sequence[int], buffers: Sequence[int], group: FusionGroup) -> InnerCosts:
    needs = {
        buffer: sum(1 << user for user in inner.users)
        for buffer, inner in zip(buffers, group.buffers, strict=True)
        if not inner.survives
    }
    for task in tasks:
        for _, read in graph.pairs[task]:
            # Lives and dies inside the task.
            if not graph.users[read] and not graph.kept[read]:
                needs[read] = 0
    return InnerCosts(
        top=[graph.top[task] for task in tasks],
        before=[sorted(graph.before[task]) for task in tasks],
        pairs=[graph.pairs[task] for task in tasks],
        needs=needs,
        sizes=graph.sizes,
    )
