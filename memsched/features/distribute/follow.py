"""A plan for several devices, followed step by step: what each device holds, and from what it makes what it needs.

Where what a device receives of a tensor and what it has of it make up a region without gaps, they are put together at
once: then nothing has to be joined while something is computed, and nothing is held twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from memsched.base.errors import InternalError, ModelError
from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.distribution import Computation, Distribution, Transfer
from memsched.graph.model import Graph, Region
from memsched.ops.cover import Cover, PartConcat, PartSlice, cover, hull, leaves
from memsched.ops.geometry import describe
from memsched.ops.ranges import deduce, whole
from memsched.ops.rules import Geometry, Refusal, Shift
from memsched.rewrites.tile.runs import OpPiece, run_of

__all__ = ["DeviceOp", "Half", "Holder", "ResolvedPlan", "TensorPart", "follow", "whole_of"]


class Half(IntEnum):
    """The two halves of a step."""

    TRANSFERRING = 0
    COMPUTING = 1


class TensorPart(FrozenValue, frozen=True):
    """A part of a tensor that a device holds, as its array ``key``.

    Attributes:
        born: Step and half in which it came or was computed.
    """

    key: str
    tensor: int
    region: Region
    born: tuple[int, int]


class DeviceOp(FrozenValue, frozen=True):
    """One op, or a part of it, on a device.

    Attributes:
        piece: How the op runs; None for the op as it is.
        axis: The axis of a concatenation of which only some inputs are needed; None for any other op.
        reads: Per input how it is made from the device's pieces; `PartSlice.part` is the number of a piece.
        made: Numbers of the pieces that it makes, one per output.
    """

    op: int
    piece: OpPiece | None
    axis: int | None
    reads: tuple[tuple[int, Cover], ...]
    made: tuple[int, ...]


@dataclass(slots=True)
class Holder:
    """What one device does and holds.

    Attributes:
        pieces: All that it ever holds.
        last: Per piece the step and half of its last use; before its birth where there is none.
        runs: What is computed in each step.
        outside: Numbers of pieces that are used after the half of a step in which they come into being.
        gathered: Per piece that is put together from others how that is done; `PartSlice.part` is a piece's number.
        used_by: Per piece the pieces that are put together from it, -1 for any other use.
    """

    pieces: list[TensorPart] = field(default_factory=list)
    last: list[tuple[int, int]] = field(default_factory=list)
    runs: list[tuple[DeviceOp, ...]] = field(default_factory=list)
    outside: set[int] = field(default_factory=set)
    gathered: dict[int, Cover] = field(default_factory=dict)
    used_by: dict[int, set[int]] = field(default_factory=dict)
    _of: dict[int, list[int]] = field(default_factory=dict)
    _keys: dict[str, int] = field(default_factory=dict)

    def hold(self, graph: Graph, tensor: int, region: Region, born: tuple[int, int]) -> int:
        """Add a piece and return its number."""
        label = _label(graph, tensor, region)
        count = self._keys.get(label, 0)
        self._keys[label] = count + 1
        self.pieces.append(TensorPart(f"{label} #{count + 1}" if count else label, tensor, region, born))
        self.last.append((-1, -1))
        self._of.setdefault(tensor, []).append(len(self.pieces) - 1)
        return len(self.pieces) - 1

    def find(self, tensor: int, region: Region, when: tuple[int, int]) -> Cover | None:
        """Return how ``region`` is made from the pieces held, and note their use; None where something is missing."""
        found = self._covered(tensor, region)
        if found is not None:
            self._use(found, when, -1)
        return found

    def find_or_gather(self, graph: Graph, tensor: int, region: Region, step: int) -> Cover | None:
        """Return what `find` does for a computation; what is made of several pieces is put together before it.

        What the step itself computes is joined as it is computed.
        """
        when = (step, Half.COMPUTING)
        found = self._covered(tensor, region)
        if isinstance(found, PartConcat) and all(self.pieces[leaf.part].born < when for leaf in leaves(found)):
            found = PartSlice(self._gather(graph, tensor, region, found, step), region)
        if found is not None:
            self._use(found, when, -1)
        return found

    def consolidate(self, graph: Graph, tensor: int, step: int) -> None:
        """Make one piece of all pieces of a tensor, if they leave no gap."""
        near = self._of.get(tensor, [])
        if len(near) < 2:
            return
        region = hull([self.pieces[number].region for number in near])
        found = self._covered(tensor, region)
        if isinstance(found, PartConcat):
            self._of[tensor] = [self._gather(graph, tensor, region, found, step)]

    def gathered_in(self) -> dict[int, list[int]]:
        """Return per step the pieces that are put together in it, in the order in which that is possible."""
        result: dict[int, list[int]] = {}
        for number in self.gathered:
            result.setdefault(self.pieces[number].born[0], []).append(number)
        return result

    def _covered(self, tensor: int, region: Region) -> Cover | None:
        near = self._of.get(tensor, [])
        found = cover(region, [self.pieces[number].region for number in near])
        return None if found is None else _renumbered(found, near)

    def _gather(self, graph: Graph, tensor: int, region: Region, found: Cover, step: int) -> int:
        number = self.hold(graph, tensor, region, (step, Half.TRANSFERRING))
        self.gathered[number] = found
        self._use(found, (step, Half.TRANSFERRING), number)
        return number

    def _use(self, found: Cover, when: tuple[int, int], user: int) -> None:
        for number in {leaf.part for leaf in leaves(found)}:
            self.last[number] = max(self.last[number], when)
            self.used_by.setdefault(number, set()).add(user)
            if self.pieces[number].born != when:
                self.outside.add(number)


class ResolvedPlan(FrozenValue, frozen=True):
    """A plan in which everything is resolved to pieces.

    Attributes:
        sent: Per step and transfer, those ahead last, how its source makes it; the results' transfers are the last
            step's. None for what the caller sends.
        received: Per step and transfer the number of the piece that it becomes at each target, in their order.
        outputs: How the home device makes each output of the network.
        names: The names of all ops.
    """

    graph: Graph
    plan: Distribution
    names: frozenset[str]
    devices: tuple[Holder, ...]
    sent: tuple[tuple[Cover | None, ...], ...]
    received: tuple[tuple[tuple[int, ...], ...], ...]
    outputs: tuple[tuple[int, Cover], ...]


def follow(graph: Graph, plan: Distribution, dialect: Dialect) -> ResolvedPlan:
    """Return what happens on every device.

    Raises:
        InternalError: A device needs or sends what it does not hold.
        ModelError: The plan divides an op that cannot be computed in parts.
    """
    devices = tuple(Holder() for _ in range(plan.devices))
    runs = _OpResolver(graph, dialect)
    sent: list[tuple[Cover | None, ...]] = []
    received: list[tuple[tuple[int, ...], ...]] = []
    for step, transfers in enumerate([*(one.transfers for one in plan.steps), plan.results]):
        when = (step, Half.TRANSFERRING)
        sent.append(_sent(graph, devices, transfers, when))
        received.append(_received(graph, devices, transfers, when))
        for device, holder in enumerate(devices):
            for tensor in dict.fromkeys(one.tensor for one in transfers if device in one.targets):
                holder.consolidate(graph, tensor, step)
        if step < len(plan.steps):
            ahead, during = plan.steps[step].ahead, (step, Half.COMPUTING)
            sent[-1] += _sent(graph, devices, ahead, during)
            for device, computations in enumerate(plan.steps[step].computations):
                made = tuple(runs.run(devices, device, one, (step, Half.COMPUTING)) for one in computations)
                devices[device].runs.append(made)
            received[-1] += _received(graph, devices, ahead, during)
    end = (len(plan.steps), Half.COMPUTING)
    outputs = tuple(
        (tensor, _found(graph, devices, plan.home, tensor, whole_of(graph, tensor), end)) for tensor in graph.outputs
    )
    names = frozenset(op.name for op in graph.ops)
    return ResolvedPlan(graph, plan, names, devices, tuple(sent), tuple(received), outputs)


def _sent(
    graph: Graph, devices: Sequence[Holder], transfers: Sequence[Transfer], when: tuple[int, int]
) -> tuple[Cover | None, ...]:
    return tuple(
        _found(graph, devices, one.source, one.tensor, one.region, when) if one.source >= 0 else None
        for one in transfers
    )


def _received(
    graph: Graph, devices: Sequence[Holder], transfers: Sequence[Transfer], when: tuple[int, int]
) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(devices[target].hold(graph, one.tensor, one.region, when) for target in one.targets) for one in transfers
    )


class _OpResolver:
    """Turns computations into runs of ops."""

    def __init__(self, graph: Graph, dialect: Dialect) -> None:
        self._graph, self._dialect = graph, dialect
        self._geometries: dict[int, Geometry | Refusal] = {}

    def run(self, devices: Sequence[Holder], device: int, one: Computation, when: tuple[int, int]) -> DeviceOp:
        """Return the run of ``one`` on ``device``, which holds its results from then on."""
        graph, value = self._graph, self._graph.ops[one.op]
        piece, axis, wanted = self._expressed(one)
        reads = []
        for tensor, region in wanted:
            found = devices[device].find_or_gather(graph, tensor, region, when[0])
            if found is None:
                raise _lacks(graph, device, tensor, region, when[0], f"op '{value.name}'")
            reads.append((tensor, found))
        regions = [one.region, *(whole_of(graph, tensor) for tensor in value.outputs[1:])]
        made = tuple(
            devices[device].hold(graph, tensor, region, when)
            for tensor, region in zip(value.outputs, regions, strict=False)
        )
        return DeviceOp(one.op, piece, axis, tuple(reads), made)

    def _expressed(self, one: Computation) -> tuple[OpPiece | None, int | None, list[tuple[int, Region]]]:
        """Return how an op runs for a region, the axis of a partial concatenation, and what it reads."""
        graph, value = self._graph, self._graph.ops[one.op]
        if one.op not in self._geometries:
            self._geometries[one.op] = describe(graph, one.op)
        geometry = self._geometries[one.op]
        everything = [(tensor, whole_of(graph, tensor)) for tensor in value.inputs]
        complete = not value.outputs or one.region == whole_of(graph, value.outputs[0])
        if isinstance(geometry, Refusal):
            if not complete:
                raise ModelError(
                    f"the plan divides what cannot be divided: {geometry.reason}", code="plan-not-divisible"
                )
            return None, None, everything
        if value.type == self._dialect.concat_type and not complete:
            return self._concatenation(one, geometry)
        found = run_of(value, one.op, geometry, one.region, self._dialect, padded=True)
        if isinstance(found, Refusal):
            if not complete:
                raise ModelError(f"the plan divides what cannot be divided: {found.reason}", code="plan-not-divisible")
            return None, None, everything
        reads = list(zip(value.inputs, found.reads, strict=True))
        if complete and reads == everything:
            return None, None, everything
        return found, None, reads

    def _concatenation(
        self, one: Computation, geometry: Geometry
    ) -> tuple[OpPiece | None, int | None, list[tuple[int, Region]]]:
        value = self._graph.ops[one.op]
        needed = deduce(geometry, value, one.region)
        if isinstance(needed, Refusal) or len(geometry.operands) > len(value.positions):
            reason = needed.reason if isinstance(needed, Refusal) else f"op '{value.name}' joins constants"
            raise ModelError(f"the plan divides what cannot be divided: {reason}", code="plan-not-divisible")
        maps = geometry.operands[value.positions[0]]
        axis = next(place for place, entry in enumerate(maps) if isinstance(entry.rule, Shift))
        pairs = zip(value.inputs, needed.inputs, strict=True)
        return None, axis, [(tensor, entry.region) for tensor, entry in pairs if entry.region is not None]


def whole_of(graph: Graph, tensor: int) -> Region:
    """Return the region that is all of a tensor."""
    return whole(graph.tensors[tensor].shape or ())


def _found(
    graph: Graph, devices: Sequence[Holder], device: int, tensor: int, region: Region, when: tuple[int, int]
) -> Cover:
    found = devices[device].find(tensor, region, when)
    if found is None:
        raise _lacks(graph, device, tensor, region, when[0], "a transfer or an output")
    return found


def _lacks(graph: Graph, device: int, tensor: int, region: Region, step: int, purpose: str) -> InternalError:
    what = _label(graph, tensor, region)
    return InternalError(f"in step {step} device {device} lacks a part of '{what}' for {purpose}")


def _label(graph: Graph, tensor: int, region: Region) -> str:
    name = graph.tensors[tensor].name
    if region == whole_of(graph, tensor):
        return name
    return f"{name}[{', '.join(f'{start}:{stop}' for start, stop in region.ranges)}]"


def _renumbered(found: Cover, numbers: Sequence[int]) -> Cover:
    """Return the cover with other numbers for its parts; it is no deeper than a tensor has axes."""
    if isinstance(found, PartSlice):
        return PartSlice(numbers[found.part], found.region)
    return PartConcat(found.axis, found.region, tuple(_renumbered(child, numbers) for child in found.children))
