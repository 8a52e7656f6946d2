"""CP-SAT on packings: rectangles of time and addresses that do not overlap, for what the own search cannot do.

That is: blocks of which different bytes are in use at different times, and a second opinion where the search is stuck.
The branching decides, not the model: the block that can lie lowest is placed first, at its lowest address, ties in one
of several orders; every second attempt leaves the branching to CP-SAT, which proves more. One worker and a limit on
conflicts make an attempt repeatable.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.packing import Block
from memsched.search import cpsat
from memsched.search.run import Run
from memsched.solve.allocate.preprocess import common_grid

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CpSatPacking", "fit", "preferred"]


class CpSatPacking(FrozenValue, frozen=True):
    """Addresses in bytes where found, and the conflicts met on the way."""

    status: Literal["found", "infeasible", "unknown"]
    offsets: tuple[int, ...]
    conflicts: int
    stopped: bool = False


def fit(
    blocks: Sequence[Block],
    capacity: int,
    unit: int,
    preferred: Sequence[int] | None,
    *,
    seed: int,
    conflicts: int,
    run: Run,
) -> CpSatPacking:
    """Return addresses within ``capacity`` bytes, or report that none exist.

    Args:
        unit: Bytes of which all positions are multiples in some lowest packing.
        preferred: The order of the blocks that decides ties of the lowest-first branching; None for CP-SAT's own.
        conflicts: How many it may meet; some hundred take a second.
    """
    from ortools.sat.python import cp_model

    if any((block.offset or 0) + block.size > capacity for block in blocks):
        return CpSatPacking("infeasible", (), 0)
    model, steps, addresses = _model(blocks, capacity, unit)
    if preferred is not None:
        first = [steps[index] for index in preferred]
        model.add_decision_strategy(first, cp_model.CHOOSE_LOWEST_MIN, cp_model.SELECT_MIN_VALUE)
    solver = cpsat.new_solver(seed, seconds=run.remaining())
    solver.parameters.max_number_of_conflicts = conflicts
    if preferred is not None:
        solver.parameters.search_branching = cp_model.FIXED_SEARCH
    stopped = False

    def asked() -> bool:
        nonlocal stopped
        stopped = run.over() or stopped
        return stopped

    status = cpsat.run(solver, model, asked)
    stopped = stopped or run.late()
    if status in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        offsets = tuple([solver.value(address) * unit for address in addresses])
        return CpSatPacking("found", offsets, solver.num_conflicts)
    if status == cp_model.INFEASIBLE:
        return CpSatPacking("infeasible", (), solver.num_conflicts)
    return CpSatPacking("unknown", (), solver.num_conflicts, stopped)


def preferred(blocks: Sequence[Block], number: int, seed: int) -> list[int]:
    """Return the order of ``blocks`` that decides ties in attempt ``number``: by a measure, then by chance."""
    times = [sum(part.end - part.begin for part in block.parts) for block in blocks]
    measures: list[Callable[[int], int]] = [
        lambda i: -times[i],
        lambda i: -blocks[i].size,
        lambda i: -blocks[i].size * times[i],
    ]
    if number < len(measures):
        return sorted(range(len(blocks)), key=lambda i: (measures[number](i), i))
    order = list(range(len(blocks)))
    random.Random(f"{seed} {number}").shuffle(order)  # noqa: S311
    return order


def _model(
    blocks: Sequence[Block], capacity: int, unit: int
) -> tuple[cp_model.CpModel, list[cp_model.IntVar], list[cp_model.LinearExprT]]:
    """Return the model in units, and per block its variable and its address, a multiple of the variable."""
    from ortools.sat.python import cp_model

    grid = common_grid(blocks)
    model = cp_model.CpModel()
    steps: list[cp_model.IntVar] = []
    addresses: list[cp_model.LinearExprT] = []
    across, along = [], []
    for block in blocks:
        # Addresses are multiples of the unit and of the alignment, thus of their least common multiple.
        stride = block.alignment // math.gcd(block.alignment, unit)
        if block.offset is None:
            step = model.new_int_var(0, (capacity - block.size) // unit // stride, "")
        else:
            step = model.new_constant(block.offset // unit // stride)
        address = step * stride
        steps.append(step)
        addresses.append(address)
        for part in block.parts:
            size = -(-(part.high - part.low) // grid) * grid // unit
            across.append(model.new_fixed_size_interval_var(part.begin, part.end - part.begin, ""))
            along.append(model.new_fixed_size_interval_var(address + part.low // unit, size, ""))
    model.add_no_overlap_2d(across, along)
    return model, steps, addresses
