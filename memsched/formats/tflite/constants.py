"""Constants of a TFLite subgraph that a rewrite adds: small integers, and the parts of weights that pieces need."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from memsched.base.errors import InternalError, ModelError
from memsched.formats.tflite.assembly import Item, Numbers, Scalar, Text
from memsched.formats.tflite.flatbuffer import FlatbufferTable
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph
from memsched.formats.tflite.schema import QuantizationSlot, TensorSlot, element_types
from memsched.formats.tflite.tables import copied, new_tensor
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import AttributeValue, Op
from memsched.ops.ranges import ConstantParts

__all__ = ["TfliteConstants", "zero_point"]

_CODES: Final = {"int8": "b", "uint8": "B", "int16": "h", "int32": "i", "float32": "f"}


def zero_point(model: FileModel, tensor: FlatbufferTable) -> int:
    """Return the number that means zero in a tensor; the first of several."""
    table = tensor.table(TensorSlot.QUANTIZATION)
    vector = None if table is None else table.vector(QuantizationSlot.ZERO_POINT, 8)
    if vector is None or not vector.count:
        return 0
    return int(struct.unpack_from("<q", model.data, vector.start)[0])


class TfliteConstants:
    """New constant tensors; equal ones are made once.

    Attributes:
        buffers: The contents of the buffers to be added behind the file's, whose tensors count on that order; given
            where several subgraphs add to one list.
    """

    def __init__(
        self,
        model: FileModel,
        subgraph: FileSubgraph,
        tables: Sequence[FlatbufferTable],
        add_tensor: Callable[[Item], int],
        *,
        buffers: list[bytes] | None = None,
    ) -> None:
        self._model, self._subgraph, self._tables, self._add_tensor = model, subgraph, tables, add_tensor
        self._made: dict[tuple[object, ...], int] = {}
        self.buffers: list[bytes] = [] if buffers is None else buffers

    def integers(self, values: Sequence[AttributeValue], shape: Sequence[int]) -> int:
        """Return the index of a tensor of int32."""
        key = ("integers", *values, "of", *shape)
        if key not in self._made:
            buffer = self._buffer(struct.pack(f"<{len(values)}i", *values))
            self._made[key] = self._add_tensor(new_tensor("int32", shape, f"memsched/numbers{len(self._made)}", buffer))
        return self._made[key]

    def truth(self) -> int:
        """Return the index of a tensor that holds True alone."""
        key = ("truth",)
        if key not in self._made:
            self._made[key] = self._add_tensor(new_tensor("bool", (1,), "memsched/true", self._buffer(b"\x01")))
        return self._made[key]

    def of_type(self, tensor: int, shape: Sequence[int], data: bytes) -> int:
        """Return the index of a tensor of the type and the quantisation of the subgraph's ``tensor``."""
        key = ("of type", tensor, data, *shape)
        if key not in self._made:
            fields: dict[int, Scalar | Item] = {
                TensorSlot.SHAPE: Numbers("int32", shape),
                TensorSlot.BUFFER: Scalar("uint32", self._buffer(data)),
                TensorSlot.NAME: Text(f"memsched/values{len(self._made)}".encode()),
            }
            without = (TensorSlot.IS_VARIABLE, TensorSlot.SPARSITY, TensorSlot.SHAPE_SIGNATURE)
            self._made[key] = self._add_tensor(copied(self._tables[tensor], "Tensor", fields, without))
        return self._made[key]

    def around(self, op: Op, inputs: Sequence[int], like: int) -> list[int]:
        """Return a concatenation's inputs, with padding of ``like``'s type where ``op`` states shapes of constants."""
        given = dict(zip(op.positions, inputs, strict=True))
        shapes = {
            int(name.removeprefix(CONSTANT_SHAPE)): [int(size) for size in shape]
            for name, shape in op.attributes.items()
            if name.startswith(CONSTANT_SHAPE) and isinstance(shape, tuple)
        }
        places = range(len(given) + len(shapes))
        return [given[place] if place in given else self._padding(like, shapes[place]) for place in places]

    def _padding(self, tensor: int, shape: Sequence[int]) -> int:
        given = self._subgraph.tensors[tensor]
        if given.dtype not in _CODES:
            raise ModelError(f"tensor '{given.name}' ({given.dtype}) cannot be padded in a loop", code="cannot-pad")
        code, count = _CODES[given.dtype], math.prod(shape)
        zero = zero_point(self._model, self._tables[tensor])
        return self.of_type(tensor, shape, struct.pack(f"<{count}{code}", *[zero] * count))

    def like(self, tensor: int, values: Sequence[AttributeValue]) -> int:
        """Return the index of a tensor of int32 that has the shape of constant ``tensor``.

        Raises:
            InternalError: The constant is of another type or size.
        """
        given = self._subgraph.tensors[tensor]
        if given.dtype != "int32" or math.prod(given.shape) != len(values):
            raise InternalError(f"constant '{given.name}' cannot be replaced by {list(values)}", code="cannot-replace")
        return self.integers(values, given.shape)

    def cut(self, op: Op, operator: FileOperator, inputs: list[int], parts: ConstantParts) -> None:
        """Replace the constants in ``inputs`` of which ``op``, a piece, needs ``parts`` alone.

        Raises:
            ModelError: One cannot be cut, such as one that is computed when the model runs.
        """
        if op.region is None:
            return
        for place, spans in parts.items():
            inputs[place] = self._part(operator.inputs[place], spans)
        if op.type == "TRANSPOSE_CONV" and operator.inputs[0] >= 0:
            lengths = [end - begin for begin, end in op.region.ranges]
            inputs[0] = self.integers(lengths, (len(lengths),))

    def cut_terms(self, op: Op, inputs: list[int]) -> None:
        """Let a convolution multiply only ``op.terms``, input channels; what is added goes with the first of them.

        Raises:
            ModelError: It isn't known where its constants are to be cut.
        """
        if op.terms is None:
            return
        if op.type != "CONV_2D":
            raise ModelError(f"op '{op.name}' ({op.type}) cannot be computed as a sum of parts", code="cannot-cut")
        inputs[1] = self._part(inputs[1], {3: op.terms})
        if op.terms[0] and inputs[2:] and inputs[2] >= 0:
            # LiteRT wants something to be added.
            added = self._subgraph.tensors[inputs[2]]
            inputs[2] = self.of_type(inputs[2], added.shape, bytes(added.size))

    def _part(self, tensor: int, spans: Mapping[int, tuple[int, int]]) -> int:
        key = ("part", tensor, *sorted(spans.items()))
        if key not in self._made:
            given, table = self._subgraph.tensors[tensor], self._tables[tensor]
            shape = [spans[axis][1] - spans[axis][0] if axis in spans else n for axis, n in enumerate(given.shape)]
            fields: dict[int, Scalar | Item] = {
                TensorSlot.SHAPE: Numbers("int32", shape),
                TensorSlot.BUFFER: Scalar("uint32", self._buffer(self._cut_bytes(tensor, spans))),
                TensorSlot.NAME: Text(f"{given.name}/part{len(self._made)}".encode()),
            }
            quantization = table.table(TensorSlot.QUANTIZATION)
            if quantization is not None:
                fields[TensorSlot.QUANTIZATION] = self._quantization(quantization, spans)
            self._made[key] = self._add_tensor(copied(table, "Tensor", fields, (TensorSlot.SHAPE_SIGNATURE,)))
        return self._made[key]

    def _cut_bytes(self, tensor: int, spans: Mapping[int, tuple[int, int]]) -> bytes:
        """Return the bytes of a part, row by row of the innermost axis that is cut."""
        given = self._subgraph.tensors[tensor]
        data = self._model.contents(given.buffer)
        bits = next((bits for name, bits in element_types().values() if name == given.dtype), 0)
        if bits < 8 or len(data) != given.size or self._tables[tensor].place(TensorSlot.SPARSITY) is not None:
            raise ModelError(f"constant '{given.name}' ({given.dtype}) cannot be cut in pieces", code="cannot-cut")
        inner = max(spans)
        run = math.prod(given.shape[inner + 1 :]) * bits // 8
        begin, end = spans[inner]
        starts = [0]
        for axis, size in enumerate(given.shape[:inner]):
            first, last = spans.get(axis, (0, size))
            starts = [start * size + index for start in starts for index in range(first, last)]
        rows = [(start * given.shape[inner] + begin) * run for start in starts]
        return b"".join([data[row : row + (end - begin) * run] for row in rows])

    def _quantization(self, table: FlatbufferTable, spans: Mapping[int, tuple[int, int]]) -> Item:
        """Return the quantisation of a part: what is stated per channel is cut along with the channels."""
        axis = table.number(QuantizationSlot.QUANTIZED_DIMENSION, "int32")
        if axis not in spans:
            return copied(table, "QuantizationParameters", {})
        begin, end = spans[axis]
        fields: dict[int, Scalar | Item] = {}
        kinds = {QuantizationSlot.MIN: "f", QuantizationSlot.MAX: "f", QuantizationSlot.SCALE: "f"}
        for slot, code in {**kinds, QuantizationSlot.ZERO_POINT: "q"}.items():
            width = struct.calcsize(code)
            vector = table.vector(slot, width)
            if vector is not None and vector.count > 1:
                data = self._model.data[vector.start : vector.start + vector.count * width]
                values = struct.unpack(f"<{vector.count}{code}", data)[begin:end]
                fields[slot] = Numbers("int64" if code == "q" else "float32", values)
        return copied(table, "QuantizationParameters", fields)

    def _buffer(self, data: bytes) -> int:
        """Return the index of the buffer with these contents, which is added where there is none."""
        if data not in self.buffers:
            self.buffers.append(data)
        return len(self._model.buffers) + self.buffers.index(data)
