"""Where a plan's buffers lie when the target has several memories."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from memsched.allocate.pools import place_in_pools
from memsched.check.pools import check_pool_plan
from memsched.runtimes.graph_plan import GraphPlan
from memsched.search.limits import Limits
from memsched.targets.model import Target
from memsched.targets.pool_plan import PoolPlan

__all__ = ["plan_pools"]

_LEAST_SHARE = 0.25
"""Of the time limit, which the placement gets even when the search for the order has used it up."""


def plan_pools(
    plan: GraphPlan, target: Target, limits: Limits, *, started: float, stop: Callable[[], bool] | None = None
) -> PoolPlan | None:
    """Return checked addresses in the target's pools for ``plan``; None for a target with one memory.

    Args:
        started: When the time limit began, on the clock of `time.monotonic`.
    """
    if not target.pools:
        return None
    now = time.monotonic()
    if limits.time_limit is not None:
        left = max(limits.remaining(started, now), _LEAST_SHARE * limits.time_limit)
        limits = dataclasses.replace(limits, time_limit=left)
    found = place_in_pools(
        plan.graph,
        plan.schedule,
        target.pools,
        alignment=target.alignment_bytes,
        limits=limits,
        started=now,
        stop=stop,
    )
    check_pool_plan(plan.graph, plan.schedule, found)
    return found
