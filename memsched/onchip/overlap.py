"""Which bytes of on-chip memory may be shared: by lifetime, and within one layer by local independence.

Source: "Deep Fusion", section 3.2. The intuitive reuse lets data share memory whose lifetimes do
not meet. The deep reuse lets a layer's output grow over the part of its input that is used up: a layer computes its
output point by point in the order of the memory (rows, then columns, all channels of a point at once), reads what a
point needs before it writes the point, and what no later point needs may be overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memsched.graph.model import Graph
from memsched.onchip.network import OnChipNetwork, Range

__all__ = ["Lifetime", "Overlap", "distance", "overlap_of", "piece_distance", "place"]


@dataclass(frozen=True, slots=True)
class Overlap:
    """The memory that one layer's input and output take together, in bytes.

    Attributes:
        input: The bytes [start, stop) of the input; all inputs but the first are left out.
        output: Those of the output.
        total: Reached over by both.
        separate: What they take side by side.
    """

    input: Range
    output: Range
    total: int
    separate: int

    @property
    def saved(self) -> float:
        """The share of ``separate`` that is saved."""
        return 1 - self.total / self.separate


def overlap_of(graph: Graph, op: int) -> Overlap:
    """Return how far the output of layer ``op`` may overlap its first input, for the layer as a whole.

    Its Figure 5: a convolution of 4x4, stride 2x2, from [8, 64, 3] to [3, 31, 16] with values of 4 bytes puts the
    input at 2096..8240 and the output at 0..5952.
    """
    network = OnChipNetwork(graph)
    layer = network.layers[op]
    given, made = network.maps[layer.reads[0]], network.maps[layer.writes[0]]
    whole = ((0, made.rows), (0, made.columns)), ((0, given.rows), (0, given.columns))
    apart = piece_distance(network, op, 0, *whole)
    above = made.size if apart is None else max(apart, 0)
    total = max(made.size, above + given.size)
    return Overlap((above, above + given.size), (0, made.size), total, given.size + made.size)


def distance(axes: Sequence[tuple[Sequence[int], int, int]], point: int) -> int | None:
    """Return how far above the output an input must begin, in bytes, so that no element is overwritten before its use.

    Args:
        axes: From the outermost, per axis of the output's points: the first input index that each needs, and the bytes
            from one index to the next in the output and in the input.
        point: Bytes of one output point.

    Returns:
        None where the output has one point only: then nothing of the input is used before anything is written.

    The bound is the maximum, over points p and axes l, of the end of p minus the lowest address needed by the points
    that agree with p before axis l and lie behind it there. Each axis adds its own maximum.
    """
    before = 0
    tails = [0] * (len(axes) + 1)
    for place in reversed(range(len(axes))):
        firsts, out, given = axes[place]
        tails[place] = tails[place + 1] + (len(firsts) - 1) * out - min(firsts) * given
    found: int | None = None
    for place, (firsts, out, given) in enumerate(axes):
        least, step = firsts[-1], None
        for index in range(len(firsts) - 2, -1, -1):
            value = index * out - least * given
            step = value if step is None or value > step else step
            least = min(least, firsts[index])
        if step is not None:
            bound = before + step + tails[place + 1] + point
            found = bound if found is None or bound > found else found
        before += max(index * out - first * given for index, first in enumerate(firsts))
    return found


def piece_distance(
    network: OnChipNetwork, op: int, entry: int, made: tuple[Range, Range], given: tuple[Range, Range]
) -> int | None:
    """Return the `distance` of read ``entry`` of layer ``op`` for a piece; None where the two may not overlap.

    Args:
        made: Rows and columns of the output that the piece computes.
        given: Rows and columns of the input that lie on chip.
    """
    layer = network.layers[op]
    source, target = network.maps[layer.reads[entry]], network.maps[layer.writes[0]]
    if network.elementwise(op, entry) and made == given:
        return 0
    if not layer.spatial:
        return None
    axes: list[tuple[Sequence[int], int, int]] = []
    row_out, row_in = _length(made[1]) * target.point, _length(given[1]) * source.point
    if target.batch > 1:
        axes.append((range(target.batch), _length(made[0]) * row_out, _length(given[0]) * row_in))
    for axis, out, read in ((0, row_out, row_in), (1, target.point, source.point)):
        firsts = network.firsts(op, entry, axis, *made[axis])
        if firsts is None:
            return None
        axes.append(([max(0, first - given[axis][0]) for first in firsts], out, read))
    return distance(axes, target.point)


def _length(span: Range) -> int:
    return span[1] - span[0]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """``size`` bytes in use during steps [first, last], both included."""

    size: int
    first: int
    last: int


def place(
    buffers: Sequence[Lifetime],
    allowed: Mapping[tuple[int, int], int],
    capacity: int,
    alignment: int = 1,
) -> tuple[int, ...] | None:
    """Return an address for each buffer so that all end within ``capacity`` bytes; None if none was found.

    Args:
        allowed: Pair (output, input) of buffers that meet in one step only to the least distance that the input's
            address must have from the output's, which may be below 0.
    """
    if not buffers:
        return ()
    order = range(len(buffers))
    tries = (
        # Backwards in time, outputs (which come last) below the inputs that they overlap.
        sorted(order, key=lambda b: (-buffers[b].last, -buffers[b].first, -b)),
        sorted(order, key=lambda b: (-buffers[b].size, b)),
        sorted(order, key=lambda b: (buffers[b].first - buffers[b].last, -buffers[b].size, b)),
        sorted(order, key=lambda b: (buffers[b].first, -buffers[b].size, b)),
    )
    for one in tries:
        found = _fit(buffers, allowed, capacity, alignment, one)
        if found is not None:
            return found
    return None


def _fit(
    buffers: Sequence[Lifetime],
    allowed: Mapping[tuple[int, int], int],
    capacity: int,
    alignment: int,
    order: Sequence[int],
) -> tuple[int, ...] | None:
    """Each buffer in turn at the lowest address that the placed ones leave."""
    offsets: dict[int, int] = {}
    for buffer in order:
        one = buffers[buffer]
        blocked = []
        for other, at in offsets.items():
            two = buffers[other]
            if two.first > one.last or one.first > two.last:
                continue
            low, high = at - one.size, at + two.size
            apart = allowed.get((other, buffer))
            if apart is not None:
                high = min(high, at + apart)
            apart = allowed.get((buffer, other))
            if apart is not None:
                low = max(low, at - apart)
            if low < high:
                blocked.append((low, high))
        address = 0
        for low, high in sorted(blocked):
            if low < address < high:
                address = -(-high // alignment) * alignment
        if address + one.size > capacity:
            return None
        offsets[buffer] = address
    return tuple(offsets[buffer] for buffer in range(len(buffers)))
