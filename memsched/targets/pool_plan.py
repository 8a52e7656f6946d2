"""A placement of a schedule's buffers in several memories."""

from __future__ import annotations

from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Allocation
from memsched.targets.model import Pool

__all__ = ["PoolPlan", "PoolStatus"]

PoolStatus = Literal["optimal", "feasible", "infeasible", "unknown"]


class PoolPlan(FrozenValue, frozen=True):
    """Addresses in pools for all buffers of a schedule.

    Attributes:
        pools: The cheapest first.
        allocations: One per pool; none when nothing was found.
        bytes_accessed: Per pool the bytes written and read in it.
        traffic: Bytes accessed x the cost of their pool, summed.
        lower_bound: What no placement of this schedule's buffers can undercut.
        greedy_traffic: What the greedy placement costs; None when it found none.
        dearest_traffic: What it costs with every buffer in the last pool.
        status: The status of the `PoolPacking`.
    """

    pools: tuple[Pool, ...]
    allocations: tuple[Allocation, ...]
    bytes_accessed: tuple[int, ...]
    traffic: int
    lower_bound: int
    greedy_traffic: int | None
    dearest_traffic: int
    status: PoolStatus
    proof: str
    method: str
    seconds: float = 0.0
