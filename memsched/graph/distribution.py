"""A plan for several devices that share the work on every op: who computes which part of it, and what is sent when.

Devices, ops and tensors are referred to by index. Sizes are bytes.
"""

from __future__ import annotations

from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Region

__all__ = ["Axis", "Computation", "Distribution", "Share", "Step", "Transfer"]

Axis = Literal["channels", "rows", "whole"]
"""The dimension of an op's output that is divided: its output channels, the height of its feature map, or none."""


class Share(FrozenValue, frozen=True):
    """The gene of MemoriaNova's chromosome: device j computes [bounds[j], bounds[j + 1]) of op ``op``.

    Attributes:
        bounds: x_0 .. x_n: 0 first, the dimension's length last, never falling (equations 6 to 10). For "whole" the
            length is 1: one device computes all of it.
    """

    op: int
    axis: Axis
    bounds: tuple[int, ...]


class Transfer(FrozenValue, frozen=True):
    """A part of a tensor that devices need and do not hold.

    Attributes:
        source: The device that sends it; -1 for the source of the network's inputs.
        targets: Devices that receive it; several in one broadcast.
        size: Bytes, once, however many receive it.
    """

    tensor: int
    region: Region
    source: int
    targets: tuple[int, ...]
    size: int


class Computation(FrozenValue, frozen=True):
    """What a device computes in a step: one region of every output of an op.

    Attributes:
        op: Index of the op in the graph.
        region: Of its first output.
    """

    op: int
    region: Region


class Step(FrozenValue, frozen=True):
    """What happens between two synchronisations: first all transfers, then every device computes by itself.

    Attributes:
        transfers: Before anything is computed.
        computations: Per device, in order; more than one op where layers are fused and their halos computed twice.
        ahead: While it is computed, for the steps after it: parts that their senders had before.
    """

    transfers: tuple[Transfer, ...]
    computations: tuple[tuple[Computation, ...], ...]
    ahead: tuple[Transfer, ...] = ()


class Distribution(FrozenValue, frozen=True):
    """A whole plan.

    Attributes:
        shares: One per op, in order of execution.
        results: Transfers after the last step that bring every output of the network to device ``home``.
        home: The device that has the outputs in the end.
        latency: Seconds that the cluster's model predicts.
        lower_bound: Lower bound in seconds on that latency, over the searched plans and orders; 0 where none is known.
        memory: Per device, the most bytes that it holds at any time: its part of the weights, pieces of tensors that
            are still needed, and what it computes.
        method: What found it.
    """

    devices: int
    shares: tuple[Share, ...]
    steps: tuple[Step, ...]
    results: tuple[Transfer, ...]
    home: int
    latency: float
    lower_bound: float
    memory: tuple[int, ...]
    method: str

    def exchanges(self) -> tuple[tuple[Transfer, ...], ...]:
        """Return all transfers of every step, those ahead last, and in the end those of results."""
        return (*((*step.transfers, *step.ahead) for step in self.steps), self.results)
