"""The cut of a network into groups that moves the fewest bytes, or takes the least time.

"Deep Fusion" grows groups greedily and takes the first pieces that fit. Here every interval of the order of execution
is looked at with every way of cutting on a ladder, and a dynamic program over the order picks the intervals that
together are cheapest: best[j] = min over i of best[i] + cost of ops i .. j - 1. It is optimal for the given order,
the ladder of pieces and the placements found.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, Literal

from memsched.base.frozen import FrozenValue
from memsched.codegen.onchip.greedy import candidate, finished, greedy
from memsched.codegen.onchip.groups import GroupCandidate, GroupSpan
from memsched.codegen.onchip.model import Cost, OnChipBuffer, OnChipGroup, Policy, Tile
from memsched.codegen.onchip.network import OnChipNetwork
from memsched.codegen.onchip.sweep import AxisSweep
from memsched.codegen.onchip.traffic import Machine

__all__ = ["Objective", "optimal"]

Objective = Literal["traffic", "time"]

_LONGEST: Final = 64
"""Ops in a group that is cut; one that is computed whole may be longer."""

_ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 28, 37, 56, 75, 112)
_COLUMNS: Final = (1, 2, 3, 4, 7, 14)
_CHANNELS: Final = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256)
_FRONT_ROWS: Final = (1, 2, 3, 4)
_FRONT_CHANNELS: Final = (2, 4, 8, 16, 32)
_RELOADS: Final = 8
"""Most pieces for each of which weights are loaded again."""

_ADDEND_SHARE: Final = 8
"""Part of the memory that input channels and their weights take while they are added up, where that is possible."""

_ATTEMPTS: Final = 12
"""Placements tried per group, the cheapest ways of cutting first."""

_Key = tuple[float, float]


class _CutPoint(FrozenValue, frozen=True):
    key: _Key
    tile: Tile


def optimal(
    network: OnChipNetwork,
    machine: Machine,
    policy: Policy = "reuse",
    objective: Objective = "traffic",
    deadline: float = float("inf"),
) -> list[OnChipGroup]:
    """Return the cheapest groups, in order.

    Args:
        deadline: A time of `time.monotonic`; what was not reached by then is grouped greedily.
    """
    return _OptimalCut(network, machine, policy, objective, deadline).run()


class _OptimalCut:
    def __init__(
        self, network: OnChipNetwork, machine: Machine, policy: Policy, objective: Objective, deadline: float
    ) -> None:
        self._network, self._machine, self._policy = network, machine, policy
        self._objective, self._deadline = objective, deadline
        self._starts = [self._begins(op) for op in range(len(network.layers))]

    def _begins(self, op: int) -> bool:
        """Whether an op may begin a group: not if it may write over its only input, which nothing else reads."""
        layer = self._network.layers[op]
        if not op or len(layer.reads) != 1 or not self._network.elementwise(op, 0):
            return True
        if layer.view and not layer.spatial:
            return True  # it cannot be cut as what is before it can, and moves nothing by itself
        tensor = layer.reads[0]
        before = self._network.layers[op - 1]
        alone = self._network.readers[tensor] == [op] and not self._network.leaves(tensor, op)
        return not (alone and before.writes == (tensor,) and before.refusal is None and layer.refusal is None)

    def run(self) -> list[OnChipGroup]:
        """Return the groups."""
        count = len(self._network.layers)
        best: list[_Key] = [(0.0, 0.0)]
        taken: list[tuple[int, _CutPoint | None]] = []
        for last in range(count):
            if time.monotonic() > self._deadline:
                break
            if last + 1 < count and not self._starts[last + 1]:
                best.append((float("inf"), float("inf")))
                taken.append((last, None))
                continue
            chosen: tuple[_Key, int, _CutPoint | None] | None = None
            for first, found in self._ending(last):
                key = self._refused(first) if found is None else found.key
                total = (best[first][0] + key[0], best[first][1] + key[1])
                if chosen is None or total < chosen[0]:
                    chosen = (total, first, found)
            total, first, taken_here = chosen or ((0.0, 0.0), last, None)
            best.append(total)
            taken.append((first, taken_here))
        groups: list[OnChipGroup] = []
        reached = end = max(place for place, key in enumerate(best) if key[0] < float("inf"))
        while end:
            first, found = taken[end - 1]
            groups.append(self.group(first, end - 1, found))
            end = first
        rest = greedy(self._network, self._machine, self._policy, reached) if reached < count else []
        return groups[::-1] + rest

    def group(self, first: int, last: int, found: _CutPoint | None) -> OnChipGroup:
        """Return a group, cut in the best way found."""
        span = GroupSpan(self._network, first, last)
        chosen = candidate(span, found.tile) if found is not None else None
        buffers = self._place(chosen) if chosen is not None else None
        if chosen is None or buffers is None:
            return finished(self._network, self._machine, first, last, self._policy)
        cost = chosen.cost()
        return OnChipGroup(tuple(span.ops), chosen.tile, buffers, cost, self._machine.seconds(cost))

    def single(self, op: int) -> _CutPoint | None:
        """Return the best way to cut one layer."""
        return next(self._ending(op))[1]

    def _refused(self, first: int) -> _Key:
        group = finished(self._network, self._machine, first, first, self._policy)
        return self._key(group.cost)

    def _key(self, cost: Cost) -> _Key:
        seconds = self._machine.seconds(cost)
        return (cost.traffic, seconds) if self._objective == "traffic" else (seconds, cost.traffic)

    def _place(self, one: GroupCandidate) -> tuple[OnChipBuffer, ...] | None:
        return one.placed(self._machine.capacity, self._machine.alignment, self._policy)

    # Groups that end with one op -------------------------------------------------------------------------------------

    def _ending(self, last: int) -> Iterator[tuple[int, _CutPoint | None]]:
        """Yield the first op of each group that ends with op ``last``, and how to cut it; the op by itself first."""
        network = self._network
        rows, columns = self._ladders(last)
        axes = [
            {count: AxisSweep(network, last, axis, count) for count in ladder}
            for axis, ladder in enumerate((rows, columns))
        ]
        alive = [Tile(r, c) for r in rows for c in columns]
        alive += [Tile(r, c, 1, "step") for r in rows for c in columns if r * c <= _RELOADS]
        alive += [replace(tile, kept=True) for tile in alive if tile.rows > 1 and tile.columns == 1]
        for first in range(last, -1, -1):
            for sweeps in axes:
                for count in [count for count, sweep in sweeps.items() if not sweep.extend(first)]:
                    del sweeps[count]
            if not self._starts[first] and first < last:
                continue
            span = GroupSpan(network, first, last)
            alive = [tile for tile in alive if tile.rows in axes[0] and tile.columns in axes[1]]
            if last - first >= _LONGEST:
                alive = [tile for tile in alive if tile.planes == 1]
            alive, found = self._best(span, axes, alive)
            if span.channels_can_be_cut:
                _, cut = self._best(span, axes, list(self._channel_tiles(span, axes)))
                found = cut if found is None or (cut is not None and cut.key < found.key) else found
            if span.adds_up and span.channels_can_be_cut:
                _, cut = self._best(span, axes, list(self._addend_tiles(span, axes)))
                found = cut if found is None or (cut is not None and cut.key < found.key) else found
            front = span.front()
            if front is not None:
                _, cut = self._best(span, axes, list(self._front_tiles(span, axes, front)))
                found = cut if found is None or (cut is not None and cut.key < found.key) else found
            if found is not None or first == last:
                yield first, found
            if time.monotonic() > self._deadline:
                return
            if not alive and not span.channels_can_be_cut:
                return

    def _best(
        self, span: GroupSpan, axes: Sequence[dict[int, AxisSweep]], tiles: list[Tile]
    ) -> tuple[list[Tile], _CutPoint | None]:
        """Return the tiles that may fit groups around this one as well, and the cheapest that fits this one."""
        ranked = []
        for place, tile in enumerate(tiles):
            one = GroupCandidate(span, tile, axes[0][tile.rows], axes[1][tile.columns])
            ranked.append((self._key(one.cost()), place, one))
        ranked.sort(key=lambda entry: entry[:2])
        dead: set[int] = set()
        attempts = 0
        for key, place, one in ranked:
            if one.bound(self._policy) > self._machine.capacity:
                if not tiles[place].kept:  # a longer group has other inputs, and may keep less of them
                    dead.add(place)
                continue
            attempts += 1
            if self._place(one) is not None:
                left = [tile for at, tile in enumerate(tiles) if at not in dead]
                return left, _CutPoint(key, one.tile)
            if attempts >= _ATTEMPTS:
                break
        return [tile for at, tile in enumerate(tiles) if at not in dead], None

    def _addend_tiles(self, span: GroupSpan, axes: Sequence[dict[int, AxisSweep]]) -> Iterator[Tile]:
        """Yield ways to add up parts of the input channels: few where that leaves room, and one channel each."""
        for pieces in (1, *(pieces for pieces in _CHANNELS if pieces <= span.most_channels())):
            for rows, columns in product(axes[0], axes[1]):
                if columns == 1 or rows >= columns:
                    yield from self._adding_up(span, axes, Tile(rows, columns, pieces, "step"))

    def _adding_up(self, span: GroupSpan, axes: Sequence[dict[int, AxisSweep]], tile: Tile) -> Iterator[Tile]:
        each, capacity, parts = span.layers[0].addends, self._machine.capacity, 2
        while parts < each:
            added = replace(tile, addends=parts)
            one = GroupCandidate(span, added, axes[0][tile.rows], axes[1][tile.columns])
            if one.addend_bytes() <= capacity // _ADDEND_SHARE or one.bound() <= capacity:
                yield added
                break
            parts *= 2
        yield replace(tile, addends=each)

    def _front_tiles(self, span: GroupSpan, axes: Sequence[dict[int, AxisSweep]], front: int) -> Iterator[Tile]:
        """Yield ways to cut the channels from a step on: its input stays, and its output never lies there whole."""
        most = span.most_channels(front)
        for rows, pieces in product(_FRONT_ROWS, _FRONT_CHANNELS):
            if rows in axes[0] and 1 in axes[1] and pieces <= most:
                tile = Tile(rows, 1, pieces, "step", front=front)
                yield tile
                if span.adds_up:
                    yield from self._adding_up(span, axes, tile)

    def _ladders(self, last: int) -> tuple[list[int], list[int]]:
        layer = self._network.layers[last]
        made = self._network.maps[layer.writes[0]] if layer.writes else None
        if made is None or not layer.spatial:
            return [1], [1]
        rows = [count for count in _ROWS if count <= made.rows]
        return rows, [count for count in _COLUMNS if count <= made.columns]

    def _channel_tiles(self, span: GroupSpan, axes: Sequence[dict[int, AxisSweep]]) -> Iterator[Tile]:
        most = span.most_channels()
        for pieces in _CHANNELS:
            if pieces > most:
                return
            for rows in axes[0]:
                for columns in axes[1]:
                    if columns == 1 or rows >= columns:
                        yield Tile(rows, columns, pieces, "resident")
                        yield Tile(rows, columns, pieces, "step")
                    if columns == 1 < rows:
                        yield Tile(rows, columns, pieces, "step", kept=True)
                        yield Tile(rows, columns, pieces, "resident", kept=True)
