"""An independent check of plans for several devices, region by region; it shares no code with what makes plans.

The caller says what a part of an op needs, and which constants it reads: both follow from the operator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memsched.base.errors import InternalError
from memsched.graph.distribution import Computation, Distribution, Share, Transfer
from memsched.graph.model import Graph, Region

__all__ = ["ConstantBytes", "Needs", "check_distribution"]

Needs = Callable[[int, Region], Sequence[Region | None]]
"""(op, region of its first output) -> per entry of the op's inputs the region that is needed, None for nothing.

Raises InternalError where no such part of the op can be computed.
"""

ConstantBytes = Callable[[int, Region], int]
"""(op, region of its first output) -> bytes of the constants that are read for it."""


def check_distribution(graph: Graph, plan: Distribution, needs: Needs, constant_bytes: ConstantBytes) -> None:
    """Check that ``plan`` computes ``graph``: which device computes what from what, sent by which, in how much memory.

    Raises:
        InternalError: It does not, or its memory is not what it claims.
    """
    _check_shares(graph, plan)
    state = _Devices(graph, plan, constant_bytes)
    done = 0
    for number, step in enumerate(plan.steps):
        where = f"step {number} of the plan"
        if len(step.computations) != plan.devices:
            raise InternalError(
                f"{where} is for {len(step.computations)} devices, not {plan.devices}", code="device-count"
            )
        state.transfer(step.transfers, done, where)
        # What goes ahead is there, and takes memory, from now on, but nothing of this step may need it.
        ahead, before = state.accepted(step.ahead, where, inputs=False), done
        done = state.compute(step.computations, done, needs, where)
        state.arrive(ahead, before)
    if done != len(graph.ops):
        raise InternalError(f"the plan computes {done} of {len(graph.ops)} ops", code="op-count")
    state.transfer(plan.results, done, "the results of the plan")
    for tensor in graph.outputs:
        missing = _without(state.whole(tensor), state.held[plan.home].get(tensor, []))
        if missing:
            raise InternalError(
                f"device {plan.home} does not end up with all of output '{graph.tensors[tensor].name}'",
                code="output-incomplete",
            )
    state.check_memory()


def _check_shares(graph: Graph, plan: Distribution) -> None:
    if sorted(share.op for share in plan.shares) != list(range(len(graph.ops))):
        raise InternalError("a plan's shares are not one for every op", code="share-count")
    if plan.devices < 1 or not 0 <= plan.home < plan.devices or len(plan.memory) != plan.devices:
        raise InternalError("a plan names devices that do not exist", code="device-outside-plan")
    if not 0 <= plan.lower_bound <= plan.latency * (1 + 1e-9) or not math.isfinite(plan.latency):
        raise InternalError(
            f"a plan of {plan.latency} s claims that none takes less than {plan.lower_bound} s", code="bound"
        )
    made: set[int] = {*graph.inputs, *graph.variables}
    for share in plan.shares:
        op, bounds = graph.ops[share.op], share.bounds
        if len(bounds) != plan.devices + 1 or bounds[0] != 0:
            raise InternalError(
                f"the share of op '{op.name}' does not begin at 0 and name every device", code="share-start"
            )
        if any(low > high for low, high in itertools.pairwise(bounds)):
            raise InternalError(f"the share of op '{op.name}' falls: {list(bounds)}", code="share-falls")
        shape = graph.tensors[op.outputs[0]].shape or ()
        if bounds[-1] not in ((1,) if share.axis == "whole" else shape):
            raise InternalError(
                f"the share of op '{op.name}' ends at {bounds[-1]}, which is no length of its output",
                code="share-end",
            )
        if not made.issuperset(op.inputs):
            raise InternalError(f"op '{op.name}' comes before what it reads", code="order")
        made.update(op.outputs)


@dataclass(slots=True)
class _Devices:
    """What every device holds while the plan is followed."""

    graph: Graph
    plan: Distribution
    constant_bytes: ConstantBytes
    held: list[dict[int, list[Region]]] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    pieces: list[list[tuple[int, int, int]]] = field(default_factory=list)
    """Per device (position at which it arrives, tensor, bytes)."""
    last: dict[int, int] = field(default_factory=dict)
    """Per tensor the position of its last reader; of outputs the number of ops."""

    def __post_init__(self) -> None:
        self.held = [{} for _ in range(self.plan.devices)]
        self.constants = [0] * self.plan.devices
        self.pieces = [[] for _ in range(self.plan.devices)]
        for position, share in enumerate(self.plan.shares):
            op = self.graph.ops[share.op]
            self.last.update(dict.fromkeys((*op.inputs, *op.outputs), position))
        self.last.update(dict.fromkeys(self.graph.outputs, len(self.plan.shares)))

    def whole(self, tensor: int) -> Region:
        return Region(tuple((0, size) for size in self.graph.tensors[tensor].shape or ()))

    def bytes_of(self, tensor: int, region: Region) -> int:
        found = self.graph.tensors[tensor]
        elements = math.prod(found.shape or ())
        if not elements:
            return found.size
        return -(-found.size * math.prod(stop - start for start, stop in region.ranges) // elements)

    def transfer(self, transfers: Sequence[Transfer], position: int, where: str) -> None:
        """Hand out what is sent."""
        self.arrive(self.accepted(transfers, where), position)

    def arrive(self, arrived: Sequence[tuple[int, Transfer]], position: int) -> None:
        """Let devices hold what was sent to them from ``position`` on."""
        for device, one in arrived:
            self.held[device].setdefault(one.tensor, []).append(one.region)
            self.pieces[device].append((position, one.tensor, one.size))

    def accepted(self, transfers: Sequence[Transfer], where: str, *, inputs: bool = True) -> list[tuple[int, Transfer]]:
        """Return what each device is sent; the sender must have all of it, and the receiver none of it.

        Args:
            inputs: Whether inputs of the network may be among it.
        """
        arrived: list[tuple[int, Transfer]] = []
        for one in transfers:
            name = self.graph.tensors[one.tensor].name
            self._check_inside(one.tensor, one.region, where)
            if one.size != self.bytes_of(one.tensor, one.region):
                raise InternalError(f"a part of '{name}' is not of {one.size} bytes", location=where, code="part-size")
            if one.source == -1:
                if one.tensor not in self.graph.inputs or not inputs:
                    raise InternalError(
                        f"'{name}' comes from outside but is no input", location=where, code="no-such-input"
                    )
            elif not 0 <= one.source < self.plan.devices or _without(
                one.region, self.held[one.source].get(one.tensor, [])
            ):
                raise InternalError(
                    f"device {one.source} sends a part of '{name}' that it does not hold",
                    location=where,
                    code="not-held",
                )
            if not one.targets or len(set(one.targets)) < len(one.targets) or one.source in one.targets:
                raise InternalError(
                    f"a part of '{name}' is sent to {list(one.targets)}", location=where, code="part-targets"
                )
            for device in one.targets:
                if not 0 <= device < self.plan.devices:
                    raise InternalError(f"there is no device {device}", location=where, code="device-outside-plan")
                before = [*self.held[device].get(one.tensor, []), *(t.region for d, t in arrived
                          if d == device and t.tensor == one.tensor)]  # fmt: skip
                if any(_meet(one.region, region) for region in before):
                    raise InternalError(
                        f"device {device} is sent a part of '{name}' that it holds", location=where, code="held-already"
                    )
                arrived.append((device, one))
        return arrived

    def _check_inside(self, tensor: int, region: Region, where: str) -> None:
        shape: tuple[int, ...] = self.graph.tensors[tensor].shape or ()
        elements = math.prod(shape)
        inside = len(region.ranges) == len(shape) and all(
            0 <= start < stop <= size for (start, stop), size in zip(region.ranges, shape, strict=False)
        )
        if not inside and elements:
            raise InternalError(
                f"{region.ranges} is no part of '{self.graph.tensors[tensor].name}'", location=where, code="no-part"
            )

    def compute(self, computations: Sequence[Sequence[Computation]], done: int, needs: Needs, where: str) -> int:
        """Compute a step's ops, the next ones in order; return how many ops are done then."""
        count = len({one.op for mine in computations for one in mine})
        shares = self.plan.shares[done : done + count]
        places = {share.op: done + place for place, share in enumerate(shares)}
        for device, mine in enumerate(computations):
            for one in mine:
                if one.op not in places:
                    raise InternalError(
                        f"device {device} computes op {one.op}, whose turn it is not",
                        location=where,
                        code="not-its-turn",
                    )
            if [one.op for one in mine] != sorted({one.op for one in mine}, key=places.__getitem__):
                raise InternalError(f"device {device} does not keep the order", location=where, code="order")
            for one in mine:
                self._compute(device, one, places[one.op], needs, where)
            self._check_parts(device, mine, shares, done + count, where)
        return done + count

    def _compute(self, device: int, one: Computation, position: int, needs: Needs, where: str) -> None:
        op = self.graph.ops[one.op]
        self._check_inside(op.outputs[0], one.region, where)
        for tensor, region in zip(op.inputs, needs(one.op, one.region), strict=True):
            if region is not None and _without(region, self.held[device].get(tensor, [])):
                name = self.graph.tensors[tensor].name
                raise InternalError(
                    f"device {device} lacks a part of '{name}' for op '{op.name}'", location=where, code="part-missing"
                )
        self.constants[device] += self.constant_bytes(one.op, one.region)
        for place, tensor in enumerate(op.outputs):
            region = self.whole(tensor) if place else one.region
            self.held[device].setdefault(tensor, []).append(region)
            self.pieces[device].append((position, tensor, self.bytes_of(tensor, region)))

    def _check_parts(
        self, device: int, mine: Sequence[Computation], shares: Sequence[Share], done: int, where: str
    ) -> None:
        """Check that a device computes its share of every op whose result is needed after the step."""
        regions = {one.op: one.region for one in mine}
        for share in shares:
            op = self.graph.ops[share.op]
            low, high = share.bounds[device], share.bounds[device + 1]
            if low == high or all(self.last[tensor] < done for tensor in op.outputs):
                continue
            region = regions.get(share.op)
            if region is None or not _has_share(region, self.whole(op.outputs[0]), low, high, share.bounds[-1]):
                raise InternalError(
                    f"device {device} does not compute its share of op '{op.name}'",
                    location=where,
                    code="share-differs",
                )

    def check_memory(self) -> None:
        """Check memory: a piece is held from its arrival to the last reader of its tensor, constants throughout."""
        end = len(self.plan.shares)
        for device, pieces in enumerate(self.pieces):
            change = [0] * (end + 2)
            for position, tensor, size in pieces:
                change[position] += size
                change[self.last[tensor] + 1] -= size
            total = most = self.constants[device]
            for one in change:
                total += one
                most = max(most, total)
            if most != self.plan.memory[device]:
                raise InternalError(
                    f"device {device} holds up to {most} bytes, not {self.plan.memory[device]}", code="memory-claim"
                )


# Regions ----------------------------------------------------------------------------------------------------------


def _has_share(region: Region, whole: Region, low: int, high: int, length: int) -> bool:
    """Whether ``region`` is all of ``whole``, or has [low, high) of an axis of ``length`` and all of the others."""
    if region == whole:
        return True
    for divided, (_, size) in enumerate(whole.ranges):
        share = Region((*whole.ranges[:divided], (low, high), *whole.ranges[divided + 1 :]))
        if size == length and not _without(share, [region]):
            return True
    return False


def _meet(one: Region, other: Region) -> bool:
    return all(max(a[0], b[0]) < min(a[1], b[1]) for a, b in zip(one.ranges, other.ranges, strict=True))


def _without(region: Region, parts: Sequence[Region]) -> list[Region]:
    """Return what is left of ``region`` without ``parts``, as regions that do not meet."""
    left = [region] if all(start < stop for start, stop in region.ranges) else []
    for part in parts:
        remaining: list[Region] = []
        for one in left:
            if not _meet(one, part):
                remaining.append(one)
                continue
            ranges = list(one.ranges)
            for axis, (start, stop) in enumerate(part.ranges):
                low, high = ranges[axis]
                if low < start:
                    remaining.append(Region((*ranges[:axis], (low, start), *ranges[axis + 1 :])))
                if stop < high:
                    remaining.append(Region((*ranges[:axis], (stop, high), *ranges[axis + 1 :])))
                ranges[axis] = (max(low, start), min(high, stop))
        left = remaining
    return left
