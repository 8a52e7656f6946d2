"""The time that moving and computing take, and the traffic of a network without any fusion.

The model is the paper's roofline: a group takes as long as the slower of its transfers and its computation, which
overlap; groups follow each other. ``"sum"`` is the other extreme, in which a group first moves and then computes.
"""

from __future__ import annotations

from typing import Literal

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.codegen.onchip.model import Cost
from memsched.codegen.onchip.network import OnChipNetwork
from memsched.targets.model import Target

__all__ = ["Machine", "alone"]

Overlapping = Literal["overlap", "sum"]


class Machine(FrozenValue, frozen=True):
    """An accelerator's figures.

    Attributes:
        capacity: Bytes of on-chip memory.
        bandwidth: Bytes per second between DRAM and on-chip memory.
        speed: Floating-point operations per second; a multiply-accumulate is two.
        overlapping: Whether transfers and computation of a group overlap.
    """

    capacity: int
    bandwidth: float
    speed: float
    alignment: int = 1
    overlapping: Overlapping = "overlap"

    @staticmethod
    def of(target: Target, overlapping: Overlapping = "overlap") -> Machine:
        """Return the machine that ``target`` describes.

        Raises:
            UsageError: The target has no on-chip memory.
        """
        if not target.on_chip_bytes:
            raise UsageError(
                f"target '{target.name}' has no on-chip memory",
                code="no-on-chip-memory",
                action="give key 'on_chip_bytes', or use 'diannao'",
            )
        return Machine(
            target.on_chip_bytes,
            target.bandwidth_bytes_per_second,
            target.flops_per_second,
            target.alignment_bytes,
            overlapping,
        )

    def seconds(self, cost: Cost) -> float:
        """Return the seconds that a group takes; what the target has no figure for takes no time."""
        moving = cost.traffic / self.bandwidth if self.bandwidth else 0.0
        computing = cost.flops / self.speed if self.speed else 0.0
        return moving + computing if self.overlapping == "sum" else max(moving, computing)


def alone(network: OnChipNetwork, op: int) -> Cost:
    """Return what layer ``op`` costs by itself if each of its operands is moved once; views move nothing."""
    layer = network.layers[op]
    if layer.view:
        return Cost()
    read = sum(network.maps[tensor].size for tensor in layer.reads)
    return Cost(read + layer.weights, sum(network.maps[tensor].size for tensor in layer.writes), layer.flops)
