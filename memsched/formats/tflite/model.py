"""A TFLite file as plain values: what its tables say, checked for sense, nothing interpreted yet."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.base.units import MOST_BYTES
from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile, Vector
from memsched.formats.tflite.options import attributes, subgraph_references
from memsched.formats.tflite.schema import (
    BufferSlot,
    MetadataSlot,
    ModelSlot,
    OperatorCodeSlot,
    OperatorSlot,
    SubgraphSlot,
    TensorSlot,
    element_types,
    operator_type,
    unsized_types,
)
from memsched.graph.model import AttributeValue
from memsched.ops.table import families

__all__ = ["FileBuffer", "FileModel", "FileOperator", "FileSubgraph", "FileTensor", "parse"]

_LARGEST_RANK = 64
_RESHAPES = families("reshape")


class FileBuffer(FrozenValue, frozen=True):
    """Bytes of a Buffer: ``size`` of them at byte ``start`` of the file; ``outside``: not in the flatbuffer."""

    start: int
    size: int
    outside: bool
    table: int


@dataclass(frozen=True, slots=True)
class FileTensor:
    """The Tensor table at byte ``table`` of the file.

    Attributes:
        size: Bytes; 0 where ``sized`` is False.
        buffer: Index of its buffer.
        has_data: Its values are in the file, or in an external one.
        dynamic: Its shape may differ from run to run; ``shape`` is what the file stores.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int
    sized: bool
    buffer: int
    has_data: bool
    variable: bool
    dynamic: bool
    table: int = field(compare=False)


class FileOperator(FrozenValue, frozen=True):
    """An Operator table; absent inputs and outputs are -1, ``bodies`` the subgraphs that it executes."""

    type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    bodies: tuple[int, ...]
    attributes: Mapping[str, AttributeValue]
    table: int


class FileSubgraph(FrozenValue, frozen=True):
    """A SubGraph table; ``vector`` is the place of its operators' offsets in the file."""

    name: str
    tensors: tuple[FileTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[FileOperator, ...]
    vector: Vector


class FileModel(FrozenValue, frozen=True):
    """A whole file.

    Attributes:
        metadata: Pairs (name, index of its buffer).
    """

    data: bytes
    subgraphs: tuple[FileSubgraph, ...]
    buffers: tuple[FileBuffer, ...]
    metadata: tuple[tuple[str, int], ...]

    def contents(self, buffer: int) -> bytes:
        """Return a buffer's bytes; empty where it has none."""
        place = self.buffers[buffer]
        return self.data[place.start : place.start + place.size]


@lru_cache(maxsize=2)
def parse(data: bytes) -> FileModel:
    """Read all tables of a TFLite file.

    The last two are kept: writing a file, checking it, reading it back and planning its memory all need the same one.

    Raises:
        ModelError: The bytes are no sound TFLite model. The message does not name the file.
    """
    if data[4:8] != b"TFL3":
        raise ModelError("it is no TFLite model: the identifier TFL3 is missing at byte 4", code="not-tflite")
    file = FlatFile(data)
    root = file.root()
    buffers = tuple(_buffer(table, len(data)) for table in root.tables(ModelSlot.BUFFERS))
    types = [_operator_type(table) for table in root.tables(ModelSlot.OPERATOR_CODES)]
    tables = root.tables(ModelSlot.SUBGRAPHS)
    if not tables:
        raise ModelError("it holds no subgraph", code="no-subgraph")
    vectors = [table.vector(SubgraphSlot.OPERATORS, 4) or Vector(0, 0) for table in tables]
    _check_disjoint(vectors)
    subgraphs = tuple(
        _subgraph(file, index, table, vector, types, buffers)
        for index, (table, vector) in enumerate(zip(tables, vectors, strict=True))
    )
    model = FileModel(data, subgraphs, buffers, _metadata(root, len(buffers)))
    _check_bodies(model)
    return model


def _buffer(table: FlatbufferTable, length: int) -> FileBuffer:
    data = table.vector(BufferSlot.DATA, 1)
    if data is not None and data.count:
        return FileBuffer(data.start, data.count, False, table.position)
    start, size = table.number(BufferSlot.OFFSET, "uint64"), table.number(BufferSlot.SIZE, "uint64")
    if start > 1 and size:
        if start + size > length:
            raise ModelError("a buffer reaches past the file's end; the file is truncated or damaged", code="damaged")
        return FileBuffer(start, size, True, table.position)
    return FileBuffer(0, 0, False, table.position)


def _operator_type(table: FlatbufferTable) -> str:
    # Files written before the 32-bit field existed have the 8-bit one only, and later ones fill both.
    deprecated = table.number(OperatorCodeSlot.DEPRECATED_BUILTIN_CODE, "int8")
    code = max(deprecated, table.number(OperatorCodeSlot.BUILTIN_CODE, "int32"))
    if code < 0:
        raise ModelError(
            f"it names operator code {code}, which cannot exist; the file is damaged", code="no-such-operator-code"
        )
    return operator_type(code, table.text(OperatorCodeSlot.CUSTOM_CODE))


def _metadata(root: FlatbufferTable, buffers: int) -> tuple[tuple[str, int], ...]:
    entries = []
    for table in root.tables(ModelSlot.METADATA):
        name, buffer = table.text(MetadataSlot.NAME), table.number(MetadataSlot.BUFFER, "uint32")
        if buffer >= buffers:
            raise ModelError(
                f"metadata '{name}' names buffer {buffer}, but there are only {buffers}", code="no-such-buffer"
            )
        entries.append((name, buffer))
    return tuple(entries)


def _check_disjoint(vectors: list[Vector]) -> None:
    """Subgraphs that share the list of their operators cannot be ordered apart, and no converter writes them."""
    end = 0
    for vector in sorted((v for v in vectors if v.count), key=lambda v: v.start):
        if vector.start < end:
            raise ModelError(
                "two subgraphs share their list of operators; the file is damaged", code="operators-shared"
            )
        end = vector.start + 4 * vector.count


def _subgraph(
    file: FlatFile,
    index: int,
    table: FlatbufferTable,
    vector: Vector,
    types: list[str],
    buffers: tuple[FileBuffer, ...],
) -> FileSubgraph:
    try:
        tensors = tuple(
            _tensor(number, tensor, buffers) for number, tensor in enumerate(table.tables(SubgraphSlot.TENSORS))
        )
        inputs, outputs = table.numbers(SubgraphSlot.INPUTS), table.numbers(SubgraphSlot.OUTPUTS)
        for tensor in (*inputs, *outputs):
            _check_index(tensor, len(tensors), "its inputs and outputs name")
        sources: dict[int, int] = {}
        operators = tuple(
            _operator(file, number, operator, types, tensors, buffers, sources)
            for number, operator in enumerate(table.tables(SubgraphSlot.OPERATORS))
        )
        return FileSubgraph(table.text(SubgraphSlot.NAME), tensors, inputs, outputs, operators, vector)
    except ModelError as error:
        raise error.at(f"subgraph {index}") from None


def _check_index(tensor: int, count: int, who: str) -> None:
    if not -1 <= tensor < count:
        raise ModelError(f"{who} tensor {tensor}, but there are only {count}", code="stored-tensor-index")


def _tensor(number: int, table: FlatbufferTable, buffers: tuple[FileBuffer, ...]) -> FileTensor:
    name = table.text(TensorSlot.NAME)
    shape = table.numbers(TensorSlot.SHAPE)
    code = table.number(TensorSlot.TYPE, "int8")
    buffer = table.number(TensorSlot.BUFFER, "uint32")
    if buffer >= max(len(buffers), 1):
        raise ModelError(
            f"tensor {number} '{name}' names buffer {buffer}, but there are only {len(buffers)}", code="no-such-buffer"
        )
    types = element_types()
    sized = code in types
    dtype, bits = types.get(code, (unsized_types().get(code, f"type{code}"), 0))
    external = table.number(TensorSlot.EXTERNAL_BUFFER, "uint32") != 0
    if len(shape) > _LARGEST_RANK:
        raise ModelError(
            f"tensor {number} '{name}' has {len(shape)} dimensions; the file is damaged", code="absurd-size"
        )
    if any(dimension < 0 for dimension in shape):
        raise ModelError(
            f"tensor {number} '{name}' has shape {list(shape)}; a TFLite file must store sizes",
            action="convert the model again with fixed input shapes",
            code="open-size",
        )
    size = (math.prod(shape) * bits + 7) // 8
    if size > MOST_BYTES:
        raise ModelError(
            f"tensor {number} '{name}' has shape {list(shape)}: {size} bytes cannot be meant", code="absurd-size"
        )
    return FileTensor(
        name=name,
        shape=shape,
        dtype=dtype,
        size=size,
        sized=sized,
        buffer=buffer,
        has_data=external or (buffer < len(buffers) and buffers[buffer].size > 0),
        variable=table.number(TensorSlot.IS_VARIABLE, "uint8") != 0,
        dynamic=-1 in table.numbers(TensorSlot.SHAPE_SIGNATURE),
        table=table.position,
    )


def _operator(
    file: FlatFile,
    number: int,
    table: FlatbufferTable,
    types: list[str],
    tensors: tuple[FileTensor, ...],
    buffers: tuple[FileBuffer, ...],
    sources: dict[int, int],
) -> FileOperator:
    """Return an operator; ``sources`` has, and gets, the constant that each tensor made by a reshape shows."""
    code = table.number(OperatorSlot.OPCODE_INDEX, "uint32")
    if code >= len(types):
        raise ModelError(
            f"operator {number} names operator code {code}, but there are only {len(types)}",
            code="no-such-operator-code",
        )
    kind = types[code]
    inputs, outputs = table.numbers(OperatorSlot.INPUTS), table.numbers(OperatorSlot.OUTPUTS)
    intermediates = table.numbers(OperatorSlot.INTERMEDIATES)
    for tensor in (*inputs, *outputs, *intermediates):
        _check_index(tensor, len(tensors), f"operator {number} ({kind}) names")

    def constant(position: int) -> tuple[int, ...] | None:
        if position >= len(inputs):
            return None
        return _small_integers(file, tensors, buffers, sources.get(inputs[position], inputs[position]))

    if kind in _RESHAPES and inputs and outputs and inputs[0] >= 0 and tensors[inputs[0]].has_data:
        sources[outputs[0]] = inputs[0]
    return FileOperator(
        type=kind,
        inputs=inputs,
        outputs=outputs,
        intermediates=intermediates,
        bodies=subgraph_references(kind, table),
        attributes=attributes(kind, table, constant),
        table=table.position,
    )


def _small_integers(
    file: FlatFile, tensors: tuple[FileTensor, ...], buffers: tuple[FileBuffer, ...], index: int
) -> tuple[int, ...] | None:
    """Return the values of a short constant of 32- or 64-bit integers: axes, permutations, sizes of slices."""
    if index < 0 or tensors[index].buffer >= len(buffers):
        return None
    tensor, buffer = tensors[index], buffers[tensors[index].buffer]
    if tensor.dtype not in {"int32", "int64"} or not 0 < tensor.size <= 128 or buffer.size != tensor.size:
        return None
    file.spend(buffer.size)
    code, width = ("i", 4) if tensor.dtype == "int32" else ("q", 8)
    return struct.unpack_from(f"<{buffer.size // width}{code}", file.data, buffer.start)


def _check_bodies(model: FileModel) -> None:
    """Subgraphs that execute each other in a circle would never end."""
    count = len(model.subgraphs)
    called: list[tuple[int, ...]] = []
    waiting = [0] * count
    for subgraph in model.subgraphs:
        bodies = tuple(dict.fromkeys(body for operator in subgraph.operators for body in operator.bodies))
        for body in bodies:
            if not 0 <= body < count:
                raise ModelError(
                    f"an operator executes subgraph {body}, but there are only {count}", code="no-such-subgraph"
                )
            waiting[body] += 1
        called.append(bodies)
    ready = [index for index in range(count) if not waiting[index]]
    done = 0
    while ready:
        done += 1
        for body in called[ready.pop()]:
            waiting[body] -= 1
            if not waiting[body]:
                ready.append(body)
    if done < count:
        index = next(index for index in range(count) if waiting[index])
        raise ModelError(f"subgraph {index} executes itself, directly or through others", code="calls-itself")
