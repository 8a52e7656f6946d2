"""Sizes of inputs that a TFLite file leaves open: closed if a rewrite holds for one size only, and guarded.

LiteRT resizes any input, whatever its signature says, unless the caller asks it to be strict. A SLICE that was written
for one size then silently takes a part of a larger input. A guard refuses other sizes: GATHER compares the
leading axes of its input with those of its positions when it is prepared. The guard's positions have no elements, so
that it computes nothing, and its output takes no memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from memsched.formats.module import Module
from memsched.formats.tflite import metadata
from memsched.formats.tflite.assembly import (
    Blob,
    Item,
    Numbers,
    OldObject,
    References,
    Scalar,
    TableItem,
    Text,
    assemble,
)
from memsched.formats.tflite.constants import TfliteConstants
from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile
from memsched.formats.tflite.model import FileModel, parse
from memsched.formats.tflite.operator_codes import OperatorCodes
from memsched.formats.tflite.options import STRIDED_SLICE_MASKS, with_masks
from memsched.formats.tflite.package import field
from memsched.formats.tflite.reader import TfliteNative
from memsched.formats.tflite.schema import (
    BufferSlot,
    ModelSlot,
    SubgraphSlot,
    TensorSlot,
)
from memsched.formats.tflite.tables import copied, moved_root, new_operator, new_tensor
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import Graph, Op
from memsched.ops.table import SHAPED, families

__all__ = ["first_stated_axis", "fixed_axes", "fixed_dimensions", "open_axes", "with_guards"]

_SIZED: Final = families("expansion", "reshape", "slice") | {"IF", "WHILE"}
"""Operators that state sizes along every axis if a rewrite adds them."""
_SIZES: Final = frozenset({"begin", "end", "size", "size_splits", *STRIDED_SLICE_MASKS})
"""Attributes that state sizes along every axis."""
_PADS: Final = frozenset({"padding", "paddings"})
"""Attributes that hold for one size of the axes behind the batch: what SAME adds depends on it."""
_GATHERED: Final = frozenset({"bool", "float32", "int16", "int32", "int64", "int8", "uint8"})
"""Types that GATHER takes in each release of LiteRT."""


def open_axes(model: FileModel) -> tuple[tuple[int, ...], ...]:
    """Return per input of the main subgraph the axes that its signature leaves open."""
    main, file = model.subgraphs[0], FlatFile(model.data)
    tables = [FlatbufferTable(file, main.tensors[number].table) if number >= 0 else None for number in main.inputs]
    signatures = [() if table is None else table.numbers(TensorSlot.SHAPE_SIGNATURE) for table in tables]
    return tuple(tuple(axis for axis, size in enumerate(one) if size == -1) for one in signatures)


def fixed_axes(given: FileModel, written: FileModel) -> tuple[tuple[int, ...], ...]:
    """Return per input the axes that ``given`` leaves open and ``written``, made from it, does not."""
    pairs = zip(open_axes(given), open_axes(written), strict=True)
    return tuple(tuple(axis for axis in before if axis not in after) for before, after in pairs)


def fixed_dimensions(given: Module, written: bytes) -> Mapping[str, int]:
    """Return the same as names, "input[axis]", and sizes; see `Format.fixed_dimensions`."""
    native: TfliteNative = given.native
    main = native.model.subgraphs[0]
    names = dict(zip(native.mappings[0].tensors, (tensor.name for tensor in given.graph.tensors), strict=True))
    return {
        f"{names.get(number, main.tensors[number].name)}[{axis}]": main.tensors[number].shape[axis]
        for number, axes in zip(main.inputs, fixed_axes(native.model, parse(written)), strict=True)
        for axis in axes
    }


def first_stated_axis(graph: Graph, given: Graph) -> int | None:
    """Return the first axis from which on ``graph``, a rewrite of ``given``, holds for the stated sizes only.

    0 stands for the batch, 1 for all axes behind it; None if other sizes are as right as in ``given``.
    """
    origins = {op.name: op for op in given.ops}
    found = [_stated_by(op, origins.get(op.name if op.origin is None else op.origin), graph, given) for op in graph.ops]
    return min((axis for axis in found if axis is not None), default=None)


def _stated_by(op: Op, origin: Op | None, graph: Graph, given: Graph) -> int | None:
    """Return the first axis of which ``op`` states a size that ``origin`` does not state."""
    if op.loop is not None:
        return 0
    if origin is None or origin.type != op.type:
        if op.type in _SIZED or any(name.startswith(CONSTANT_SHAPE) for name in op.attributes):
            return 0
        return 1 if _PADS & op.attributes.keys() else None
    names = {*op.attributes, *origin.attributes}
    changed = {name for name in names if op.attributes.get(name) != origin.attributes.get(name)}
    if op.type in SHAPED and graph.tensors[op.outputs[0]].shape != given.tensors[origin.outputs[0]].shape:
        return 0
    if changed & _SIZES:
        return 0
    return 1 if changed & _PADS else None


def with_guards(given: Module, module: Module, data: bytes, *, last: bool = False) -> bytes:
    """Return ``data``, the file of ``module``, with operators that refuse sizes at which it differs from ``given``.

    These are other sizes along the axes that it closed, and other batches if it states the batch: LiteRT resizes an
    input to another batch even if its signature states one. The guards stand before all other operators: there LiteRT
    executes them with delegates, too. An input of a type that GATHER does not take has no guard: a strict caller is
    refused all the same.

    Args:
        last: Let the guards stand after all other operators: the inputs wait for them, and compilers of accelerators,
            which leave everything from the first unknown operator on to the host, take the rest.

    Raises:
        ModelError: The file is of a later schema.
    """
    native: TfliteNative = given.native
    written = parse(data)
    main = written.subgraphs[0]
    stated = first_stated_axis(module.graph, given.graph) == 0
    guarded: list[Sequence[int]] = []
    for number, before, fixed in zip(
        main.inputs, open_axes(native.model), fixed_axes(native.model, written), strict=True
    ):
        # A vector has no batch; what leaves its batch open has closed it where that is stated.
        batch = stated and 0 not in before and number >= 0 and len(main.tensors[number].shape) > 1
        guarded.append((0, *fixed) if batch else fixed)
    return _GuardWriter(written, last=last).file(guarded) if any(guarded) else data


class _GuardWriter:
    """Adds guards to the main subgraph of a file."""

    def __init__(self, model: FileModel, *, last: bool) -> None:
        self._model, self._last = model, last
        self._main = model.subgraphs[0]
        self._root = FlatFile(model.data).root()
        self._table = self._root.tables(ModelSlot.SUBGRAPHS)[0]
        self._tensor_tables = self._table.tables(SubgraphSlot.TENSORS)
        self._tensors: list[Item] = [OldObject(table.position) for table in self._tensor_tables]
        self._guards: list[Item] = []
        self._codes = OperatorCodes(self._root)
        self._constants = TfliteConstants(model, self._main, self._tensor_tables, self._add)

    def file(self, closed: Sequence[Sequence[int]]) -> bytes:
        """Return the file with guards of the axes ``closed``, per input of the main subgraph."""
        for number, axes in zip(self._main.inputs, closed, strict=True):
            tensor = self._main.tensors[number]
            if not axes or tensor.dtype not in _GATHERED:
                continue
            last = len(tensor.shape) - 1
            if axes[-1] == last:
                # GATHER compares no last axis: a column that is cut out has one more.
                self._gather(self._column(number), (*[1] * last, tensor.shape[last], 1), last + 1, number)
            if axes[0] < last:
                self._gather(number, tensor.shape, min(axes[-1], last - 1) + 1, number)
        operators = [OldObject(table.position) for table in self._table.tables(SubgraphSlot.OPERATORS)]
        lists: dict[int, Scalar | Item] = {
            SubgraphSlot.TENSORS: References(self._tensors),
            SubgraphSlot.OPERATORS: References(
                [*operators, *self._guards] if self._last else [*self._guards, *operators]
            ),
        }
        main = copied(self._table, "SubGraph", lists)
        others = [OldObject(table.position) for table in self._root.tables(ModelSlot.SUBGRAPHS)[1:]]
        buffers: list[Item] = [OldObject(buffer.table) for buffer in self._model.buffers]
        buffers += [TableItem({BufferSlot.DATA: Blob(data)}) for data in self._constants.buffers]
        root = copied(
            self._root,
            "Model",
            {
                ModelSlot.OPERATOR_CODES: References(self._codes.items),
                ModelSlot.SUBGRAPHS: References([main, *others]),
                ModelSlot.BUFFERS: References(buffers),
            },
        )
        return self._in_order(moved_root(self._model, *assemble(root, self._model.data)))

    def _in_order(self, data: bytes) -> bytes:
        """Return the file with metadata that names operators of the main subgraph by their new numbers."""
        stated = metadata.control_dependencies(self._model)
        if stated is None or self._last:
            return data
        main, *others = stated
        count, guards = len(self._main.operators), len(self._guards)
        # A chain goes on through the guards.
        edges = [(place, place + 1) for place in range(guards)] if metadata.is_chain(main, count) else []
        edges += [(before + guards, after + guards) for before, after in main]
        payload = metadata.encode_control_dependencies([tuple(edges), *others])
        return metadata.with_metadata(data, parse(data), metadata.CONTROL_DEPENDENCIES, payload)[0]

    def _gather(self, source: int, shape: Sequence[int], axes: int, like: int) -> None:
        """Compare the first ``axes`` of ``source`` with ``shape``."""
        positions = self._add(new_tensor("int32", [*shape[:axes], 0], f"memsched/positions{len(self._tensors)}"))
        made = self._like(like, [*shape[:axes], 0, *shape[axes + 1 :]], ())
        names = ("axis", "batch_dims")
        options = TableItem({field("GatherOptions", name).slot: Scalar("int32", axes) for name in names})
        self._operator("GATHER", "GatherOptions", options, [source, positions], made)

    def _column(self, number: int) -> int:
        """Return what one column of an input along its last axis, and one more axis behind it, are made as."""
        tensor = self._main.tensors[number]
        last = len(tensor.shape) - 1
        ends = [1] * (last + 2)
        stated = {"begin": [0] * (last + 2), "end": ends, "steps": ends}
        inputs = [number, *(self._constants.integers(values, (last + 2,)) for values in stated.values())]
        masks = {**dict.fromkeys(STRIDED_SLICE_MASKS, 0), "end_mask": 1 << last, "new_axis_mask": 1 << (last + 1)}
        made = self._like(number, [*[1] * last, tensor.shape[last], 1], [*[1] * last, -1, 1])
        self._operator("STRIDED_SLICE", "StridedSliceOptions", with_masks(None, masks), inputs, made)
        return made

    def _operator(self, kind: str, table: str, options: Item, inputs: Sequence[int], made: int) -> None:
        dtype = self._main.tensors[inputs[0]].dtype if inputs[0] < len(self._main.tensors) else "int8"
        self._guards.append(new_operator(self._codes.number(kind, dtype), inputs, [made], (table, options)))

    def _like(self, number: int, shape: Sequence[int], signature: Sequence[int]) -> int:
        """Add a tensor of the type and the quantisation of an input."""
        fields: dict[int, Scalar | Item] = {
            TensorSlot.SHAPE: Numbers("int32", shape),
            TensorSlot.BUFFER: Scalar("uint32", 0),
            TensorSlot.NAME: Text(f"memsched/guard{len(self._tensors)}".encode()),
        }
        if signature:
            fields[TensorSlot.SHAPE_SIGNATURE] = Numbers("int32", signature)
        without = (TensorSlot.IS_VARIABLE, TensorSlot.SPARSITY, TensorSlot.SHAPE_SIGNATURE)
        return self._add(copied(self._tensor_tables[number], "Tensor", fields, without))

    def _add(self, item: Item) -> int:
        self._tensors.append(item)
        return len(self._tensors) - 1
