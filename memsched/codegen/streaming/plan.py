"""Segments, rings and addresses of a network that streams, in the smallest arena that was found.

Source: "Deep Fusion", section 3: groups of layers whose maps in between are never whole. Here a piece is a pixel, and
the groups, here segments, lie in one arena: for an arena of a given size, dynamic programming over the places where one
map crosses says whether it is enough, and bisection finds the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from memsched.base.errors import ModelError
from memsched.codegen.streaming.arrange import Arrangement, arrangements
from memsched.codegen.streaming.layers import INPUT, StreamNetwork
from memsched.codegen.streaming.schedule import PlanningStoppedError, StreamEvents, run_segment
from memsched.codegen.streaming.segment import StreamSegment

__all__ = ["InputPlace", "PlannedSegment", "StreamPlan", "plan_stream"]

InputPlace = Literal["held", "elsewhere", "rows"]
"""Where the model's input lies: in the arena, where it is overwritten; with the caller; or it comes row by row."""

_MOST_PLACES: Final = 4
"""Places of a map that crosses that are kept beside each other: with 12, no arena of eight networks was smaller."""


@dataclass(frozen=True, eq=False)
class PlannedSegment:
    """A segment with the addresses of its buffers.

    Attributes:
        place: The address of its input; None where the input lies with the caller or is one of the buffers.
    """

    segment: StreamSegment
    place: int | None
    arrangement: Arrangement

    def address(self, one: int) -> int | None:
        """Return where a map lies in the arena; None for one that lies with the caller."""
        for buffer, address in self.arrangement.items():
            if one in buffer.maps:
                return address
        return self.place if one == self.segment.outside else None


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """A network in segments.

    Attributes:
        given: Where the model's input lies.
        arena: Bytes.
    """

    network: StreamNetwork
    given: InputPlace
    arena: int
    segments: tuple[PlannedSegment, ...]


_Path = tuple[PlannedSegment, ...]


def plan_stream(network: StreamNetwork, given: InputPlace, stop: Callable[[], bool] = lambda: False) -> StreamPlan:
    """Return the plan with the smallest arena that is found.

    Args:
        given: Where the model's input lies.
        stop: Checked between steps of the search. If it returns True, the best plan so far is the result.

    Raises:
        ModelError: No plan is found.
    """
    return _Planner(network, given, stop).plan()


class _Planner:
    """The search: segments by first and last layer, as they are asked for."""

    def __init__(self, network: StreamNetwork, given: InputPlace, stop: Callable[[], bool]) -> None:
        self._network, self._given, self._stop = network, given, stop
        self._cuts = tuple(_cuts(network))
        self._runs: dict[int, StreamEvents] = {}
        self._segments: dict[tuple[int, int], StreamSegment] = {}

    def plan(self) -> StreamPlan:
        """Return the smallest arena that is enough, and how.

        Large arenas admit many segments, each of which has to be looked at: small ones are tried first.
        """
        refused, step = -1, 1
        found = None
        while found is None and step <= 2 * self._largest() and not self._stop():
            found = self._fit(refused + step)
            refused, step = (refused, step) if found is not None else (refused + step, 2 * step)
        if found is None:
            why = "the time limit is too short for a plan" if self._stop() else "no plan was found"
            raise ModelError(f"the model cannot be streamed: {why}", code="not-streamable")
        arena = _used(found)
        while arena - refused > 1 and not self._stop():
            tried = self._fit((arena + refused) // 2)
            if tried is None:
                refused = (arena + refused) // 2
            else:
                found, arena = tried, _used(tried)
        return StreamPlan(self._network, self._given, arena, self._shortest(arena, found))

    def _shortest(self, arena: int, found: _Path) -> _Path:
        """Return segments of the fewest layers that fit an arena: each layer of the longest one has a state in RAM."""
        refused, longest = 0, max(len(one.segment.layers) for one in found)
        while longest - refused > 1 and not self._stop():
            tried = self._fit(arena, (longest + refused) // 2)
            if tried is None:
                refused = (longest + refused) // 2
            else:
                found, longest = tried, max(len(one.segment.layers) for one in tried)
        return found

    def _largest(self) -> int:
        """Return the bytes of an arena in which everything has a place of its own."""
        sums = sum(self._network.sum_bytes(layer) for layer in range(len(self._network.layers)))
        return max(1, sum(one.size for one in self._network.maps) + sums)

    def _fit(self, arena: int, longest: int | None = None) -> _Path | None:
        """Return segments of at most ``longest`` layers that fit an arena. None if the search fails or ends early."""
        try:
            return self._searched(arena, longest)
        except PlanningStoppedError:
            return None

    def _searched(self, arena: int, longest: int | None) -> _Path | None:
        begin: int | None = None
        if self._given == "held":
            begin = arena - self._network.maps[INPUT].size
            if begin < 0:
                return None
        states: dict[int, dict[int | None, _Path]] = {0: {begin: ()}}
        for cut in self._cuts[:-1]:
            if self._stop():
                raise PlanningStoppedError
            for place, path in _spread(states.get(cut, {})):
                for end, planned in self._next(cut, place, arena, longest):
                    if end == self._cuts[-1]:
                        return (*path, planned)
                    leaving = planned.segment.leaving
                    address = None if leaving is None else planned.address(leaving)
                    states.setdefault(end, {}).setdefault(address, (*path, planned))
        return None

    def _next(
        self, cut: int, place: int | None, arena: int, longest: int | None
    ) -> Iterator[tuple[int, PlannedSegment]]:
        """Yield what can follow a cut: where it ends, and the segment."""
        given = 0 if place is None else self._network.maps[self._network.layers[cut].sources[0]].size
        ends = (one for one in reversed(self._cuts) if one > cut and (longest is None or one - cut <= longest))
        for end in ends:
            leaving = self._leaving(end)
            if leaving is not None and self._network.maps[leaving].size > arena:
                continue
            segment = self._segment(cut, end)
            if segment.total > arena + given:
                continue
            for arrangement in arrangements(segment, arena, place, 1 if leaving is None else _MOST_PLACES):
                yield end, PlannedSegment(segment, place, arrangement)

    def _leaving(self, end: int) -> int | None:
        return None if end == self._cuts[-1] else end

    def _segment(self, begin: int, end: int) -> StreamSegment:
        """Return layers [begin, end) as a segment."""
        key = (begin, end)
        if key not in self._segments:
            pushed = begin == 0 and self._given == "rows"
            if begin not in self._runs:
                layers = range(begin, len(self._network.layers))
                self._runs[begin] = run_segment(self._network, layers, pushed=pushed, stop=self._stop)
            external = frozenset(self._network.outputs)
            self._segments[key] = StreamSegment(
                self._network, self._runs[begin], range(begin, end), pushed, self._leaving(end), external
            )
        return self._segments[key]


def _spread(states: Mapping[int | None, _Path]) -> list[tuple[int | None, _Path]]:
    """Return some of the places of a map, from the lowest to the highest."""
    ordered = sorted(states.items(), key=lambda state: state[0] or 0)
    if len(ordered) <= _MOST_PLACES:
        return ordered
    return [ordered[number * (len(ordered) - 1) // (_MOST_PLACES - 1)] for number in range(_MOST_PLACES)]


def _used(segments: _Path) -> int:
    """Return the bytes that segments use."""
    ends = [address + buffer.size for one in segments for buffer, address in one.arrangement.items()]
    ends += [one.place + one.segment.input_size for one in segments if one.place is not None]
    return max(ends, default=0)


def _cuts(network: StreamNetwork) -> Iterator[int]:
    """Yield the numbers of layers before which a single map crosses, that of the layer before, and both ends."""
    yield 0
    readers: dict[int, int] = {}
    for layer, one in enumerate(network.layers):
        for source in one.sources:
            readers[source] = layer
    last = 0
    for cut in range(1, len(network.layers)):
        last = max(last, readers.get(cut - 1, 0))
        if last < cut and cut not in network.outputs:
            yield cut
    yield len(network.layers)
