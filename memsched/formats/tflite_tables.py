"""Copies of a TFLite file's tables with some fields replaced: all other fields go on pointing into the old file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

from memsched.errors import ModelError
from memsched.formats.tflite_assembly import Item, Kind, Old, Scalar, TableItem
from memsched.formats.tflite_flatbuffer import Table
from memsched.formats.tflite_metadata import move_absolute_offsets
from memsched.formats.tflite_model import FileModel

__all__ = ["copied", "moved_root"]

_REFERENCE: Final = "reference"
_MOVED: Final = "moved"
_Field = Literal["reference", "moved"] | Kind

# Per table what each slot holds, as the schema states it.
_TABLES: Final[Mapping[str, tuple[_Field, ...]]] = {
    "Model": ("uint32", *(_REFERENCE,) * 9),
    "SubGraph": (*(_REFERENCE,) * 5, "int32"),
    "Tensor": (
        _REFERENCE,
        "int8",
        "uint32",
        *(_REFERENCE,) * 2,
        "uint8",
        *(_REFERENCE,) * 2,
        "uint8",
        _REFERENCE,
        "uint32",
    ),
    "Operator": (
        "uint32",
        *(_REFERENCE,) * 2,
        "uint8",
        *(_REFERENCE,) * 2,
        "int8",
        *(_REFERENCE,) * 2,
        _MOVED,
        "uint64",
        "uint8",
        _REFERENCE,
        "int32",
    ),
    "QuantizationParameters": (*(_REFERENCE,) * 4, "uint8", _REFERENCE, "int32"),
}


def copied(table: Table, kind: str, fields: Mapping[int, Scalar | Item], without: Collection[int] = ()) -> TableItem:
    """Return a new table of ``kind`` that equals ``table`` but for ``fields`` and the slots ``without``.

    Raises:
        ModelError: It has fields of a later schema, which would be lost.
    """
    held = _TABLES[kind]
    found: dict[int, Scalar | Item] = {}
    for slot in range(table.slots):
        if table.place(slot) is None or slot in fields or slot in without:
            continue
        if slot >= len(held):
            raise ModelError(f"its table {kind} has fields of a later schema (slot {slot}), which would be lost")
        found[slot] = _field(table, slot, held[slot])
    return TableItem({**found, **fields})


def _field(table: Table, slot: int, kind: _Field) -> Scalar | Item:
    if kind == _REFERENCE:
        target = table.target(slot)
        return Old(target if target is not None else 0)
    if kind == _MOVED:
        place = table.number(slot, "uint64")
        # 0 and 1 say that there is nothing outside the flatbuffer.
        return Scalar("uint64", place, moved=place > 1)
    return Scalar(kind, table.number(slot, kind))


def moved_root(model: FileModel, data: bytes, shift: int) -> bytes:
    """Return ``data``, the old file behind ``shift`` new bytes, with the places that it states of itself corrected."""
    moved = bytearray(data[shift:])
    move_absolute_offsets(model, moved, shift)
    return data[:shift] + bytes(moved)
