"""What a firmware with an interpreter must bring for a model, beside room for the planned tensors."""

from __future__ import annotations

from collections.abc import Mapping

from memsched.base.frozen import FrozenValue

__all__ = ["Estimate", "FirmwareNeeds", "Resolver", "Scratch"]


class Resolver(FrozenValue, frozen=True):
    """What a firmware registers.

    Attributes:
        calls: C++ calls on a MicroMutableOpResolver, sorted by operator; their number is the resolver's size.
        unsupported: Operators of the schema that TensorFlow Lite Micro lacks, sorted.
        custom: Names of custom operators whose registration the firmware must bring itself, sorted.
    """

    calls: tuple[str, ...]
    unsupported: tuple[str, ...]
    custom: tuple[str, ...]


class Estimate(FrozenValue, frozen=True):
    """Bytes that an arena must hold beside the planned tensors.

    Attributes:
        persistent: What stays at the arena's end.
        planning: What preparing kernels and planning take for a moment where tensors lie later. An arena must hold the
            persistent part and the larger of this and of the planned tensors.
        apart: What stays in an arena of its own, the first that `MicroAllocator::Create` takes of two.
        planning_apart: What planning takes for a moment in the second.
    """

    persistent: int
    planning: int
    apart: int
    planning_apart: int


class Scratch(FrozenValue, frozen=True):
    """Buffers that a kernel requests for its own operator's time, in bytes."""

    subgraph: int
    operator: int
    type: str
    requests: tuple[int, ...]


class FirmwareNeeds(FrozenValue, frozen=True):
    """What a firmware needs for a model beside the planned tensors.

    Attributes:
        estimates: Bytes by bits of a pointer.
        unknown: Operators whose kernels' own needs are not known and not in the estimates.
        assumptions: What must hold for the estimates.
        kept_by_op: The same bytes per op of the module's main graph.
        variables: Resource variables: what `MicroResourceVariables::Create` is given; 0 where none are needed.
        kept: Per subgraph and operator its type and the bytes that stay for it and what it makes, on 32 bit.
    """

    resolver: Resolver
    estimates: Mapping[int, Estimate]
    scratch: tuple[Scratch, ...]
    assumptions: tuple[str, ...]
    unknown: tuple[str, ...]
    kept: tuple[tuple[int, int, str, int], ...]
    kept_by_op: tuple[int, ...]
    variables: int = 0
