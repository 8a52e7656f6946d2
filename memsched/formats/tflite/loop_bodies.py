"""The two subgraphs of a WHILE that computes a group of layers tile by tile, or the one that all IF of a group share.

The body reads where its tile begins from tables of int32: each has one row per tile, and a SLICE that begins at the
counter takes the row. So tiles may lie anywhere, and no other arithmetic is needed. A body sees nothing but what it is
handed: the counter, the output's memory, the padded input and what else the layers read, which it hands on untouched.
What IF runs is handed a constant for the counter and these inputs, and makes the tile.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.formats.tflite.assembly import Item, Numbers, References, Scalar, TableItem, Text
from memsched.formats.tflite.constants import TfliteConstants, zero_point
from memsched.formats.tflite.flatbuffer import FlatbufferTable
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph, FileTensor
from memsched.formats.tflite.options import with_changes
from memsched.formats.tflite.schema import (
    OperatorSlot,
    SubgraphSlot,
    TensorSlot,
)
from memsched.formats.tflite.tables import copied, new_operator, new_tensor
from memsched.graph.loop import Loop, LoopRead, LoopStep

__all__ = ["LoopSource", "loop_subgraphs", "tile_subgraph"]

_COUNTER: Final = "int32"
_LIMITS: Final[Mapping[str, tuple[str, float, float]]] = {
    "int8": ("b", -128, 127),
    "int16": ("h", -(1 << 15), (1 << 15) - 1),
    "uint8": ("B", 0, 255),
    "float32": ("f", -struct.unpack("<f", b"\xff\xff\x7f\x7f")[0], struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]),
}
"""Per type of activations its code, its least value and its largest."""


_MOST_MARGIN: Final = 64
"""Elements by which a mask may begin earlier, so that it can share another table of begins."""


class LoopSource(FrozenValue, frozen=True):
    """The subgraph whose layers go into bodies, and what new subgraphs share with the rest of the new file.

    Attributes:
        tensors: Per name of a tensor of the graph its index in the subgraph.
        operators: Per name of an op of the graph its index in the subgraph.
        code: Returns the index of an operator's code for a type of data.
        buffers: The contents of buffers to be added behind the file's.
    """

    model: FileModel
    subgraph: FileSubgraph
    tensor_tables: Sequence[FlatbufferTable]
    operator_tables: Sequence[FlatbufferTable]
    tensors: Mapping[str, int]
    operators: Mapping[str, int]
    code: Callable[[str, str], int]
    buffers: list[bytes]


def loop_subgraphs(source: LoopSource, loop: Loop, padded: Sequence[int], name: str) -> tuple[TableItem, TableItem]:
    """Return the subgraphs of the condition and of the body.

    Args:
        padded: The shape of the padded input.
        name: Begins the names of both.

    Raises:
        ModelError: The data are of a type for which no mask is known.
    """
    return (
        _SubgraphBuilder(source, loop, padded).condition(f"{name}/condition"),
        _SubgraphBuilder(source, loop, padded).body(f"{name}/body"),
    )


def tile_subgraph(source: LoopSource, loop: Loop, padded: Sequence[int], name: str) -> TableItem:
    """Return the subgraph that computes one tile; see `loop_subgraphs`."""
    return _SubgraphBuilder(source, loop, padded).tile(f"{name}/tile")


class _SubgraphBuilder:
    def __init__(self, source: LoopSource, loop: Loop, padded: Sequence[int]) -> None:
        self._source, self._loop, self._padded = source, loop, tuple(padded)
        self._index = {tensor: source.tensors[name] for tensor, name in loop.names.items()}
        self._tensors: list[Item] = []
        self._operators: list[Item] = []
        self._constants = TfliteConstants(
            source.model, source.subgraph, source.tensor_tables, self._add, buffers=source.buffers
        )
        self._weights: dict[int, int] = {}
        self._makers = {
            tensor: number
            for number, operator in enumerate(source.subgraph.operators)
            for tensor in operator.outputs
            if tensor >= 0
        }
        # Per output the tensor that holds what is made of it so far.
        self._outputs: dict[int, int] = {}
        # Per tile where parts begin, to the tensor that holds it.
        self._rows: dict[tuple[tuple[int, ...], ...], int] = {}
        self._rank = len(self._padded)
        self._count = self._number("count", (1,), _COUNTER)
        self._input = self._like(loop.input, self._padded, "input")
        self._others = {tensor: self._like(tensor, self._given(tensor).shape, "input") for tensor in loop.side_inputs}

    def condition(self, name: str) -> TableItem:
        """Return the subgraph that tells whether a tile is left."""
        outputs = [self._output(tensor, "output") for tensor in self._loop.outputs]
        end = self._constants.integers((self._loop.count * self._rank,), (1,))
        made = self._number("more", (1,), "bool")
        self._operator("LESS", _COUNTER, [self._count, end], made)
        return self._subgraph(name, [self._count, *outputs, *self._read], [made])

    def body(self, name: str) -> TableItem:
        """Return the subgraph that computes a tile and lays it into the outputs."""
        loop = self._loop
        self._outputs = {tensor: self._output(tensor, "output") for tensor in loop.outputs}
        given = list(self._outputs.values())
        self._row(loop.begins(loop.output))
        self._lay(loop.output, self._computed())
        count = self._number("count.next", (1,), _COUNTER)
        self._operator("ADD", _COUNTER, [self._count, self._constants.integers((self._rank,), (1,))], count)
        return self._subgraph(name, [self._count, *given, *self._read], [count, *self._outputs.values(), *self._read])

    def _lay(self, tensor: int, part: int) -> None:
        """Lay what a tile makes of an output into that."""
        row, made = self._row(self._loop.begins(tensor)), self._output(tensor, "output.next")
        inputs = [self._outputs[tensor], part, row]
        self._operator("DYNAMIC_UPDATE_SLICE", self._given(tensor).dtype, inputs, made)
        self._outputs[tensor] = made

    def tile(self, name: str) -> TableItem:
        """Return the subgraph that computes a tile."""
        return self._subgraph(name, [self._count, *self._read], [self._computed()])

    @property
    def _read(self) -> list[int]:
        """What the layers read, whole."""
        return [self._input, *self._others.values()]

    # Steps ---------------------------------------------------------------------------------------------------------

    def _computed(self) -> int:
        """Return the tensor of a tile, computed from the input."""
        loop = self._loop
        held: dict[int, int] = {}
        taken = self._slice(self._input, self._row(loop.taken()), loop.input, loop.taken_sizes(), "slab", self._padded)
        held[loop.input] = self._widened(taken) if loop.inner_pads else taken
        for step in loop.steps:
            for tensor in dict.fromkeys(read.tensor for read in step.reads if read.window is None):
                if tensor not in held:
                    held[tensor] = self._part_of(tensor)
            window = step.window
            if window is None:
                made = self._layer(step, [self._cropped(read, held) for read in step.reads])
            else:
                made = self._of_window(step, window)
            if step.output in loop.masked:
                made = self._masked(step.output, made)
            held[step.output] = made
            if step.output in loop.side_outputs:
                self._lay(step.output, made)
        return held[loop.output]

    def _of_window(self, step: LoopStep, read: LoopRead) -> int:
        """Return the part of what a layer makes that pads by itself what it reads of a whole input."""
        loop, tensor = self._loop, read.tensor
        first, shape = (loop.pads, self._padded) if tensor == loop.input else ((), self._given(tensor).shape)
        ahead = [before for before, _ in first] or [0] * len(loop.axes)
        begins = [[at + before for at, before in zip(begin, ahead, strict=True)] for begin in loop.moved(read)]
        source = self._input if tensor == loop.input else self._others[tensor]
        taken = self._slice(source, self._row(begins), tensor, read.sizes, "window", shape)
        made, sizes = self._layer(step, [taken]), loop.parts[step.output].sizes
        if sizes == read.sizes:
            return made
        whole = self._given(step.output).shape
        return self._slice(made, self._row(loop.inside(step, read)), step.output, sizes, "part", whole)

    def _part_of(self, tensor: int) -> int:
        """Return the part that a tile needs of what is read beside the input."""
        source, shape = self._others[tensor], self._given(tensor).shape
        sizes = self._loop.parts[tensor].sizes
        return self._slice(source, self._row(self._loop.begins(tensor)), tensor, sizes, "slab", shape)

    def _widened(self, taken: int) -> int:
        """Return the part of the input that a tile needs, padding included, made of what lies in the input."""
        loop, part = self._loop, self._loop.parts[self._loop.input]
        pairs = tuple(zip(loop.taken_sizes(), loop.inner_pads, strict=True))
        wide = [size + before + after for size, (before, after) in pairs]
        pads = [[0, 0] for _ in range(self._rank)]
        for axis, pair in zip(loop.axes, loop.inner_pads, strict=True):
            pads[axis] = list(pair)
        around = self._constants.integers([one for pair in pads for one in pair], (self._rank, 2))
        shape = self._cut(self._padded, wide)
        made = self._like(loop.input, shape, "around")
        self._operator("PAD", self._given(loop.input).dtype, [taken, around], made)
        if tuple(wide) == part.sizes:
            return made
        shifts = [outer[0] + inner[0] for outer, inner in zip(loop.pads, loop.inner_pads, strict=True)]
        begins = [
            [at - held + shift for at, held, shift in zip(needed, taken_at, shifts, strict=True)]
            for needed, taken_at in zip(loop.begins(loop.input), loop.taken(), strict=True)
        ]
        return self._slice(made, self._row(begins), loop.input, part.sizes, "around", shape)

    def _layer(self, step: LoopStep, reads: Sequence[int]) -> int:
        number = self._source.operators[step.name]
        table, operator = self._source.operator_tables[number], self._source.subgraph.operators[number]
        inputs = [self._constant(tensor) if tensor >= 0 else -1 for tensor in self._without(operator, step)]
        for read, made in zip(step.reads, reads, strict=True):
            inputs[read.position] = made
        if operator.type == "STRIDED_SLICE":
            # What it steps through was cut out already.
            ends = self._cut(self._given(step.reads[0].tensor).shape, step.reads[0].sizes)
            inputs[1:3] = [self._constants.integers(at, (self._rank,)) for at in ([0] * self._rank, ends)]
        window = step.window
        sizes = self._loop.parts[step.output].sizes if window is None else window.sizes
        made = self._part(step.output, sizes, "part" if window is None else "padded")
        fields: dict[int, Scalar | Item] = {
            OperatorSlot.INPUTS: Numbers("int32", inputs),
            OperatorSlot.OUTPUTS: Numbers("int32", [made]),
        }
        options = table.table(OperatorSlot.BUILTIN_OPTIONS)
        if "padding" in operator.attributes and options is not None and window is None:
            fields[OperatorSlot.BUILTIN_OPTIONS] = with_changes(operator.type, options, {"padding": "VALID"})
        self._operators.append(copied(table, "Operator", fields))
        return made

    @staticmethod
    def _without(operator: FileOperator, step: LoopStep) -> list[int]:
        """Return an operator's inputs but for its activations."""
        read = {read.position for read in step.reads}
        return [-1 if position in read else tensor for position, tensor in enumerate(operator.inputs)]

    def _cropped(self, read: LoopRead, held: Mapping[int, int]) -> int:
        part = self._loop.parts[read.tensor]
        if read.sizes == part.sizes:
            return held[read.tensor]
        begin = [0] * self._rank
        for axis, offset in zip(self._loop.axes, read.offsets, strict=True):
            begin[axis] = offset
        start = self._constants.integers(begin, (self._rank,))
        return self._slice(held[read.tensor], start, read.tensor, read.sizes, "crop", self._given(read.tensor).shape)

    def _slice(self, source: int, begin: int, like: int, sizes: Sequence[int], name: str, whole: Sequence[int]) -> int:
        shape = self._cut(whole, sizes)
        made = self._like(like, shape, name)
        size = self._constants.integers(shape, (self._rank,))
        self._operator("SLICE", self._given(like).dtype, [source, begin, size], made)
        return made

    def _row(self, begins: Sequence[Sequence[int]]) -> int:
        """Return the tensor that holds where the tile's part begins, per axis; constant where all begin alike."""
        key = tuple(tuple(begin) for begin in begins)
        if key not in self._rows:
            self._rows[key] = self._table(key)
        return self._rows[key]

    def _table(self, begins: Sequence[Sequence[int]]) -> int:
        rows = []
        for begin in begins:
            row = [0] * self._rank
            for axis, at in zip(self._loop.axes, begin, strict=True):
                row[axis] = at
            rows.append(tuple(row))
        if len(set(rows)) == 1:
            return self._constants.integers(rows[0], (self._rank,))
        flat = [at for row in rows for at in row]
        table = self._constants.integers(flat, (len(flat),))
        made = self._number("begin", (self._rank,), _COUNTER)
        size = self._constants.integers((self._rank,), (1,))
        self._operator("SLICE", _COUNTER, [table, self._count, size], made)
        return made

    def _masked(self, tensor: int, made: int) -> int:
        """Fill what lies past a tensor's ends, in a part of it, with what padding means: its zero point."""
        dtype, zero = self._given(tensor).dtype, self._zero_point(tensor)
        if dtype not in _LIMITS:
            raise ModelError(
                f"tensor '{self._given(tensor).name}' ({dtype}) cannot be masked in a loop", code="cannot-mask"
            )
        _, least, most = _LIMITS[dtype]
        if zero != most:
            made = self._mask(tensor, made, "MINIMUM", most, zero)
        if zero != least:
            made = self._mask(tensor, made, "MAXIMUM", least, zero)
        return made

    def _mask(self, tensor: int, made: int, kind: str, inside: float, outside: float) -> int:
        """Return a part with a mask over it that changes nothing inside the tensor."""
        loop, part = self._loop, self._loop.parts[tensor]
        cut = [any(pair) for pair in loop.outside(tensor)]
        first, rows = self._begins_of_mask(tensor, cut)
        spans = []
        for axis, masked in enumerate(cut):
            ends = [row[axis] + first[axis] + part.sizes[axis] for row in rows]
            length = loop.lengths[tensor][axis] if masked else 1
            spans.append([0 <= at < length for at in range(first[axis], max(ends))] if masked else [True])
        values = [inside if all(place) else outside for place in itertools.product(*spans)]
        dtype = self._given(tensor).dtype
        data = struct.pack(f"<{len(values)}{_LIMITS[dtype][0]}", *values)
        mask = self._constants.of_type(self._index[tensor], self._cut([1] * self._rank, [*map(len, spans)]), data)
        if any(map(any, rows)):
            shape = self._cut([1] * self._rank, [n if masked else 1 for n, masked in zip(part.sizes, cut, strict=True)])
            taken = self._like(tensor, shape, "mask")
            size = self._constants.integers(shape, (self._rank,))
            self._operator("SLICE", dtype, [mask, self._row(rows), size], taken)
            mask = taken
        result = self._part(tensor, part.sizes, "masked")
        self._operator(kind, dtype, [made, mask], result)
        return result

    def _begins_of_mask(self, tensor: int, cut: Sequence[bool]) -> tuple[list[int], list[tuple[int, ...]]]:
        """Return where a mask begins in a tensor, and per tile where in the mask its part begins.

        Where a larger mask lets parts begin where those of another tensor do, their table serves both.
        """
        begins = self._loop.begins(tensor)
        least = [min(axis) if masked else 0 for axis, masked in zip(zip(*begins, strict=True), cut, strict=True)]
        rows = [
            tuple(at - base if masked else 0 for at, base, masked in zip(begin, least, cut, strict=True))
            for begin in begins
        ]
        for known in self._rows:
            shifts = {
                tuple(there - here for there, here in zip(other, row, strict=True))
                for other, row in zip(known, rows, strict=True)
            }
            shift = shifts.pop()
            if not shifts and all(
                by == 0 or (masked and 0 < by <= _MOST_MARGIN) for by, masked in zip(shift, cut, strict=True)
            ):
                return [base - by for base, by in zip(least, shift, strict=True)], list(known)
        return least, rows

    def _zero_point(self, tensor: int) -> int:
        return zero_point(self._source.model, self._source.tensor_tables[self._index[tensor]])

    # Tables --------------------------------------------------------------------------------------------------------

    def _given(self, tensor: int) -> FileTensor:
        return self._source.subgraph.tensors[self._index[tensor]]

    def _cut(self, whole: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
        shape = list(whole)
        for axis, size in zip(self._loop.axes, sizes, strict=True):
            shape[axis] = size
        return tuple(shape)

    def _part(self, tensor: int, sizes: Sequence[int], name: str) -> int:
        return self._like(tensor, self._cut(self._given(tensor).shape, sizes), name)

    def _output(self, tensor: int, name: str) -> int:
        """Add a tensor for the whole of an output."""
        return self._like(tensor, self._given(tensor).shape, name)

    def _add(self, item: Item) -> int:
        self._tensors.append(item)
        return len(self._tensors) - 1

    def _number(self, name: str, shape: Sequence[int], dtype: str) -> int:
        return self._add(new_tensor(dtype, shape, f"memsched/{name}{len(self._tensors)}"))

    def _like(self, tensor: int, shape: Sequence[int], name: str) -> int:
        """Add a tensor of the type and the quantisation of a tensor of the loop."""
        given = self._given(tensor).name
        fields: dict[int, Scalar | Item] = {
            TensorSlot.SHAPE: Numbers("int32", shape),
            TensorSlot.BUFFER: Scalar("uint32", 0),
            TensorSlot.NAME: Text(f"{given}/{name}".encode()),
        }
        without = (TensorSlot.IS_VARIABLE, TensorSlot.SPARSITY, TensorSlot.SHAPE_SIGNATURE)
        return self._add(copied(self._source.tensor_tables[self._index[tensor]], "Tensor", fields, without))

    def _constant(self, tensor: int) -> int:
        """Return a constant of the source's, which shares its buffer, or what the source computes of constants."""
        if tensor not in self._weights:
            self._weights[tensor] = self._add(copied(self._source.tensor_tables[tensor], "Tensor", {}))
            maker = self._makers.get(tensor)
            if maker is not None:
                self._make_again(maker)
        return self._weights[tensor]

    def _make_again(self, number: int) -> None:
        """Add an operator of the source that computes constants, after those that it reads."""
        operator, table = self._source.subgraph.operators[number], self._source.operator_tables[number]
        inputs = [self._constant(tensor) if tensor >= 0 else -1 for tensor in operator.inputs]
        outputs = []
        for tensor in operator.outputs:
            if tensor not in self._weights:
                self._weights[tensor] = self._add(copied(self._source.tensor_tables[tensor], "Tensor", {}))
            outputs.append(self._weights[tensor])
        fields: dict[int, Scalar | Item] = {
            OperatorSlot.INPUTS: Numbers("int32", inputs),
            OperatorSlot.OUTPUTS: Numbers("int32", outputs),
        }
        self._operators.append(copied(table, "Operator", fields))

    def _operator(self, kind: str, dtype: str, inputs: Sequence[int], output: int) -> None:
        options = ("AddOptions", TableItem({})) if kind == "ADD" else None
        self._operators.append(new_operator(self._source.code(kind, dtype), inputs, [output], options))

    def _subgraph(self, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> TableItem:
        return TableItem(
            {
                SubgraphSlot.TENSORS: References(self._tensors),
                SubgraphSlot.INPUTS: Numbers("int32", inputs),
                SubgraphSlot.OUTPUTS: Numbers("int32", outputs),
                SubgraphSlot.OPERATORS: References(self._operators),
                SubgraphSlot.NAME: Text(name.encode()),
            }
        )
