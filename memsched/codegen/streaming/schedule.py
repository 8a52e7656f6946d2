"""What a segment does, step by step: always the deepest layer that can run makes one pixel.

The C program follows the same rule, so that what is found here, by running it, is exact: pixels that each ring holds,
and how far the input of the segment is dead when a buffer grows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from memsched.base.errors import InternalError
from memsched.codegen.streaming.layers import StreamLayer, StreamNetwork

__all__ = ["PlanningStoppedError", "StreamEvents", "needs", "run_segment"]

Array = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class StreamEvents:
    """The steps of a segment, in the order in which they happen.

    Attributes:
        layers: The segment's layers, first and last.
        order: The layer of each event; -1 for a pixel of the input that is pushed.
        times: Per layer of the segment when each of its steps happens; for -1, when the input's pixels are pushed.
        first: Per layer and source, for each step and after the last, the first pixel that it or a later one reads.
    """

    layers: range
    order: Array
    times: dict[int, Array]
    first: dict[tuple[int, int], Array]

    def done(self, layer: int, at: Array) -> Array:
        """Return how many steps of a layer happened before each time."""
        return np.searchsorted(self.times[layer], at)


def needs(network: StreamNetwork, layer: int, source: int) -> tuple[Array, Array]:
    """Return for each step of a layer the last pixel of a source that must be there, and the first that it reads.

    Pixels are numbered in raster order; of a source that is complete late, the last step of its layer counts.
    """
    one = network.layers[layer]
    given = network.maps[one.sources[source]]
    if source == 0:
        (top, bottom), (left, right) = (_axis(one, axis) for axis in (0, 1))
        last = (bottom[:, None] * one.plane[1] + right[None, :]).reshape(-1)
        first = (top[:, None] * one.plane[1] + left[None, :]).reshape(-1)
    elif given.pixels == one.count:
        last = first = np.arange(one.count, dtype=np.int64)
    else:
        last = first = np.zeros(one.count, np.int64)
    return last + given.late, first


def _axis(layer: StreamLayer, axis: int) -> tuple[Array, Array]:
    """Return per step along an axis the first place that is read and the last, inside the map."""
    places, window, length = np.arange(layer.steps[axis], dtype=np.int64), layer.window[axis], layer.plane[axis]
    first = (places * window.stride - window.before) // window.divide
    last = (places * window.stride - window.before + window.dilation * (window.kernel - 1)) // window.divide
    return np.clip(first, 0, length - 1), np.clip(last, 0, length - 1)


class PlanningStoppedError(Exception):
    """The search was asked to end."""


_STEPS_PER_CHECK: Final = 1 << 14
"""Steps of a run between two calls of ``stop``."""


def run_segment(
    network: StreamNetwork, layers: range, *, pushed: bool, stop: Callable[[], bool] = lambda: False
) -> StreamEvents:
    """Run the layers of a segment, whose input is complete before, or pushed pixel by pixel.

    What a layer does when is the same whatever layers follow: the events of a shorter segment are among these.

    Raises:
        PlanningStoppedError: ``stop`` returned True.
    """
    outside = network.layers[layers[0]].sources[0]
    first: dict[tuple[int, int], Array] = {}
    waits: dict[int, list[tuple[int, list[int]]]] = {}
    for layer in layers:
        one = network.layers[layer]
        waits[layer] = []
        for source, given in enumerate(one.sources):
            last, begins = needs(network, layer, source)
            ends = np.append(begins, network.maps[given].pixels)
            first[layer, source] = np.minimum.accumulate(ends[::-1])[::-1]
            if given > layers[0] or (given == outside and pushed):
                waits[layer].append((given - 1, last.tolist()))
        if one.after is not None and one.after in layers:
            waits[layer].append((one.after, list(range(one.count))))
    pushes = network.maps[outside].pixels if pushed else 0
    order = _SegmentSteps(network, layers, waits, outside - 1).order(pushes, stop)
    events = np.array(order, np.int64)
    times = {layer: np.flatnonzero(events == layer) for layer in (*layers, -1)}
    return StreamEvents(layers, events, times, first)


class _SegmentSteps:
    """The steps of a segment."""

    def __init__(
        self, network: StreamNetwork, layers: range, waits: dict[int, list[tuple[int, list[int]]]], outside: int
    ) -> None:
        self._layers, self._waits, self._outside = layers, waits, outside
        self._done = dict.fromkeys((*layers, outside), 0)
        self._counts = {layer: network.layers[layer].count for layer in layers}
        self._readers: dict[int, list[int]] = {}
        for layer in reversed(layers):
            for source, _ in waits[layer]:
                self._readers.setdefault(source, []).append(layer)

    def order(self, pushes: int, stop: Callable[[], bool]) -> list[int]:
        """Return the layer of each event, and -1 for each pixel that is pushed."""
        done, ready, begin = self._done, self._is_ready, self._layers[-1]
        order: list[int] = []
        rest = sum(self._counts.values()) + pushes
        while len(order) < rest:
            if len(order) % _STEPS_PER_CHECK == 0 and stop():
                raise PlanningStoppedError
            # Layers behind the one that ran were not ready, and only what reads its new pixel can be now.
            layer = begin
            while layer >= self._layers[0] and not ready(layer):
                layer -= 1
            if layer >= self._layers[0]:
                order.append(layer)
                begin = self._deepest_ready(layer, layer)
                continue
            if done[self._outside] == pushes:
                raise InternalError("a segment of a stream does not end")
            order.append(-1)
            begin = self._deepest_ready(self._outside, self._layers[0] - 1)
        return order

    def _is_ready(self, layer: int) -> bool:
        step = self._done[layer]
        if step >= self._counts[layer]:
            return False
        return all(self._done[source] > last[step] for source, last in self._waits[layer])

    def _deepest_ready(self, layer: int, otherwise: int) -> int:
        """Count a step of a layer, and return from which layer on one can be ready."""
        self._done[layer] += 1
        for reader in self._readers.get(layer, ()):
            if self._is_ready(reader):
                return max(reader, otherwise)
        return otherwise
