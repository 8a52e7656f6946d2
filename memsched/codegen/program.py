"""The program of a plan of on-chip memory: what is loaded and stored when, and where everything lies in DRAM.

A load is started as soon as the bytes that it fills are free, in the piece before where that is possible, and awaited
where its first reader runs: transfers and computation overlap as far as the plan's addresses leave room. Where on-chip
memory is left over, inputs get two places, which they take in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.codegen.layers import LayerCode
from memsched.codegen.onchip.model import OnChipBuffer, OnChipGroup, OnChipPlan
from memsched.codegen.onchip.network import OnChipNetwork, Range
from memsched.codegen.onchip.sweep import cuts
from memsched.graph.packing import Block
from memsched.search.limits import QUICK
from memsched.search.run import Run
from memsched.solve.allocate.portfolio import pack

__all__ = ["ChipLoad", "ChipStep", "ChipStore", "DramTensor", "GroupProgram", "LayerWeights", "Program", "program_of"]

DRAM_ALIGNMENT: Final = 16
_ADDING_UP: Final = ("ms_conv_f32", "ms_conv_sums_f32")
"""The kernel whose sums can be taken over a few input channels at a time, and that which does so."""

When = Literal["MS_EVERY_PIECE", "MS_NEW_CHANNELS", "MS_NEW_PLANE"]
Space = Literal["MS_ARENA", "MS_INPUT", "MS_OUTPUT"]


class DramTensor(FrozenValue, frozen=True):
    """Where a tensor lies: bytes from the arena's begin, or the number of the model's input or output."""

    space: Space
    place: int


class ChipLoad(FrozenValue, frozen=True):
    """A load of buffer ``buffer`` of the group, or of the weights of its step (-1); see `ms_load` in C."""

    buffer: int
    step: int
    issue: int
    ahead: bool
    when: When
    kept: bool


class ChipStore(FrozenValue, frozen=True):
    """A store of buffer ``buffer`` behind its step, with what of each piece is stored."""

    buffer: int
    step: int
    rows: tuple[Range | None, ...]
    columns: tuple[Range | None, ...]
    channels: tuple[Range | None, ...]


class LayerWeights(FrozenValue, frozen=True):
    """Constants of a layer: where each lies among all weights, its bytes per filter, and how they come on chip.

    Attributes:
        slice: Filters on chip at a time in one place; 0: all of a piece.
        offsets: On chip, of the place or of two that are taken in turn.
        each: Bytes of one filter for one input channel, where parts of these are added up in turn; otherwise 0. The
            first constant then lies in DRAM part by part.
        beside: On chip, where the constants behind the first begin in that case.
    """

    dram: tuple[int, ...]
    bytes: tuple[int, ...]
    filters: int
    offsets: tuple[int, ...]
    slice: int
    each: int = 0
    beside: int = 0


class ChipStep(FrozenValue, frozen=True):
    """One layer: buffers of the group that it reads and makes, and the function that computes it."""

    op: int
    kernel: str
    reads: tuple[int, ...]
    made: int
    weights: LayerWeights | None


class GroupProgram(FrozenValue, frozen=True):
    """A group: the plan's tensors on chip with their places, and what happens to them.

    Attributes:
        buffers: The plan's, weights left out.
        offsets: Per buffer where it lies, or the two places that it takes in turn.
    """

    group: OnChipGroup
    buffers: tuple[OnChipBuffer, ...]
    offsets: tuple[tuple[int, ...], ...]
    steps: tuple[ChipStep, ...]
    loads: tuple[ChipLoad, ...]
    stores: tuple[ChipStore, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Everything that the C tables hold.

    Attributes:
        tensors: Per tensor of the graph; None for those that are never in DRAM.
        arena: Bytes of DRAM for what goes from group to group.
        weights: What lies in DRAM, to be loaded.
    """

    network: OnChipNetwork
    plan: OnChipPlan
    layers: tuple[LayerCode, ...]
    groups: tuple[GroupProgram, ...]
    tensors: tuple[DramTensor | None, ...]
    arena: int
    weights: bytes


def program_of(network: OnChipNetwork, plan: OnChipPlan, layers: Sequence[LayerCode]) -> Program:
    """Return the program of ``plan``.

    Raises:
        ModelError: A group is not planned, or weights cannot be loaded as the plan has it; the message names the op.
    """
    for group in plan.groups:
        if group.refusal is not None:
            name = network.layers[group.ops[0]].name
            raise ModelError(f"op '{name}' cannot be emitted: {_clause(group.refusal, name)}", code="not-emittable")
    weights, places = _weights(network, layers, plan)
    tensors, arena = _dram(network, plan)
    groups = tuple(
        _GroupWriter(network, group, layers, places, plan.capacity).program()
        for group in plan.groups
        if not all(network.layers[op].view for op in group.ops)
    )
    return Program(network, plan, tuple(layers), groups, tensors, arena, weights)


def _clause(refusal: str, name: str) -> str:
    """Return why an op is not planned, without its name before."""
    found = refusal.partition("): ")[2]
    return found or refusal.replace(f"op '{name}' ", "it ", 1)


def _weights(
    network: OnChipNetwork, layers: Sequence[LayerCode], plan: OnChipPlan
) -> tuple[bytes, dict[int, tuple[int, ...]]]:
    """Return all constants, each aligned, and per op where its own begin."""
    addends = {group.ops[0]: group.tile.addends for group in plan.groups}
    parts: list[bytes] = []
    places: dict[int, tuple[int, ...]] = {}
    at = 0
    for op, layer in enumerate(layers):
        if network.layers[op].view:
            continue
        own = []
        for values in layer.constants:
            data = values.tobytes()
            if addends.get(op, 1) > 1 and values is layer.constants[0]:
                spans = [span for span in cuts(values.shape[-1], addends[op]) if span is not None]
                data = b"".join(values[..., start:stop].tobytes() for start, stop in spans)
            own.append(at)
            padding = -len(data) % DRAM_ALIGNMENT
            parts += (data, bytes(padding))
            at += len(data) + padding
        places[op] = tuple(own)
    return b"".join(parts), places


# DRAM ----------------------------------------------------------------------------------------------------------------


def _dram(network: OnChipNetwork, plan: OnChipPlan) -> tuple[tuple[DramTensor | None, ...], int]:
    """Return where tensors lie that are loaded or stored: views lie where their tensor does."""
    graph = network.graph
    found: dict[int, DramTensor] = {}
    for number, tensor in enumerate(graph.inputs):
        found[network.root(tensor)] = DramTensor("MS_INPUT", number)
    for number, tensor in enumerate(graph.outputs):
        if network.root(tensor) in found:
            raise ModelError(
                f"output '{graph.tensors[tensor].name}' cannot be emitted: it is an input or another output",
                code="not-emittable",
            )
        found[network.root(tensor)] = DramTensor("MS_OUTPUT", number)
    spans: dict[int, list[int]] = {}
    for number, group in enumerate(plan.groups):
        for buffer in group.buffers:
            if buffer.kind in {"input", "output"}:
                spans.setdefault(network.root(buffer.tensor), [number, number])[1] = number
    roots = [root for root in spans if root not in found]
    blocks = [
        Block.whole(-(-network.maps[root].size // DRAM_ALIGNMENT) * DRAM_ALIGNMENT, spans[root][0], spans[root][1] + 1)
        for root in roots
    ]
    packing = pack(blocks, Run(QUICK)) if blocks else None
    arena = 0
    for root, block, offset in zip(roots, blocks, packing.offsets if packing else (), strict=True):
        found[root] = DramTensor("MS_ARENA", offset)
        arena = max(arena, offset + block.size)
    return tuple(found.get(network.root(tensor)) for tensor in range(len(graph.tensors))), arena


# Groups --------------------------------------------------------------------------------------------------------------


class _GroupWriter:
    def __init__(
        self,
        network: OnChipNetwork,
        group: OnChipGroup,
        layers: Sequence[LayerCode],
        places: dict[int, tuple[int, ...]],
        capacity: int,
    ) -> None:
        self._network, self._group, self._layers, self._places = network, group, layers, places
        self._tensors = [one for one in group.buffers if one.kind != "weights"]
        self._index = {one.tensor: place for place, one in enumerate(self._tensors)}
        self._free, self._capacity = group.height, capacity

    def program(self) -> GroupProgram:
        """Return the group's program."""
        group = self._group
        steps = tuple(self._step(op) for op in group.ops)
        loads: list[ChipLoad] = []
        offsets: list[tuple[int, ...]] = [(one.offset,) for one in self._tensors]
        for place, one in enumerate(self._tensors):
            if one.kind == "input":
                load, offsets[place] = self._input(place, one)
                loads.append(load)
        loads += [self._load_of_weights(one) for one in group.buffers if one.kind == "weights"]
        stores = tuple(self._store(place, one) for place, one in enumerate(self._tensors) if one.kind == "output")
        return GroupProgram(group, tuple(self._tensors), tuple(offsets), steps, tuple(loads), stores)

    def _step(self, op: int) -> ChipStep:
        layer, kernel = self._network.layers[op], self._layers[op].kernel
        if op == self._group.ops[0] and self._group.tile.addends > 1:
            if kernel != _ADDING_UP[0] or self._layers[op].fields["groups"] != "1":
                raise ModelError(
                    f"op '{layer.name}' cannot be emitted: its input channels cannot be added up in parts",
                    code="not-emittable",
                )
            kernel = _ADDING_UP[1]
        return ChipStep(
            op,
            kernel,
            tuple(self._index[tensor] for tensor in layer.reads),
            self._index[layer.writes[0]],
            self._weights(op),
        )

    # Loads ------------------------------------------------------------------------------------------------------------

    def _issue(self, one: OnChipBuffer, last: int) -> tuple[int, bool]:
        """Return behind which step a load of ``one`` can start, and whether in the piece before.

        Args:
            last: The last step that needs what is there.
        """
        met = [
            other
            for other in self._group.buffers
            if other is not one and other.offset < one.offset + one.size and one.offset < other.offset + other.size
        ]
        before = [other.last for other in met if other.first < one.first]
        if before:
            return max(before), False
        return max([last, *(other.last for other in met)]), True

    def _input(self, place: int, one: OnChipBuffer) -> tuple[ChipLoad, tuple[int, ...]]:
        tile, kept = self._group.tile, one.kept
        when: When
        first_reader = min(
            place for place, op in enumerate(self._group.ops) if one.tensor in self._network.layers[op].reads
        )
        if one.addends:
            issue, ahead = self._issue(one, one.last)
            when = "MS_NEW_PLANE" if tile.front else "MS_EVERY_PIECE"
            return ChipLoad(place, 0, issue, ahead, when, False), (one.offset, one.offset + one.size // 2)
        whole = len(one.channels) == 1 and tile.channels > 1
        when = "MS_NEW_PLANE" if whole and tile.weights == "step" else "MS_EVERY_PIECE"
        step = first_reader if kept else one.first
        alignment = DRAM_ALIGNMENT
        first = -(-self._free // alignment) * alignment
        second = -(-(first + one.size) // alignment) * alignment
        pieces = tile.planes * tile.channels
        if when == "MS_EVERY_PIECE" and not kept and pieces > 1 and second + one.size <= self._capacity:
            self._free = second + one.size
            return ChipLoad(place, step, -1, True, when, False), (first, second)
        issue, ahead = self._issue(one, one.last)
        return ChipLoad(place, step, issue, ahead, when, kept), (one.offset,)

    def _load_of_weights(self, one: OnChipBuffer) -> ChipLoad:
        tile, step = self._group.tile, one.op - self._group.ops[0]
        whole = self._network.layers[one.op].filters == 1
        when: When = "MS_NEW_PLANE" if step < tile.front else "MS_EVERY_PIECE"
        if tile.weights == "resident":
            when = "MS_NEW_CHANNELS"
        issue, ahead = self._issue(one, step)
        if when == "MS_NEW_CHANNELS" and whole:
            # Stays for all pieces: it is loaded before the first one only, whatever the channels.
            return ChipLoad(-1, step, len(self._group.ops), True, when, False)
        return ChipLoad(-1, step, issue, ahead, when, False)

    def _weights(self, op: int) -> LayerWeights | None:
        buffer = next((one for one in self._group.buffers if one.kind == "weights" and one.op == op), None)
        layer, constants = self._network.layers[op], self._layers[op].constants
        total = sum(values.nbytes for values in constants)
        if total != layer.weights:
            sizes = f"{total:,} B, and {layer.weights:,} B are planned"
            raise ModelError(f"op '{layer.name}' cannot be emitted: its constants have {sizes}", code="not-emittable")
        if buffer is None:
            return None
        filters = layer.filters
        if not all(_by_filters(values, filters) for values in constants):
            filters = 1
            if layer.filters > 1 and (self._group.tile.channels > 1 or buffer.size < layer.weights):
                raise ModelError(
                    f"op '{layer.name}' cannot be emitted: its constants cannot be loaded a part at a time",
                    code="not-emittable",
                )
        each = tuple(values.nbytes // filters for values in constants)
        offsets: tuple[int, ...]
        if op == self._group.ops[0] and self._group.tile.addends > 1:
            beside = sum(each[1:]) * self._most_filters(op)
            half = (buffer.size - beside) // 2
            offsets = (buffer.offset + beside, buffer.offset + beside + half)
            one = each[0] // layer.addends
            return LayerWeights(self._places[op], each, filters, offsets, 0, one, buffer.offset)
        most = self._most_filters(op) if filters > 1 else 1
        slice_ = 0 if sum(each) * most <= buffer.size else buffer.size // sum(each)
        offsets = (buffer.offset,)
        if slice_ > 1:
            slice_ //= 2
            offsets = (buffer.offset, buffer.offset + slice_ * sum(each))
        elif slice_ == 1:
            second = -(-self._free // DRAM_ALIGNMENT) * DRAM_ALIGNMENT
            if second + sum(each) <= self._capacity:
                self._free = second + sum(each)
                offsets = (buffer.offset, second)
        return LayerWeights(self._places[op], each, filters, offsets, slice_)

    def _most_filters(self, op: int) -> int:
        made = self._tensors[self._index[self._network.layers[op].writes[0]]]
        return max(span[1] - span[0] for span in made.channels)

    # Stores -----------------------------------------------------------------------------------------------------------

    def _store(self, place: int, one: OnChipBuffer) -> ChipStore:
        tile, tensor = self._group.tile, self._network.maps[one.tensor]
        return ChipStore(
            place,
            one.first,
            tuple(cuts(tensor.rows, tile.rows)) if len(one.rows) > 1 else ((0, tensor.rows),),
            tuple(cuts(tensor.columns, tile.columns)) if len(one.columns) > 1 else ((0, tensor.columns),),
            tuple(cuts(tensor.channels, tile.channels)) if len(one.channels) > 1 else ((0, tensor.channels),),
        )


def _by_filters(values: np.ndarray[Any, Any], filters: int) -> bool:
    """Return whether the values of each filter lie behind those of the one before."""
    return values.size == filters or (values.ndim == 4 and values.shape[0] == filters)
