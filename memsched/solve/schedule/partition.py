"""Memory-aware acyclic partitioning: stages that are ordered one by one.

Source: "Iterative Graph Optimization", IV-C and Algorithm 2.

The tasks are dealt out to stages that never fall along an edge, so the stages can be executed one after the other.
What a boundary between them forces on the schedule is that exactly the tasks before it have run at some moment, and
what makes such a moment harmless is a low residue: let D have the least residue of all downsets between A and C; then
every order through A and C has one through A, D and C that needs no more. (Submodularity: walk to D through the
intersections of the order's downsets with D and on through the unions; neither has a higher residue than the order's
own.) So the sum of the residues at the boundaries is what is minimised, with each buffer counted once per boundary
that it crosses, however many tasks beyond read it.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence

from memsched.base.errors import UsageError
from memsched.graph.contraction import Tasks
from memsched.solve.schedule.orders import depth_first
from memsched.solve.schedule.partition_coarsen import coarsen
from memsched.solve.schedule.partition_hypergraph import Balance, Hypergraph
from memsched.solve.schedule.partition_refine import refine_by_cuts, refine_by_moves

__all__ = ["cut_along", "partition", "post_order"]

_CYCLES = 2
_VERTICES_PER_PART = 8


def partition(
    tasks: Tasks,
    parts: int,
    *,
    seed: int = 0,
    epsilon: float = 0.5,
    order: Sequence[int] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[tuple[int, ...], ...]:
    """Return the tasks of each stage, ascending; every edge leads to the same or a later stage.

    Near-linear time. Deterministic.

    Args:
        parts: Stages; with fewer tasks than that, as many as there are tasks.
        seed: Of the order in which vertices are matched when coarsening.
        epsilon: By what fraction a stage's number of tasks may be off the equal share.
        order: A topological order to begin with; without it, the better of two cheap ones.
        stop: Polled now and then; True leaves the cut as it is by then.

    Raises:
        UsageError: Fewer than one part, or a negative ``epsilon``.
    """
    if parts < 1:
        raise UsageError(f"--partitions {parts} is not possible", code="option-range", action="give 1 or more, or auto")
    if epsilon < 0:
        raise UsageError(f"a balance of {epsilon} is not possible", code="option-range", action="give 0 or more")
    parts = min(parts, len(tasks))
    if parts <= 1:
        return (tuple(range(len(tasks))),) if len(tasks) else ()
    balance = Balance.of(len(tasks), parts, epsilon)
    best: tuple[int, Sequence[int], Hypergraph, list[int]] | None = None
    for start in [order] if order is not None else [post_order(tasks), _lowest_change_first(tasks)]:
        graph = Hypergraph.of(tasks, start)
        stages = cut_along(graph, parts, balance)
        cut = graph.cut(stages, parts)
        if best is None or cut < best[0]:
            best = cut, start, graph, stages
    assert best is not None  # noqa: S101 - there is at least one order
    _, start, graph, stages = best
    rng = random.Random(seed)  # noqa: S311 - nothing secret
    for _ in range(_CYCLES):
        if not stop():
            stages = _cycle(graph, stages, parts, balance, rng)
    stages = refine_by_cuts(graph, stages, parts, balance, stop)
    return _groups([(task, stage) for task, stage in zip(start, stages, strict=True)], parts)


def _cycle(graph: Hypergraph, stages: list[int], parts: int, balance: Balance, rng: random.Random) -> list[int]:
    """Coarsen within the stages, then refine from the coarsest hypergraph to the finest."""
    largest = max(2, balance.most // 4)
    levels = coarsen(graph, stages, vertices=_VERTICES_PER_PART * parts, largest=largest, rng=rng)
    graphs = [graph, *(level[0] for level in levels)]
    current = levels[-1][1] if levels else stages
    for depth in range(len(levels), -1, -1):
        current = refine_by_moves(graphs[depth], current, parts, balance)
        if depth:
            current = [current[vertex] for vertex in levels[depth - 1][2]]
    return current


def cut_along(graph: Hypergraph, parts: int, balance: Balance) -> list[int]:
    """Return the stages that cut the order of the vertices' numbers with the least sum of residues.

    A dynamic program over places of the boundaries, each within one share of its place among equal shares: time
    linear in the tasks whatever the number of parts.
    """
    count = len(graph)
    residues = graph.residues(range(count))
    cost: dict[int, int] = {0: 0}
    origins: list[dict[int, int]] = []
    for boundary in range(1, parts):
        lowest = max(
            boundary * balance.least, count - (parts - boundary) * balance.most, (boundary - 1) * count // parts
        )
        highest = min(
            boundary * balance.most, count - (parts - boundary) * balance.least, -(-(boundary + 1) * count // parts)
        )
        following: dict[int, int] = {}
        origin: dict[int, int] = {}
        # The places of the boundary before that are within reach, of rising cost.
        window: deque[int] = deque()
        coming = deque(cost)
        for place in range(lowest, highest + 1):
            while coming and coming[0] <= place - balance.least:
                new = coming.popleft()
                while window and cost[window[-1]] >= cost[new]:
                    window.pop()
                window.append(new)
            while window and window[0] < place - balance.most:
                window.popleft()
            if window:
                following[place] = cost[window[0]] + residues[place]
                origin[place] = window[0]
        cost = following
        origins.append(origin)
    end = min((total, place) for place, total in cost.items() if balance.least <= count - place <= balance.most)[1]
    places = [count, end]
    for origin in reversed(origins):
        places.append(origin[places[-1]])
    places.reverse()
    return [stage for stage in range(parts) for _ in range(places[stage], places[stage + 1])]


def _groups(stage_of: Sequence[tuple[int, int]], parts: int) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = [[] for _ in range(parts)]
    for task, stage in sorted(stage_of):
        groups[stage].append(task)
    return tuple(map(tuple, groups))


def post_order(tasks: Tasks) -> list[int]:
    """Return the tasks as a depth-first walk against the edges finishes them."""
    return list(depth_first(tasks.preds, tasks.succs))


def _lowest_change_first(tasks: Tasks) -> list[int]:
    """Return the list schedule that always takes the ready task that raises the residue least, ties by number."""
    left = [len(users) + kept for users, kept in zip(tasks.users, tasks.kept, strict=True)]
    waiting = [len(befores) for befores in tasks.preds]
    rise = [sum(tasks.sizes[b] for b in created if tasks.users[b] or tasks.kept[b]) for created in tasks.creates]
    for reads, task in zip(tasks.reads, range(len(tasks)), strict=True):
        rise[task] -= sum(tasks.sizes[b] for b in reads if left[b] == 1)
    heap = [(rise[task], task) for task, count in enumerate(waiting) if not count]
    heapq.heapify(heap)
    placed = bytearray(len(tasks))
    result: list[int] = []
    while heap:
        key, task = heapq.heappop(heap)
        if placed[task] or key != rise[task]:
            continue
        placed[task] = 1
        result.append(task)
        for buffer in tasks.reads[task]:
            left[buffer] -= 1
            if left[buffer] == 1 and not tasks.kept[buffer]:
                user = next(user for user in tasks.users[buffer] if not placed[user])
                rise[user] -= tasks.sizes[buffer]
                if not waiting[user]:
                    heapq.heappush(heap, (rise[user], user))
        for after in tasks.succs[task]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(heap, (rise[after], after))
    return result
