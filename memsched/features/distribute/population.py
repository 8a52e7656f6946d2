"""The model of `plan` for many plans at once, in numpy: latency, memory per device and bytes sent.

Source: "MemoriaNova", section 3.3.2 and Algorithm 2. All plans divide their ops along the same axes and differ in the
bounds. Arrays are indexed [plan, device] unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsched.base.frozen import FrozenValue
from memsched.features.distribute.boxes import Extents
from memsched.features.distribute.divisions import Division, Reach
from memsched.features.distribute.exchange import Boxes, LinkLoads, exchange, hull_of, joined, slab, span_of
from memsched.features.distribute.plan import Blocks, leaves
from memsched.features.distribute.space import Space
from memsched.graph.distribution import Axis
from memsched.targets.cluster import Cluster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Booleans = NDArray[np.bool_]

__all__ = ["Evaluation", "OpWork", "Population", "bytes_of", "cost_of", "needs_of", "units_of"]


class Evaluation(FrozenValue, frozen=True):
    """What plans cost.

    Attributes:
        latency: Seconds per plan.
        memory: The most bytes that each device holds, [plan, device].
        held: Bytes that each device holds while each op is computed, weights included, [plan, position, device].
    """

    latency: Floats
    memory: Integers
    held: Integers


@dataclass(slots=True)
class OpWork:
    """What an op costs along its axis, ready for arrays.

    Attributes:
        weights: Pairs (bytes per element, tables) of the constants that are cut; and the bytes of the others.
    """

    division: Division
    length: int
    units: int
    made: float
    macs: float
    whole_weights: int
    weights: list[tuple[int, tuple[Integers, Integers, tuple[int, int]]]]
    reaches: list[tuple[list[Any], list[Any]]]
    base: Floats
    per_mac: Floats
    per_byte: Floats


class Population:
    """Evaluates plans that divide the op at position i along ``axes[i]``.

    Args:
        blocks: As for `plan_in`.
    """

    def __init__(
        self, space: Space, cluster: Cluster, axes: Sequence[Axis], blocks: Blocks | None = None, home: int = 0
    ) -> None:
        self.space = space
        self.cluster = cluster
        self.axes = tuple(axes)
        self.home = home
        self._blocks = tuple((place, place + 1) for place in range(len(axes))) if blocks is None else blocks
        self._work = [self._compiled(place, axis) for place, axis in enumerate(axes)]

    def _compiled(self, position: int, axis: Axis) -> OpWork:
        import numpy as np

        division = self.space.divisions[position][axis]
        op = self.space.op(position)
        tables: dict[int, tuple[Integers, Integers, tuple[int, int]]] = {}

        def table(reach: Reach) -> tuple[Integers, Integers, tuple[int, int]]:
            if id(reach) not in tables:
                tables[id(reach)] = (np.array(reach.first), np.array(reach.last), reach.whole)
            return tables[id(reach)]

        cut: dict[int, int] = {}
        reaches: dict[int, Reach] = {}
        whole_weights = 0
        for part in division.weights:
            if part.reach is None:
                whole_weights += part.size
            else:
                reaches[id(part.reach)] = part.reach
                cut[id(part.reach)] = cut.get(id(part.reach), 0) + part.size // part.length
        times = [device.time_of(op.type) for device in self.cluster.devices]
        return OpWork(
            division=division,
            length=division.length,
            units=division.units,
            made=self.space.output_bytes(position),
            macs=float(op.macs),
            whole_weights=whole_weights,
            weights=[(size, table(reaches[key])) for key, size in cut.items()],
            reaches=[
                (
                    [one if isinstance(one, tuple) else table(one) for one in channels],
                    [one if isinstance(one, tuple) else table(one) for one in rows],
                )
                for channels, rows in zip(division.channels, division.rows, strict=True)
            ],
            base=np.array([time.base for time in times]),
            per_mac=np.array([time.per_mac for time in times]),
            per_byte=np.array([time.per_byte for time in times]),
        )

    def evaluate(self, bounds: Integers) -> Evaluation:
        """Return what the plans of ``bounds`` [plan, position, device + 1] cost; the bounds must be valid."""
        return _PopulationRun(self, bounds).evaluation()

    @property
    def blocks(self) -> Blocks:
        """The runs of positions between synchronisations."""
        return self._blocks

    def work(self, position: int) -> OpWork:
        """Return what the op at a position costs."""
        return self._work[position]


class _PopulationRun:
    """One evaluation."""

    def __init__(self, population: Population, bounds: Integers) -> None:
        import numpy as np

        self.p = population
        self.space = population.space
        self.bounds = bounds
        self.plans, self.count, devices = bounds.shape
        self.devices = devices - 1
        self.changes = np.zeros((self.count + 2, self.plans, self.devices), dtype=np.int64)
        self.weights = np.zeros((self.plans, self.devices), dtype=np.int64)
        self.holds: dict[int, list[Boxes]] = {}
        self.owners: dict[int, Boxes | None] = {}

    def evaluation(self) -> Evaluation:
        import numpy as np

        for tensor in self.space.graph.inputs:
            self.holds[tensor], self.owners[tensor] = [], None
        latency = np.zeros(self.plans)
        for block in self.p.blocks:
            ranges, needs, asked = self._ranges(block)
            self._reset_links()
            for tensor, box in asked.items():
                self._send(tensor, box, block[0])
            computing = np.zeros((self.plans, self.devices))
            for position in range(*block):
                computing += self._compute(position, ranges[position], needs[position], alone=block[1] - block[0] == 1)
            latency += self._seconds(computing)
        self._reset_links()
        for tensor in self.space.results:
            there = np.zeros((self.plans, self.devices), dtype=bool)
            there[:, self.p.home] = True
            self._send(tensor, Boxes(there, None, None), self.count)
        latency += self._seconds(np.zeros((self.plans, self.devices)))
        held = np.cumsum(self.changes[: self.count + 1], axis=0) + self.weights
        by_op = np.ascontiguousarray(held.transpose(1, 0, 2))
        return Evaluation(latency, by_op.max(axis=1), by_op[:, : self.count])

    def _reset_links(self) -> None:
        self.loads = LinkLoads.none((self.plans, self.devices))
        self.quiet = True

    def _seconds(self, computing: Floats) -> Floats:
        """Return the seconds of a step, per plan: of its slowest device, or of the source of the inputs."""
        import numpy as np

        slowest: Floats = computing.max(axis=1)
        if not self.quiet:
            links, outside = self.loads.seconds(self.p.cluster.router)
            slowest = np.maximum((links + computing).max(axis=1), outside)
        return slowest

    # What is computed ---------------------------------------------------------------------------------------------

    def _ranges(
        self, block: tuple[int, int]
    ) -> tuple[dict[int, tuple[Integers, Integers]], dict[int, list[Boxes]], dict[int, Boxes]]:
        """Return per position the units that devices compute, what they need, and all that they need from outside."""
        start, stop = block
        inner: dict[int, Boxes] = {}
        asked: dict[int, Boxes] = {}
        ranges: dict[int, tuple[Integers, Integers]] = {}
        needs: dict[int, list[Boxes]] = {}
        for position in range(stop - 1, start - 1, -1):
            work = self.p.work(position)
            parts = []
            if leaves(self.space, position, stop):
                units = -(-self.bounds[:, position] // work.division.unit)
                parts.append((units[:, :-1], units[:, 1:]))
            read = [tensor for tensor in self.space.op(position).outputs if tensor in inner]
            parts.extend(units_of(inner[tensor], work) for tensor in read)
            ranges[position] = joined(parts)
            needs[position] = needs_of(self.space, work, *ranges[position])
            for tensor, box in zip(work.division.tensors, needs[position], strict=True):
                found = inner if self.space.first[tensor] >= start else asked
                found[tensor] = hull_of(found[tensor], box, self.space.extents[tensor]) if tensor in found else box
        # This is the order in which the literal planner sends; no figure depends on it.
        return ranges, needs, asked

    def _compute(self, position: int, units: tuple[Integers, Integers], needs: list[Boxes], *, alone: bool) -> Floats:
        """Return the seconds of an op on every device, and note what comes into being there."""
        import numpy as np

        work, axis = self.p.work(position), self.p.axes[position]
        active, seconds, weights = cost_of(self.space, work, units, needs)
        self.weights += weights
        low, high = (np.minimum(unit * work.division.unit, work.length) for unit in units)
        bounds = self.bounds[:, position]
        owned = slab(axis, bounds[:, :-1], bounds[:, 1:], bounds[:, :-1] < bounds[:, 1:], bounds[:, 1:-1])
        for tensor in self.space.op(position).outputs:
            # What is owned and what is held differ where ops of a block are computed twice.
            self.owners[tensor] = owned
            self.holds[tensor] = [owned if alone else slab(axis, low, high, active)]
            self._born(tensor, position, bytes_of(self.holds[tensor][0], self.space.extents[tensor]))
        return seconds

    def _born(self, tensor: int, position: int, size: Integers) -> None:
        self.changes[position] += size
        self.changes[min(self.space.last[tensor], self.count) + 1] -= size

    # What is sent -------------------------------------------------------------------------------------------------

    def _send(self, tensor: int, need: Boxes, position: int) -> None:
        """Send what devices need of a tensor and do not hold, cell by cell between all boundaries."""
        found = exchange(
            need, self.holds[tensor], self.owners[tensor], self.space.extents[tensor], self.p.cluster.router.mode
        )
        self.holds[tensor].append(need)
        if found is None:
            return
        self.quiet = False
        self._born(tensor, position, found.received)
        self.loads.add(found, outside=self.owners[tensor] is None)


def units_of(box: Boxes, work: OpWork) -> tuple[Integers, Integers]:
    """Return the units of an op's axis that a box of its output touches."""
    import numpy as np

    axis = work.division.axis
    found = {"channels": box.channels, "rows": box.rows, "whole": None}[axis]
    if found is None:
        return np.zeros_like(box.there, dtype=np.int64), np.where(box.there, work.units, 0)
    low, high = found.low, found.high
    unit = work.division.unit
    return np.where(box.there, low // unit, 0), np.where(box.there, -(-high // unit), 0)


def needs_of(space: Space, work: OpWork, start: Integers, stop: Integers) -> list[Boxes]:
    """Return per tensor that an op reads what parts of the units [start, stop) need."""
    result = []
    whole, active = (start == 0) & (stop == work.units), start < stop
    for tensor, (channels, rows) in zip(work.division.tensors, work.reaches, strict=True):
        extents = space.extents[tensor]
        boxes = []
        for one, other in zip(channels, rows, strict=True):
            there = active
            spans: list[tuple[Integers, Integers] | None] = []
            for table, length in ((one, extents.channels), (other, extents.rows)):
                if len(table) == 2:
                    fixed = (active * table[0], active * table[1])
                    spans.append(None if table == (0, length) else fixed)
                else:
                    low, high = _looked_up(table, start, stop, whole, active)
                    there = there & (low < high)
                    spans.append((low, high))
            boxes.append(Boxes(there, *(None if span is None else span_of(*span, there) for span in spans)))
        found = boxes[0]
        for box in boxes[1:]:
            found = hull_of(found, box, extents)
        result.append(found)
    return result


def cost_of(
    space: Space, work: OpWork, units: tuple[Integers, Integers], needs: Sequence[Boxes]
) -> tuple[Booleans, Floats, Integers]:
    """Return which devices compute a part of an op, its seconds, and the bytes of constants that it reads."""
    import numpy as np

    start, stop = units
    active = start < stop
    unit = work.division.unit
    fraction = (np.minimum(stop * unit, work.length) - np.minimum(start * unit, work.length)) / work.length
    weights = active * work.whole_weights
    whole = (start == 0) & (stop == work.units)
    for size, table in work.weights:
        first, last = _looked_up(table, start, stop, whole, active)
        weights = weights + size * np.maximum(last - first, 0)
    touched = fraction * work.made + weights
    for tensor, box in zip(work.division.tensors, needs, strict=True):
        touched = touched + bytes_of(box, space.extents[tensor])
    seconds: Floats = active * (work.base + work.per_mac * (work.macs * fraction) + work.per_byte * touched)
    return active, seconds, weights


def bytes_of(box: Boxes, extents: Extents) -> Integers:
    """Return the bytes of boxes of a tensor."""
    size: Integers = box.there * extents.cell
    size = size * (extents.channels if box.channels is None else box.channels.high - box.channels.low)
    return size * (extents.rows if box.rows is None else box.rows.high - box.rows.low)


def _looked_up(
    table: tuple[Integers, Integers, tuple[int, int]],
    start: Integers,
    stop: Integers,
    whole: Booleans,
    active: Booleans,
) -> tuple[Integers, Integers]:
    import numpy as np

    first, last, everything = table
    low = np.where(whole, everything[0], first[start])
    high = np.where(whole, everything[1], last[stop])
    return low * active, high * active
