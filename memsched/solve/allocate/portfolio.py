"""The allocator: greedy planning first, then local search, then exact search, each only as long as it can help.

What greedy planning leaves above the bound is cut into components that can be packed apart. Only the highest one
matters: it is searched until it is no longer the highest or nothing more can be done about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from memsched.graph.packing import Block, Packing, PackStatus, height_of
from memsched.search.limits import QUICK
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.solve.allocate import local
from memsched.solve.allocate.bounds import lower_bound
from memsched.solve.allocate.components import Component, components
from memsched.solve.allocate.conflicts import check_given, without_overlaps
from memsched.solve.allocate.greedy import MOST_SCANNED, GreedyPlanner

__all__ = ["pack"]

_SHORT_EFFORT = 400_000
_EFFORT = 2_000_000
"""Steps of the local search: hundredths of a second, or with an exact search to follow a little more."""


def pack(
    blocks: Sequence[Block],
    run: Run | None,
    *,
    capacity: int | None = None,
    minimize: bool = True,
    longer: bool = False,
) -> Packing:
    """Return addresses for ``blocks``, as low as can be found, with what is proven about the height.

    Args:
        run: When to end, with the lowest packing so far; receives each lower height. None, like no rounds,
            for greedy planning and a short local search only.
        capacity: Bytes that the packing should fit into. The result is "infeasible" where it is proven that nothing
            does; where nothing was found in time, it is the lowest packing found, which is higher than this.
        minimize: False: with ``capacity``, the first packing that fits is good enough.
        longer: The local search is as long as before an exact one, where none follows, too.

    Raises:
        UsageError: Given addresses that overlap or contradict an alignment.
    """
    began = time.monotonic()
    room = None if minimize else capacity
    search = _PackingPortfolio(blocks, run or Run(QUICK), room, longer=longer)
    if capacity is not None and search.bound > capacity:
        return Packing((), 0, search.bound, "infeasible", search.proof, "bound", 0, time.monotonic() - began)
    search.run(search.bound if minimize or capacity is None else max(search.bound, capacity))
    status: PackStatus = "optimal" if search.height == search.bound else "feasible"
    if capacity is not None and search.bound > capacity:
        search.offsets, search.height, status = [], 0, "infeasible"
    return Packing(
        offsets=tuple(search.offsets),
        height=search.height,
        lower_bound=search.bound,
        status=status,
        proof=search.proof,
        method=search.method,
        states=search.states,
        seconds=time.monotonic() - began,
    )


class _PackingPortfolio:
    """The lowest packing so far of a set of blocks, and what is proven."""

    def __init__(self, blocks: Sequence[Block], run: Run, room: int | None, *, longer: bool) -> None:
        self.blocks = without_overlaps(blocks)
        check_given(self.blocks)
        self.bound, self.proof = lower_bound(self.blocks)
        self.offsets: list[int] = []
        self.height = 0
        self.method = ""
        self.states = 0
        self._run = run
        self._room, self._longer = room, longer
        run.spend(len(blocks) * MachinePace.BLOCK_SECONDS)

    def run(self, goal: int) -> None:
        """Search until the height is at most ``goal`` or nothing more can be done in time."""
        planner = GreedyPlanner(self.blocks)
        self.height, self.offsets, self.method = planner.run(goal, self._run.over)
        self.states = self._planned(planner)
        self._tell("greedy planning")
        if self.height <= goal or self._run.over() or len(self.blocks) > MOST_SCANNED:
            return
        found, bottom = components(self.blocks)
        if len(found) == 1 and not bottom:
            parts = [_ComponentPacking(self.blocks, found[0], planner)]
        else:
            parts = [_ComponentPacking(self.blocks, component) for component in found]
            for part in parts:
                part.plan(goal, self._run.over)
                self.states += self._planned(part.planner)
        ends = [offset + self.blocks[index].size for index, offset in bottom.items()]
        self._raise_bound(max([*ends, *[part.bound for part in parts]], default=0), "the bound of a component")
        while parts and not self._run.over():
            self._combine(parts, bottom)
            highest = max(parts, key=lambda part: part.height)
            if self.height <= max(goal, self.bound) or highest.finished:
                break
            others = max([part.height for part in parts if part is not highest], default=0)
            self._improve(highest, max(goal, self.bound), others)
            self._tell(highest.method)
        self._combine(parts, bottom)

    def _improve(self, part: _ComponentPacking, goal: int, others: int) -> None:
        """Do the next thing that may lower the highest component; it matters no more once it is below ``others``."""
        if not part.searched:
            effort, left = _EFFORT if self._exactly() or self._longer else _SHORT_EFFORT, self._run.effort()
            if left is not None:
                effort = min(effort, int(left * MachinePace.PACKING_STEPS))
            tried = part.search(goal, self._run.limits.seed, effort, self._run.over)
            self._run.spend(tried * part.planner.order_steps / MachinePace.PACKING_STEPS)
            self.states += tried
        else:
            enough = max(goal, others - 1)
            if self._exactly():
                self._solve(part, enough)
            part.finished = part.height > enough

    def _planned(self, planner: GreedyPlanner) -> int:
        """Count what a planner did, and return how many plans it made."""
        self._run.spend(len(planner.found) * planner.order_steps / MachinePace.PACKING_STEPS)
        return len(planner.found)

    def _exactly(self) -> bool:
        """Whether an exact search may follow."""
        return self._run.limits.rounds != 0

    def _solve(self, part: _ComponentPacking, enough: int) -> None:
        from memsched.solve.allocate import exact

        solved = exact.solve(
            part.blocks,
            self._run,
            capacity=None if self._room is None else self._room - part.base,
            lower_bound=max(self.bound, part.bound) - part.base,
            incumbent=part.offsets,
            enough=enough - part.base,
        )
        self.states += solved.states
        self._raise_bound(solved.lower_bound + part.base, solved.proof)
        if solved.status != "infeasible" and solved.height + part.base < part.height:
            part.take(list(solved.offsets), solved.method)

    def _raise_bound(self, bound: int, proof: str) -> None:
        if bound > self.bound:
            self.bound, self.proof = bound, proof

    def _combine(self, parts: Sequence[_ComponentPacking], bottom: dict[int, int]) -> None:
        """Put the components together where that is lower than what was found for all blocks at once."""
        offsets = [0] * len(self.blocks)
        for index, offset in bottom.items():
            offsets[index] = offset
        for part in parts:
            for index, offset in zip(part.members, part.offsets, strict=True):
                offsets[index] = part.base + offset
        height = height_of(self.blocks, offsets)
        if height < self.height:
            highest = max(parts, key=lambda part: part.height, default=None)
            self.offsets, self.height = offsets, height
            self.method = highest.method if highest else "always in use"

    def _tell(self, stage: str) -> None:
        self._run.tell(stage, self.height, self.bound)


class _ComponentPacking:
    """A component with the lowest packing found for it; heights and bounds count from the bottom of everything."""

    def __init__(self, blocks: Sequence[Block], component: Component, planner: GreedyPlanner | None = None) -> None:
        self.members = component.members
        self.base = component.base
        self.blocks = [blocks[index] for index in component.members]
        self.bound = self.base + lower_bound(self.blocks)[0]
        self.planner = planner or GreedyPlanner(self.blocks)
        self.searched = self.finished = False
        self.offsets: list[int] = []
        self.height = 0
        self.method = ""
        if planner is not None:
            _, self.offsets, method = min(planner.found, key=lambda one: one[0])
            self.take(self.offsets, method)

    def take(self, offsets: list[int], method: str) -> None:
        self.offsets, self.method = offsets, method
        self.height = self.base + height_of(self.blocks, offsets)

    def plan(self, goal: int, stop: Callable[[], bool] | None) -> None:
        """Plan greedily, down to ``goal`` from the bottom of everything."""
        _, offsets, method = self.planner.run(max(goal, self.bound) - self.base, stop)
        self.take(offsets, method)

    def search(self, goal: int, seed: int, effort: int, stop: Callable[[], bool] | None) -> int:
        """Search from the greedy orders and return how many orders were tried."""
        height, offsets, tried = local.improve(self.planner, goal - self.base, seed=seed, effort=effort, stop=stop)
        if self.base + height < self.height:
            self.take(offsets, "local search")
        self.searched = True
        return tried
