"""Order, repetitions, in-place writes and addresses of tiny graphs at once: every way within a capacity is tried.

A game beside those of the package: a state is what is held and where it lies, so whatever it reaches has addresses.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from functools import cache

from memsched.graph.model import Graph, Op
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.cost import work_of
from memsched.rewrites.recompute.rewrite import repeatable
from memsched.targets.model import Target

__all__ = ["least_cost"]

State = tuple[frozenset[tuple[int, int]], frozenset[int]]
"""What is held, as (tensor, address), and the ops executed."""


def least_cost(graph: Graph, target: Target, capacity: int, most: int) -> int | None:
    """Return what repetitions cost at least in an arena of ``capacity`` bytes; None where that is more than ``most``.

    Args:
        graph: Not lowered; of few ops and bytes. Without variables.
        target: Without alignment, and without rules on single readers and on concatenations.
    """
    return _Game(apply_target(graph, target), repeatable(graph), work_of(graph).costs, capacity).least_cost(most)


class _Game:
    def __init__(self, graph: Graph, may: tuple[bool, ...], costs: tuple[int, ...], capacity: int) -> None:
        self._graph, self._may, self._costs, self._capacity = graph, may, costs, capacity
        self._size = [0 if one.external else one.size for one in graph.tensors]
        self._wanted = {one for op in graph.ops for one in op.inputs} | {*graph.outputs}

    def least_cost(self, most: int) -> int | None:
        once, number = sum(self._costs), itertools.count()
        heap = [(0, next(number), (held, frozenset[int]())) for held in self._starts()]
        best: dict[State, int] = {state: 0 for _, _, state in heap}
        heapq.heapify(heap)
        while heap:
            cost, _, state = heapq.heappop(heap)
            if best[state] < cost:
                continue
            if len(state[1]) == len(self._graph.ops):
                return cost - once
            for more, after in self._moves(state):
                left = sum(self._costs[op] for op in range(len(self._costs)) if op not in after[1])
                if cost + more + left <= once + most and best.get(after, cost + more + 1) > cost + more:
                    best[after] = cost + more
                    heapq.heappush(heap, (cost + more, next(number), after))
        return None

    def _starts(self) -> Iterator[frozenset[tuple[int, int]]]:
        given = [one for one in self._graph.inputs if one in self._wanted]
        yield from self._placed(frozenset(), given)

    def _placed(self, held: frozenset[tuple[int, int]], new: list[int]) -> Iterator[frozenset[tuple[int, int]]]:
        """Yield ``held`` with new tensors at every address that is free."""
        if not new:
            yield held
            return
        size = self._size[new[0]]
        taken = [(at, at + self._size[one]) for one, at in held if self._size[one]]
        for at in range(self._capacity - size + 1) if size else (0,):
            if all(at + size <= low or high <= at for low, high in taken):
                yield from self._placed(held | {(new[0], at)}, new[1:])

    def _moves(self, state: State) -> Iterator[tuple[int, State]]:
        """Yield (cost, state afterwards): a tensor dropped, or an op executed."""
        held, done = state
        for one in held:
            if one[0] not in self._graph.outputs:
                yield 0, (held - {one}, done)
        lies = dict(held)
        for number, op in enumerate(self._graph.ops):
            if (number in done and not self._may[number]) or not set(op.inputs) <= lies.keys():
                continue
            if lies.keys() & set(op.outputs):
                continue
            if any(after == number and before not in done for before, after in self._graph.dependencies):
                continue
            for made in self._executed(op, held):
                kept = frozenset(one for one in made if one[0] in self._wanted)
                yield self._costs[number], (kept, done | {number})

    def _executed(self, op: Op, held: frozenset[tuple[int, int]]) -> Iterator[frozenset[tuple[int, int]]]:
        """Yield what is held after an op: with what it makes beside the rest, or in place of what dies."""
        lies, shown = dict(held), dict(op.views)
        viewed = held | {(out, lies[source]) for out, source in shown.items()}
        own = [out for out in op.outputs if out not in shown]
        for merged in _choices(op.in_place):
            gone = {one for one in held if any(self._shares(lies, one[0], read) for _, read in merged)}
            if any(one in self._graph.outputs for one, _ in gone) or gone & (viewed - held):
                continue
            # What is made in place lies where what dies lay; the rest must be free of both.
            before = viewed | {(out, lies[read]) for out, read in merged}
            rest = [out for out in own if out not in dict(merged)]
            for made in self._placed(before, rest):
                if not op.workspace or any(True for _ in self._room(made, op.workspace)):
                    yield made - gone

    def _shares(self, lies: dict[int, int], one: int, other: int) -> bool:
        """Whether two held tensors lie in the same bytes."""
        return one == other or (lies[one] == lies[other] and self._size[one] == self._size[other] != 0)

    def _room(self, held: frozenset[tuple[int, int]], size: int) -> Iterator[int]:
        taken = [(at, at + self._size[one]) for one, at in held]
        for at in range(self._capacity - size + 1):
            if all(at + size <= low or high <= at for low, high in taken):
                yield at


@cache
def _choices(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return every set of pairs (made, read) of an op's in-place choices, each tensor in one at most."""
    return tuple(
        chosen
        for count in range(len(pairs) + 1)
        for chosen in itertools.combinations(pairs, count)
        if len({out for out, _ in chosen}) == len({read for _, read in chosen}) == count
    )
