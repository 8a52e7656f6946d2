"""Which block lies in which pool, by CP-SAT: as a relaxation that knows no addresses, or with them.

One Boolean per block and pool, exactly one of a block's true; what is in use in a pool at a time fits into it; the sum
of traffic x cost is the least. Every placement satisfies that, so its optimum is a lower bound. With addresses, the
parts of the blocks in a pool are optional rectangles in time x address that may not overlap, and the optimum is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memsched.base.frozen import FrozenValue
from memsched.graph.packing import Block
from memsched.search import cpsat
from memsched.search.run import Run

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CapacityCut", "PoolAssignment", "choose", "crowded_moments"]


class CapacityCut(FrozenValue, frozen=True):
    """Blocks that do not all fit into a pool of ``size`` bytes or less."""

    blocks: tuple[int, ...]
    size: int


class PoolAssignment(FrozenValue, frozen=True):
    """What CP-SAT found.

    Attributes:
        pool_of: Per block its pool; None when nothing was found.
        offsets: Per block its address in its pool; None without addresses; 0 in a pool without a limit.
        bound: No placement costs less.
        optimal: ``pool_of`` is the best there is.
        infeasible: It was proven that there is none.
    """

    pool_of: tuple[int, ...] | None
    offsets: tuple[int, ...] | None
    bound: int
    optimal: bool
    infeasible: bool


def crowded_moments(blocks: Sequence[Block]) -> list[list[tuple[int, int]]]:
    """Return what is in use, as pairs (block, bytes), at each moment when it is most: before something ends."""
    events = sorted(
        (moment, begins, index, part.high - part.low)
        for index, block in enumerate(blocks)
        for part in block.parts
        if part.begin < part.end and part.low < part.high
        for moment, begins in ((part.begin, 1), (part.end, 0))
    )
    live: dict[int, int] = {}
    result, grown = [], False
    for _, begins, index, size in events:
        if begins:
            live[index] = live.get(index, 0) + size
            grown = True
            continue
        if grown:
            result.append(sorted(live.items()))
            grown = False
        live[index] -= size
        if not live[index]:
            del live[index]
    return result


def choose(
    blocks: Sequence[Block],
    costs: Sequence[Sequence[int]],
    sizes: Sequence[int | None],
    *,
    run: Run,
    cuts: Sequence[CapacityCut] = (),
    bound: int = 0,
    hint: tuple[Sequence[int], Sequence[int]] | None = None,
    addresses: bool = False,
) -> PoolAssignment:
    """Return the pools of ``blocks`` for which the sum of costs is least, as far as it was found by the end of ``run``.

    Args:
        costs: Per block and pool what it costs there.
        sizes: Per pool its bytes; None for no limit.
        bound: No placement costs less than this, which is known already.
        hint: Pools and addresses of a placement.
        addresses: Choose them, too.
    """
    model = _AssignmentModel(blocks, sizes, addresses=addresses)
    model.add_cuts(cuts, sizes)
    model.add_objective(costs, bound)
    if hint is not None:
        model.add_hint(*hint)
    return model.search(run)


class _AssignmentModel:
    def __init__(self, blocks: Sequence[Block], sizes: Sequence[int | None], *, addresses: bool) -> None:
        from ortools.sat.python import cp_model

        self._model = cp_model.CpModel()
        self._blocks = blocks
        limited = [size for size in sizes if size is not None]
        self._grid = _grid(blocks)
        self._chosen: list[list[cp_model.IntVar | None]] = [
            [self._model.new_bool_var("") if size is None or block.size <= size else None for size in sizes]
            for block in blocks
        ]
        for literals in self._chosen:
            self._model.add_exactly_one([literal for literal in literals if literal is not None])
        self._add_room(sizes)
        self._addresses: list[cp_model.IntVar] | None = None
        if addresses and limited:
            self._add_addresses(sizes, max(limited))

    def _add_room(self, sizes: Sequence[int | None]) -> None:
        for live in crowded_moments(self._blocks):
            for pool, size in enumerate(sizes):
                if size is None:
                    continue
                terms = [(self._chosen[block][pool], used) for block, used in live]
                known = [(literal, used) for literal, used in terms if literal is not None]
                if sum(used for _, used in known) > size:
                    unit = math.gcd(*[used for _, used in known])
                    self._model.add(sum(literal * (used // unit) for literal, used in known) <= size // unit)

    def _add_addresses(self, sizes: Sequence[int | None], highest: int) -> None:
        model, grid = self._model, self._grid
        self._addresses = []
        rectangles: list[tuple[list[Any], list[Any]]] = [([], []) for _ in sizes]
        for index, block in enumerate(self._blocks):
            step = block.alignment // math.gcd(block.alignment, grid)
            most = max(highest - block.size, 0) // grid
            if step == 1:
                address = model.new_int_var(0, most, "")
            else:
                multiple = model.new_int_var(0, most // step, "")
                address = model.new_int_var(0, most, "")
                model.add(address == multiple * step)
            self._addresses.append(address)
            for pool, size in enumerate(sizes):
                literal = self._chosen[index][pool]
                if size is None or literal is None:
                    continue
                if size < highest:
                    model.add(address * grid + block.size <= size).only_enforce_if(literal)
                for part in block.parts:
                    low, height = part.low // grid, (part.high - part.low) // grid
                    times, places = rectangles[pool]
                    times.append(
                        model.new_optional_fixed_size_interval_var(part.begin, part.end - part.begin, literal, "")
                    )
                    places.append(model.new_optional_fixed_size_interval_var(address + low, height, literal, ""))
        for times, places in rectangles:
            if times:
                model.add_no_overlap_2d(times, places)

    def add_cuts(self, cuts: Sequence[CapacityCut], sizes: Sequence[int | None]) -> None:
        """Forbid that all blocks of a cut lie in one pool for which it holds."""
        for cut in cuts:
            for pool, size in enumerate(sizes):
                known = [literal for block in cut.blocks if (literal := self._chosen[block][pool]) is not None]
                if size is not None and size <= cut.size and len(known) == len(cut.blocks):
                    self._model.add_bool_or([literal.negated() for literal in known])

    def add_objective(self, costs: Sequence[Sequence[int]], bound: int) -> None:
        """The costs above each block's least one, in units of what divides them all."""
        self._constant = sum(min(row) for row in costs)
        terms = [
            (literal, cost - min(row))
            for row, literals in zip(costs, self._chosen, strict=True)
            for literal, cost in zip(literals, row, strict=True)
            if literal is not None and cost > min(row)
        ]
        self._unit = math.gcd(*[cost for _, cost in terms]) or 1
        objective = sum(literal * (cost // self._unit) for literal, cost in terms)
        if terms and bound > self._constant:
            self._model.add(objective >= -(-(bound - self._constant) // self._unit))
        self._model.minimize(objective)

    def add_hint(self, pool_of: Sequence[int], offsets: Sequence[int]) -> None:
        """Tell CP-SAT a placement."""
        for literals, pool in zip(self._chosen, pool_of, strict=True):
            for index, literal in enumerate(literals):
                if literal is not None:
                    self._model.add_hint(literal, index == pool)
        for address, offset in zip(self._addresses or (), offsets, strict=False):
            self._model.add_hint(address, offset // self._grid)

    def search(self, run: Run) -> PoolAssignment:
        """Run CP-SAT in another thread, so that ``run.stop`` and Ctrl-C are heard."""
        from ortools.sat.python import cp_model

        solver = cpsat.new_solver(run.limits.seed, seconds=run.remaining(), effort=run.effort())
        status = cpsat.run(solver, self._model, run.stop)
        run.spend(solver.response_proto.deterministic_time)
        found = status in {cp_model.OPTIMAL, cp_model.FEASIBLE}
        reached = solver.best_objective_bound if status != cp_model.INFEASIBLE else 0.0
        bound = self._constant + self._unit * max(0, math.ceil(reached - 1e-6))
        pool_of = offsets = None
        if found:
            pool_of = tuple(
                next(i for i, literal in enumerate(row) if literal is not None and solver.boolean_value(literal))
                for row in self._chosen
            )
            if self._addresses is not None:
                offsets = tuple(solver.value(address) * self._grid for address in self._addresses)
        return PoolAssignment(pool_of, offsets, bound, status == cp_model.OPTIMAL, status == cp_model.INFEASIBLE)


def _grid(blocks: Sequence[Block]) -> int:
    """Return what divides all sizes and distances: addresses of lowest packings are multiples of it."""
    numbers = [number for block in blocks for part in block.parts for number in (part.low, part.high)]
    return math.gcd(*[block.size for block in blocks], *numbers, *[block.alignment for block in blocks]) or 1
