"""Constants that operators of the file make: a delegate leaves the layers alone that read them.

A RESHAPE of a constant to its own shape makes it. Delegates accept biases and sizes only if the file holds them, so
that the layer stays with the runtime's built-in kernel, which reads the same values.
"""

from __future__ import annotations

from collections.abc import Mapping

from memsched.formats.module import Module
from memsched.formats.staging import describe
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
from memsched.formats.tflite.flatbuffer import FlatFile
from memsched.formats.tflite.operator_codes import OperatorCodes
from memsched.formats.tflite.reader import TfliteNative
from memsched.formats.tflite.schema import BufferSlot, ModelSlot, OperatorSlot, SubgraphSlot, TensorSlot
from memsched.formats.tflite.tables import copied, moved_root, new_operator

__all__ = ["with_made_constants"]


def with_made_constants(module: Module, places: Mapping[str, int]) -> bytes:
    """Return the file of ``module`` with a RESHAPE in front of some ops, that makes one of their constants.

    Args:
        places: For each op of the main graph, by name, the position of the input.

    Raises:
        ModelError: The file is of a later schema.
    """
    return _ConstantWriter(module).file(places)


class _ConstantWriter:
    """Adds operators to the main subgraph of a file."""

    def __init__(self, module: Module) -> None:
        native: TfliteNative = module.native
        self._model, self._path = native.model, describe(module.path)
        self._main = native.model.subgraphs[0]
        self._root = FlatFile(native.model.data).root()
        self._table = self._root.tables(ModelSlot.SUBGRAPHS)[0]
        self._tensor_tables = self._table.tables(SubgraphSlot.TENSORS)
        self._tensors: list[Item] = [OldObject(table.position) for table in self._tensor_tables]
        self._codes = OperatorCodes(self._root)
        self._constants = TfliteConstants(self._model, self._main, self._tensor_tables, self._add)
        steps = native.mappings[0].operators
        self._number = {op.name: number for op, number in zip(module.graphs[0].ops, steps, strict=True)}

    def file(self, places: Mapping[str, int]) -> bytes:
        """Return the file with a constant of each op made by an operator."""
        chosen = {self._number[name]: place for name, place in places.items()}
        operators: list[Item] = []
        for number, table in enumerate(self._table.tables(SubgraphSlot.OPERATORS)):
            place = chosen.get(number)
            if place is not None:
                inputs = list(self._main.operators[number].inputs)
                inputs[place] = self._made(inputs[place], operators)
                operators.append(copied(table, "Operator", {OperatorSlot.INPUTS: Numbers("int32", inputs)}))
            else:
                operators.append(OldObject(table.position))
        lists = {SubgraphSlot.TENSORS: References(self._tensors), SubgraphSlot.OPERATORS: References(operators)}
        others = [OldObject(table.position) for table in self._root.tables(ModelSlot.SUBGRAPHS)[1:]]
        buffers: list[Item] = [OldObject(buffer.table) for buffer in self._model.buffers]
        buffers += [TableItem({BufferSlot.DATA: Blob(data)}) for data in self._constants.buffers]
        fields = {
            ModelSlot.OPERATOR_CODES: References(self._codes.items),
            ModelSlot.SUBGRAPHS: References([copied(self._table, "SubGraph", lists), *others]),
            ModelSlot.BUFFERS: References(buffers),
        }
        root = copied(self._root, "Model", fields)
        return moved_root(self._model, *assemble(root, self._model.data))

    def _made(self, constant: int, operators: list[Item]) -> int:
        """Add the operator that makes a constant; return the tensor that it makes."""
        given = self._main.tensors[constant]
        fields: dict[int, Scalar | Item] = {
            TensorSlot.BUFFER: Scalar("uint32", 0),
            TensorSlot.NAME: Text(f"memsched/made{len(self._tensors)}".encode()),
        }
        made = self._add(copied(self._tensor_tables[constant], "Tensor", fields))
        shape = self._constants.integers(given.shape, (len(given.shape),))
        operators.append(new_operator(self._codes.number("RESHAPE", given.dtype), [constant, shape], [made]))
        return made

    def _add(self, item: Item) -> int:
        self._tensors.append(item)
        return len(self._tensors) - 1
