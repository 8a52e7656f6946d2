"""Boxes of many plans in arrays, and what devices must send each other: Algorithm 2 made exact, as `transfers` does.

Arrays are indexed [plan, device] unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsched.base.frozen import FrozenValue
from memsched.features.distribute.boxes import Extents
from memsched.graph.distribution import Axis
from memsched.targets.cluster import Mode, Router

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Booleans = NDArray[np.bool_]
    Floats = NDArray[np.float64]

__all__ = ["Boxes", "Exchange", "LinkLoads", "PlanRanges", "exchange", "hull_of", "joined", "slab", "span_of"]


@dataclass(slots=True)
class Boxes:
    """A box per plan and device; along an axis without ranges it is whole where ``there`` says so."""

    there: Booleans
    channels: PlanRanges | None
    rows: PlanRanges | None


@dataclass(slots=True)
class PlanRanges:
    """Ranges [low, high) per plan and device; ``edges`` are their distinct ends, [plan, end]."""

    low: Integers
    high: Integers
    edges: tuple[Integers, ...]


class Exchange(FrozenValue, frozen=True):
    """Bytes that are sent of one tensor.

    Attributes:
        received: By each device.
        sent: By each device; 0 where the tensor comes from outside.
        leaving: By all senders together, [plan].
    """

    received: Integers
    sent: Integers
    leaving: Integers


@dataclass(slots=True)
class LinkLoads:
    """What the links carry in one step.

    Attributes:
        outside: Bytes that leave the source of the network's inputs, [plan].
        given: Which devices receive any of them.
    """

    sent: Integers
    received: Integers
    outside: Integers
    given: Booleans

    @staticmethod
    def none(shape: tuple[int, int]) -> LinkLoads:
        """Return links that carry nothing."""
        import numpy as np

        sent, received = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        return LinkLoads(sent, received, np.zeros(shape[0], dtype=np.int64), np.zeros(shape, dtype=bool))

    def add(self, found: Exchange, *, outside: bool) -> None:
        """Add what is sent of a tensor, by its owners or from outside."""
        self.received = self.received + found.received
        self.sent = self.sent + found.sent
        if outside:
            self.outside = self.outside + found.leaving
            self.given = self.given | (found.received > 0)

    def seconds(self, router: Router) -> tuple[Floats, Floats]:
        """Return after how long each device can compute, and the source of the inputs is done, [plan].

        The source sends one part after the other: who gets the last has waited for all.
        """
        import numpy as np

        most = np.maximum(self.sent, self.received)
        own = np.where(most > 0, router.latency + most / router.bandwidth, 0.0)
        outside = np.where(self.outside > 0, router.latency + self.outside / router.bandwidth, 0.0)
        return np.maximum(own, self.given * outside[:, None]), outside


def exchange(need: Boxes, holds: Sequence[Boxes], owner: Boxes | None, extents: Extents, mode: Mode) -> Exchange | None:
    """Return what has to be sent so that every device has what it needs; None where no plan sends anything.

    Args:
        holds: What devices have already.
        owner: Which part each device sends; None where everything comes from outside.
    """
    if any(_within(need, held) for held in holds):
        return None
    boxes = [need, *holds, *([] if owner is None else [owner])]
    columns = _edges([box.channels for box in boxes], extents.channels)
    rows = _edges([box.rows for box in boxes], extents.rows)
    missing = _cells(need, columns, rows)
    for held in holds:
        missing = missing & ~_cells(held, columns, rows)
    if not missing.any():
        return None
    area = _area(columns, rows, extents) * extents.cell
    received = (missing * area[:, None]).sum(axis=2)
    times = missing.any(axis=1) if mode == "broadcast" else missing.sum(axis=1)
    leaving = times * area
    sent = received * 0 if owner is None else (_cells(owner, columns, rows) * leaving[:, None]).sum(axis=2)
    return Exchange(received, sent, leaving.sum(axis=1))


def slab(axis: Axis, low: Integers, high: Integers, there: Booleans, edges: Integers | None = None) -> Boxes:
    """Return the parts [low, high) along an axis; ``edges`` are their distinct ends where they are known."""
    span = PlanRanges(low, high, (low, high) if edges is None else (edges,))
    return Boxes(there, span if axis == "channels" else None, span if axis == "rows" else None)


def span_of(low: Integers, high: Integers, there: Booleans) -> PlanRanges:
    """A range that is empty begins and ends at 0."""
    low, high = low * there, high * there
    return PlanRanges(low, high, (low, high))


def joined(parts: list[tuple[Integers, Integers]]) -> tuple[Integers, Integers]:
    """Return the smallest ranges around ranges; empty ones do not count."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    far = np.iinfo(np.int64).max
    low = np.min([np.where(start < stop, start, far) for start, stop in parts], axis=0)
    high = np.max([np.where(start < stop, stop, 0) for start, stop in parts], axis=0)
    return np.where(high > 0, low, 0), high


def hull_of(one: Boxes, other: Boxes, extents: Extents) -> Boxes:
    """Return the smallest boxes around two boxes of every device; empty ones do not count."""
    there = one.there | other.there

    def side(a: PlanRanges | None, b: PlanRanges | None, length: int) -> PlanRanges | None:
        if a is None and b is None:
            return None
        spans = [
            (box.there * 0, box.there * length) if span is None else (span.low, span.high)
            for span, box in ((a, one), (b, other))
        ]
        return span_of(*joined(spans), there)

    return Boxes(there, side(one.channels, other.channels, extents.channels), side(one.rows, other.rows, extents.rows))


def _within(need: Boxes, held: Boxes) -> bool:
    """Whether every device holds all that it needs in one box, in every plan."""
    if (need.there & ~held.there).any():
        return False
    for wanted, given in ((need.channels, held.channels), (need.rows, held.rows)):
        if given is None:
            continue
        if wanted is None:
            return False
        if (need.there & ((wanted.low < given.low) | (wanted.high > given.high))).any():
            return False
    return True


def _edges(spans: Sequence[PlanRanges | None], length: int) -> Integers | None:
    """Return all boundaries of an axis in ascending order, [plan, boundary]; None where nothing cuts it."""
    import numpy as np

    found = {id(edge): edge for span in spans if span is not None for edge in span.edges}
    if not found:
        return None
    edges = list(found.values())
    ends = np.broadcast_to(np.array([0, length], dtype=np.int64), (len(edges[0]), 2))
    result = np.concatenate([ends, *edges], axis=1)
    result.sort(axis=1)
    return result


def _cells(boxes: Boxes, columns: Integers | None, rows: Integers | None) -> Booleans:
    """Return which cells lie in each device's box, [plan, device, cell]."""
    first, second = _inside(boxes, boxes.channels, columns), _inside(boxes, boxes.rows, rows)
    if columns is None or rows is None:
        return second if columns is None else first
    result: Booleans = (first[:, :, :, None] & second[:, :, None, :]).reshape(*first.shape[:2], -1)
    return result


def _inside(boxes: Boxes, span: PlanRanges | None, edges: Integers | None) -> Booleans:
    import numpy as np

    if edges is None:
        return boxes.there[:, :, None]
    if span is None:
        return np.broadcast_to(boxes.there[:, :, None], (*boxes.there.shape, edges.shape[1] - 1))
    result: Booleans = span.low[:, :, None] <= edges[:, None, :-1]
    result &= edges[:, None, 1:] <= span.high[:, :, None]
    return result


def _area(columns: Integers | None, rows: Integers | None, extents: Extents) -> Integers:
    """Return how many rows of one channel each cell has, [plan, cell]."""
    import numpy as np

    widths = np.array([[extents.channels]]) if columns is None else np.diff(columns, axis=1)
    heights = np.array([[extents.rows]]) if rows is None else np.diff(rows, axis=1)
    result: Integers = (widths[:, :, None] * heights[:, None, :]).reshape(max(len(widths), len(heights)), -1)
    return result
