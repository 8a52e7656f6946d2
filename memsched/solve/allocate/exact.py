"""Addresses of the least height, or within a capacity, with proof: many short searches, then longer ones.

Attempts come in rounds. Each round tries all tie rules of `search` with twice as many nodes as the round before, first
at the least height that is not excluded; an attempt that exhausts its tree excludes that height and says the next
one that is possible. What was found or excluded by the attempt of lowest number counts, whichever process is first to
end, so that the result depends on the input and the seed alone unless time runs out. From the third round on
packings are also grown, and rebuilt where there is much room; see `growth` and `rebuild`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.packing import Block, Packing, PackStatus, height_of
from memsched.search.run import Run
from memsched.solve.allocate.bounds import live_bound
from memsched.solve.allocate.components import Component, components
from memsched.solve.allocate.conflicts import check_given, without_overlaps
from memsched.solve.allocate.greedy import GreedyPlanner
from memsched.solve.allocate.rounds import PackingTask, Rounds

__all__ = ["solve"]


def solve(
    blocks: Sequence[Block],
    run: Run,
    *,
    capacity: int | None = None,
    lower_bound: int,
    incumbent: Sequence[int] | None = None,
    enough: int = 0,
) -> Packing:
    """Return the lowest packing of ``blocks``, or with ``capacity`` the first one found that fits.

    With a capacity the result is "infeasible" when it is proven that nothing fits; when neither is found in time, it
    is the lowest packing known, which is higher than the capacity.

    Args:
        run: When to end, with the best so far.
        lower_bound: Bytes that no packing is lower than, of the caller.
        incumbent: Addresses of the best packing known; by default greedy planning finds one.
        enough: Bytes of a packing that need not be lowered further, although it may be.

    Raises:
        UsageError: Given addresses that overlap or contradict an alignment.
    """
    began = time.monotonic()
    whole = without_overlaps(blocks)
    check_given(whole)
    search = _PackingSolver(run)
    goal = max(lower_bound, enough if capacity is None else capacity)
    if incumbent is None:
        incumbent = GreedyPlanner(whole).run(goal)[1]
    best = _PackingIncumbent(tuple(incumbent), height_of(whole, incumbent), lower_bound, "given bound", "incumbent")
    if (capacity is None or lower_bound <= capacity) and best.height > goal:
        best = search.improve(whole, best, goal, capacity)
    seconds = time.monotonic() - began
    if capacity is not None and best.bound > capacity:
        return Packing((), 0, best.bound, "infeasible", best.proof, search.method, search.states, seconds)
    status: PackStatus = "optimal" if best.height == best.bound else "feasible"
    return Packing(best.offsets, best.height, best.bound, status, best.proof, best.method, search.states, seconds)


class _PackingIncumbent(FrozenValue, frozen=True):
    """The lowest packing known, bytes, and what is proven."""

    offsets: tuple[int, ...]
    height: int
    bound: int
    proof: str
    method: str


class _PackingSolver:
    def __init__(self, run: Run) -> None:
        self._run = run
        self.states = 0
        self.method = "exact search"

    def improve(
        self, blocks: Sequence[Block], best: _PackingIncumbent, goal: int, capacity: int | None
    ) -> _PackingIncumbent:
        """Return the packing put together from those of the components, the highest bound first."""
        used = [index for index, block in enumerate(blocks) if block.parts]
        parts, bottom = _components([blocks[index] for index in used])
        offsets = [block.offset or 0 for block in blocks]
        for index, offset in bottom.items():
            offsets[used[index]] = offset
        bounds = [part.base + live_bound([blocks[used[index]] for index in part.members]) for part in parts]
        unused = max((block.size + (block.offset or 0) for block in blocks if not block.parts), default=0)
        bound, proof = max(best.bound, unused, *bounds), best.proof
        enough = max(bound, goal)
        for number in sorted(range(len(parts)), key=lambda number: (-bounds[number], number)):
            part = parts[number]
            members = [used[index] for index in part.members]
            own = [blocks[index] for index in members]
            given = tuple([best.offsets[index] for index in members]) if len(members) == len(used) else None
            found = self._component(own, part, bounds[number], enough, given, capacity is None)
            for index, offset in zip(members, found.offsets, strict=True):
                offsets[index] = part.base + offset
            if part.base + found.bound > bound:
                bound, proof = part.base + found.bound, found.proof
            enough = max(enough, bound)
            if capacity is not None and (bound > capacity or part.base + found.height > capacity):
                break
        else:
            height = height_of(blocks, offsets)
            if height < best.height:
                return _PackingIncumbent(tuple(offsets), height, bound, proof, self.method)
        return _PackingIncumbent(
            best.offsets, best.height, min(bound, best.height) if capacity is None else bound, proof, best.method
        )

    def _component(
        self,
        own: Sequence[Block],
        part: Component,
        bound: int,
        enough: int,
        given: tuple[int, ...] | None,
        minimize: bool,
    ) -> _PackingIncumbent:
        """Return the best packing of one component; heights and bounds are without what lies below it."""
        enough -= part.base
        if given is None:
            _, planned, _ = GreedyPlanner(own).run(enough)
            given = tuple(planned)
        best = _PackingIncumbent(given, height_of(own, given), bound - part.base, "bytes in use at once", "greedy")
        if best.height <= enough or self._run.over():
            return best
        task = PackingTask.of(own)
        if task is None:
            return best
        rounds = Rounds(task, self._run)
        try:
            offsets, height, low = rounds.settle(given, best.height, best.bound, enough, minimize=minimize)
        finally:
            rounds.close()
        self.states += rounds.states
        proof = "exhausted search" if low > best.bound else best.proof
        return _PackingIncumbent(offsets, height, low, proof, "exact search")


def _components(blocks: Sequence[Block]) -> tuple[list[Component], dict[int, int]]:
    """Return the components; all in one where windows let a block reach past one that is always in use."""
    if all(part.low == 0 and part.high == block.size for block in blocks for part in block.parts):
        return components(blocks)
    return [Component(tuple(range(len(blocks))), 0)], {}
