"""Copies of a TFLite file's tables with some fields replaced: all other fields go on pointing into the old file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from memsched.base.errors import ModelError
from memsched.formats.tflite import package
from memsched.formats.tflite.assembly import Item, Numbers, OldObject, Scalar, TableItem, Text
from memsched.formats.tflite.flatbuffer import FlatbufferTable
from memsched.formats.tflite.metadata import move_absolute_offsets
from memsched.formats.tflite.model import FileModel
from memsched.formats.tflite.schema import OperatorSlot, TensorSlot, type_code

__all__ = ["copied", "moved_root", "new_operator", "new_tensor", "options_fields"]

_PLACES = ("Operator", "LargeCustomOptionsOffset")
"""The field of a table copied here that states a place in the file."""


def copied(
    table: FlatbufferTable, kind: str, fields: Mapping[int, Scalar | Item], without: Collection[int] = ()
) -> TableItem:
    """Return a new table of ``kind`` that equals ``table`` but for ``fields`` and the slots ``without``.

    Raises:
        ModelError: It has fields of a later schema, which would be lost.
    """
    schema = package.table(kind)
    moved = schema.names[_PLACES[1]] if kind == _PLACES[0] else -1
    found: dict[int, Scalar | Item] = {}
    for slot in range(table.slots):
        if table.place(slot) is None or slot in fields or slot in without:
            continue
        if slot not in schema.fields:
            raise ModelError(
                f"its table {kind} has fields of a later schema (slot {slot}), which would be lost", code="later-schema"
            )
        found[slot] = _place(table, slot) if slot == moved else _field(table, schema.fields[slot])
    return TableItem({**found, **fields})


def new_tensor(dtype: str, shape: Sequence[int], name: str, buffer: int = 0) -> TableItem:
    """Return a tensor that is not quantised; ``buffer``: the index of what it holds, by default of nothing."""
    return TableItem(
        {
            TensorSlot.SHAPE: Numbers("int32", shape),
            TensorSlot.TYPE: Scalar("int8", type_code(dtype)),
            TensorSlot.BUFFER: Scalar("uint32", buffer),
            TensorSlot.NAME: Text(name.encode()),
        }
    )


def new_operator(
    code: int, inputs: Sequence[int], outputs: Sequence[int], options: tuple[str, Item] | None = None
) -> TableItem:
    """Return an operator of the code with that index; ``options``: the name of their table, and that."""
    return TableItem(
        {
            OperatorSlot.OPCODE_INDEX: Scalar("uint32", code),
            OperatorSlot.INPUTS: Numbers("int32", inputs),
            OperatorSlot.OUTPUTS: Numbers("int32", outputs),
            **({} if options is None else options_fields(*options)),
        }
    )


def options_fields(table: str, options: Item) -> dict[int, Scalar | Item]:
    """Return the fields of an operator that say which table its options are, and that."""
    return {
        OperatorSlot.BUILTIN_OPTIONS_TYPE: Scalar("uint8", package.number_of("BuiltinOptions", table)),
        OperatorSlot.BUILTIN_OPTIONS: options,
    }


def _field(table: FlatbufferTable, field: package.Field) -> Scalar | Item:
    if field.kind is None:
        target = table.target(field.slot)
        return OldObject(target if target is not None else 0)
    real = field.kind == "float32"
    return Scalar(field.kind, table.real(field.slot) if real else table.number(field.slot, field.kind))


def _place(table: FlatbufferTable, slot: int) -> Scalar:
    place = table.number(slot, "uint64")
    # 0 and 1 say that there is nothing outside the flatbuffer.
    return Scalar("uint64", place, moved=place > 1)


def moved_root(model: FileModel, data: bytes, shift: int) -> bytes:
    """Return ``data``, the old file behind ``shift`` new bytes, with the places that it states of itself corrected."""
    moved = bytearray(data[shift:])
    move_absolute_offsets(model, moved, shift)
    return data[:shift] + bytes(moved)
