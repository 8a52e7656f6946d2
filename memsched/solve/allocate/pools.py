"""Which buffer lies in which of several memories, when the fast one is too small for all.

Every byte that is written or read costs what its pool's bytes cost; the sum is to be least (`traffic` says what is
counted). The search is in three stages, each with the best placement of those before it:

1. Greedy: buffers by traffic per byte, each to the cheapest pool in which a gap is left for it. This is the baseline.
2. The relaxation without addresses (`pools_cpsat`), whose optimum is a lower bound. The choice is packed; where that
   fails, the buffers that reach over the pool's end are moved to the next pools, and gaps are filled. Then the
   relaxation is solved again with a cut: of the choice, where it is proven that it cannot be packed; else of each
   buffer that was moved beside those it met, a guess, after which the relaxation proves nothing any more.
3. Pools and addresses in one model, hinted with the best placement.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memsched.base.frozen import FrozenValue
from memsched.graph.liveness import Storage
from memsched.graph.model import Allocation, Graph, Placement, Schedule
from memsched.graph.packing import Block
from memsched.search.limits import QUICK, SHORT_ROUNDS
from memsched.search.run import Run
from memsched.solve.allocate.buffers import blocks as blocks_of
from memsched.solve.allocate.buffers import buffers
from memsched.solve.allocate.pools_cpsat import CapacityCut, choose, crowded_moments
from memsched.solve.allocate.portfolio import pack
from memsched.solve.allocate.shelf import Shelf
from memsched.solve.allocate.traffic import traffic_of
from memsched.targets.model import Pool
from memsched.targets.pool_plan import PoolPlan, PoolStatus

__all__ = ["PoolPacking", "PoolProblem", "greedy_pools", "place_in_pools", "solve_pools"]


_MOST_TERMS = 2_000_000
"""Live blocks, summed over the crowded moments, up to which CP-SAT gets a model; above only the greedy is run."""

_MOST_RECTANGLES = 3_000
"""Parts of blocks up to which CP-SAT chooses addresses as well."""

_ROUNDS = 50
_RELAXED_SHARE = 0.5
"""Share of the time for stage 2."""

_PACK_SECONDS = 2.0

_FEW_PARTS = 60
"""Parts of blocks up to which the model with addresses is solved sooner than a pool is packed: greedy is enough."""


class PoolProblem(FrozenValue, frozen=True):
    """Blocks to be spread over pools.

    Attributes:
        traffic: Per block the bytes written to it and read from it.
        pools: The cheapest first.
    """

    blocks: tuple[Block, ...]
    traffic: tuple[int, ...]
    pools: tuple[Pool, ...]

    @property
    def cheapest(self) -> int:
        """What it costs when every block lies in the first pool: a lower bound."""
        return sum(self.traffic) * self.pools[0].cost

    def cost_of(self, pool_of: Iterable[int]) -> int:
        """Return traffic x cost, summed."""
        return sum([moved * self.pools[pool].cost for moved, pool in zip(self.traffic, pool_of, strict=True)])


class PoolPacking(FrozenValue, frozen=True):
    """A placement of blocks in pools.

    Attributes:
        pool_of: Per block its pool; empty when nothing was found.
        offsets: Per block its address in its pool.
        traffic: Bytes accessed x the cost of their pool; 0 when nothing was found.
        lower_bound: No placement costs less.
        greedy_traffic: What the greedy placement costs; None when it found none.
        status: "optimal": traffic == lower_bound. "infeasible": proven that the pools are too small. "unknown":
            nothing was found in time.
        method: What found the placement.
        seconds: Time spent.
    """

    pool_of: tuple[int, ...]
    offsets: tuple[int, ...]
    traffic: int
    lower_bound: int
    greedy_traffic: int | None
    status: PoolStatus
    proof: str
    method: str
    seconds: float = 0.0


@dataclass(slots=True)
class _PoolIncumbent:
    """The best placement so far and what is proven."""

    problem: PoolProblem
    bound: int
    proof: str
    pool_of: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    cost: float = math.inf
    method: str = ""

    def offer(self, placed: tuple[tuple[int, ...], tuple[int, ...]] | None, method: str) -> None:
        if placed is not None and (cost := self.problem.cost_of(placed[0])) < self.cost:
            self.pool_of, self.offsets, self.cost, self.method = *placed, cost, method

    def prove(self, bound: int, proof: str) -> None:
        if bound > self.bound:
            self.bound, self.proof = bound, proof

    @property
    def done(self) -> bool:
        return self.cost <= self.bound


def place_in_pools(
    graph: Graph,
    schedule: Schedule,
    pools: Sequence[Pool],
    *,
    alignment: int,
    run: Run,
) -> PoolPlan:
    """Return addresses in ``pools`` for the buffers of ``schedule`` with the least weighted traffic found.

    Args:
        alignment: Every offset and size is a multiple of it, bytes.
        run: When to end, with the best placement so far.
    """
    storage = Storage.of(graph)
    wanted = buffers(graph, schedule, storage)
    packed = blocks_of(wanted, alignment)
    moved = traffic_of(graph, schedule, wanted, storage)
    traffic = [0] * len(packed.blocks)
    for block, one in zip(packed.block_of, moved, strict=True):
        traffic[block] += one
    problem = PoolProblem(packed.blocks, tuple(traffic), tuple(pools))
    found = solve_pools(problem, run)
    placements: list[list[Placement]] = [[] for _ in pools]
    accessed = [0] * len(pools)
    for buffer, size, block, one in zip(wanted, packed.sizes, packed.block_of, moved, strict=True):
        if found.pool_of:
            offset = found.offsets[block] + buffer.distance
            place = Placement(buffer.tensors, offset, size, buffer.first_step, buffer.last_step)
            placements[found.pool_of[block]].append(place)
            accessed[found.pool_of[block]] += one
    allocations = tuple([_allocation(places, alignment, found.method) for places in placements])
    return PoolPlan(
        pools=tuple(pools),
        allocations=allocations if found.status in {"optimal", "feasible"} else (),
        bytes_accessed=tuple(accessed),
        traffic=found.traffic,
        lower_bound=found.lower_bound,
        greedy_traffic=found.greedy_traffic,
        dearest_traffic=sum(traffic) * pools[-1].cost,
        status=found.status,
        proof=found.proof,
        method=found.method,
        seconds=found.seconds,
    )


def _allocation(placements: Sequence[Placement], alignment: int, method: str) -> Allocation:
    blocks = [Block.whole(one.size, one.first_step, one.last_step + 1) for one in placements]
    bound = max([sum(size for _, size in live) for live in crowded_moments(blocks)], default=0)
    arena = max([one.offset + one.size for one in placements], default=0)
    return Allocation(tuple(placements), arena, bound, alignment, "optimal" if arena == bound else "feasible", method)


def solve_pools(problem: PoolProblem, run: Run) -> PoolPacking:
    """Spread blocks over pools so that the weighted traffic is least; see the module for how.

    The same problem, seed and version give the same result where neither the search nor an attempt to pack a pool runs
    out of its time; always without a limit of time. A limit of work holds for each of CP-SAT's searches.
    """
    began = time.monotonic()
    best = _PoolIncumbent(problem, problem.cheapest, "every byte in the cheapest pool")
    greedy = greedy_pools(problem)
    best.offer(greedy, "greedy by traffic per byte")
    greedy_cost = problem.cost_of(greedy[0]) if greedy is not None else None
    infeasible = False
    if not best.done and not run.over():
        infeasible = _PoolSearch(best, run).run()
    found = best.cost < math.inf
    if best.done:
        status: PoolStatus = "optimal"
    else:
        status = "feasible" if found else "infeasible" if infeasible else "unknown"
    return PoolPacking(
        pool_of=best.pool_of,
        offsets=best.offsets,
        traffic=problem.cost_of(best.pool_of) if found else 0,
        lower_bound=best.bound,
        greedy_traffic=greedy_cost,
        status=status,
        proof="no placement fits" if status == "infeasible" else best.proof,
        method=best.method,
        seconds=time.monotonic() - began,
    )


class _PoolSearch:
    """Stages 2 and 3."""

    def __init__(self, best: _PoolIncumbent, run: Run) -> None:
        self._best = best
        self._problem = best.problem
        self._run = run
        # Work is counted for each of CP-SAT's searches: only the time is shared out.
        self._first = run if run.limits.time_limit is None else run.within(_RELAXED_SHARE)
        self._sizes = [pool.size for pool in best.problem.pools]
        self._costs = [[moved * pool.cost for pool in best.problem.pools] for moved in best.problem.traffic]
        self._cuts: list[CapacityCut] = []
        self._guesses: list[CapacityCut] = []
        parts = sum(len(block.parts) for block in best.problem.blocks)
        self._few, self._too_many = parts <= _FEW_PARTS, parts > _MOST_RECTANGLES

    def run(self) -> bool:
        """Return whether it was proven that nothing fits."""
        terms = sum(len(live) for live in crowded_moments(self._problem.blocks))
        if terms * len(self._sizes) > _MOST_TERMS:
            return False
        if self._relaxed():
            return True
        return not (self._best.done or self._run.over() or self._too_many) and self._exact()

    def _relaxed(self) -> bool:
        """Return whether it was proven that nothing fits."""
        for _ in range(_ROUNDS):
            choice = choose(
                self._problem.blocks,
                self._costs,
                self._sizes,
                run=self._first,
                cuts=[*self._cuts, *self._guesses],
                bound=self._best.bound,
            )
            if not self._guesses:
                if choice.infeasible:
                    return True
                self._best.prove(choice.bound, "relaxation without addresses")
            if choice.pool_of is None or self._problem.cost_of(choice.pool_of) >= self._best.cost:
                return False
            known = len(self._cuts)
            placed = self._packed(choice.pool_of)
            self._best.offer(placed, "relaxation, packed")
            if self._best.done or self._first.over() or not choice.optimal:
                return False
            if len(self._cuts) == known:
                if self._few:
                    return False
                self._guess(choice.pool_of, placed)
        return False

    def _guess(self, chosen: Sequence[int], placed: tuple[tuple[int, ...], tuple[int, ...]] | None) -> None:
        """Forbid each block that was moved to a later pool beside those that it would have met."""
        blocks = self._problem.blocks
        for block, number in enumerate(chosen):
            size = self._sizes[number]
            if size is None or (placed is not None and placed[0][block] <= number):
                continue
            spans = blocks[block].parts
            near = [
                other
                for other, pool in enumerate(chosen)
                if pool == number
                and any(a.begin < b.end and b.begin < a.end for a in spans for b in blocks[other].parts)
            ]
            self._guesses.append(CapacityCut(tuple(near), size))

    def _packed(self, chosen: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return a placement near ``chosen``: what does not fit goes to a later pool, what finds a gap to an earlier.

        A pool's choice of which it is proven that it does not fit becomes a cut.
        """
        problem = self._problem
        pool_of, offsets = list(chosen), [-1] * len(chosen)
        by_density = _by_density(problem)
        for number, pool in enumerate(problem.pools):
            members = [block for block, chosen_pool in enumerate(pool_of) if chosen_pool == number]
            if pool.size is None:
                self._put(members, _heights(problem, members), offsets)
                break
            shelf = Shelf(problem.blocks, pool.size)
            for block, offset in self._fitted(members, pool.size, [chosen[block] == number for block in members]):
                offsets[block] = offset
                shelf.add(block, offset)
            for block in by_density:
                if offsets[block] < 0 and pool_of[block] >= number:
                    place = shelf.find(block)
                    if place is not None:
                        pool_of[block], offsets[block] = number, place
                        shelf.add(block, place)
                    elif pool_of[block] == number:
                        if number + 1 == len(problem.pools):
                            return None
                        pool_of[block] = number + 1
        return tuple(pool_of), tuple(offsets)

    @staticmethod
    def _put(members: Sequence[int], addresses: Sequence[int], offsets: list[int]) -> None:
        for block, offset in zip(members, addresses, strict=True):
            offsets[block] = offset

    def _fitted(self, members: Sequence[int], size: int, original: Sequence[bool]) -> list[tuple[int, int]]:
        """Return the addresses of those of ``members`` that lie within ``size`` bytes."""
        problem = self._problem
        inside = [problem.blocks[block] for block in members]
        packing = pack(inside, self._short(), capacity=size, minimize=False)
        if packing.status == "infeasible":
            if all(original):
                self._cuts.append(CapacityCut(tuple(self._fewer(members, size)), size))
            addresses: Sequence[int] = _heights(problem, members)
        else:
            addresses = packing.offsets
        return [
            (block, offset)
            for block, offset in zip(members, addresses, strict=True)
            if offset + problem.blocks[block].size <= size
        ]

    def _short(self) -> Run:
        """Return a run for one attempt to pack a pool; it ends with the stage, and at once where greedy is enough."""
        limits = dataclasses.replace(self._run.limits, rounds=SHORT_ROUNDS)
        if limits.time_limit is not None:
            limits = dataclasses.replace(limits, time_limit=_PACK_SECONDS)
        return dataclasses.replace(self._run.again(limits), stop=lambda: self._few or self._first.over())

    def _fewer(self, members: Sequence[int], size: int) -> list[int]:
        """Return fewer of ``members`` that do not fit together either, as far as that is proven at once."""
        kept = list(members)
        step = max(1, len(kept) // 4)
        while step:
            place = 0
            while place < len(kept) and not self._run.over():
                rest = kept[:place] + kept[place + step :]
                inside = [self._problem.blocks[block] for block in rest]
                if rest and pack(inside, Run(QUICK, stop=_at_once), capacity=size).status == "infeasible":
                    kept = rest
                else:
                    place += step
            step //= 2
        return kept

    def _exact(self) -> bool:
        hint = (self._best.pool_of, self._best.offsets) if self._best.pool_of else None
        choice = choose(
            self._problem.blocks,
            self._costs,
            self._sizes,
            run=self._run,
            cuts=self._cuts,
            bound=self._best.bound,
            hint=hint,
            addresses=True,
        )
        if choice.infeasible:
            return True
        self._best.prove(choice.bound, "CP-SAT with addresses")
        if choice.pool_of is not None and choice.offsets is not None:
            offsets = list(choice.offsets)
            for number, pool in enumerate(self._problem.pools):
                if pool.size is None:
                    members = [block for block, chosen in enumerate(choice.pool_of) if chosen == number]
                    self._put(members, _heights(self._problem, members), offsets)
            self._best.offer((choice.pool_of, tuple(offsets)), "CP-SAT with addresses")
        return False


def _at_once() -> bool:
    return True


def _heights(problem: PoolProblem, members: Sequence[int]) -> tuple[int, ...]:
    """Return low addresses for ``members`` in a pool without a limit."""
    return pack([problem.blocks[block] for block in members], Run(QUICK, stop=_at_once)).offsets


def _by_density(problem: PoolProblem) -> list[int]:
    """Return the blocks by falling traffic per byte; of equals the larger, then the earlier."""

    def key(block: int) -> tuple[float, int, int]:
        size = problem.blocks[block].size
        return (-problem.traffic[block] / size if size else -math.inf, -size, block)

    return sorted(range(len(problem.blocks)), key=key)


def greedy_pools(problem: PoolProblem) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return pool and address per block: by traffic per byte, each in the first pool with a gap for it.

    None when some block finds no place.
    """
    shelves = [Shelf(problem.blocks, pool.size) for pool in problem.pools if pool.size is not None]
    pool_of, offsets = [len(shelves)] * len(problem.blocks), [-1] * len(problem.blocks)
    for block in _by_density(problem):
        for number, shelf in enumerate(shelves):
            place = shelf.find(block)
            if place is not None:
                pool_of[block], offsets[block] = number, place
                shelf.add(block, place)
                break
        else:
            if len(shelves) == len(problem.pools):
                return None
    last = [block for block, number in enumerate(pool_of) if number == len(shelves)]
    for block, offset in zip(last, _heights(problem, last), strict=True):
        offsets[block] = offset
    return tuple(pool_of), tuple(offsets)
