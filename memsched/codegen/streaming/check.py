"""A checker of plans of streams that shares nothing with the planner: every byte is followed through a run.

Each step's reads must find, byte by byte, the pixels that the layer needs, and no write may meet what the same step
still reads. Which layer runs is found from what each waits for, by arithmetic of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from memsched.base.errors import InternalError
from memsched.codegen.streaming.layers import INPUT, StreamLayer, StreamNetwork
from memsched.codegen.streaming.plan import PlannedSegment, StreamPlan

__all__ = ["check_stream"]

_Owner = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Per byte of the arena whose it is."""

_NOBODY = -1


def check_stream(plan: StreamPlan) -> None:
    """Check that a plan computes what the network does.

    Raises:
        InternalError: A layer would read bytes that are not those that it needs.
    """
    owner = np.full(plan.arena, _NOBODY, np.int64)
    last = plan.segments[-1].segment.layers[-1]
    if [layer for one in plan.segments for layer in one.segment.layers] != list(range(last + 1)):
        raise InternalError("segments of a stream do not follow each other")
    if plan.given == "held":
        place = plan.segments[0].place or 0
        for pixel in range(plan.network.maps[INPUT].pixels):
            _ByteReplay.write(plan, owner, INPUT, pixel, place + pixel * plan.network.maps[INPUT].channels)
    for planned in plan.segments:
        _ByteReplay(plan, planned, owner).run()


class _ByteReplay:
    """One segment."""

    def __init__(self, plan: StreamPlan, planned: PlannedSegment, owner: _Owner):
        self._plan, self._planned, self._owner = plan, planned, owner
        self._network = plan.network
        self._layers = planned.segment.layers
        self._done = dict.fromkeys(self._layers, 0)
        self._pushed = 0
        self._readers: dict[int, list[int]] = {one: [] for one in range(len(self._network.maps))}
        for layer in self._layers:
            after = self._network.layers[layer].after
            for one in {*self._network.layers[layer].sources, *(() if after is None else (after + 1,))}:
                self._readers[one].append(layer)
        self._waiting = set(self._layers)
        self._heap = sorted(-layer for layer in self._layers)

    @staticmethod
    def code(one: int, pixel: int) -> int:
        """Return the number by which bytes of a pixel of a map are known."""
        return one << 32 | pixel

    @staticmethod
    def write(plan: StreamPlan, owner: _Owner, one: int, pixel: int, at: int) -> None:
        """Note that a pixel of a map lies at an address."""
        channels = plan.network.maps[one].channels
        if at < 0 or at + channels > plan.arena:
            raise InternalError(f"map '{plan.network.maps[one].name}' of a stream leaves the arena")
        owner[at : at + channels] = _ByteReplay.code(one, pixel)

    def run(self) -> None:
        """Run all steps."""
        outside = self._network.maps[self._planned.segment.outside]
        while True:
            layer = self._deepest()
            if layer is not None:
                self._step(layer)
                self._look_at(layer, *self._readers[layer + 1])
            elif self._planned.segment.pushed and self._pushed < outside.pixels:
                self._write(self._planned.segment.outside, self._pushed)
                self._pushed += 1
                self._look_at(*self._readers[self._planned.segment.outside])
            else:
                break
        if any(self._done[layer] < self._network.layers[layer].count for layer in self._layers):
            raise InternalError("a segment of a stream does not end")

    def _look_at(self, *layers: int) -> None:
        for layer in layers:
            if layer not in self._waiting:
                self._waiting.add(layer)
                heapq.heappush(self._heap, -layer)

    def _deepest(self) -> int | None:
        """Return the deepest layer that can run; those that cannot are looked at again once a source has changed."""
        while self._heap:
            layer = -heapq.heappop(self._heap)
            self._waiting.discard(layer)
            if self._can_run(layer):
                return layer
        return None

    def _can_run(self, layer: int) -> bool:
        one, step = self._network.layers[layer], self._done[layer]
        if step >= one.count:
            return False
        after = one.after
        if after is not None and after in self._layers and self._done[after] <= step:
            return False
        return all(self._is_there(given, pixel) for given, pixel in _waits(self._network, one, step))

    def _is_there(self, given: int, pixel: int) -> bool:
        if given == self._planned.segment.outside:
            return not self._planned.segment.pushed or pixel < self._pushed
        made = given - 1
        if made not in self._done:
            raise InternalError("a layer of a stream reads what its segment does not have")
        if self._network.layers[made].adds_up:
            return self._done[made] == self._network.layers[made].count
        return pixel < self._done[made]

    def _step(self, layer: int) -> None:
        one, step = self._network.layers[layer], self._done[layer]
        reads = list(_reads(self._network, one, step))
        for given, pixel in reads:
            self._check_read(one, given, pixel)
        sums = one.adds_up
        if sums and step:
            self._check_sums(layer)
        self._done[layer] += 1
        complete = not sums or self._done[layer] == one.count
        if sums:
            self._write_sums(layer)
        if complete:
            self._write(layer + 1, 0 if sums else step)
        if not one.is_elementwise:
            self._check_apart(layer, 0 if sums else step, reads)

    def _address(self, one: int, pixel: int) -> int | None:
        if one in self._network.outputs:
            return None
        address = self._planned.address(one)
        if address is None:
            if one == INPUT and self._plan.given == "elsewhere":
                return None
            raise InternalError("a map of a stream has no place")
        ring = self._planned.segment.rings.get(one, self._network.maps[one].pixels)
        return address + pixel % ring * self._network.maps[one].channels

    def _check_read(self, layer: StreamLayer, one: int, pixel: int) -> None:
        at = self._address(one, pixel)
        if at is None:
            return
        if (self._owner[at : at + self._network.maps[one].channels] != self.code(one, pixel)).any():
            name = self._network.maps[one].name
            raise InternalError(f"layer '{layer.name}' of a stream would not read pixel {pixel} of '{name}'")

    def _check_apart(self, layer: int, made: int, reads: Sequence[tuple[int, int]]) -> None:
        """Check that what a step writes, value by value, is nothing that it reads."""
        at, one = self._address(layer + 1, made), self._network.layers[layer]
        if one.adds_up:
            spans = [self._sums(layer)]
        else:
            spans = [] if at is None else [slice(at, at + self._network.maps[layer + 1].channels)]
        for given, pixel in reads:
            begin = self._address(given, pixel)
            end = None if begin is None else begin + self._network.maps[given].channels
            if begin is not None and any(begin < span.stop and span.start < end for span in spans):
                raise InternalError(f"layer '{one.name}' of a stream overwrites what it reads")

    def _write(self, one: int, pixel: int) -> None:
        at = self._address(one, pixel)
        if at is not None:
            self.write(self._plan, self._owner, one, pixel, at)

    def _sums(self, layer: int) -> slice:
        at = self._planned.address(layer + 1)
        if at is None or at + self._network.sum_bytes(layer) > self._plan.arena:
            raise InternalError("sums of a stream have no place")
        return slice(at, at + self._network.sum_bytes(layer))

    def _write_sums(self, layer: int) -> None:
        self._owner[self._sums(layer)] = self.code(layer + 1, 1)

    def _check_sums(self, layer: int) -> None:
        if (self._owner[self._sums(layer)] != self.code(layer + 1, 1)).any():
            raise InternalError(f"sums of layer '{self._network.layers[layer].name}' of a stream were overwritten")


def _reads(network: StreamNetwork, layer: StreamLayer, step: int) -> Iterator[tuple[int, int]]:
    """Yield the maps and pixels that a step reads, those in the first source's window first."""
    row, column = divmod(step, layer.steps[1])
    for y in _taps(layer, 0, row):
        for x in _taps(layer, 1, column):
            yield layer.sources[0], y * layer.plane[1] + x
    for given in layer.sources[1:]:
        yield given, step if network.maps[given].pixels == layer.count else 0


def _waits(network: StreamNetwork, layer: StreamLayer, step: int) -> Iterator[tuple[int, int]]:
    """Yield the maps and pixels that a step waits for: the last of a window, or what lies nearest inside the map."""
    row, column = divmod(step, layer.steps[1])
    y, x = (min(max(_last(layer, axis, place), 0), layer.plane[axis] - 1) for axis, place in ((0, row), (1, column)))
    yield layer.sources[0], y * layer.plane[1] + x
    for given in layer.sources[1:]:
        yield given, step if network.maps[given].pixels == layer.count else 0


def _last(layer: StreamLayer, axis: int, place: int) -> int:
    window = layer.window[axis]
    return (place * window.stride - window.before + window.dilation * (window.kernel - 1)) // window.divide


def _taps(layer: StreamLayer, axis: int, place: int) -> Iterator[int]:
    window = layer.window[axis]
    for tap in range(window.kernel):
        at = place * window.stride - window.before + tap * window.dilation
        if 0 <= at < layer.plane[axis] * window.divide:
            yield at // window.divide
