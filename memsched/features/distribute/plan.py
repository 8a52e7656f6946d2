"""From shares of ops to a whole plan: steps, transfers, seconds and memory per device, one device at a time.

Source: "MemoriaNova", section 3.3.2. This is the literal form of the model; `population` evaluates many plans at once
and is tested to give the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.features.distribute.boxes import EMPTY, Box, hull, volume
from memsched.features.distribute.space import Space
from memsched.features.distribute.transfers import parcels
from memsched.graph.distribution import Computation, Distribution, Share, Step, Transfer
from memsched.runtimes.devices.program import CALLER
from memsched.targets.cluster import Cluster

__all__ = ["Blocks", "Range", "piece_seconds", "plan_in"]

Blocks = tuple[tuple[int, int], ...]
"""Runs [start, stop) of positions that are computed between two synchronisations; together all positions."""

Range = tuple[int, int]


def plan_in(
    space: Space,
    shares: Sequence[Share],
    cluster: Cluster,
    *,
    blocks: Blocks | None = None,
    home: int = 0,
    method: str = "given",
) -> Distribution:
    """Return the exact plan of ``shares``, one per op in order of execution.

    Args:
        blocks: Runs of ops that are computed without a synchronisation between them; None for one op each.
        home: The device that gets the outputs.

    Raises:
        UsageError: The shares are none of this graph and cluster.
    """
    count = len(cluster.devices)
    for position, share in enumerate(shares):
        space.division(position, share)
        if len(share.bounds) != count + 1:
            problem = f"a share of op {share.op} is for {len(share.bounds) - 1} devices, not {count}"
            raise UsageError(problem, code="bounds-count")
    if not 0 <= home < count:
        raise UsageError(f"device {home} cannot get the outputs: there are {count}", code="no-such-device")
    blocks = tuple((place, place + 1) for place in range(len(shares))) if blocks is None else blocks
    if [place for start, stop in blocks for place in range(start, stop)] != list(range(len(shares))):
        raise UsageError(
            "blocks of ops do not cover the order of execution one after the other", code="order-incomplete"
        )
    given = (space, tuple(shares), cluster, blocks, home)
    plan = _PlanState(*given).plan(method)
    if not cluster.router.overlap:
        return plan
    ahead = _PlanState(*given, ahead=True).plan(method)
    return min((plan, ahead), key=lambda one: (not _fits(one, cluster), one.latency))


def _fits(plan: Distribution, cluster: Cluster) -> bool:
    return all(used <= device.memory for used, device in zip(plan.memory, cluster.devices, strict=True))


class _OpPart(FrozenValue, frozen=True):
    """What a device computes of an op, [low, high) along the op's axis, and the boxes that it needs for that."""

    low: int
    high: int
    needs: list[Box]


def _parts(space: Space, shares: Sequence[Share], block: tuple[int, int]) -> list[list[_OpPart]]:
    """Return, per position of a block and device, the part of the op that the device computes.

    It is the device's share where the result leaves the block, and what later ops of the block need of it there.
    """
    start, stop = block
    count = len(shares[start].bounds) - 1
    asked: dict[int, list[Box]] = {}
    result: list[list[_OpPart]] = [[] for _ in range(start, stop)]
    for position in range(stop - 1, start - 1, -1):
        share, op = shares[position], space.op(position)
        division = space.divisions[position][share.axis]
        for device in range(count):
            own = (share.bounds[device], share.bounds[device + 1])
            parts = [own] if own[0] < own[1] and leaves(space, position, stop) else []
            for tensor in op.outputs:
                box = asked[tensor][device] if tensor in asked else EMPTY
                if volume(box):
                    parts.append({"channels": box[:2], "rows": box[2:], "whole": (0, 1)}[share.axis])
            low, high = min((low for low, _ in parts), default=0), max((high for _, high in parts), default=0)
            low, high = (
                division.bound_of(low // division.unit),
                division.bound_of(division.unit_of(high)),
            )
            needs = space.needs(division, low, high)
            result[position - start].append(_OpPart(low, high, needs))
            for tensor, box in zip(division.tensors, needs, strict=True):
                if space.first[tensor] >= start:
                    boxes = asked.setdefault(tensor, [EMPTY] * count)
                    boxes[device] = hull([boxes[device], box])
    return result


def leaves(space: Space, position: int, stop: int) -> bool:
    """Whether a result of the op is needed after the block that ends at ``stop``, or nowhere."""
    return any(space.last[tensor] >= stop or not space.readers[tensor] for tensor in space.op(position).outputs)


def piece_seconds(
    space: Space, position: int, share: Share, part: Range, cluster: Cluster, device: int, needs: Sequence[Box] = ()
) -> float:
    """Return the seconds in which a device computes a part of an op; its work is in proportion to its output.

    Args:
        needs: What the part reads, if the caller knows it.
    """
    if part[0] >= part[1]:
        return 0.0
    division = space.divisions[position][share.axis]
    op = space.op(position)
    fraction = (part[1] - part[0]) / division.length
    boxes = needs or space.needs(division, *part)
    read = sum(space.extents[tensor].size(box) for tensor, box in zip(division.tensors, boxes, strict=True))
    touched = read + space.output_bytes(position, fraction) + division.weight_bytes(*part)
    return cluster.devices[device].time_of(op.type).seconds(op.macs * fraction, touched)


@dataclass(slots=True)
class _PlanState:
    """The state of one plan: what every device holds, per tensor and device."""

    space: Space
    shares: tuple[Share, ...]
    cluster: Cluster
    blocks: Blocks
    home: int
    ahead: bool = False
    holds: dict[int, list[list[Box]]] = field(default_factory=dict)
    owners: dict[int, list[tuple[int, Box]]] = field(default_factory=dict)
    births: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(position, tensor, device, bytes) of every piece that comes into being on a device."""

    def plan(self, method: str) -> Distribution:
        count = len(self.cluster.devices)
        for tensor in self.space.graph.inputs:
            self.holds[tensor] = [[] for _ in range(count)]
            self.owners[tensor] = [(CALLER, self.space.extents[tensor].whole)]
        steps: list[Step] = []
        computing: list[list[float]] = []
        weights = [0] * count
        for block in self.blocks:
            parts = _parts(self.space, self.shares, block)
            transfers = self._synchronise(block, parts)
            seconds, computations = self._compute(block, parts, weights)
            transfers = self._send_ahead(steps, computing, transfers, seconds)
            self._bear(transfers, block[0])
            steps.append(Step(tuple(transfers), computations))
            computing.append(seconds)
        needs = [EMPTY] * count
        results: list[Transfer] = []
        for tensor in self.space.results:
            needs[self.home] = self.space.extents[tensor].whole
            results.extend(self._send(tensor, needs))
        results = self._send_ahead(steps, computing, results, [0.0] * count)
        self._bear(results, len(self.shares))
        latency = sum(
            self._step_seconds(step.transfers, seconds, step.ahead)
            for step, seconds in zip(steps, computing, strict=True)
        ) + self._step_seconds(results, [0.0] * count)
        return Distribution(
            devices=count,
            shares=self.shares,
            steps=tuple(steps),
            results=tuple(results),
            home=self.home,
            latency=latency,
            lower_bound=0.0,
            memory=self._memory(weights),
            method=method,
        )

    def _synchronise(self, block: tuple[int, int], parts: list[list[_OpPart]]) -> list[Transfer]:
        """Send what the ops of a block read from outside it."""
        start, stop = block
        needs: dict[int, list[Box]] = {}
        for position in range(start, stop):
            division = self.space.divisions[position][self.shares[position].axis]
            for device, part in enumerate(parts[position - start]):
                for tensor, box in zip(division.tensors, part.needs, strict=True):
                    if self.space.first[tensor] < start:
                        boxes = needs.setdefault(tensor, [EMPTY] * len(self.cluster.devices))
                        boxes[device] = hull([boxes[device], box])
        return [transfer for tensor, boxes in needs.items() for transfer in self._send(tensor, boxes)]

    def _send_ahead(
        self,
        steps: list[Step],
        computing: Sequence[list[float]],
        transfers: list[Transfer],
        seconds: Sequence[float],
    ) -> list[Transfer]:
        """Let what was there before the step before go during it, if that is faster; return what goes now."""
        if not (self.ahead and steps):
            return transfers
        last, start = steps[-1], self.blocks[len(steps) - 1][0]
        early = [one for one in transfers if one.source != CALLER and self.space.first[one.tensor] < start]
        late = [one for one in transfers if one not in early]
        before = self._step_seconds(last.transfers, computing[-1]) + self._step_seconds(transfers, seconds)
        after = self._step_seconds(last.transfers, computing[-1], early) + self._step_seconds(late, seconds)
        if after >= before:
            return transfers
        steps[-1] = replace(last, ahead=tuple(early))
        self._bear(early, start)
        return late

    def _bear(self, transfers: Sequence[Transfer], position: int) -> None:
        self.births.extend((position, one.tensor, device, one.size) for one in transfers for device in one.targets)

    def _send(self, tensor: int, needs: list[Box]) -> list[Transfer]:
        extents = self.space.extents[tensor]
        found = parcels(needs, self.holds[tensor], self.owners[tensor], self.cluster.router.mode)
        for device, box in enumerate(needs):
            if volume(box):
                self.holds[tensor][device].append(box)
        return [
            Transfer(tensor, extents.region(one.box), one.source, one.targets, extents.size(one.box)) for one in found
        ]

    def _compute(
        self, block: tuple[int, int], parts: list[list[_OpPart]], weights: list[int]
    ) -> tuple[list[float], tuple[tuple[Computation, ...], ...]]:
        """Return the seconds and the computations of every device, and note the pieces that come into being."""
        start, stop = block
        count = len(self.cluster.devices)
        seconds = [0.0] * count
        computations: list[list[Computation]] = [[] for _ in range(count)]
        for position in range(start, stop):
            share, op = self.shares[position], self.space.op(position)
            division = self.space.divisions[position][share.axis]
            for tensor in op.outputs:
                extents = self.space.extents[tensor]
                self.holds[tensor] = [[] for _ in range(count)]
                self.owners[tensor] = [
                    (device, extents.slab(share.axis, share.bounds[device], share.bounds[device + 1]))
                    for device in range(count)
                ]
            for device, found in enumerate(parts[position - start]):
                part = (found.low, found.high)
                if found.low >= found.high:
                    continue
                seconds[device] += piece_seconds(self.space, position, share, part, self.cluster, device, found.needs)
                weights[device] += division.weight_bytes(*part)
                for tensor in op.outputs:
                    extents = self.space.extents[tensor]
                    box = extents.slab(share.axis, *part)
                    self.holds[tensor][device].append(box)
                    self.births.append((position, tensor, device, extents.size(box)))
                first = self.space.extents[op.outputs[0]]
                computations[device].append(Computation(share.op, first.region(first.slab(share.axis, *part))))
        return seconds, tuple(tuple(found) for found in computations)

    def _step_seconds(
        self, transfers: Sequence[Transfer], computing: Sequence[float], ahead: Sequence[Transfer] = ()
    ) -> float:
        """Return how long the slowest takes, the source of the network's inputs included."""
        given = {device for one in transfers if one.source == CALLER for device in one.targets}
        links, outside = self._link_seconds(transfers)
        # The source sends one part after the other: who gets the last has waited for all.
        links = [max(own, outside) if device in given else own for device, own in enumerate(links)]
        beside, _ = self._link_seconds(ahead)
        each = zip(links, computing, beside, strict=True)
        return max(outside, *(link + max(seconds, during) for link, seconds, during in each))

    def _link_seconds(self, transfers: Sequence[Transfer]) -> tuple[list[float], float]:
        """Return how long each device's link is busy, and that of the source of the network's inputs."""
        router, count = self.cluster.router, len(self.cluster.devices)
        sent, received = [0] * (count + 1), [0] * count
        for one in transfers:
            sent[one.source] += one.size * (len(one.targets) if router.mode == "point-to-point" else 1)
            for device in one.targets:
                received[device] += one.size
        links = [router.seconds(*both) for both in zip(sent, received, strict=False)]
        return links, router.seconds(sent[CALLER], 0)

    def _memory(self, weights: Sequence[int]) -> tuple[int, ...]:
        """Return the most that every device holds: its weights, and pieces from their birth to the last reader."""
        end = len(self.shares)
        result = []
        changes = [[0] * (end + 2) for _ in weights]
        for position, tensor, device, size in self.births:
            changes[device][position] += size
            changes[device][min(self.space.last[tensor], end) + 1] -= size
        for device, own in enumerate(weights):
            held = most = 0
            for change in changes[device]:
                held += change
                most = max(most, held)
            result.append(own + most)
        return tuple(result)
