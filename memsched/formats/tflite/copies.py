"""Whole copies of a TFLite file's tables for another file: nothing in them refers to the old one."""

from __future__ import annotations

from collections.abc import Mapping

from memsched.base.errors import ModelError
from memsched.formats.tflite import package
from memsched.formats.tflite.assembly import Blob, Item, RawTable, References, Scalar, Text
from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile

__all__ = ["Copier"]


class Copier:
    """Copies tables of one file; what several tables share is copied once."""

    def __init__(self, file: FlatFile) -> None:
        self._file = file
        self._made: dict[tuple[str, int], Item] = {}

    def references(self, table: FlatbufferTable, kind: str) -> dict[int, Item]:
        """Return copies of all that ``table``, of ``kind`` in the schema, refers to, by slot.

        Raises:
            ModelError: Something has fields of a later schema, of which nobody knows whether they are references.
        """
        schema = package.table(kind)
        for slot in range(schema.slots, table.slots):
            if table.place(slot) is not None:
                raise ModelError(f"a table {kind} has fields of a later schema (slot {slot})", code="later-schema")
        return {
            slot: self._referred(table, schema, field)
            for slot, field in sorted(schema.fields.items())
            if field.holds != "number" and table.place(slot) is not None
        }

    def table(self, table: FlatbufferTable, kind: str, changed: Mapping[int, Scalar | Item] | None = None) -> Item:
        """Return a copy of ``table``, of ``kind`` in the schema, with some of its fields changed.

        Raises:
            ModelError: As `references`; or a field that has to change is not there.
        """
        key = (kind, table.position)
        if not changed and key in self._made:
            return self._made[key]
        fields: dict[int, Scalar | Item] = {**self.references(table, kind), **(changed or {})}
        inline, offsets = table.raw()
        if table.position % 4 or any(slot >= len(offsets) or not offsets[slot] for slot in fields):
            raise ModelError(
                f"a table {kind} cannot be changed; the file is damaged or of an odd writer", code="damaged"
            )
        made = RawTable(inline, offsets, table.position % 8, fields)
        if not changed:
            self._made[key] = made
        return made

    def _referred(self, table: FlatbufferTable, schema: package.TableSchema, field: package.Field) -> Item:
        if field.holds in {"text", "numbers"}:
            return self._vector(table, field.slot, field.width)
        if field.holds == "tables":
            return References([self.table(one, field.table) for one in table.tables(field.slot)])
        name: str | None = field.table
        if field.holds == "union":
            chosen = table.number(schema.selector(field), "uint8")
            name = package.members(field.table).get(chosen) if chosen else None
        found = table.table(field.slot)
        if found is None or name is None:
            raise ModelError("a table is of a kind of a later schema, or missing", code="later-schema")
        return self.table(found, name)

    def _vector(self, table: FlatbufferTable, slot: int, width: int) -> Item:
        """Return a copy of a vector of numbers of ``width`` bytes, or, where that is 0, of a string."""
        vector = table.vector(slot, width or 1)
        if vector is None:
            raise ModelError("a vector is missing; the file is damaged", code="damaged")
        key = (f"vector of {width}", vector.start)
        if key not in self._made:
            size = vector.count * (width or 1)
            self._file.spend(size)
            data = self._file.data[vector.start : vector.start + size]
            self._made[key] = Blob(data, width) if width else Text(data)
        return self._made[key]
