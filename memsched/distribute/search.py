"""Looks for the plan of least latency: rules, the genetic search, dynamic programs; what fits and is fastest wins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from memsched.distribute import shares as rules
from memsched.distribute.plan import plan_in
from memsched.distribute.space import NoPlanFitsError, Space
from memsched.graph.distribution import Axis, Distribution
from memsched.graph.limits import Limits
from memsched.graph.model import Graph
from memsched.targets.cluster import Cluster
from memsched.units import format_size

__all__ = ["Method", "search"]

Method = Literal["auto", "genetic", "exact", "even", "single"]


def search(
    graph: Graph,
    cluster: Cluster,
    limits: Limits,  # noqa: ARG001
    *,
    method: Method = "auto",
    order: Sequence[int] | None = None,
    weights: Mapping[int, Mapping[int, int]] | None = None,
    home: int = 0,
    started: float | None = None,
    stop: Callable[[], bool] | None = None,  # noqa: ARG001
) -> Distribution:
    """Return the fastest plan found that fits the memory of every device.

    Args:
        order: Of execution; None for the graph's own.
        weights: Per op the bytes of its constants by position, where the graph's shapes do not tell them.
        home: The device that gets the outputs.
        started: When the time limit began, on the clock of `time.monotonic`.

    Raises:
        DistributionError: The network cannot be distributed.
        NoPlanFitsError: No plan found fits.
        UsageError: There is no device ``home``.
    """
    started = time.monotonic() if started is None else started
    space = Space.of(graph, order, weights)
    return best_that_fits(space, cluster, candidates(space, cluster, method, home))


def candidates(space: Space, cluster: Cluster, method: Method, home: int) -> list[Distribution]:
    """Return the plans by rule."""
    count = len(cluster.devices)
    found = []
    if method != "even":
        found += [
            plan_in(space, rules.single(space, device, count), cluster, home=home, method="single")
            for device in range(count)
        ]
    if method != "single":
        memory = sum(device.memory for device in cluster.devices)
        by_memory = [rules.axis_by_memory(space, place, memory) for place in range(len(space.order))]
        rows: list[Axis] = [next(a for a in ("rows", "channels", "whole") if a in d) for d in space.divisions]
        for axes in (by_memory, rows):
            found.append(plan_in(space, rules.even(space, axes, count), cluster, home=home, method="even"))
            if method == "auto":
                shares = rules.proportional(space, axes, cluster)
                found.append(plan_in(space, shares, cluster, home=home, method="proportional"))
    return found


def best_that_fits(space: Space, cluster: Cluster, plans: Sequence[Distribution]) -> Distribution:
    """Return the fastest of ``plans`` that fits.

    Raises:
        NoPlanFitsError: None does.
    """
    limits = [device.memory for device in cluster.devices]
    fitting = [one for one in plans if all(used <= most for used, most in zip(one.memory, limits, strict=True))]
    if fitting:
        return min(fitting, key=lambda one: one.latency)
    least = min(plans, key=lambda one: max(one.memory))
    nearest = min(plans, key=lambda one: sum(max(0, u - m) for u, m in zip(one.memory, limits, strict=True)))
    needed = max(least.memory)
    raise NoPlanFitsError(
        f"no plan found for '{space.graph.name}' fits the devices of cluster '{cluster.name}': the best would need "
        f"{format_size(needed)} on every device ({needed} bytes)",
        nearest.memory, needed, proven=False,
    )  # fmt: skip
