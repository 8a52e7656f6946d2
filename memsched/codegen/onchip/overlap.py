"""Which bytes of on-chip memory may be shared: by lifetime, and within one layer by local independence.

Source: "Deep Fusion", section 3.2. The intuitive reuse lets data share memory if their lifetimes do not meet. The deep
reuse lets a layer's output grow over the part of its input that is used up: a layer computes its output point by point
in the order of the memory (rows, then columns, all channels of a point at once), reads what a point needs before it
writes the point, and may overwrite what no later point needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memsched.base.frozen import FrozenValue
from memsched.codegen.onchip.network import OnChipNetwork, Range

__all__ = ["Lifetime", "distance", "piece_distance", "place"]


def distance(axes: Sequence[tuple[Sequence[int], int, int]], point: int) -> int | None:
    """Return how far above the output an input must begin, in bytes, so that no element is overwritten before its use.

    Args:
        axes: From the outermost, per axis of the output's points: the first input index that each needs, and the bytes
            from one index to the next in the output and in the input.
        point: Bytes of one output point.

    Returns:
        None where the output has only one point: then nothing of the input is used before anything is written.

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


class Lifetime(FrozenValue, frozen=True):
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
