"""Groups of layers that fit on chip in pieces: what a way of cutting costs, and where everything lies.

Source: "Deep Fusion", sections 3.2 and 3.3. All data of a group is placed, weights included; without
reuse everything has bytes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from memsched.base.frozen import FrozenValue
from memsched.codegen.onchip.model import Cost, OnChipBuffer, Policy, Tile
from memsched.codegen.onchip.network import OnChipNetwork, Range
from memsched.codegen.onchip.overlap import Lifetime, piece_distance, place
from memsched.codegen.onchip.sweep import AxisSweep, cuts

__all__ = ["GroupCandidate", "GroupSpan"]

_SLICE_BYTES = 64 * 1024
"""Bytes on chip for weights that are loaded a few filters at a time, unless one filter takes more."""


class GroupSpan:
    """Ops [first, last] as a group: its tensors, and the cost of cutting it."""

    def __init__(self, network: OnChipNetwork, first: int, last: int) -> None:
        self.network, self.first, self.last = network, first, last
        self.ops = range(first, last + 1)
        layers = [network.layers[op] for op in self.ops]
        self.layers = layers
        self.first_use: dict[int, int] = {}
        self.last_use: dict[int, int] = {}
        self.inputs: list[int] = []
        self.made: list[int] = []
        for step, layer in enumerate(layers):
            for tensor in layer.reads:
                if tensor not in self.first_use:
                    self.first_use[tensor] = step
                    self.inputs.append(tensor)
                self.last_use[tensor] = step
            for tensor in layer.writes:
                self.first_use[tensor] = self.last_use[tensor] = step
                self.made.append(tensor)
        self.born: list[list[int]] = [[] for _ in layers]
        self.dead: list[list[int]] = [[] for _ in layers]
        for tensor, step in self.first_use.items():
            self.born[step].append(tensor)
            self.dead[self.last_use[tensor]].append(tensor)
        self.dying = [
            [
                (tensor, network.elementwise(layer.op, layer.reads.index(tensor)))
                for tensor in dead
                if tensor in layer.reads
            ]
            for layer, dead in zip(layers, self.dead, strict=True)
        ]
        leaving = [tensor for tensor in self.made if network.leaves(tensor, last)]
        self.outputs = network.written(leaving, first)
        self.weights = sum(layer.weights for layer in layers)
        self.views_only = all(layer.view for layer in layers)

    @property
    def channels_can_be_cut(self) -> bool:
        """Whether channels can be cut: the first op may need all input channels, all others only their own."""
        kinds = [layer.channels for layer in self.layers]
        return kinds[0] != "whole" and all(kind == "follow" for kind in kinds[1:])

    def uncut(self, front: int) -> tuple[int, ...]:
        """Return what each channel piece needs whole if channels are cut from step ``front`` on."""
        return self.layers[front].reads if self.layers[front].channels == "head" else ()

    def front(self) -> int | None:
        """Return the step behind the first from which channels can be cut; None where there is none.

        It alone reads what was made before.
        """
        for step in range(len(self.layers) - 1, 0, -1):
            layer = self.layers[step]
            if layer.channels == "head" and len(layer.reads) == 1:
                before = [tensor for tensor, first in self.first_use.items() if first < step]
                others = [tensor for tensor in before if tensor not in layer.reads]
                alone = all(self.last_use[tensor] < step for tensor in others) and self.last_use[layer.reads[0]] == step
                made = layer.reads[0] in self.made and not set(self.outputs) & set(before)
                return step if alone and made else None
            if layer.channels != "follow":
                return None
        return None

    @property
    def adds_up(self) -> bool:
        """Whether the first op's sums can be taken over a few input channels at a time."""
        first = self.layers[0]
        alone = first.reads and self.last_use[first.reads[0]] == 0
        return bool(first.addends > 1 and first.filters > 1 and alone)

    def most_channels(self, front: int = 0) -> int:
        """Return into how many pieces the channels can be cut from step ``front`` on."""
        made = [tensor for tensor in self.made if self.first_use[tensor] >= front]
        return min(self.network.maps[tensor].channels for tensor in made)


class GroupCandidate(FrozenValue, frozen=True):
    """A group with one way of cutting it and its regions; `placed` tells whether it fits."""

    span: GroupSpan
    tile: Tile
    rows: AxisSweep
    columns: AxisSweep

    def cost(self) -> Cost:
        """Return what all pieces load, store and compute."""
        span, tile, maps = self.span, self.tile, self.span.network.maps
        if span.views_only:
            return Cost()
        uncut = self._uncut()
        read = 0
        kept = self.kept()
        for tensor in span.inputs:
            one = maps[tensor]
            rows = self.rows.fresh(tensor) if tensor in kept else self.rows.sizes(tensor)[1]
            size = rows * self.columns.sizes(tensor)[1] * one.batch * one.point
            # Resident weights put the channel pieces outermost: the plane passes once for each.
            again = tile.weights == "resident" or (tensor == self.addend and not tile.front)
            read += size * (tile.channels if tensor in uncut and again else 1)
        if tile.weights == "resident":
            read += span.weights
        else:
            # What cannot be loaded a part at a time is loaded whole for each piece of the channels.
            read += tile.planes * sum(
                layer.weights * (tile.channels if layer.filters == 1 and step >= tile.front else 1)
                for step, layer in enumerate(span.layers)
            )
        written = sum(maps[tensor].size for tensor in span.outputs)
        return Cost(read, written, self._flops())

    def _uncut(self) -> frozenset[int]:
        return frozenset(self.span.uncut(self.tile.front) if self.tile.channels > 1 else ())

    def _cut(self, tensor: int) -> bool:
        """Whether pieces of the channels have parts of a tensor."""
        behind = self.span.first_use[tensor] >= self.tile.front
        return self.tile.channels > 1 and behind and tensor not in self._uncut()

    @property
    def addend(self) -> int:
        """The input whose channels are added up in parts; -1 for none."""
        return self.span.layers[0].reads[0] if self.tile.addends > 1 else -1

    def addend_bytes(self) -> int:
        """Return the bytes on chip of the parts of the input channels that are added up, and of their weights."""
        return self._size(self.addend) + self._slice(0)

    def kept(self) -> frozenset[int]:
        """Return the inputs of which each piece leaves rows on chip that the piece below it needs."""
        span, tile = self.span, self.tile
        if not tile.kept or tile.columns > 1:
            return frozenset()
        whole = span.inputs if tile.channels == 1 else tuple(self._uncut())
        return frozenset(tensor for tensor in whole if self.rows.fresh(tensor) < self.rows.sizes(tensor)[1])

    def _flops(self) -> int:
        total = 0
        for layer in self.span.layers:
            if layer.spatial and self.tile.planes > 1:
                tensor = layer.writes[0]
                one = self.span.network.maps[tensor]
                done = self.rows.sizes(tensor)[1] * self.columns.sizes(tensor)[1]
                total += layer.flops * done // (one.rows * one.columns)
            else:
                total += layer.flops
        return total

    # Placement -----------------------------------------------------------------------------------------------------

    def bound(self, policy: Policy = "reuse") -> int:
        """Return a lower bound of every placement, in bytes."""
        if policy == "separate":
            parts = self.tile.weights == "step"
            weights = (self._part(step) if parts else self._slice(step) for step in range(len(self.span.layers)))
            return sum(weights) + sum(self._size(tensor) for tensor in self.span.first_use)
        span, cut = self.span, self.tile.channels > 1
        sizes = {tensor: self._size(tensor) for tensor in span.first_use}
        kept = self.kept()
        shared = kept | frozenset(tensor for tensor in span.first_use if self._shared(tensor))
        resident = self.tile.weights == "resident"
        live = sum(sizes[tensor] for tensor in kept)
        most = fixed = 0
        for step, layer in enumerate(span.layers):
            live += sum(sizes[tensor] for tensor in span.born[step] if tensor not in kept)
            over = 0
            for tensor, elementwise in span.dying[step]:
                if (
                    (elementwise or not cut or step < self.tile.front)
                    and tensor not in shared
                    and tensor != self.addend
                ):
                    over += sizes[tensor]
            if over:
                over = min(over, sum(sizes[tensor] for tensor in layer.writes))
            held = self._slice(step) if layer.weights else 0
            if resident:
                fixed += held
                held = 0
            elif held > _SLICE_BYTES:
                held = min(held, max(_SLICE_BYTES, held // layer.filters))
            most = max(most, live - over + held)
            live -= sum(sizes[tensor] for tensor in span.dead[step] if tensor not in shared)
        return most + fixed

    def placed(self, capacity: int, alignment: int, policy: Policy) -> tuple[OnChipBuffer, ...] | None:
        """Return all buffers with addresses; None where no placement within ``capacity`` bytes was found."""
        if self.bound(policy) > capacity:
            return None
        sliced = (False, True) if self.tile.weights == "step" else (False,)
        for parts in sliced:
            found = self._placed(capacity, alignment, policy, parts)
            if found is not None:
                return found
        return None

    def _placed(self, capacity: int, alignment: int, policy: Policy, parts: bool) -> tuple[OnChipBuffer, ...] | None:
        span, end = self.span, len(self.span.layers) - 1
        tensors, kept = list(span.first_use), self.kept()
        lives = [
            Lifetime(
                -(-self._size(tensor) // alignment) * alignment,
                0 if tensor in kept else span.first_use[tensor],
                end if tensor in kept else self._last(tensor),
            )
            for tensor in tensors
        ]
        held = [(step, self._part(step) if parts else self._slice(step)) for step in range(end + 1)]
        held = [(step, size) for step, size in held if size]
        whole = self.tile.weights == "resident" or policy == "separate"
        weights = [
            Lifetime(-(-size // alignment) * alignment, 0 if whole else step, end if whole else step)
            for step, size in held
        ]
        if policy == "separate":
            ends = (0, *accumulate(one.size for one in (*weights, *lives)))
            offsets = ends[:-1] if ends[-1] <= capacity else None
        else:
            fixed = sum(one.size for one in weights) if whole else 0
            if fixed > capacity:
                return None
            allowed = self._allowed(tensors, parts, kept)
            if whole:
                # What stays lies below everything else, which has a memory of its own.
                found = place(lives, allowed, capacity - fixed, alignment)
                low = [sum(one.size for one in weights[:place_]) for place_ in range(len(weights))]
                offsets = None if found is None else (*low, *(at + fixed for at in found))
            else:
                shifted = {(a + len(weights), b + len(weights)): apart for (a, b), apart in allowed.items()}
                offsets = place([*weights, *lives], shifted, capacity, alignment)
        if offsets is None:
            return None
        return tuple(self._buffers(tensors, lives, held, weights, offsets))

    def _buffers(
        self,
        tensors: Sequence[int],
        lives: Sequence[Lifetime],
        held: Sequence[tuple[int, int]],
        weights: Sequence[Lifetime],
        offsets: Sequence[int],
    ) -> Iterator[OnChipBuffer]:
        span, names, kept = self.span, self.span.network.graph, self.kept()
        for (step, size), life, offset in zip(held, weights, offsets, strict=False):
            op = span.first + step
            yield OnChipBuffer(f"{names.ops[op].name}:weights", "weights", -1, op, offset, size, life.first, life.last)
        inputs, outputs = set(span.inputs), set(span.outputs)
        for tensor, life, offset in zip(tensors, lives, offsets[len(weights) :], strict=True):
            kind = "input" if tensor in inputs else "output" if tensor in outputs else "inner"
            yield OnChipBuffer(
                names.tensors[tensor].name,
                kind,  # type: ignore[arg-type]
                tensor,
                span.network.producer.get(tensor, -1) if tensor not in inputs else -1,
                offset,
                self._size(tensor),
                life.first,
                life.last,
                tuple(self.rows.ranges[tensor]),
                tuple(self.columns.ranges[tensor]),
                self._channel_ranges(tensor),
                tensor in kept,
                tensor == self.addend,
            )

    def _channel_ranges(self, tensor: int) -> tuple[Range, ...]:
        channels = self.span.network.maps[tensor].channels
        parts = self.tile.addends if tensor == self.addend else self.tile.channels if self._cut(tensor) else 1
        return tuple(span for span in cuts(channels, parts) if span is not None)

    def _size(self, tensor: int) -> int:
        one = self.span.network.maps[tensor]
        plane = self.rows.sizes(tensor)[0] * self.columns.sizes(tensor)[0] * one.batch
        if tensor == self.addend:
            return 2 * plane * one.element * -(-one.channels // self.tile.addends)
        if not self._cut(tensor):
            return plane * one.point
        return plane * one.element * -(-one.channels // self.tile.channels)

    def _shared(self, tensor: int) -> bool:
        """Whether a tensor stays to the end of a piece of the plane because all its channel pieces share it."""
        return self.tile.weights == "step" and tensor in self._uncut() and tensor != self.addend

    def _last(self, tensor: int) -> int:
        return len(self.span.layers) - 1 if self._shared(tensor) else self.span.last_use[tensor]

    def _slice(self, step: int) -> int:
        """Return the bytes of a layer's weights for its largest channel piece; in two halves, those of an addend."""
        layer = self.span.layers[step]
        pieces = self.tile.channels if step >= self.tile.front else 1
        if self.tile.addends > 1 and not step:
            filters = -(-layer.filters // pieces)
            each = (layer.weights - layer.beside) // (layer.filters * layer.addends)
            part = filters * each * -(-layer.addends // self.tile.addends)
            return -(-layer.beside * filters // layer.filters) + 2 * part
        if pieces == 1 or layer.filters == 1:
            return layer.weights
        return -(-layer.weights * -(-layer.filters // pieces) // layer.filters)

    def _part(self, step: int) -> int:
        """Return the bytes on chip of weights that are loaded some filters at a time."""
        size, layer = self._slice(step), self.span.layers[step]
        if size <= _SLICE_BYTES or layer.filters == 1 or (self.tile.addends > 1 and not step):
            return size
        one = -(-layer.weights // layer.filters)
        return min(size, max(1, _SLICE_BYTES // one) * one)

    def _allowed(self, tensors: Sequence[int], parts: bool, kept: frozenset[int]) -> dict[tuple[int, int], int]:
        """Return by how much outputs may overlap the inputs that die with them."""
        index = {tensor: place_ for place_, tensor in enumerate(tensors)}
        result: dict[tuple[int, int], int] = {}
        for step, layer in enumerate(self.span.layers):
            if len(layer.writes) != 1 or (parts and self._part(step) < self._slice(step)):
                continue
            for entry, tensor in enumerate(layer.reads):
                if self._last(tensor) != step or tensor in kept or tensor == self.addend:
                    continue
                apart = self._apart(step, entry)
                if apart is not None:
                    result[index[layer.writes[0]], index[tensor]] = apart
        return result

    def _apart(self, step: int, entry: int) -> int | None:
        """Return the least distance over all pieces; None where one of them permits no overlap."""
        layer, network = self.span.layers[step], self.span.network
        op, tensor, made = layer.op, layer.reads[entry], layer.writes[0]
        if self.tile.channels > 1 and step >= self.tile.front and not network.elementwise(op, entry):
            return None
        rows = _kinds(network, op, entry, 0, self.rows.ranges[made], self.rows.ranges[tensor])
        columns = _kinds(network, op, entry, 1, self.columns.ranges[made], self.columns.ranges[tensor])
        found: int | None = None
        for row_key, row in rows:
            for column_key, column in columns:
                key = (op, entry, row_key, column_key)
                if key not in network.distances:
                    network.distances[key] = piece_distance(
                        network, op, entry, (row[0], column[0]), (row[1], column[1])
                    )
                one = network.distances[key]
                if one is None:
                    return None
                found = one if found is None else max(found, one)
        return found


def _kinds(
    network: OnChipNetwork,
    op: int,
    entry: int,
    axis: int,
    made: Sequence[Range | None],
    given: Sequence[Range | None],
) -> list[tuple[tuple[int, ...], tuple[Range, Range]]]:
    """Return the pieces of an axis that differ in more than their position."""
    found: dict[tuple[int, ...], tuple[Range, Range]] = {}
    for out, read in zip(made, given, strict=True):
        if out is not None and read is not None:
            found.setdefault(network.likeness(op, entry, axis, out, read), (out, read))
    return list(found.items())
