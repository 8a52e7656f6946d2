"""Shares by rule: one device, even, in proportion to speed; and the axis by memory of MemoriaNova, section 3.3.1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memsched.features.distribute.divisions import Division
from memsched.features.distribute.space import Space
from memsched.graph.distribution import Axis, Share
from memsched.targets.cluster import Cluster

__all__ = [
    "axis_by_memory",
    "by_weights",
    "different_devices",
    "even",
    "most_parts",
    "proportional",
    "single",
    "speeds",
]


def most_parts(space: Space, position: int, memory: int) -> tuple[float, float]:
    """Return k_1 and k_2: into how many parts ``memory`` bytes allow an op to be divided, by rows and by channels.

    Source: "MemoriaNova", section 3.3.1, whose text lacks its table of memory calculations; this is our reading of
    it. By rows every device holds all weights: k_1 * weights + input + output <= memory. By channels every
    device holds the whole input: k_2 * input + weights + output <= memory.
    """
    division = space.divisions[position]["whole"]
    weights = division.weight_bytes(0, 1)
    read = sum(space.graph.tensors[tensor].size for tensor in division.tensors)
    made = int(space.output_bytes(position))
    rows = (memory - read - made) / weights if weights else float("inf")
    channels = (memory - weights - made) / read if read else float("inf")
    return rows, channels


def axis_by_memory(space: Space, position: int, memory: int) -> Axis:
    """Return the axis that permits more parts: channels if k_1 < k_2, else rows; or the only axis there is.

    Source: "MemoriaNova", section 3.3.1.

    Args:
        memory: Bytes of all devices together.
    """
    found = space.divisions[position]
    rows, channels = most_parts(space, position, memory)
    wanted: tuple[Axis, ...] = ("channels", "rows") if rows < channels else ("rows", "channels")
    return next((axis for axis in wanted if axis in found), "whole")


def by_weights(op: int, division: Division, weights: Sequence[float]) -> Share:
    """Return a share of op ``op`` whose parts are as near to ``weights`` as units permit.

    An op that is not divided goes to the device of the largest weight, the first of equals.
    """
    if division.axis == "whole":
        best = max(range(len(weights)), key=lambda device: (weights[device], -device))
        return Share(op, "whole", (0,) * (best + 1) + (1,) * (len(weights) - best))
    total, reached = sum(weights), 0.0
    bounds = [0]
    for weight in weights:
        reached += weight
        bounds.append(max(bounds[-1], division.bound_of(int(division.units * reached / total + 0.5))))
    bounds[-1] = division.length
    return Share(op, division.axis, tuple(bounds))


def even(space: Space, axes: Sequence[Axis], devices: int) -> tuple[Share, ...]:
    """Return equal shares for all devices."""
    return tuple(
        by_weights(space.order[position], space.divisions[position][axis], [1.0] * devices)
        for position, axis in enumerate(axes)
    )


def speeds(space: Space, position: int, cluster: Cluster) -> list[float]:
    """Return, per device, how often it could compute the whole op in a second."""
    op = space.op(position)
    whole = space.divisions[position]["whole"]
    touched = (
        sum(space.graph.tensors[tensor].size for tensor in whole.tensors)
        + space.output_bytes(position)
        + whole.weight_bytes(0, 1)
    )
    return [1 / max(device.time_of(op.type).seconds(op.macs, touched), 1e-12) for device in cluster.devices]


def proportional(space: Space, axes: Sequence[Axis], cluster: Cluster) -> tuple[Share, ...]:
    """Return shares in proportion to each device's speed at each op."""
    return tuple(
        by_weights(space.order[position], space.divisions[position][axis], speeds(space, position, cluster))
        for position, axis in enumerate(axes)
    )


def different_devices(cluster: Cluster, home: int) -> list[int]:
    """Return one of each group of equal devices, preferably the one that gets the outputs, ``home``."""
    chosen: list[int] = []
    for device in (home, *(other for other in range(len(cluster.devices)) if other != home)):
        mine = replace(cluster.devices[device], name="")
        if not any(replace(cluster.devices[other], name="") == mine for other in chosen):
            chosen.append(device)
    return chosen


def single(space: Space, device: int, devices: int) -> tuple[Share, ...]:
    """Return shares that give every op to one device."""
    bounds = (0,) * (device + 1) + (1,) * (devices - device)
    return tuple(Share(op, "whole", bounds) for op in space.order)
