"""What loops over intervals of layers need at least, whatever their tiles and their form.

A loop carries its whole input, with rows of padding ahead where the output is laid over it, and its body makes one tile
of every layer. What tiles of one element need no others go below; but where tiles are as wide as the image, no rows
ahead are needed. Parts are handed from the last layer to the first, and so one pass finds all loops that end there.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op
from memsched.lowering.prices import Prices
from memsched.ops.rules import Geometry, Pointwise, Refusal, Rule, Stride, Window
from memsched.ops.table import SHAPED
from memsched.rewrites.tile.loop import takes_range
from memsched.rewrites.tile.loop_cost import MOST_ROWS
from memsched.rewrites.tile.loop_ways import AXES, LONGEST, RANK
from memsched.rewrites.tile.op_needs import kept_by_kind
from memsched.rewrites.tile.rewrite import RANGED
from memsched.rewrites.tile.runs import POOLS
from memsched.targets.model import Target

__all__ = ["LoopFloor", "LoopFloors"]

_MASKING: Final = frozenset({"MAXIMUM", "MINIMUM"})

_CONSTANTS: Final = 4
"""Constants that a slice or a padding has at most."""

_ROUNDED: Final = 4
"""Lists of structures that are rounded up to the alignment, which can take up that much of what a loop adds."""


class LoopFloor(FrozenValue, frozen=True):
    """One form of loops from a first op on.

    Attributes:
        level: Bytes that the largest step takes at least.
        kept: Bytes that the runtime keeps at least beside what it keeps for the layers as they are.
    """

    first: int
    level: int
    kept: int


class _Along(FrozenValue, frozen=True):
    """The part of a tensor along one axis that tiles of one element need.

    Attributes:
        stride: Elements by which it moves with the tile, and by which it is longer where the tile is.
    """

    stride: int
    begin: int
    length: int

    def read(self, rule: Rule) -> _Along:
        """Return the part that a layer reads for this one."""
        if isinstance(rule, Window):
            return _Along(
                self.stride * rule.stride,
                self.begin * rule.stride - rule.pad_before,
                (self.length - 1) * rule.stride + (rule.kernel - 1) * rule.dilation + 1,
            )
        if isinstance(rule, Stride):
            begin = self.begin * rule.step + rule.begin
            return _Along(self.stride * rule.step, begin, (self.length - 1) * rule.step + 1)
        return self

    def hull(self, other: _Along) -> _Along:
        """Return the smallest part that holds both, which move alike."""
        begin = min(self.begin, other.begin)
        end = max(self.begin + self.length, other.begin + other.length)
        return _Along(self.stride, begin, end - begin)

    def of_tile(self, size: int) -> int:
        """Return its length for a tile of a size."""
        return self.stride * (size - 1) + self.length

    def outside(self, tiles: int, length: int) -> tuple[int, int]:
        """Return how far parts reach past both ends of a tensor, where the output has so many elements."""
        end = self.stride * (tiles - 1) + self.begin + self.length
        return max(0, -self.begin), max(0, end - length)


_Part = tuple[_Along, _Along]
"""Along rows and along columns."""


@dataclass(slots=True)
class _BodyStep:
    """A layer of a body.

    Attributes:
        parts: What it reads and makes of tensors made in the loop, each with bytes per element along rows and columns.
        shares: What it makes may lie over what it reads.
    """

    parts: list[tuple[float, _Part]]
    shares: bool

    def size(self, rows: int, columns: int) -> float:
        """Return the bytes that it needs for a tile of a size."""
        sizes = [byte * high.of_tile(rows) * wide.of_tile(columns) for byte, (high, wide) in self.parts]
        return max(sizes) if self.shares else sum(sizes)


class LoopFloors:
    """Finds what loops need.

    Args:
        readers: Per tensor the ops that read it.
        size: Returns the bytes that a tensor takes among what is planned.
        sharing: Types of ops that may write over what they read.
        other: What is kept at least for a loop of which no more is known.
        most: Bytes beyond which a step is of no use.

    Attributes:
        kept: What is kept at least for the parts of loops, by the name that `LoopOps` gives them; None where that does
            not say enough.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        dialect: Dialect,
        geometries: Mapping[int, Geometry | Refusal],
        readers: Sequence[Sequence[int]],
        *,
        prices: Prices | None,
        size: Callable[[int], int],
        together: Callable[[Iterable[int]], int],
        sharing: frozenset[str],
        other: int,
        most: int,
    ) -> None:
        self.graph, self.target, self.dialect = graph, target, dialect
        self.geometries, self.readers = geometries, readers
        self.prices, self.size, self.together, self.sharing, self.other = prices, size, together, sharing, other
        self.most = most
        self.tied = {op for pair in graph.dependencies for op in pair}
        self.states, self.results = set(graph.variables), set(graph.outputs)
        self.pads_over = dialect.pad_type in target.pads_over_inputs
        ops = None if dialect.loop is None or dialect.loop.unrolled else dialect.loop.ops
        self.kept = None if ops is None else {one.name: self._kept(getattr(ops, one.name)) for one in fields(ops)}

    def ending(self, last: int) -> list[LoopFloor]:
        """Return the forms of loops that end in an op, those from the same op on by rising levels."""
        op, words = self.graph.ops[last], self.dialect.loop
        shape = self.graph.tensors[op.outputs[0]].shape if len(op.outputs) == 1 else None
        if (
            words is None
            or shape is None
            or len(shape) != RANK
            or not all(shape)
            or self.size(op.outputs[0]) > self.most
        ):
            return []
        walk = _LoopWalk(self, last)
        found = []
        for first in range(last, max(-1, last - LONGEST), -1):
            if not walk.take(first):
                break
            least = math.inf
            for one in sorted(walk.forms(first), key=lambda one: (one.level, one.kept)):
                if one.level <= self.most and one.kept < least:
                    found.append(one)
                    least = one.kept
        return found

    def shows(self, op: Op, geometry: Geometry) -> bool:
        """Return whether an op makes nothing but its input, seen at another offset."""
        return op.type == self.dialect.pad_type or takes_range(op, geometry)

    def element(self, tensor: int) -> float:
        """Return the bytes of one position along rows and columns."""
        value = self.graph.tensors[tensor]
        return value.size / max(1, math.prod((value.shape or ())[axis] for axis in AXES))

    def kept_for(self, op: Op) -> int:
        """Return what is kept at most for an op of the graph, with its constants."""
        if self.prices is None:
            return 0
        kept = self.prices.of_op(self.graph, op).persistent
        if self.prices.least is not None:
            kept = max(kept, self.prices.least(op.type, len(op.outputs) + _CONSTANTS))
        return kept + self.target.alignment_bytes

    def _kept(self, ops: Sequence[tuple[str, int]]) -> int:
        """Return what is kept at least for ops, each given by its type and how many tensors it brings."""
        if self.prices is None:
            return 0
        if self.prices.least is not None:
            return sum(self.prices.least(kind, tensors) for kind, tensors in ops)
        return sum(kept_by_kind(self.prices, self.target, kind) for kind, _ in ops)


class _LoopWalk:
    """Loops that end in one op, grown op by op towards the first."""

    def __init__(self, floors: LoopFloors, last: int) -> None:
        self._of, self._last = floors, last
        self._output = floors.graph.ops[last].outputs[0]
        shape = floors.graph.tensors[self._output].shape or ()
        self._tiles = shape[AXES[0]], shape[AXES[1]]
        one = _Along(1, 0, 1)
        self._parts: dict[int, _Part] = {self._output: (one, one)}
        self._reads: dict[int, list[tuple[int, _Part]]] = {}
        self._windowed: set[int] = set()
        # What pools pad by themselves: they take it from what the loop is handed, apart from what others take of it.
        self._alone: set[int] = set()
        self._open: set[int] = set()
        self._side_outputs: list[int] = []
        self._steps: dict[int, _BodyStep] = {}
        self._masked: list[bool] = []
        self._gone = 0
        self._sizes = (1, 1), (1, self._tiles[1]), self._tiles
        self._inner = [0.0] * len(self._sizes)

    # Growing -------------------------------------------------------------------------------------------------------

    def take(self, number: int) -> bool:
        """Take one more op in; return whether loops may hold it."""
        of = self._of
        op, geometry = of.graph.ops[number], of.geometries[number]
        if isinstance(geometry, Refusal) or number in of.tied or op.type in SHAPED:
            return False
        tensor, shows = op.outputs[0], of.shows(op, geometry)
        leaves = tensor in of.results or any(reader > self._last for reader in of.readers[tensor])
        if leaves and number != self._last and not self._leave(tensor):
            return False
        if tensor not in self._parts or tensor in self._alone or (shows and (leaves or number == self._last)):
            return False
        if shows:
            self._gone += of.kept_for(op)
        else:
            self._step(number, op)
        self._open.discard(tensor)
        return self._hand_on(number, op, geometry) and self._inner[0] <= of.most

    def _leave(self, tensor: int) -> bool:
        """Take in what is made beside the output, for what follows; return whether loops may do so."""
        of = self._of
        shape = of.graph.tensors[tensor].shape or ()
        if of.kept is None or len(shape) != RANK:
            return False
        if tensor not in self._parts:
            if any(shape[axis] % tiles for axis, tiles in zip(AXES, self._tiles, strict=True)):
                return False
            high, wide = (shape[axis] // tiles for axis, tiles in zip(AXES, self._tiles, strict=True))
            self._parts[tensor] = _Along(high, 0, high), _Along(wide, 0, wide)
        self._side_outputs.append(tensor)
        return True

    def _step(self, number: int, op: Op) -> None:
        """Take in a layer that the body computes."""
        of, tensor = self._of, op.outputs[0]
        made = of.element(tensor), self._parts[tensor]
        changed = [_BodyStep([made], op.type in of.sharing)]
        self._steps[number] = changed[0]
        for reader, part in self._reads.get(tensor, ()):
            if reader in self._steps:
                self._steps[reader].parts.append((made[0], part))
                changed.append(self._steps[reader])
        outside = self._outside(tensor)
        if tensor != self._output and tensor in self._windowed and any(map(any, outside)):
            self._masked.append(all(map(any, outside)))
            changed.append(_BodyStep([made, made], not of.sharing.isdisjoint(_MASKING)))
        for step in changed:
            self._inner = [max(most, step.size(*size)) for most, size in zip(self._inner, self._sizes, strict=True)]

    def _hand_on(self, number: int, op: Op, geometry: Geometry) -> bool:
        """Hand parts on to what an op reads; return whether loops may hold it."""
        part = self._parts[op.outputs[0]]
        for position, tensor in zip(op.positions, op.inputs, strict=True):
            maps = geometry.operands[position]
            if any(axis >= len(maps) or maps[axis].output != axis or not _cuts(op, maps[axis].rule) for axis in AXES):
                return False
            rules = [maps[axis].rule for axis in AXES]
            alone = op.type in POOLS and any(isinstance(rule, Window) and _pads(rule) for rule in rules)
            self._open.add(tensor)
            if alone:
                self._alone.add(tensor)
                continue
            read = part[0].read(rules[0]), part[1].read(rules[1])
            if any(isinstance(rule, Window) and (rule.kernel > 1 or _pads(rule)) for rule in rules):
                self._windowed.add(tensor)
            before = self._parts.get(tensor, read)
            if any(one.stride != other.stride for one, other in zip(before, read, strict=True)):
                return False
            self._parts[tensor] = before[0].hull(read[0]), before[1].hull(read[1])
            self._reads.setdefault(tensor, []).append((number, read))
        return True

    def _outside(self, tensor: int) -> list[tuple[int, int]]:
        shape = self._of.graph.tensors[tensor].shape or ()
        return [
            along.outside(tiles, shape[axis])
            for along, tiles, axis in zip(self._parts[tensor], self._tiles, AXES, strict=True)
        ]

    # What it needs -------------------------------------------------------------------------------------------------

    def forms(self, first: int) -> Iterator[LoopFloor]:
        """Yield what loops from an op on need, for each form."""
        of, words = self._of, self._of.dialect.loop
        if words is None or self._parts.keys().isdisjoint(self._open):
            return
        if len(self._open) != 1 or self._side_outputs:
            yield from self._of_several(first)
            return
        (tensor,) = self._open
        given, made = of.graph.tensors[tensor], of.graph.tensors[self._output]
        if given.dtype != made.dtype or given.shape is None or not given.size or {tensor, self._output} & of.states:
            return
        carried = max(of.size(tensor), of.size(self._output))
        if of.kept is None:
            yield LoopFloor(first, int(of.size(tensor) + self._inner[0]), of.other)
            return
        if carried + self._inner[0] > of.most:
            return
        around, resized = self._outside(tensor), given.size > made.size
        inside = any(map(any, around))
        plain = self._kept(of.kept, resized=resized, padding=inside)
        yield LoopFloor(first, int(carried + self._inner[1]), plain)
        yield LoopFloor(first, int(carried + self._inner[2]), self._kept(of.kept, resized=resized, several=False))
        row, read_row = -(-made.size // self._tiles[0]), -(-given.size // given.shape[AXES[0]])
        lead = max(int(inside), self._lead(tensor, 1, row, read_row))
        padded = given.size + lead * (given.size // given.shape[AXES[0]])
        laid = max(padded if lead else of.size(tensor), of.size(self._output))
        ahead = self._kept(of.kept, resized=padded > made.size, padding=inside, rows=lead > 0)
        yield LoopFloor(first, int(laid + self._inner[0]), ahead)
        size = 1 if made.size > padded else self._least_apart(tensor, row, read_row)
        if size <= self._tiles[0]:
            inner = self._inner[0] if size == 1 else max(step.size(size, 1) for step in self._steps.values())
            carried = max(carried, self._both(tensor, size, row, read_row))
            yield LoopFloor(first, int(carried + inner), plain)
        if inside:
            yield self._padded_before(first, tensor, around, of.kept)

    def _of_several(self, first: int) -> Iterator[LoopFloor]:
        """Yield what a loop needs that reads or makes several tensors: all that it makes may lie over what it reads."""
        of, made = self._of, [self._output, *self._side_outputs]
        ends = [of.graph.tensors[tensor] for tensor in (*made, *self._open)]
        if len({one.dtype for one in ends}) > 1 or not all(one.size and one.shape is not None for one in ends):
            return
        if not of.states.isdisjoint((*made, *self._open)):
            return
        together = of.together(self._open)
        if of.kept is None:
            yield LoopFloor(first, int(together + self._inner[0]), of.other)
            return
        aside = (len(self._open) - 1) * of.kept["side_input"] + len(self._side_outputs) * of.kept["side_output"]
        kept = self._kept(of.kept, resized=False, several=False, aside=aside)
        yield LoopFloor(first, int(max(together, of.together(made)) + self._inner[0]), kept)

    def _both(self, tensor: int, size: int, row: int, read_row: int) -> int:
        """Return the bytes of the input and the output of a loop over each other, without rows ahead.

        The first tile writes to as many rows of the output as it has. Where its part of a row is longer than what no
        other tile of the first row reads of a row of the input, its rows lie before all that is still to be read.
        """
        high, wide = self._parts[tensor]
        shape = self._of.graph.tensors[tensor].shape or ()
        length = min(shape[AXES[0]], high.stride * (self._tiles[0] - 1) + high.begin + high.length)
        begin = max(0, high.begin)
        left = (wide.stride + max(0, wide.begin)) * read_row / shape[AXES[1]]
        rest = (length - begin) * read_row - left
        if not self._of.size(tensor) or high.length < high.stride or row / self._tiles[1] <= left or row >= rest:
            return 0
        return (length - begin) * read_row + (size - 1) * row

    def _padded_before(
        self, first: int, tensor: int, around: list[tuple[int, int]], kept: Mapping[str, int]
    ) -> LoopFloor:
        """Return what a loop needs whose input is padded before it."""
        of = self._of
        shape = of.graph.tensors[tensor].shape or ()
        lengths = [shape[axis] + sum(pads) for axis, pads in zip(AXES, around, strict=True)]
        padded = of.element(tensor) * math.prod(lengths)
        joined = self._joins(tensor) and not any(around[1])
        copying = 0 if joined or of.pads_over else of.size(tensor) + padded
        made = of.graph.tensors[self._output].size
        level = max(copying, max(padded, of.size(self._output)) + self._inner[0])
        return LoopFloor(first, int(level), self._kept(kept, resized=padded > made, rows=True))

    def _kept(
        self,
        kept: Mapping[str, int],
        *,
        resized: bool,
        padding: bool = False,
        rows: bool = False,
        several: bool = True,
        aside: int = 0,
    ) -> int:
        """Return what is kept at least for a loop.

        Args:
            kept: For its parts.
            several: It has several tiles.
            aside: For what it reads beside its input, and makes beside its output.
        """
        total = kept["always"] + aside + len(self._masked) * kept["mask"]
        total += resized * kept["resized"] + padding * kept["padding"] + rows * kept["rows"]
        total += several * (kept["tables"] + sum(self._masked) * kept["mask_part"])
        # What rounding takes up, once for each list that a runtime keeps. Below 0 where many ops are gone.
        return total - self._gone - _ROUNDED * self._of.target.alignment_bytes

    def _joins(self, tensor: int) -> bool:
        """Return whether rows may be joined to an input, which then lies in what has them."""
        words, shape = self._of.dialect.loop, self._of.graph.tensors[tensor].shape or ()
        return words is not None and words.joined and math.prod(shape[: AXES[0]]) == 1

    def _lead(self, tensor: int, size: int, row: int, read_row: int) -> int:
        """Return how many rows ahead of the input tiles of a height need, several side by side, wherever they begin.

        Args:
            row: Bytes of a row of the output.
            read_row: Bytes of a row of the input.
        """
        high = self._parts[tensor][0]
        length = (self._of.graph.tensors[tensor].shape or ())[AXES[0]]
        last, end = length - min(high.of_tile(size), length), self._tiles[0] - size
        # Between these places both ends move evenly.
        places = {0, end, -high.begin // high.stride, (last - high.begin) // high.stride}
        places |= {place + 1 for place in places}
        first = {at: max(0, min(high.stride * at + high.begin, last)) for at in places if 0 <= at <= end}
        return max(-(-((at + size) * row - begin * read_row) // read_row) for at, begin in first.items())

    def _least_apart(self, tensor: int, row: int, read_row: int) -> int:
        """Return the least height of tiles with which a loop may do without rows ahead: they would take too much."""
        of = self._of
        lasts = tensor in of.results or any(reader > self._last for reader in of.readers[tensor])
        if lasts or not (of.pads_over or self._joins(tensor)):
            return 1
        most = -(-of.graph.tensors[self._output].size // read_row)
        if not of.pads_over:
            most = min(most, MOST_ROWS // read_row + 1)
        if self._joins(tensor):
            alignment = of.target.alignment_bytes
            most -= alignment // math.gcd(alignment, read_row) - 1
        sizes = range(1, self._tiles[0] + 1)
        return 1 + bisect.bisect_left(sizes, most, key=lambda size: self._lead(tensor, size, row, read_row))


def _cuts(op: Op, rule: Rule) -> bool:
    """Return whether tiles may be cut through an axis that is read by a rule."""
    if isinstance(rule, Window):
        return not (op.type in POOLS and _pads(rule)) or rule.stride == 1
    return isinstance(rule, Pointwise) or (isinstance(rule, Stride) and op.type in RANGED and rule.step > 0)


def _pads(rule: Window) -> bool:
    return bool(rule.pad_before or rule.pad_after)
