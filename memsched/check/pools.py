"""The checker of placements in several memories, on top of the checker of addresses in one."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from memsched.base.errors import InternalError
from memsched.check.schedule import check_allocation
from memsched.graph.model import Allocation, Graph, Placement, Schedule
from memsched.targets.pool_plan import PoolPlan

__all__ = ["check_pool_plan"]


def check_pool_plan(graph: Graph, schedule: Schedule, plan: PoolPlan) -> None:
    """Check that every buffer of ``schedule`` lies in exactly one pool and shares its bytes there with nothing.

    The pools, one above the other, make one arena, which the checker of allocations can judge.

    Raises:
        InternalError: A buffer in no pool or in two, an overlap, a pool that is too small, or figures that disagree.
    """
    if plan.status in {"infeasible", "unknown"}:
        if plan.allocations or plan.traffic:
            raise InternalError("addresses in pools are given although none are said to be found", code="misfit-claim")
        return
    if len(plan.allocations) != len(plan.pools) or len(plan.bytes_accessed) != len(plan.pools):
        raise InternalError(
            f"{len(plan.allocations)} allocations are given for {len(plan.pools)} pools", code="pool-count"
        )
    stacked: list[list[Placement]] = []
    base = 0
    for pool, allocation in zip(plan.pools, plan.allocations, strict=True):
        reached = max((one.offset + one.size for one in allocation.placements), default=0)
        if reached != allocation.arena:
            raise InternalError(
                f"pool '{pool.name}' is claimed to use {allocation.arena} bytes, but uses {reached}", code="arena-claim"
            )
        if pool.size is not None and reached > pool.size:
            raise InternalError(f"pool '{pool.name}' has {pool.size} bytes, but {reached} are used", code="too-high")
        stacked.append([replace(one, offset=base + one.offset) for one in allocation.placements])
        base += -(-reached // allocation.alignment) * allocation.alignment
    placements = tuple(chain.from_iterable(stacked))
    arena = max((one.offset + one.size for one in placements), default=0)
    alignment = plan.allocations[0].alignment if plan.allocations else 1
    check_allocation(graph, schedule, Allocation(placements, arena, 0, alignment, "feasible", plan.method))
    cost = sum(moved * pool.cost for moved, pool in zip(plan.bytes_accessed, plan.pools, strict=True))
    if cost != plan.traffic:
        raise InternalError(
            f"the weighted traffic is claimed to be {plan.traffic}, but is {cost}", code="traffic-claim"
        )
    if plan.lower_bound > cost or (plan.status == "optimal" and plan.lower_bound != cost):
        raise InternalError(f"a weighted traffic of {cost} does not fit its bound of {plan.lower_bound}", code="bound")
