"""Monotonic fusion ("Iterative Graph Optimization", IV-B1, Theorem IV.1), pair by pair and beyond linear sequences.

Let f(D) be the residue after the set D of executed tasks, and let a buffer be *free* when a task reads it that neither
precedes nor follows the anchor. Two neighbours, one of them the *anchor* m, become one task when

- **rising**, {a, m} with an edge from a to m:
  (1) every successor of a other than m follows m;
  (2) with every free buffer dying, a does not lower the residue, and
  (3) its excess is at most its change of the residue plus the excess of m;
- **falling**, {m, b} with an edge from m to b:
  (1) every predecessor of b other than m precedes m;
  (2) with no free buffer dying, b does not raise the residue, and
  (3) the change of the residue over m plus the excess of b is at most the excess of m.

Neither a linear neighbourhood nor inner tensors with one reader are needed, nor anything of in-place writes.

*Proof.* Take an optimal order and delay a until just before m (advance b until just after m); (1) allows it. m itself
runs after the same tasks as before, at the same cost. A task between the two places ran after Y + a and now runs after
Y. Let W be the buffers that it and a read. It has not run, so the buffers in W had not died in a; by submodularity
f(Y + a) - f(Y) >= (change of a with all free buffers dying) + size(W) >= size(W), and without a its excess grows by at
most size(W), the buffers that no longer die in it. So it costs no more. A task between m and b now runs after one task
more: its excess falls at most, and f(Y + m + b) <= f(Y + m), the change of b being largest when nothing else dies.
Last, a (or b) at its new place must stay within the footprint of m there. When a buffer that only a reads dies, both
sides of (3) lose: the left one at most the size (an in-place write), the right one exactly the size; one that m reads
lowers the right side alone. So the case that all die is the worst one, and (3) covers it. For b, one that only m reads
lowers the left side of (3) by its size, the right side by at most that; one that b reads lowers the left side alone.
So the case that none dies is the worst. The excess of the pair is hence that of its anchor, whatever dies.

Relations between other tasks stay as they are: what precedes a or m precedes m, what follows a or m follows m (rising;
falling likewise), and these were related through m. So m represents the pair.

On chains this ends in the hill-valley segments of Liu: hills rise and valleys fall first, then hills fall and valleys
rise.
"""

from __future__ import annotations

from collections.abc import Iterable

from memsched.solve.fusion.quotient import Fate, Quotient

__all__ = ["fuse_monotonic"]


def fuse_monotonic(graph: Quotient, tasks: Iterable[int]) -> list[int]:
    """Fuse around ``tasks`` (taken from the end) until no pair that one of them belongs to can be fused.

    Returns the anchors of the fusions made, in their order.
    """
    pending = list(tasks)
    queued = set(pending)
    fused: list[int] = []
    while pending and not graph.exhausted:
        task = pending.pop()
        queued.discard(task)
        if not graph.members[task]:
            continue
        for anchor, changed in _fuse_around(graph, task):
            fused.append(anchor)
            for other in (*changed, anchor):
                if other not in queued:
                    queued.add(other)
                    pending.append(other)
    return fused


def _fuse_around(graph: Quotient, task: int) -> list[tuple[int, list[int]]]:
    """Fuse ``task`` with each neighbour that allows it; return the anchors, each with the tasks whose edges changed."""
    result: list[tuple[int, list[int]]] = []
    neighbours = [(before, task) for before in sorted(graph.preds[task])]
    neighbours += [(task, after) for after in sorted(graph.succs[task])]
    for first, second in neighbours:
        if not graph.members[task]:
            break
        # An earlier fusion of this round may have taken the neighbour or the edge.
        if second not in graph.succs[first]:
            continue
        graph.work += 1
        if rises(graph, first, second):
            changed = sorted(graph.preds[first] | graph.succs[first])
            _merge_rising(graph, first, second)
            result.append((second, changed))
        elif falls(graph, first, second):
            changed = sorted(graph.preds[second] | graph.succs[second])
            _merge_falling(graph, first, second)
            result.append((first, changed))
    return result


def rises(graph: Quotient, task: int, anchor: int) -> bool:
    """Whether ``task`` may always run just before its successor ``anchor``."""
    graph.work += len(graph.succs[task])
    if any(after != anchor and not graph.precedes(anchor, after) for after in graph.succs[task]):
        return False
    change = graph.change(task, (task,), anchor, Fate.FREE)
    if change < 0:
        return False
    limit = change + graph.excess(anchor, (task, anchor), anchor, Fate.FREE)
    return graph.excess(task, (task,), anchor, Fate.FREE) <= limit


def falls(graph: Quotient, anchor: int, task: int) -> bool:
    """Whether ``task`` may always run just after its predecessor ``anchor``."""
    graph.work += len(graph.preds[task])
    if any(before != anchor and not graph.precedes(before, anchor) for before in graph.preds[task]):
        return False
    if graph.change(task, (anchor, task), anchor, Fate.DIES) > 0:
        return False
    left = graph.change(anchor, (anchor,), anchor, Fate.DIES) + graph.excess(task, (anchor, task), anchor, Fate.DIES)
    return left <= graph.excess(anchor, (anchor,), anchor, Fate.DIES)


def _merge_rising(graph: Quotient, task: int, anchor: int) -> None:
    top = graph.top[anchor] + sum(graph.sizes[buffer] for buffer in graph.creates[task])
    before = graph.before[anchor] | (graph.reads[task] - graph.reads[anchor])
    for buffer in graph.creates[task] & before:
        # Read for the last time before the anchor: gone by then if nothing outside the pair reads it.
        if not graph.kept[buffer] and graph.users[buffer] == {anchor}:
            top -= graph.sizes[buffer]
    before -= graph.creates[task]
    graph.absorb(task, anchor, in_front=True)
    graph.top[anchor], graph.before[anchor] = top, before


def _merge_falling(graph: Quotient, anchor: int, task: int) -> None:
    graph.before[anchor] -= graph.reads[task]
    graph.pairs[anchor] = tuple(pair for pair in graph.pairs[anchor] if pair[1] not in graph.reads[task])
    graph.absorb(task, anchor, in_front=False)
