"""What a loop over tiles costs: the bytes of its body, rows of padding that it needs, and the ops that it adds."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.graph.loop import Loop
from memsched.rewrites.tile.join_levels import join_levels
from memsched.rewrites.tile.loop import LoopGroup

__all__ = [
    "ADDED",
    "MOST_ROWS",
    "LoopCost",
    "added_ops",
    "after_step",
    "aligned",
    "body_tensors",
    "bytes_around",
    "joined_bytes",
    "joins_rows",
    "lead_rows",
    "rows_ahead",
]

MOST_ROWS: Final = 4096
"""Bytes of rows that are joined to an input: they are constants, which the file holds."""


class _AddedOps(FrozenValue, frozen=True):
    """Ops, or what else is named, that a loop adds to a file: how `memsched.graph.dialect` has formats write it.

    Attributes:
        around: The input's padding, the output's memory in three steps, and the loop itself.
        condition: The comparison; the tensors that both subgraphs are handed take about as much as another op.
        body: Slices of two tables of begins and of the padded input, what lays a tile into the output, and the next
            count.
        shared_body: The input's padding, and in the body slices of a table of begins and of the padded input.
        inner_padding: The padding of what the body takes of the input, a slice of that, and one of a table of begins.
        window: A slice of a whole input, one of what is made of that, and one of a table of begins.
        side_output: The output's memory in three steps, and what lays a part of it there.
        mask: A slice of the mask, the masking, and at times a slice of a table of begins.
        least: What each form of a loop adds at least.
        counters: Small buffers: the count, before and after, and where slices begin.
        constants: Of a slice or a padding, at most.
        rounded: Lists of structures that are rounded up to the alignment, which can take up that much of all this.
    """

    around: int
    condition: int
    body: int
    shared_body: int
    inner_padding: int
    window: int
    side_output: int
    mask: int
    least: int
    counters: int
    constants: int
    rounded: int


ADDED: Final = _AddedOps(
    around=5,
    condition=2,
    body=5,
    shared_body=3,
    inner_padding=3,
    window=3,
    side_output=4,
    mask=3,
    least=6,
    counters=4,
    constants=4,
    rounded=4,
)


class LoopCost(FrozenValue, frozen=True):
    """A loop with what it costs.

    Attributes:
        peak: Largest footprint of the steps from its padding to its end, bytes.
        added: Ops that the file then has in addition; 0 where nothing is kept for them.
        extra_macs: Multiply-accumulates that tiles repeat.
        tensors: Per step of one tile the bytes of the tensors that it takes beside what the loop carries.
        inner: Bytes that they take together at most.
        ahead: Bytes of padding before the first element of the input, which lies at the end of its padded copy.
        copying: Bytes that are needed while the padded copy is made elsewhere.
        behind: The largest footprint where an op that is in no loop makes the input.
    """

    group: LoopGroup
    peak: int
    added: int
    extra_macs: int
    tensors: tuple[tuple[int, ...], ...]
    inner: int
    ahead: int
    copying: int
    behind: int

    @property
    def alone(self) -> int:
        """Bytes up to the end of what the loop carries, which lies below what one tile takes."""
        return self.peak - self.inner

    def lifted(self, below: int) -> int:
        """Return the largest footprint where at least so many bytes lie free below what the loop carries."""
        return self.alone + (bytes_around(self.tensors, below) if below else self.inner)


def after_step(cost: LoopCost, before: int, other: int) -> LoopCost:
    """Return what a loop costs where an op that is in no loop makes its input.

    Its padding lies below all that op needs, or over what else that needs, with tiles below and above; or the padded
    copy lies elsewhere.

    Args:
        before: Bytes that the op needs.
        other: Of these, what is neither the loop's input nor stays live.
    """
    if not cost.ahead:
        return cost
    found = min(max(cost.peak, before + cost.ahead), max(cost.peak, cost.copying))
    if other >= cost.ahead:
        found = min(found, cost.lifted(other - cost.ahead))
    return replace(cost, behind=found)


@functools.lru_cache(maxsize=1 << 16)
def bytes_around(steps: tuple[tuple[int, ...], ...], below: int) -> int:
    """Return the bytes, below something and above it, that hold the tensors of each step and are least together.

    Args:
        steps: The bytes of the tensors that are needed at once.
        below: Bytes that lie below at least.
    """
    sums = [_sums(sizes) for sizes in steps]
    rooms = {below, *(one for each in sums for one in each if one > below)}
    return min(room + max(each[-1] - each[bisect.bisect_right(each, room) - 1] for each in sums) for room in rooms)


def _sums(sizes: Sequence[int]) -> list[int]:
    """Return the sums of some of ``sizes``, ascending from 0."""
    found = {0}
    for size in sizes:
        found |= {one + size for one in found}
    return sorted(found)


def body_tensors(
    loop: Loop,
    element: Mapping[int, float],
    width: Mapping[int, int],
    *,
    in_place: bool,
    alignment: int,
    pads_over: bool = False,
) -> tuple[tuple[int, ...], ...]:
    """Return the bytes of a body's own tensors that are needed at once, for each of its steps.

    Args:
        element: Per tensor the bytes of one position along the cut axes.
        width: Per tensor the bytes of one element.
        in_place: A mask is laid over what it masks.
        pads_over: What is padded lies inside what has the padding.
    """

    def size(tensor: int, lengths: Sequence[int]) -> int:
        return aligned(math.ceil(element[tensor] * math.prod(lengths)), alignment)

    parts = {tensor: size(tensor, part.sizes) for tensor, part in loop.parts.items()}
    steps = enumerate(loop.steps)
    last = {read.tensor: number for number, step in steps for read in step.reads if read.window is None}
    live = {loop.input: parts[loop.input]}
    found = dict.fromkeys([tuple(live.values()), *_padding_tensors(loop, size, alignment if pads_over else None)])
    for number, step in enumerate(loop.steps):
        reads = [read for read in step.reads if read.window is None]
        for tensor in (read.tensor for read in reads if read.tensor in loop.side_inputs):
            live.setdefault(tensor, parts[tensor])
        held = tuple(live.values())
        found[held] = None
        if (window := step.window) is not None:
            made = size(step.output, window.sizes)
            for beside in (size(window.tensor, window.sizes), parts[step.output]):
                needed = (*held, made, beside)
                found[needed] = None
        cut = [read for read in reads if read.sizes != loop.parts[read.tensor].sizes]
        crops: tuple[int, ...] = ()
        for read in cut:
            crops += (size(read.tensor, read.sizes),)
            found[held + crops] = None
        direct = {read.tensor for read in reads if read not in cut}
        # A tensor of which only crops are read is gone when the last is made.
        staying = tuple(live[t] for t in live if last[t] != number or t in direct)
        needed = (*staying, *crops, parts[step.output])
        found[needed] = None
        for tensor in [tensor for tensor in live if last[tensor] == number]:
            del live[tensor]
        if step.output in loop.side_outputs and step.output not in last:
            continue
        live[step.output] = parts[step.output]
        if step.output in loop.masked:
            mask = aligned(_masked(loop, step.output) * width[step.output], alignment)
            needed = (*live.values(), mask, *(() if in_place else (parts[step.output],)))
            found[needed] = None
        if step.output == loop.output:
            last[step.output] = len(loop.steps)
    needed_at_once = [tuple(sorted(sizes)) for sizes in found]
    return tuple(dict.fromkeys(sizes for sizes in needed_at_once if sum(sizes)))


def _masked(loop: Loop, tensor: int) -> int:
    """Return the elements of the mask of a tensor: along axes of which parts may lie outside."""
    sizes = zip(loop.parts[tensor].sizes, loop.outside(tensor), strict=True)
    return math.prod(size for size, pair in sizes if any(pair))


def _padding_tensors(
    loop: Loop, size: Callable[[int, Sequence[int]], int], over: int | None
) -> Iterator[tuple[int, ...]]:
    """Yield what the padding in a body needs at once: what is taken and that with padding, and that and the part.

    Args:
        over: Bytes by which what is taken reaches past the end of what it is padded to; None where it lies elsewhere.
    """
    if loop.inner_pads:
        taken, part = loop.taken_sizes(), loop.parts[loop.input].sizes
        wide = tuple(length + before + after for length, (before, after) in zip(taken, loop.inner_pads, strict=True))
        yield size(loop.input, wide), size(loop.input, taken) if over is None else over
        if wide != part:
            yield size(loop.input, wide), size(loop.input, part)


def joins_rows(loop: Loop, outer: Sequence[int], added: int) -> bool:
    """Return whether the input's padding can be constant rows that are joined to it.

    Args:
        outer: Lengths of the input along the axes before those that are cut.
        added: Bytes of the padding.
    """
    return not any(map(any, loop.pads[1:])) and math.prod(outer) == 1 and added <= MOST_ROWS


def lead_rows(loop: Loop, row: int, padded_row: int) -> int:
    """Return how many more rows of padding let the output lie from the padded input's begin on.

    The rows that a tile writes must end before the first row that any later tile reads.

    Args:
        row: Bytes of a row of the output.
        padded_row: Bytes of a row of the padded input.
    """
    needed = 0
    tiles = loop.tiles[0]
    several = any(len(others) > 1 for others in loop.tiles[1:])
    first_read = dict(zip(tiles, loop.taken_along(0), strict=True))
    for number, at in enumerate(tiles):
        end = (at + loop.parts[loop.output].sizes[0]) * row
        later = [at] if several else []
        later += tiles[number + 1 : number + 2]
        for other in later:
            first = first_read[other] * padded_row
            needed = max(needed, -(-(end - first) // padded_row))
    return needed


def rows_ahead(loop: Loop, row: int, padded_row: int, joined: int | None) -> int:
    """Return the rows ahead of a loop's input, over which its output lies.

    Args:
        row, padded_row: As `lead_rows` takes them.
        joined: The alignment, bytes, of rows that are joined to the input; None where it is padded.
    """
    lead = max(lead_rows(loop, row, padded_row), int(bool(loop.inner_pads)))
    if joined is not None:
        # Rows that are joined to an input say where it begins.
        lead += -(loop.pads[0][0] + lead) % (joined // math.gcd(joined, padded_row))
    return lead


def added_ops(loop: Loop, *, unrolled: bool = False, most_joined: int | None = None) -> int:
    """Return how many ops a loop adds to a file: padding, views and the loop, and in the body slices and masks.

    Args:
        unrolled: Each tile has an op of its own; there are these, what joins them, and no views.
        most_joined: Tensors that one op joins.
    """
    reads = [read for step in loop.steps for read in step.reads]
    windows = ADDED.window * sum(read.window is not None for read in reads)
    crops = windows + sum(read.window is None and read.sizes != loop.parts[read.tensor].sizes for read in reads)
    inside = crops + ADDED.mask * len(loop.masked) + len(loop.side_inputs) + ADDED.side_output * len(loop.side_outputs)
    if loop.inner_pads:
        inside += ADDED.inner_padding
    if not any(map(any, loop.pads)):
        inside -= 1
    if unrolled:
        return ADDED.shared_body + inside + loop.count + _joins(loop, most_joined)
    return ADDED.around + ADDED.condition + ADDED.body + inside


def _joins(loop: Loop, most_joined: int | None) -> int:
    """Return how many ops join the tiles, and cut off what two of them have."""
    total, times = 0, 1
    for place, begins in enumerate(loop.tiles):
        if len(begins) > 1:
            levels = join_levels(len(begins), most_joined)
            total += times * (1 + sum(size > 1 for sizes in levels for size in sizes) + _overlaps(loop, place))
        times *= len(begins)
    return total


def _overlaps(loop: Loop, place: int) -> bool:
    """Return whether the last tiles along an axis begin inside those before them."""
    begins = loop.tiles[place]
    return len(begins) > 1 and begins[-1] - begins[-2] < loop.parts[loop.output].sizes[place]


def joined_bytes(loop: Loop, element: float, alignment: int) -> int:
    """Return the most bytes of tiles that lie beside the output while they are joined, where each has an op.

    Tiles that are whole rows of the output are made where they belong. Others are copied there row by row of tiles; and
    what two tiles have both is cut off one of them.

    Args:
        element: Bytes of one position along the cut axes of the output.
    """
    sizes = loop.parts[loop.output].sizes
    tile = aligned(math.ceil(element * math.prod(sizes)), alignment)
    row = math.prod(map(len, loop.tiles[1:]))
    beside = tile * row if row > 1 and sizes[0] > 1 else 0
    if row > 1 and any(_overlaps(loop, place) for place in range(1, len(loop.tiles))):
        beside = tile * (row + 1)
    return max(beside, tile * row) if _overlaps(loop, 0) else beside


def aligned(size: int, alignment: int) -> int:
    """Return ``size`` rounded up to a multiple of ``alignment``."""
    return -(-size // alignment) * alignment
