"""A group of layers that one body computes tile by tile, as numbers: no format and no runtime is in it.

Tiles are cut out of the output that the group makes last; all have one size, so that one body serves them all. Where
the output's length is no multiple of it, the last tile begins earlier and some elements are computed twice. The part of
a tensor that a tile needs begins at ``stride * (the tile's begin) + offset`` and may reach past the tensor's ends,
where layers want padding: there the group's input is padded once before the loop, and inner tensors are masked. Or
nothing is padded before: the body takes what lies in the input, pads that, and cuts the part out. What the group reads
beside its input has no padding: parts of it lie inside. So do those of what it makes beside its output, and they cover
it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from memsched.base.frozen import FrozenValue

__all__ = ["Loop", "LoopPart", "LoopRead", "LoopStep"]


class LoopPart(FrozenValue, frozen=True):
    """The part of a tensor that one tile needs, in elements per cut axis.

    Attributes:
        strides: Elements by which it moves when the tile moves by one.
        offsets: Where it begins for a tile that begins at 0.
        sizes: Its length.
    """

    strides: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def begin(self, tile: Sequence[int]) -> tuple[int, ...]:
        """Return where it begins for the tile that begins at ``tile``; below 0 where that is padding."""
        return tuple(stride * at + offset for stride, at, offset in zip(self.strides, tile, self.offsets, strict=True))


class LoopRead(FrozenValue, frozen=True):
    """What a step reads at one of its op's positions.

    Attributes:
        tensor: Of the graph given.
        offsets: Where in the tensor's part that begins, per cut axis.
        sizes: Its length, per cut axis.
        window: What a layer reads that pads by itself, of a whole input of the loop: where that reaches past its ends,
            it is moved inside, and the layer pads where the whole ends, too. None for a part of the tensor's part.
    """

    position: int
    tensor: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    window: LoopPart | None = None


class LoopStep(FrozenValue, frozen=True):
    """One op of the body.

    Attributes:
        op: Of the graph given.
        name: Of the op in the model, whose options and constants it has.
        output: The tensor of which it makes a part.
        reads: Its activations, in the order of the op's inputs.
        macs: Multiply-accumulates of one tile.
    """

    op: int
    name: str
    output: int
    reads: tuple[LoopRead, ...]
    macs: int

    @property
    def window(self) -> LoopRead | None:
        """What it reads of a whole input of the loop, padding that by itself; None for other steps."""
        return next((read for read in self.reads if read.window is not None), None)


class Loop(FrozenValue, frozen=True):
    """Consecutive ops, computed tile by tile.

    Attributes:
        ops: Of the graph given, ascending; those that only pad or take a part take no step.
        axes: The axes that are cut, such as rows and columns.
        tiles: Per axis where tiles begin in the output.
        input: The tensor read that may be padded, and over which the output may lie.
        output: The tensor made last.
        names: Per tensor of ``parts`` its name.
        parts: Per tensor, those read, those made and those between, the part that a tile needs.
        lengths: Per tensor its lengths along the cut axes.
        masked: Inner tensors whose part may reach past their ends, where a later layer wants padding.
        pads: Per cut axis the padding before and after the input.
        inner_pads: Per cut axis the padding before and after what the body takes of the input; empty where the input
            has all of it.
        steps: The body.
        side_inputs: What else is read.
        side_outputs: What else is made, for what follows.
        tile: The number of the one tile that an op computes, where each has an op of its own; None for all of them.
    """

    ops: tuple[int, ...]
    axes: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]
    input: int
    output: int
    names: Mapping[int, str]
    parts: Mapping[int, LoopPart]
    lengths: Mapping[int, tuple[int, ...]]
    masked: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    steps: tuple[LoopStep, ...]
    tile: int | None = None
    inner_pads: tuple[tuple[int, int], ...] = ()
    side_inputs: tuple[int, ...] = ()
    side_outputs: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How often the body runs."""
        return math.prod(map(len, self.tiles))

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all tiles."""
        return self.count * sum(step.macs for step in self.steps)

    def each(self) -> Iterator[tuple[int, ...]]:
        """Yield where each tile begins in the output, in the order of execution."""
        return itertools.product(*self.tiles)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tensors read."""
        return (self.input, *self.side_inputs)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The tensors made for what follows."""
        return (self.output, *self.side_outputs)

    def begins(self, tensor: int) -> list[tuple[int, ...]]:
        """Return per tile where its part of a tensor begins, per cut axis."""
        part = self.parts[tensor]
        return [part.begin(tile) for tile in self.each()]

    def moved(self, read: LoopRead) -> list[tuple[int, ...]]:
        """Return per tile where the window of a read begins in the whole input, per cut axis."""
        window = read.window or self.parts[read.tensor]
        most = [length - size for length, size in zip(self.lengths[read.tensor], window.sizes, strict=True)]
        return [
            tuple(max(0, min(at, last)) for at, last in zip(window.begin(tile), most, strict=True))
            for tile in self.each()
        ]

    def inside(self, step: LoopStep, read: LoopRead) -> list[tuple[int, ...]]:
        """Return per tile where the part of what a step makes begins in what it makes of a window, per cut axis."""
        begins = zip(self.begins(step.output), self.moved(read), strict=True)
        return [tuple(at - first for at, first in zip(begin, moved, strict=True)) for begin, moved in begins]

    def windowed(self, tensor: int) -> bool:
        """Return whether a layer that pads by itself reads a tensor."""
        return any(read.window is not None and read.tensor == tensor for step in self.steps for read in step.reads)

    def taken_sizes(self) -> tuple[int, ...]:
        """Return per cut axis the length of what the body takes of the input."""
        sizes, lengths = self.parts[self.input].sizes, self.lengths[self.input]
        if not self.inner_pads:
            return sizes
        return tuple(min(size, length) for size, length in zip(sizes, lengths, strict=True))

    def taken_along(self, place: int) -> tuple[int, ...]:
        """Return per tile along a cut axis where what the body takes begins in the input with the padding before it."""
        part, (before, _) = self.parts[self.input], self.pads[place]
        begins = [part.strides[place] * at + part.offsets[place] for at in self.tiles[place]]
        if self.inner_pads:
            last = self.lengths[self.input][place] - self.taken_sizes()[place]
            begins = [max(0, min(at, last)) for at in begins]
        return tuple(at + before for at in begins)

    def taken(self) -> list[tuple[int, ...]]:
        """Return per tile where what the body takes begins in the input with the padding before it, per cut axis."""
        return list(itertools.product(*map(self.taken_along, range(len(self.axes)))))

    def padded_inside(self) -> Loop:
        """Return the loop with the padding that its input has, but for rows before all others, added by the body."""
        around = self.outside(self.input)
        if self.inner_pads or not any(map(any, around)):
            return self
        pads = tuple((before - ahead, 0) for (before, _), (ahead, _) in zip(self.pads, around, strict=True))
        return replace(self, pads=pads, inner_pads=around)

    def covers(self, tensor: int) -> bool:
        """Return whether the parts of a tensor that all tiles need make up all of it, and nothing more."""
        part = self.parts[tensor]
        for place, tiles in enumerate(self.tiles):
            end = 0
            for at in tiles:
                begin = part.strides[place] * at + part.offsets[place]
                if begin < 0 or begin > end:
                    return False
                end = max(end, begin + part.sizes[place])
            if end != self.lengths[tensor][place]:
                return False
        return True

    def outside(self, tensor: int) -> tuple[tuple[int, int], ...]:
        """Return per cut axis how far parts reach past a tensor's begin and its end."""
        found = []
        for axis, tiles in enumerate(self.tiles):
            part, length = self.parts[tensor], self.lengths[tensor][axis]
            begins = [part.strides[axis] * at + part.offsets[axis] for at in (tiles[0], tiles[-1])]
            found.append((max(0, -begins[0]), max(0, begins[1] + part.sizes[axis] - length)))
        return tuple(found)
