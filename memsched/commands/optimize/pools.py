"""Where a plan's buffers lie when the target has several memories."""

from __future__ import annotations

import dataclasses

from memsched.check.pools import check_pool_plan
from memsched.runtimes.graph_plan import GraphPlan
from memsched.search.run import Run
from memsched.solve.allocate.pools import place_in_pools
from memsched.targets.model import Target
from memsched.targets.pool_plan import PoolPlan

__all__ = ["plan_pools"]

_LEAST_SHARE = 0.25
"""Share of the time limit that the placement gets even when the search for the order has used it up."""


def plan_pools(plan: GraphPlan, target: Target, run: Run) -> PoolPlan | None:
    """Return checked addresses in the target's pools for ``plan``; None for a target with one memory."""
    if not target.pools:
        return None
    limits = run.limits
    if limits.time_limit is not None:
        left = max(run.remaining(), _LEAST_SHARE * limits.time_limit)
        limits = dataclasses.replace(limits, time_limit=left)
    found = place_in_pools(
        plan.graph,
        plan.schedule,
        target.pools,
        alignment=target.alignment_bytes,
        run=run.again(limits),
    )
    check_pool_plan(plan.graph, plan.schedule, found)
    return found
