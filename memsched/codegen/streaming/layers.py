"""The layers of a network that streams: each makes one pixel at a time of one map, from pixels of one map or of two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.kernel import LayerKernel

__all__ = ["INPUT", "LARGEST_PIXEL", "LARGEST_WINDOW", "NO_WINDOW", "StreamKind", "StreamLayer", "StreamMap"]
__all__ += ["StreamNetwork", "StreamWindow"]

INPUT: Final = 0
"""The number of the map that the model is given; layer i makes map i + 1."""

LARGEST_WINDOW: Final = (1 << 8) - 1
"""The largest kernel, stride or dilation that the tables of the C program hold."""

LARGEST_PIXEL: Final = (1 << 16) - 1
"""Values of a pixel, likewise."""

StreamKind = Literal[
    "conv", "depthwise", "average", "largest", "mean", "binary", "table", "copy", "join", "softmax", "sum", "dense"
]
"""What a layer does with each pixel.

"conv", "depthwise": sums of products over a window. "average", "largest", "mean": over a window; means are rescaled.
"binary": of two pixels. "table": of each value. "copy": a pixel from elsewhere, or none. "join": two pixels, one behind
the other. "softmax": over the values of a pixel. "sum", "dense": averages and products over the whole map, to which
each pixel is added as it comes.
"""


class StreamWindow(FrozenValue, frozen=True):
    """What output i of one axis reads: inputs (i * stride - before + dilation * (0 .. kernel - 1)) // divide.

    Attributes:
        stride: 0 where every output reads the same.
    """

    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    divide: int = 1

    def first(self, place: int) -> int:
        """Return the first input of output ``place``, before those outside are left out."""
        return (place * self.stride - self.before) // self.divide

    def last(self, place: int) -> int:
        """Return the last input of output ``place``, before those outside are left out."""
        return (place * self.stride - self.before + self.dilation * (self.kernel - 1)) // self.divide


NO_WINDOW: Final = StreamWindow()


class StreamMap(FrozenValue, frozen=True):
    """A feature map: rows, columns, and bytes of a pixel, which is all channels of a place.

    Attributes:
        late: Steps of its layer before the first pixel is complete: those that add pixels up make one at the end.
    """

    name: str
    rows: int
    columns: int
    channels: int
    late: int = 0

    @property
    def pixels(self) -> int:
        """Pixels of the map."""
        return self.rows * self.columns

    @property
    def size(self) -> int:
        """Bytes of the whole map."""
        return self.pixels * self.channels


@dataclass(frozen=True, slots=True, eq=False)
class StreamLayer:
    """One layer.

    Attributes:
        sources: The maps that it reads: one, or two.
        plane: Rows and columns of the first, as the layer sees them.
        window: What it reads of the first along both; of a second map the pixel at its own place, or its only one.
        steps: Rows and columns of its steps, in raster order: those of its output, or of its input where it adds up.
        kernel: What is computed, with constants.
        channel: Of "copy": the first channel that it copies.
        after: A layer that makes each of its pixels first, as both read the same map; None for no such layer.
    """

    name: str
    kind: StreamKind
    sources: tuple[int, ...]
    plane: tuple[int, int]
    window: tuple[StreamWindow, StreamWindow]
    steps: tuple[int, int]
    kernel: LayerKernel
    macs: int = 0
    channel: int = 0
    after: int | None = None

    @property
    def count(self) -> int:
        """Steps until the map is complete."""
        return math.prod(self.steps)

    @property
    def adds_up(self) -> bool:
        """Whether each step adds a pixel of the input to sums."""
        return self.kind in {"sum", "dense"}

    @property
    def is_elementwise(self) -> bool:
        """Whether value i of its pixel is computed from values i of the pixels that it reads, in this order."""
        return self.kind in {"binary", "table", "softmax"}


@dataclass(frozen=True, slots=True, eq=False)
class StreamNetwork:
    """All layers, in order of execution.

    Attributes:
        maps: The input's, then one per layer.
        outputs: The maps that the caller gets.
        scales: Scale and zero of those maps at the model's border that its file has as floats.
    """

    name: str
    maps: tuple[StreamMap, ...]
    layers: tuple[StreamLayer, ...]
    outputs: tuple[int, ...]
    scales: Mapping[int, tuple[float, int]]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all layers."""
        return sum(one.macs for one in self.layers)

    def sum_bytes(self, layer: int) -> int:
        """Return the bytes of sums that a layer adds to; 0 where it adds nothing up."""
        one, made = self.layers[layer], self.maps[layer + 1]
        if not one.adds_up:
            return 0
        return made.channels * self.sum_width(layer)

    def sum_width(self, layer: int) -> int:
        """Return the bytes of one sum: 2 where no sum of 8-bit values can be larger, else 4."""
        one = self.layers[layer]
        return 2 if one.kind == "sum" and one.count * _LARGEST <= _SHORT else 4


_LARGEST: Final = 128
_SHORT: Final = (1 << 15) - 1
