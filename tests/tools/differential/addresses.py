"""Addresses: every planner and exact packing, and order with addresses against one after the other."""

from __future__ import annotations

import random
from collections.abc import Sequence

from memsched.check.packing import check_packing
from memsched.check.schedule import check_allocation
from memsched.graph.contraction import single_op_tasks
from memsched.graph.liveness import Storage
from memsched.graph.packing import Block, BlockPart, Packing
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.allocate import exact
from memsched.solve.allocate.arena import allocate
from memsched.solve.allocate.buffers import blocks as blocks_of
from memsched.solve.allocate.buffers import buffers
from memsched.solve.allocate.conflicts import without_overlaps
from memsched.solve.allocate.greedy import GreedyPlanner
from memsched.solve.allocate.portfolio import pack
from memsched.solve.joint import cpsat, fit
from memsched.solve.joint.improve import improve
from memsched.solve.schedule.portfolio import schedule_graph
from tests.random_graphs import random_graph
from tests.tools.differential.claims import Claim, Pair, disagreements
from tests.tools.differential.orders import graph_of

__all__ = ["PAIRS"]

_LIMITS = Limits(5.0, rounds=2)
_FIT_EFFORT = 0.2


def _random_blocks(rng: random.Random) -> list[Block]:
    """Blocks with gaps in their lifetimes, parts and alignments."""
    times, largest = rng.randint(2, 12), rng.choice([6, 20, 60])
    found = []
    for _ in range(rng.randint(2, 16)):
        size, alignment = rng.randint(1, largest), rng.choice([1, 1, 2, 4, 3])
        spans = sorted(rng.sample(range(times + 1), 2) for _ in range(rng.choice([1, 1, 1, 2, 3])))
        parts = []
        whole = rng.random() < 0.7
        for one in spans:
            low = 0 if whole else rng.randrange(size)
            parts.append(BlockPart(min(one), max(one), low, size if whole else rng.randint(low, size)))
        found.append(Block(size, tuple(parts), alignment))
    return found


def _blocks(number: int) -> list[Block]:
    """Blocks at random, or the buffers of a graph's order."""
    rng = random.Random(f"blocks {number}")
    if rng.random() < 0.5:
        return _random_blocks(rng)
    graph = random_graph(rng, rng.randint(5, 25), layable=True)
    schedule = schedule_graph(graph, Run(Limits(0.0))).schedule
    return list(blocks_of(buffers(graph, schedule), rng.choice([1, 4, 16])).blocks)


def _claim(name: str, blocks: Sequence[Block], found: Packing) -> Claim:
    check_packing(blocks, found)
    return Claim(name, found.height, found.lower_bound)


def _packers(number: int) -> list[str]:
    blocks = _blocks(number)
    best = pack(blocks, Run(_LIMITS))
    claims = [
        _claim("portfolio", blocks, best),
        _claim("greedy with local search", blocks, pack(blocks, None)),
        _claim("exact search", blocks, exact.solve(blocks, Run(_LIMITS), lower_bound=0)),
    ]
    planner = GreedyPlanner(without_overlaps(blocks))
    planner.run(0)
    for height, offsets, name in planner.found:
        packing = Packing(tuple(offsets), height, 0, "feasible", "", name)
        claims.append(_claim(name, blocks, packing))
    addresses = fit.fit(without_overlaps(blocks), best.height - 1, effort=_FIT_EFFORT)
    if addresses is not None:
        claims.append(Claim("CP-SAT by rectangles", best.height - 1, 0))
    return disagreements(claims)


def _workers(number: int) -> list[str]:
    blocks = _blocks(number)
    first, second = (
        exact.solve(blocks, Run(Limits(None, workers=workers, rounds=4)), lower_bound=0) for workers in (1, 2)
    )
    same = (first.offsets, first.lower_bound) == (second.offsets, second.lower_bound)
    return [] if same else [f"one worker: {first.height} bytes, two: {second.height}, or other addresses"]


def _together(number: int) -> list[str] | None:
    """The program of order and addresses against order, then addresses, then other orders of the same peak."""
    rng = random.Random(f"together {number}")
    graph = random_graph(rng, rng.randint(2, 9), views=rng.random() < 1 / 3, layable=True)
    storage = Storage.of(graph)
    schedule = schedule_graph(graph, Run(_LIMITS), storage=storage).schedule
    apart = allocate(graph, schedule, alignment=1, storage=storage, run=Run(_LIMITS))
    check_allocation(graph, schedule, apart)
    later, addresses = improve(
        graph, storage, schedule, apart, run=Run(_LIMITS), alignment=1
    )  # fmt: skip
    check_allocation(graph, later, addresses)
    claims = [
        Claim("least peak", None, schedule.lower_bound),
        Claim("order, then addresses", apart.arena, 0),
        Claim("orders of the same peak", addresses.arena, 0),
    ]
    program = cpsat.solve(
        single_op_tasks(storage), alignment=1, peak_limit=schedule.peak, lower_bound=0, upper_bound=apart.arena + 1
    )
    if program.status != "refused":
        claims.append(Claim("program", None if program.order is None else program.arena, program.lower_bound))
    found = disagreements(claims)
    if addresses.arena > apart.arena or later.peak > schedule.peak:
        found.append(f"improving {apart.arena} of peak {schedule.peak} gives {addresses.arena} of {later.peak}")
    return found


def _arena(number: int) -> list[str]:
    """No arena is below the peak, whatever the alignment."""
    graph = graph_of(number, layable=True)
    schedule = schedule_graph(graph, Run(_LIMITS)).schedule
    found = []
    for alignment in (1, 16):
        arena = allocate(graph, schedule, alignment=alignment, run=Run(_LIMITS))
        check_allocation(graph, schedule, arena)
        found += disagreements([Claim("peak", None, schedule.peak), Claim("arena", arena.arena, arena.lower_bound)])
    return found


PAIRS = (
    Pair("addresses: portfolio, exact search, CP-SAT, every planner", _packers, 3),
    Pair("addresses: one worker, two", _workers, 100),
    Pair("arena: order and addresses in one program, in turn, other orders", _together, 2),
    Pair("arena: peak, alignments", _arena, 5),
)
