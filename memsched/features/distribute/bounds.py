"""A latency that no plan of a network on a cluster can beat, fused blocks included.

In every step the slowest device takes at least any weighted mean of all devices' seconds. With fixed weights that add
up to 1 the means of all steps add up, and each op costs at least what it costs where it is cheapest under these
weights. Transfers count nothing, so the bound is what computation alone would take if it were perfectly balanced.
"""

from __future__ import annotations

from memsched.features.distribute.divisions import Reach
from memsched.features.distribute.space import Space
from memsched.targets.cluster import Cluster

__all__ = ["latency_bound"]


def latency_bound(space: Space, cluster: Cluster) -> float:
    """Return seconds that no plan can beat."""
    lost = _lost(space, len(cluster.devices))
    totals = []
    for device in cluster.devices:
        total = 0.0
        for position in range(len(space.order)):
            op = space.op(position)
            total += device.time_of(op.type).seconds(op.macs, space.output_bytes(position))
        totals.append(max(total, 1e-300))
    inverse = sum(1 / total for total in totals)
    shares = [1 / total / inverse for total in totals]
    result = 0.0
    for position in range(len(space.order)):
        op = space.op(position)
        times = [device.time_of(op.type) for device in cluster.devices]
        made, weights = space.output_bytes(position), space.divisions[position]["whole"].weight_bytes(0, 1)
        done = 1 - lost[position]
        if not done:
            continue
        result += done * min(
            share * (time.per_mac * op.macs + time.per_byte * made) for share, time in zip(shares, times, strict=True)
        )
        # At least one device computes a part, and together they read every constant that anything needs.
        result += min(share * time.base for share, time in zip(shares, times, strict=True))
        result += done * min(share * time.per_byte * weights for share, time in zip(shares, times, strict=True))
    return result


def _lost(space: Space, devices: int) -> list[float]:
    """Return per position the largest fraction of an op's output that possibly no device needs.

    Between the parts of two devices a reader with a stride longer than its kernel skips elements; in a fused block
    they need not be computed at all, nor what they alone depend on.
    """
    result = [1.0] * len(space.order)
    for position in range(len(space.order) - 1, -1, -1):
        for tensor in space.op(position).outputs:
            if space.last[tensor] >= len(space.order) or not space.readers[tensor]:
                result[position] = 0.0
            for reader in space.readers[tensor]:
                result[position] = min(result[position], _lost_through(space, reader, tensor, result[reader], devices))
    return result


def _lost_through(space: Space, reader: int, tensor: int, lost: float, devices: int) -> float:
    """Return the fraction of a tensor that a reader possibly does not need when ``lost`` of its output is left out."""
    worst = 0.0
    extents = space.extents[tensor]
    for division in space.divisions[reader].values():
        place = division.tensors.index(tensor)
        missed = 0.0
        for reaches, length in ((division.channels, extents.channels), (division.rows, extents.rows)):
            for one in reaches[place]:
                if isinstance(one, Reach):
                    missed += _missed(one, lost * division.units, devices) / length
                elif one[1] - one[0] < length:
                    missed += 1.0
        worst = max(worst, missed if division.axis != "whole" else (1.0 if lost >= 1 else 0.0))
    return min(1.0, worst)


def _missed(reach: Reach, units: float, devices: int) -> float:
    """Return how many elements may be missed at the ends and between devices, and by ``units`` not computed."""
    count = len(reach.last) - 1
    gap = max((reach.first[unit] - reach.last[unit] for unit in range(1, count)), default=0)
    advance = max(
        max(reach.first[unit + 1] - reach.first[unit], reach.last[unit + 1] - reach.last[unit]) for unit in range(count)
    )
    ends = reach.first[0] + reach.whole[1] - reach.last[count]
    return max(0, gap) * (devices - 1) + max(0, ends) + units * advance
