"""A few shares per op to choose from, each with what it computes, needs and costs in arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from memsched.base.frozen import FrozenValue
from memsched.features.distribute import shares as rules
from memsched.features.distribute.boxes import Extents
from memsched.features.distribute.exchange import Boxes, PlanRanges
from memsched.features.distribute.plan import piece_seconds
from memsched.features.distribute.space import Space
from memsched.graph.distribution import Axis, Share
from memsched.targets.cluster import Cluster

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["BoxTable", "OpChoices", "all_shares", "few_shares"]


class BoxTable(FrozenValue, frozen=True):
    """Boxes per choice and device, [choice, device, 4].

    Attributes:
        cut: Whether any box that is not empty has less than all channels, and less than all rows.
    """

    boxes: Integers
    cut: tuple[bool, bool]

    @staticmethod
    def of(boxes: Sequence[Sequence[tuple[int, int, int, int]]], extents: Extents) -> BoxTable:
        """Return the table of these boxes of a tensor."""
        import numpy as np

        found = np.array(boxes, dtype=np.int64)
        there = found[..., 1] > found[..., 0]
        channels = there & ((found[..., 0] != 0) | (found[..., 1] != extents.channels))
        rows = there & ((found[..., 2] != 0) | (found[..., 3] != extents.rows))
        return BoxTable(found, (bool(channels.any()), bool(rows.any())))

    def at(self, choices: Integers) -> Boxes:
        """Return the boxes of these choices, one per plan."""
        found = self.boxes[choices]
        low, high, top, bottom = (found[..., place] for place in range(4))
        return Boxes(
            high > low,
            PlanRanges(low, high, (low, high)) if self.cut[0] else None,
            PlanRanges(top, bottom, (top, bottom)) if self.cut[1] else None,
        )


class OpChoices(FrozenValue, frozen=True):
    """The choices for the op at one position.

    Attributes:
        own: The part of its outputs that each device computes, per output.
        needs: What it needs, per tensor that the op reads.
        seconds: Seconds of computation, [choice, device].
        weights: Bytes of constants, [choice, device].
        made: Bytes of all outputs, [choice, device].
    """

    shares: tuple[Share, ...]
    tensors: tuple[int, ...]
    own: tuple[BoxTable, ...]
    needs: tuple[BoxTable, ...]
    seconds: Floats
    weights: Integers
    made: Integers

    @staticmethod
    def of(space: Space, cluster: Cluster, position: int, shares: Iterable[Share]) -> OpChoices:
        """Return the tables of ``shares`` of the op at ``position``, each once."""
        import numpy as np

        op = space.op(position)
        listed = tuple(dict.fromkeys(shares))
        tensors = space.divisions[position]["whole"].tensors
        own: list[list[list[tuple[int, int, int, int]]]] = [[] for _ in op.outputs]
        needs: list[list[list[tuple[int, int, int, int]]]] = [[] for _ in tensors]
        seconds, weights, made = [], [], []
        for share in listed:
            division = space.divisions[position][share.axis]
            parts = list(itertools.pairwise(share.bounds))
            place_of = {tensor: place for place, tensor in enumerate(division.tensors)}
            needed = [space.needs(division, *part) for part in parts]
            for place, tensor in enumerate(tensors):
                needs[place].append([found[place_of[tensor]] for found in needed])
            for place, tensor in enumerate(op.outputs):
                own[place].append([space.extents[tensor].slab(share.axis, *part) for part in parts])
            seconds.append(
                [piece_seconds(space, position, share, part, cluster, device) for device, part in enumerate(parts)]
            )
            weights.append([division.weight_bytes(*part) for part in parts])
            made.append(
                [
                    sum(space.extents[t].size(own[place][-1][device]) for place, t in enumerate(op.outputs))
                    for device in range(len(parts))
                ]
            )
        return OpChoices(
            listed,
            tensors,
            tuple(BoxTable.of(boxes, space.extents[t]) for boxes, t in zip(own, op.outputs, strict=True)),
            tuple(BoxTable.of(boxes, space.extents[t]) for boxes, t in zip(needs, tensors, strict=True)),
            np.array(seconds),
            np.array(weights, dtype=np.int64),
            np.array(made, dtype=np.int64),
        )


def few_shares(space: Space, cluster: Cluster, position: int, profiles: Sequence[Sequence[float]]) -> list[Share]:
    """Return shares worth trying: along every axis in proportion to each profile of weights; and every device alone."""
    op, count = space.order[position], len(cluster.devices)
    result: list[Share] = []
    axes: tuple[Axis, ...] = ("rows", "channels")
    for axis in axes:
        division = space.divisions[position].get(axis)
        if division is not None:
            result.extend(rules.by_weights(op, division, profile) for profile in profiles)
    result.extend(Share(op, "whole", (0,) * (device + 1) + (1,) * (count - device)) for device in range(count))
    return result


def all_shares(space: Space, position: int, devices: int, most: int) -> tuple[list[Share], bool]:
    """Return the shares of the op at a position, and whether they are all that exist.

    Where there would be more than ``most``, boundaries lie at multiples of more units.
    """
    op = space.order[position]
    result: dict[tuple[Axis, tuple[int, ...]], Share] = {}
    complete = True
    for axis, division in space.divisions[position].items():
        step = 1
        while math.comb(-(-division.units // step) + devices - 1, devices - 1) > most:
            step, complete = step + 1, False
        marks = [*range(0, division.units, step), division.units]
        for inner in itertools.combinations_with_replacement(marks, devices - 1):
            bounds = (0, *(division.bound_of(unit) for unit in inner), division.length)
            result[axis, bounds] = Share(op, axis, bounds)
    return list(result.values()), complete
