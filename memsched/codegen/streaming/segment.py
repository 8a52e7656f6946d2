"""The buffers of a segment: rings of pixels, slots of one pixel that maps share, sums, and the map that leaves.

All sizes are bytes. A buffer grows while the segment's input dies from its first pixel on, so that buffers can lie
where dead pixels were: `StreamBuffer.ahead` says how closely.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memsched.base.frozen import FrozenValue
from memsched.codegen.streaming.layers import StreamNetwork
from memsched.codegen.streaming.schedule import Array, StreamEvents

__all__ = ["StreamBuffer", "StreamSegment"]


class StreamBuffer(FrozenValue, frozen=True):
    """Bytes that a segment writes.

    Attributes:
        maps: The maps whose pixels lie in it: one, or several that take turns with one pixel each.
        ahead: The most that its written bytes are ahead of the dead bytes of the input: at address a, with the input at
            e, no byte that is needed is overwritten if a + ahead <= e.
        leaves: It holds the map that later segments read.
    """

    maps: tuple[int, ...]
    size: int
    ahead: int
    leaves: bool = False


@dataclass(frozen=True, eq=False)
class StreamSegment:
    """Layers that stream together.

    Attributes:
        events: Of a run that begins with the same layer and ends with this one's last layer, or later.
        layers: Its layers.
        pushed: Its input comes pixel by pixel, into a ring.
        outside: The map that is its input.
        leaving: The map that later segments read; None for the last segment.
        external: Maps that lie with the caller.
    """

    network: StreamNetwork
    events: StreamEvents
    layers: range
    pushed: bool
    leaving: int | None
    external: frozenset[int]

    @property
    def outside(self) -> int:
        """The map that is its input."""
        return self.network.layers[self.layers[0]].sources[0]

    @cached_property
    def rings(self) -> dict[int, int]:
        """Per map that is made here, and for a pushed input, the pixels that are kept at a time."""
        found = {layer + 1: self._ring(layer + 1) for layer in self.layers}
        if self.pushed:
            found[self.outside] = self._ring(self.outside)
        return found

    @cached_property
    def buffers(self) -> tuple[StreamBuffer, ...]:
        """What is written in the arena."""
        single = [one for one in self._inside() if self.rings[one] == 1 and one != self.leaving and not self._adds(one)]
        slots = self._slots(single)
        others = [one for one in self._inside() if one not in single]
        return (*(self._buffer((one,)) for one in others), *(self._buffer(tuple(slot)) for slot in slots))

    @cached_property
    def total(self) -> int:
        """The bytes of all buffers."""
        return sum(one.size for one in self.buffers)

    @property
    def input_size(self) -> int:
        """The bytes of the whole input."""
        return self.network.maps[self.outside].size

    def _inside(self) -> Iterable[int]:
        """Return the maps with bytes in the arena."""
        for one in self.rings:
            if one not in self.external or self._adds(one):
                yield one

    def _adds(self, one: int) -> bool:
        return one > self.layers[0] and self.network.layers[one - 1].adds_up

    def _readers(self, one: int) -> list[tuple[int, int]]:
        """Return which layers of the segment read a map, and as which of their sources."""
        return [
            (layer, source)
            for layer in self.layers
            for source, given in enumerate(self.network.layers[layer].sources)
            if given == one
        ]

    def _made(self, one: int) -> Array:
        """Return when each pixel of a map is written."""
        return self.events.times[one - 1 if one > self.layers[0] else -1]

    def _ring(self, one: int) -> int:
        """Return how many pixels a map has to keep."""
        if one == self.leaving or one in self.external or self._adds(one):
            return self.network.maps[one].pixels
        made = self._made(one)
        kept = np.arange(1, len(made) + 1)
        return max(1, int((kept - self._needed_from(one, made)).max()))

    def _needed_from(self, one: int, at: Array) -> Array:
        """Return the first pixel of a map that is still needed at each time."""
        found = np.full(len(at), self.network.maps[one].pixels, np.int64)
        for layer, source in self._readers(one):
            np.minimum(found, self.events.first[layer, source][self.events.done(layer, at)], out=found)
        return found

    # Slots of one pixel ----------------------------------------------------------------------------------------------

    def _slots(self, maps: list[int]) -> list[list[int]]:
        """Return which maps of one pixel share a slot: those that are never needed at a time, the widest first."""
        slots: list[list[int]] = []
        for one in sorted(maps, key=lambda one: (-self.network.maps[one].channels, one)):
            free = (slot for slot in slots if not any(self._meet(one, other) for other in slot))
            slot = next(free, None)
            if slot is None:
                slots.append([one])
            else:
                slot.append(one)
        return slots

    def _meet(self, one: int, other: int) -> bool:
        """Return whether two maps need a pixel at the same time."""
        earlier, later = sorted((one, other))
        begins, ends = self._lives(earlier, later)
        begins_later, ends_later = self._lives(later, earlier)
        # The lives of one map do not overlap, as it has one pixel: only the last one begun can last.
        place = np.searchsorted(begins, ends_later, side="right") - 1
        return bool((ends[np.maximum(place, 0)] >= begins_later)[place >= 0].any())

    def _lives(self, one: int, beside: int) -> tuple[Array, Array]:
        """Return when each pixel of a map is written, and when it is read last.

        A layer that computes value by value can write over what it reads: then that read does not meet the map that it
        makes, ``beside``.
        """
        maker = self.network.layers[beside - 1] if beside > self.layers[0] else None
        over = maker is not None and maker.is_elementwise and one in maker.sources
        key = (one, beside if over else one)
        if key not in self._known_lives:
            self._known_lives[key] = self._found_lives(*key)
        return self._known_lives[key]

    @cached_property
    def _known_lives(self) -> dict[tuple[int, int], tuple[Array, Array]]:
        return {}

    def _found_lives(self, one: int, beside: int) -> tuple[Array, Array]:
        begins = self._made(one)
        ends = begins.copy()
        pixels = np.arange(len(begins), dtype=np.int64)
        for layer, source in self._readers(one):
            first = self.events.first[layer, source]
            last = np.searchsorted(first[:-1], pixels, side="right") - 1
            times = self.events.times[layer]
            over = self.network.layers[layer].is_elementwise and layer + 1 == beside
            np.maximum(ends, np.where(last >= 0, times[np.maximum(last, 0)] - over, begins), out=ends)
        return begins, ends

    # Bytes -----------------------------------------------------------------------------------------------------------

    def _buffer(self, maps: tuple[int, ...]) -> StreamBuffer:
        one = maps[0]
        leaves = self.leaving in maps
        if self._adds(one):
            size = max(self.network.sum_bytes(one - 1), self.network.maps[one].channels)
            return StreamBuffer(maps, size, self._ahead(maps, size), leaves)
        size = max(self.rings[other] * self.network.maps[other].channels for other in maps)
        return StreamBuffer(maps, size, self._ahead(maps, 0), leaves)

    def _ahead(self, maps: tuple[int, ...], at_once: int) -> int:
        """Return `StreamBuffer.ahead`; ``at_once`` is what the first step writes at least."""
        channels = self.network.maps[self.outside].channels
        found = -self.input_size
        for one in maps:
            at = self._made(one)
            pixels = np.minimum(np.arange(1, len(at) + 1), self.rings[one])
            grown = np.maximum(np.maximum.accumulate(pixels) * self.network.maps[one].channels, at_once)
            dead = self._needed_from(self.outside, at) * channels
            found = max(found, int((grown - dead).max()))
        return found
