"""What a report says of several memories: the section ``pools``, the pool of each address, and a line for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from memsched.graph.model import Allocation
from memsched.report.values.graphs import BufferRow, WorkspaceRow
from memsched.report.values.optimize import PoolRow, PoolsSection
from memsched.report.values.runtime import FirmwareSection
from memsched.targets.pool_plan import PoolPlan

__all__ = ["pool_lines", "pools_section", "rows_in_pools", "two_arena_lines"]

_Row = TypeVar("_Row", BufferRow, WorkspaceRow)


def pools_section(plan: PoolPlan | None) -> PoolsSection | None:
    """Return the section ``pools``; None for a target with one memory."""
    if plan is None:
        return None
    found = bool(plan.allocations)
    return PoolsSection(
        weighted_traffic=plan.traffic if found else None,
        lower_bound=plan.lower_bound,
        greedy_weighted_traffic=plan.greedy_traffic,
        last_pool_weighted_traffic=plan.dearest_traffic,
        status=plan.status,
        proof=plan.proof,
        method=plan.method,
        seconds=round(plan.seconds, 4),
        pools=tuple(
            PoolRow(
                name=pool.name,
                size_bytes=pool.size,
                cost=pool.cost,
                used_bytes=plan.allocations[number].arena if found else None,
                accessed_bytes=plan.bytes_accessed[number] if found else None,
            )
            for number, pool in enumerate(plan.pools)
        ),
    )


def rows_in_pools(
    plan: PoolPlan | None, allocation: Allocation, rows_of: Callable[[Allocation], tuple[_Row, ...]]
) -> tuple[_Row, ...]:
    """Return the rows of all addresses: of ``allocation``, or of each pool with the pool's name."""
    if plan is None or not plan.allocations:
        return rows_of(allocation)
    return tuple(
        msgspec.structs.replace(row, pool=pool.name)
        for pool, inside in zip(plan.pools, plan.allocations, strict=True)
        for row in rows_of(inside)
    )


def pool_lines(section: PoolsSection | None) -> list[tuple[str, str | None]]:
    """Return what people read of the section, each line with its style."""
    if section is None:
        return []
    cost, bound = section.weighted_traffic, section.lower_bound
    if cost is None:
        total = sum(pool.size_bytes or 0 for pool in section.pools)
        known = "cannot hold the buffers" if section.status == "infeasible" else "were not filled in time"
        return [(f"the pools {known}: they have {total:,} B together; give the last one no size, or more", "red")]
    used = ", ".join(
        f"{pool.name} {pool.used_bytes:,}" + (f" of {pool.size_bytes:,} B" if pool.size_bytes is not None else " B")
        for pool in section.pools
    )
    greedy, last = section.greedy_weighted_traffic, section.last_pool_weighted_traffic
    than = f", greedy {greedy:,}" if greedy is not None else ""
    proven = "proven least" if cost == bound else f"no placement below {bound:,}"
    return [
        (f"pools: {used}", None),
        (f"bytes accessed x cost: {cost:,} ({proven}){than}, all in the last pool {last:,}", None),
    ]


def two_arena_lines(
    section: PoolsSection | None, firmware: FirmwareSection | None, head: int
) -> list[tuple[str, str | None]]:
    """Return in which memories TensorFlow Lite Micro's two arenas fit; its planned part has to lie in one.

    Args:
        head: Bytes of the planned part.
    """
    if section is None or firmware is None or firmware.unknown_kernels:
        return []
    kept, planning = firmware.apart_persistent_bytes_estimate, firmware.apart_planning_bytes_estimate
    if kept is None or planning is None:
        return []
    left = {pool.name: pool.size_bytes for pool in section.pools}
    said = []
    for words, size in (("non-persistent", max(head, planning.bits_32)), ("persistent", -(-kept.bits_32 // 16) * 16)):
        place = next((name for name, room in left.items() if room is None or room >= size), None)
        room = left.get(place or "")
        if place is not None and room is not None:
            left[place] = room - size
        said.append(f"{words} {size:,} B in {place}" if place is not None else f"{words} {size:,} B in none of them")
    return [(f"TensorFlow Lite Micro's two arenas, on 32 bit: {', '.join(said)}", None)]
