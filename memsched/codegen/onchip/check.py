"""The independent checker of plans of on-chip memory: regions, sizes, addresses and traffic from the definitions.

It uses the shape deduction of single ops and shares nothing with how groups are found, placed or counted. What may
share bytes is decided by running through each layer's output points in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import NoReturn

from memsched.base.errors import InternalError
from memsched.codegen.onchip.model import OnChipBuffer, OnChipGroup, OnChipPlan
from memsched.codegen.onchip.network import OnChipNetwork, Range
from memsched.graph.model import Graph, Region
from memsched.ops.ranges import PieceNeeds, deduce
from memsched.ops.rules import Pointwise, Window

__all__ = ["check_plan"]


def check_plan(graph: Graph, plan: OnChipPlan) -> None:
    """Check ``plan`` of ``graph``, which is lowered for its target.

    Raises:
        InternalError: The plan is wrong.
    """
    network = OnChipNetwork(graph)
    ops = [op for group in plan.groups for op in group.ops]
    if ops != list(range(len(graph.ops))):
        raise InternalError("its groups are not the ops in order", code="order", location="on-chip plan")
    for group in plan.groups:
        if group.refusal is None:
            _GroupCheck(network, group, plan.capacity).run()


class _GroupCheck:
    def __init__(self, network: OnChipNetwork, group: OnChipGroup, capacity: int) -> None:
        self._network, self._group, self._capacity = network, group, capacity
        self._of = {buffer.tensor: buffer for buffer in group.buffers if buffer.tensor >= 0}
        self._where = f"on-chip plan: group of op '{network.layers[group.ops[0]].name}'"

    def run(self) -> None:
        """Check everything."""
        for buffer in self._group.buffers:
            if buffer.offset < 0 or buffer.offset + buffer.size > self._capacity:
                self._fail("outside-memory", f"'{buffer.name}' ends beyond the memory")
            if buffer.tensor >= 0:
                self._sizes(buffer)
            if buffer.kept:
                self._stays(buffer)
            if buffer.kind == "output" or buffer.addends:
                self._covers(buffer)
        self._adds_up()
        if self._group.tile.front:
            self._front()
        for step, op in enumerate(self._group.ops):
            self._reads(step, op)
        for one, other in combinations(self._group.buffers, 2):
            self._apart(one, other)
        self._traffic()

    def _fail(self, code: str, problem: str) -> NoReturn:
        raise InternalError(problem, code=code, location=self._where)

    def _sizes(self, buffer: OnChipBuffer) -> None:
        tensor = self._network.maps[buffer.tensor]
        rows, columns = (max(map(_length, ranges)) for ranges in (buffer.rows, buffer.columns))
        halves = 2 if buffer.addends else 1
        if halves * tensor.batch * rows * columns * max(map(_length, buffer.channels)) * tensor.element > buffer.size:
            self._fail("outgrown-buffer", f"'{buffer.name}' is larger than its bytes")

    def _stays(self, buffer: OnChipBuffer) -> None:
        """Check that nothing comes between two pieces of the plane, and that the next has all channels of the rows."""
        whole = buffer.channels == ((0, self._network.maps[buffer.tensor].channels),)
        last = len(self._group.ops) - 1
        if buffer.kind != "input" or len(buffer.columns) > 1 or not whole or (buffer.first, buffer.last) != (0, last):
            self._fail("not-held", f"rows of '{buffer.name}' cannot stay on chip")

    def _covers(self, buffer: OnChipBuffer) -> None:
        tensor = self._network.maps[buffer.tensor]
        wholes = (tensor.rows, tensor.columns, tensor.channels)
        for ranges, length in zip((buffer.rows, buffer.columns, buffer.channels), wholes, strict=True):
            end = 0
            for span in ranges:
                if span is not None:
                    if span[0] > end:
                        break
                    end = max(end, span[1])
            if end != length:
                self._fail("not-covered", f"its pieces do not cover '{buffer.name}'")

    def _adds_up(self) -> None:
        """Check that only the first op reads what is added up in parts, and that its weights have room for two."""
        parts, op = self._group.tile.addends, self._group.ops[0]
        layer = self._network.layers[op]
        added = [buffer for buffer in self._group.buffers if buffer.addends]
        if parts == 1 and not added:
            return
        if [buffer.tensor for buffer in added] != list(layer.reads) or parts > layer.addends or len(layer.writes) != 1:
            self._fail("not-addable", f"'{layer.name}' cannot add up what it does")
        one, made, filters = added[0], self._of[layer.writes[0]], layer.filters
        weights = next(buffer for buffer in self._group.buffers if buffer.kind == "weights" and buffer.op == op)
        largest = max(map(_length, made.channels))
        each = (layer.weights - layer.beside) // filters // layer.addends * max(map(_length, one.channels))
        if weights.size < largest * (layer.beside // filters) + 2 * largest * each:
            self._fail("no-room", f"'{layer.name}' has no room for the weights of two parts")
        spans = [span for span in one.channels if span is not None]
        if any(before[1] != after[0] for before, after in pairwise(spans)) or len(spans) != parts:
            self._fail("addend-twice", f"'{layer.name}' adds up channels twice")
        if (one.first, one.last) != (0, 0) or self._group.tile.weights != "step" or one.kept:
            self._fail("not-addable", f"'{one.name}' cannot be added up in parts")

    def _front(self) -> None:
        """Check what runs once for each piece of the plane: it is whole, and what is handed on stays to the end."""
        group, front = self._group, self._group.tile.front
        last = len(group.ops) - 1
        for step, op in enumerate(group.ops):
            for tensor in (*self._network.layers[op].reads, *self._network.layers[op].writes):
                buffer = self._of[tensor]
                whole = len(buffer.channels) == 1 or buffer.addends
                stays = buffer.last == last and buffer.kind == "inner"
                if (step < front and not whole) or (step >= front > buffer.first and not stays):
                    self._fail("not-whole", f"'{buffer.name}' is not whole for all pieces of the channels")
        outputs = [one for one in group.buffers if one.kind == "output" and one.first < front]
        if outputs or not 0 <= front <= last or group.tile.weights != "step":
            self._fail("channels", "its channels are not cut from a step on")

    # What ops read ----------------------------------------------------------------------------------------------------

    def _reads(self, step: int, op: int) -> None:
        """Check that every piece finds all that it needs in its inputs' buffers, and that these are live."""
        layer, group = self._network.layers[op], self._group
        for tensor in (*layer.reads, *layer.writes):
            buffer = self._of.get(tensor)
            if buffer is None or not buffer.first <= step <= buffer.last:
                self._fail("not-held", f"'{layer.name}' runs without a tensor of its own")
        if layer.weights and not any(
            one.op == op and one.kind == "weights" and one.first <= step <= one.last for one in group.buffers
        ):
            self._fail("not-held", f"'{layer.name}' runs without its weights")
        if group.tile.planes * group.tile.channels == 1:
            self._whole((*layer.reads, *layer.writes))
            return
        made = self._of[layer.writes[0]]
        for row, column in _crossing(made):
            found = self._needed(op, made, row, column)
            if found is not None:
                self._within(op, found, row, column)
        if group.tile.channels > 1:
            for tensor in layer.reads:
                whole = ((0, self._network.maps[tensor].channels),)
                if self._of[tensor].addends:
                    continue
                wanted = whole if layer.channels == "head" else made.channels
                if self._of[tensor].channels not in {whole, wanted}:
                    self._fail("channels", f"'{layer.name}' lacks channels")

    def _whole(self, tensors: Sequence[int]) -> None:
        for tensor in tensors:
            buffer, one = self._of[tensor], self._network.maps[tensor]
            channels = buffer.channels if buffer.addends else ((0, one.channels),)
            if (buffer.rows, buffer.columns, buffer.channels) != (((0, one.rows),), ((0, one.columns),), channels):
                self._fail("not-whole", f"'{buffer.name}' is not whole")

    def _needed(self, op: int, made: OnChipBuffer, row: int, column: int) -> PieceNeeds | None:
        rows, columns = made.rows[row], made.columns[column]
        if rows is None or columns is None or not self._network.layers[op].spatial:
            return None
        return self._deduced(op, rows, columns)

    def _deduced(self, op: int, rows: Range, columns: Range) -> PieceNeeds | None:
        geometry, one = self._network.geometries[op], self._network.graph.ops[op]
        ranges = [(0, size) for size in geometry.shape]
        axes = self._network.maps[one.outputs[0]].axes
        ranges[axes[1]], ranges[axes[2]] = rows, columns
        found = deduce(geometry, one, Region(tuple(ranges)))
        return found if isinstance(found, PieceNeeds) else None

    def _within(self, op: int, found: PieceNeeds, row: int, column: int) -> None:
        for tensor, entry in zip(self._network.graph.ops[op].inputs, found.inputs, strict=True):
            buffer, axes = self._of[tensor], self._network.maps[tensor].axes
            if entry.region is None:
                continue
            for axis, span in ((1, buffer.rows[row]), (2, buffer.columns[column])):
                low, high = entry.region.ranges[axes[axis]]
                if span is None or not span[0] <= low <= high <= span[1]:
                    self._fail(
                        "reads-outside",
                        f"'{self._network.layers[op].name}' reads more of '{buffer.name}' than is there",
                    )

    # What shares bytes ------------------------------------------------------------------------------------------------

    def _apart(self, one: OnChipBuffer, other: OnChipBuffer) -> None:
        """Check that live buffers share no byte, unless a layer uses up one while it fills the other."""
        if one.offset >= other.offset + other.size or other.offset >= one.offset + one.size:
            return
        if one.first > other.last or other.first > one.last:
            return
        given, made = (one, other) if one.last == other.first else (other, one)
        step = made.first
        layer = self._network.layers[self._group.ops[step]]
        meets = given.last == step and given.tensor in layer.reads and layer.writes == (made.tensor,)
        meets = meets and not given.kept and not given.addends
        sliced = any(b.op == layer.op and b.kind == "weights" and b.size < layer.weights for b in self._group.buffers)
        if not meets or (sliced and layer.channels != "follow"):
            self._fail("overlap", f"'{one.name}' and '{other.name}' share bytes")
        alike = (given.rows, given.columns) == (made.rows, made.columns)
        if (
            alike
            and given.offset >= made.offset
            and self._network.elementwise(layer.op, layer.reads.index(given.tensor))
        ):
            return  # element i is read, and then written over itself or over one that was used before
        for row, column in _distinct(made):
            self._simulate(layer.op, given, made, row, column)

    def _simulate(self, op: int, given: OnChipBuffer, made: OnChipBuffer, row: int, column: int) -> None:
        """Write the output point by point; no byte that a later point reads may be hit."""
        maps, tensor = self._network.maps, given.tensor
        out_rows, out_columns = made.rows[row], made.columns[column]
        read_rows, read_columns = given.rows[row], given.columns[column]
        if out_rows is None or out_columns is None or read_rows is None or read_columns is None:
            return
        (top, bottom), (left, right) = out_rows, out_columns
        rows = [self._first(op, tensor, 1, (y, y + 1), (left, left + 1)) for y in range(top, bottom)]
        columns = [self._first(op, tensor, 2, (top, top + 1), (x, x + 1)) for x in range(left, right)]
        point_in, point_out = maps[tensor].point, maps[made.tensor].point
        width = (read_columns[1] - read_columns[0]) * point_in
        plane_in = (read_rows[1] - read_rows[0]) * width
        plane_out = len(rows) * len(columns) * point_out
        needed = [
            batch * plane_in + (y - read_rows[0]) * width + (x - read_columns[0]) * point_in
            for batch, y, x in product(range(maps[tensor].batch), rows, columns)
        ]
        least = needed[-1]
        end = made.offset + maps[made.tensor].batch * plane_out
        for at in range(len(needed) - 2, -1, -1):
            end -= point_out
            if end > given.offset + least:
                self._fail("overwrites", f"'{made.name}' overwrites what is still needed of '{given.name}'")
            least = min(least, needed[at])

    def _first(self, op: int, tensor: int, axis: int, rows: Range, columns: Range) -> int:
        found = self._deduced(op, rows, columns)
        if found is None:
            return self._in_padding(op, tensor, axis, rows if axis == 1 else columns)
        starts = [
            entry.region.ranges[self._network.maps[tensor].axes[axis]][0]
            for read, entry in zip(self._network.graph.ops[op].inputs, found.inputs, strict=True)
            if read == tensor and entry.region is not None
        ]
        return min(starts, default=0)

    def _in_padding(self, op: int, tensor: int, axis: int, point: Range) -> int:
        """Return the first index that a point in the padding alone needs: where its window begins."""
        one, axes = self._network.graph.ops[op], self._network.maps[tensor].axes
        rule = self._network.geometries[op].operands[one.positions[one.inputs.index(tensor)]][axes[axis]].rule
        if isinstance(rule, Pointwise) and one.inputs.count(tensor) == 1:
            return point[0]  # the point lies in the padding of the other axis
        if not isinstance(rule, Window) or one.inputs.count(tensor) > 1:
            self._fail("not-pointwise", f"'{self._network.layers[op].name}' cannot be computed point by point")
        return max(0, point[0] * rule.stride - rule.pad_before)

    # Traffic -------------------------------------------------------------------------------------------------------

    def _traffic(self) -> None:
        """Add up what pieces load and store."""
        group, layers = self._group, self._network.layers
        if all(layers[op].view for op in group.ops):
            return
        read = written = 0
        for buffer in group.buffers:
            if buffer.kind == "weights":
                behind = buffer.op - group.ops[0] >= group.tile.front
                parts = group.tile.channels if layers[buffer.op].filters == 1 and behind else 1
                again = group.tile.planes * parts if group.tile.weights == "step" else 1
                read += layers[buffer.op].weights * again
            elif buffer.kind == "output":
                written += self._network.maps[buffer.tensor].size
            elif buffer.kind == "input":
                tensor = self._network.maps[buffer.tensor]
                rows = _not_kept(buffer.rows) if buffer.kept else buffer.rows
                plane = sum(_length(r) * _length(c) for r, c in product(rows, buffer.columns))
                channels = sum(map(_length, buffer.channels))
                # A head's input is whole in each channel piece, and loaded for each unless it stays.
                if (buffer.addends and not group.tile.front) or (
                    len(buffer.channels) == 1 and group.tile.weights == "resident"
                ):
                    channels *= group.tile.channels
                read += tensor.batch * plane * channels * tensor.element
        if (read, written) != (group.cost.read, group.cost.written):
            self._fail(
                "bytes-claim", f"{read} + {written} bytes are moved, not {group.cost.read} + {group.cost.written}"
            )


def _length(span: Range | None) -> int:
    return 0 if span is None else span[1] - span[0]


def _not_kept(rows: Sequence[Range | None]) -> Iterator[Range | None]:
    """Yield what of each piece's rows the piece above does not have."""
    before: Range | None = None
    for span in rows:
        low = span[0] if span is not None else 0
        if span is not None and before is not None and low < before[1]:
            yield (min(before[1], span[1]), span[1])
        else:
            yield span
        before = span


def _crossing(made: OnChipBuffer) -> Iterator[tuple[int, int]]:
    """Yield enough pieces: rows and columns are independent, so each of one with the first of the other."""
    yield from ((row, 0) for row in range(len(made.rows)))
    yield from ((0, column) for column in range(1, len(made.columns)))


def _distinct(made: OnChipBuffer) -> Iterator[tuple[int, int]]:
    """Yield the pieces at both ends of each axis and next to them."""
    ends = [sorted({0, 1, count // 2, count - 2, count - 1} & set(range(count))) for count in _counts(made)]
    yield from product(*ends)


def _counts(made: OnChipBuffer) -> tuple[int, int]:
    return len(made.rows), len(made.columns)
