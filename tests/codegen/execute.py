"""A plan of on-chip memory carried out in numpy, piece by piece, at its addresses: what programs made from it must do.

It shares nothing with what makes programs: it follows the plan's own buffers, and counts each byte that comes on chip
or leaves it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from memsched.base.errors import InternalError
from memsched.codegen.onchip.model import OnChipBuffer, OnChipGroup, OnChipPlan
from memsched.codegen.onchip.network import OnChipNetwork, Range
from memsched.graph.kernel import LayerKernel
from tests.codegen.piece_kernels import PIECE_KERNELS, Array, PiecePart, PieceWords

__all__ = ["ExecutedPlan", "execute"]


@dataclass(frozen=True, slots=True, eq=False)
class ExecutedPlan:
    """What a plan computed, and moved.

    Attributes:
        outputs: Per output of the graph its values: batch, rows, columns, channels for feature maps.
        moved: Per group the bytes loaded and stored.
    """

    outputs: tuple[Array, ...]
    moved: tuple[tuple[int, int], ...]


def execute(
    network: OnChipNetwork, plan: OnChipPlan, kernels: Sequence[LayerKernel], inputs: Sequence[Array]
) -> ExecutedPlan:
    """Carry ``plan`` out on ``inputs``, which have the order batch, rows, columns, channels where they are maps.

    Raises:
        InternalError: A group is not planned, or something that is read was never written.
    """
    dram: dict[int, Array] = {}
    for tensor, values in zip(network.graph.inputs, inputs, strict=True):
        one = network.maps[tensor]
        dram[network.root(tensor)] = values.reshape(one.batch, one.rows, one.columns, one.channels)
    moved = []
    for group in plan.groups:
        if group.refusal is not None:
            raise InternalError(f"group of op '{plan.names[group.ops[0]]}' is not planned", code="not-planned")
        if all(network.layers[op].view for op in group.ops):
            moved.append((0, 0))
            continue
        moved.append(_GroupRun(network, group, kernels, dram, plan.capacity).run())
    outputs = tuple(dram[network.root(tensor)] for tensor in network.graph.outputs)
    return ExecutedPlan(outputs, tuple(moved))


class _GroupRun:
    def __init__(
        self,
        network: OnChipNetwork,
        group: OnChipGroup,
        kernels: Sequence[LayerKernel],
        dram: dict[int, Array],
        capacity: int,
    ) -> None:
        import numpy as np

        self._network, self._group, self._kernels, self._dram = network, group, kernels, dram
        self._chip = np.full(capacity, 0xA5, np.uint8)
        self._of = {one.tensor: one for one in group.buffers if one.tensor >= 0}
        self._loaded = self._stored = 0

    def run(self) -> tuple[int, int]:
        """Execute all pieces; return the bytes loaded and stored."""
        tile = self._group.tile
        planes, channels = list(product(range(tile.rows), range(tile.columns))), range(tile.channels)
        if tile.weights == "resident":
            order = [(row, column, part) for part in channels for row, column in planes]
        else:
            order = [(row, column, part) for row, column in planes for part in channels]
        for piece in order:
            self._weights(piece)
            for step, op in enumerate(self._group.ops):
                if step < tile.front and piece[2] > 0:
                    continue
                added: dict[int, PiecePart] = {}
                for buffer in self._group.buffers:
                    if buffer.kind == "input" and self._first_reader(buffer) == step:
                        if buffer.addends:
                            added = self._load_in_turn(buffer, piece)
                        else:
                            self._load(buffer, piece)
                self._compute(op, piece, added)
                for tensor in self._network.layers[op].writes:
                    if self._of[tensor].kind == "output":
                        self._store(self._of[tensor], piece)
        return self._loaded, self._stored

    def _first_reader(self, buffer: OnChipBuffer) -> int:
        readers = (step for step, op in enumerate(self._group.ops) if buffer.tensor in self._network.layers[op].reads)
        return next(readers)

    def _spans(self, buffer: OnChipBuffer, piece: tuple[int, int, int]) -> tuple[Range, Range, Range] | None:
        """Return what the piece has of a buffer; None for nothing."""
        found = []
        for ranges, at in zip((buffer.rows, buffer.columns, buffer.channels), piece, strict=True):
            span = ranges[at if len(ranges) > 1 else 0]
            if span is None:
                return None
            found.append(span)
        return found[0], found[1], found[2]

    def _part(self, buffer: OnChipBuffer, spans: tuple[Range, Range, Range]) -> PiecePart:
        """Return the bytes on chip as an array; writing to it writes there."""
        one = self._network.maps[buffer.tensor]
        shape = (one.batch, *(stop - start for start, stop in spans))
        dtype = self._dtype(buffer.tensor)
        size = math.prod(shape) * dtype.itemsize
        if size > buffer.size:
            raise InternalError(f"'{buffer.name}' is larger than its bytes", code="outgrown-buffer")
        values = self._chip[buffer.offset : buffer.offset + size].view(dtype).reshape(shape)
        return PiecePart(values, *spans)

    def _dtype(self, tensor: int) -> Any:
        import numpy as np

        return np.dtype(self._network.graph.tensors[tensor].dtype)

    def _load(self, buffer: OnChipBuffer, piece: tuple[int, int, int]) -> None:
        spans, tile = self._spans(buffer, piece), self._group.tile
        shared = len(buffer.channels) == 1 and tile.channels > 1 and tile.weights == "step"
        if spans is None or (shared and piece[2] > 0):
            return
        rows, columns, channels = spans
        part = self._part(buffer, spans)
        source = self._source(buffer.tensor)
        given = source[:, rows[0] : rows[1], columns[0] : columns[1], channels[0] : channels[1]]
        fresh = rows[0]
        if buffer.kept and piece[0] > 0:
            above = self._spans(buffer, (piece[0] - 1, piece[1], piece[2]))
            if above is not None and above[0][1] > rows[0]:
                fresh = min(above[0][1], rows[1])
                before = self._part(buffer, above).values[:, rows[0] - above[0][0] : fresh - above[0][0]].copy()
                part.values[:, : fresh - rows[0]] = before
        part.values[:, fresh - rows[0] :] = given[:, fresh - rows[0] :]
        self._loaded += given[:, fresh - rows[0] :].nbytes

    def _load_in_turn(self, buffer: OnChipBuffer, piece: tuple[int, int, int]) -> dict[int, PiecePart]:
        """Load parts of the channels into both halves in turn; return all together, as an op that adds up sees them.

        Raises:
            InternalError: What they are added up to is not left alone.
        """
        import numpy as np

        made = self._of[self._network.layers[self._group.ops[0]].writes[0]]
        sums = self._chip[made.offset : made.offset + made.size]
        sums[:] = 0x5A
        whole: Array | None = None
        spans, one = None, self._network.maps[buffer.tensor]
        for place, channels in enumerate(buffer.channels):
            spans = self._spans(replace(buffer, channels=(channels,)), piece)
            if spans is None:
                return {}
            half = replace(buffer, offset=buffer.offset + place % 2 * (buffer.size // 2), size=buffer.size // 2)
            part = self._part(half, spans)
            (top, bottom), (left, right), (front, back) = spans
            part.values[...] = self._source(buffer.tensor)[:, top:bottom, left:right, front:back]
            self._loaded += part.values.nbytes
            if whole is None:
                shape = (one.batch, bottom - top, right - left, one.channels)
                whole = np.zeros(shape, part.values.dtype)
            whole[..., front:back] = part.values
        if whole is None or spans is None:
            return {}
        if not (sums == 0x5A).all():
            raise InternalError(f"parts of '{buffer.name}' lie over their sums", code="overlap")
        return {buffer.tensor: PiecePart(whole, spans[0], spans[1], (0, one.channels))}

    def _source(self, tensor: int) -> Array:
        root, one = self._network.root(tensor), self._network.maps[tensor]
        if root not in self._dram:
            raise InternalError(
                f"'{self._network.graph.tensors[tensor].name}' is read before it is stored", code="read-unmade"
            )
        return self._dram[root].reshape(one.batch, one.rows, one.columns, one.channels)

    def _store(self, buffer: OnChipBuffer, piece: tuple[int, int, int]) -> None:
        import numpy as np

        spans, tile, one = self._spans(buffer, piece), self._group.tile, self._network.maps[buffer.tensor]
        if spans is None:
            return
        part = self._part(buffer, spans)
        own = []
        counts = (tile.rows, tile.columns, tile.channels)
        lengths = (one.rows, one.columns, one.channels)
        for span, ranges, at, count, length in zip(
            spans, (buffer.rows, buffer.columns, buffer.channels), piece, counts, lengths, strict=True
        ):
            cut = (at * length // count, (at + 1) * length // count) if len(ranges) > 1 else (0, length)
            own.append((max(span[0], cut[0]), min(span[1], cut[1])))
        if any(start >= stop for start, stop in own):
            return
        root = self._network.root(buffer.tensor)
        if root not in self._dram:
            shape = (one.batch, one.rows, one.columns, one.channels)
            self._dram[root] = np.zeros(shape, self._dtype(buffer.tensor))
        inside = tuple(slice(a - c[0], b - c[0]) for (a, b), c in zip(own, spans, strict=True))
        within = (slice(None), *inside)
        taken = part.values[within]
        place = (slice(None), *(slice(a, b) for a, b in own))
        self._source(buffer.tensor)[place] = taken
        self._stored += taken.nbytes

    def _weights(self, piece: tuple[int, int, int]) -> None:
        """Count what the piece loads of all layers' constants: their values are taken from the layers themselves."""
        tile = self._group.tile
        for buffer in self._group.buffers:
            if buffer.kind != "weights":
                continue
            layer = self._network.layers[buffer.op]
            if buffer.op - self._group.ops[0] < tile.front and piece[2] > 0:
                continue
            if layer.filters == 1:
                again = piece == (0, 0, 0) or tile.weights == "step"
                self._loaded += layer.weights if again else 0
            elif tile.weights == "step" or piece[:2] == (0, 0):
                made = self._of[layer.writes[0]].channels
                start, stop = made[piece[2] if len(made) > 1 else 0]
                parts = stop - start if tile.channels > 1 else layer.filters
                self._loaded += layer.weights * parts // layer.filters

    # Layers -----------------------------------------------------------------------------------------------------------

    def _compute(self, op: int, piece: tuple[int, int, int], added: Mapping[int, PiecePart]) -> None:
        layer, kernel = self._network.layers[op], self._kernels[op]
        made = self._of[layer.writes[0]]
        spans = self._spans(made, piece)
        if spans is None:
            return
        parts = dict(added)
        for tensor in layer.reads:
            if tensor in added:
                continue
            held = self._spans(self._of[tensor], piece)
            if held is not None:
                found = self._part(self._of[tensor], held)
                parts[tensor] = PiecePart(found.values.copy(), found.rows, found.columns, found.channels)
        words = PieceWords(self._network, op, kernel, parts, spans)
        result = PIECE_KERNELS[kernel.family](words)
        out = self._part(made, spans).values
        out[...] = result.astype(out.dtype, copy=False).reshape(out.shape)
