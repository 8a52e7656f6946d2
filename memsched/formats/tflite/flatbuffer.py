"""Bounds-checked reading of flatbuffers: no bytes, however damaged, make it loop, allocate much or read outside.

It follows the flatbuffers binary format: a table begins with a signed offset back to its vtable, which holds two sizes
and then one 16-bit field offset per slot; everything else is reached by unsigned offsets forward.
"""

from __future__ import annotations

import struct
from typing import Any

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue

__all__ = ["FlatFile", "FlatbufferTable", "Vector"]

_READERS = {
    kind: struct.Struct(code).unpack_from
    for kind, code in {
        "int8": "<b",
        "uint8": "<B",
        "uint16": "<H",
        "int32": "<i",
        "uint32": "<I",
        "int64": "<q",
        "uint64": "<Q",
        "float32": "<f",
    }.items()
}
_ARRAY_CODES = {"int32": "i", "int64": "q", "uint32": "I", "float32": "f"}
_WIDTHS = {"int32": 4, "int64": 8, "uint32": 4, "float32": 4}


class FlatFile:
    """The bytes of a flatbuffer, and how much of them may still be read.

    Parts of a damaged file may overlap so that a few bytes stand for billions of values. A sound file's parts are
    hardly shared, so what is read in all is limited to a small multiple of the file's size.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._left = 8 * len(data) + 65536

    def spend(self, size: int) -> None:
        """Count ``size`` bytes as read.

        Raises:
            ModelError: More was read than a file of this size can hold.
        """
        self._left -= size
        if self._left < 0:
            raise ModelError("its parts overlap each other; the file is damaged", code="parts-overlap")

    def scalar(self, kind: str, position: int) -> Any:
        """Return the little-endian number of ``kind`` at ``position``."""
        if position < 0:
            raise ModelError("an offset points before the file's begin; the file is damaged", code="damaged")
        try:
            return _READERS[kind](self.data, position)[0]
        except struct.error:
            raise ModelError(
                "an offset points past the file's end; the file is truncated or damaged", code="damaged"
            ) from None

    def array(self, code: str, width: int, position: int, count: int) -> tuple[int, ...]:
        """Return ``count`` integers of ``width`` bytes each, of the kind that `struct` calls ``code``."""
        if not 0 <= position <= len(self.data) - count * width:
            raise ModelError("a vector reaches past the file's end; the file is truncated or damaged", code="damaged")
        self.spend(count * width)
        return struct.unpack_from(f"<{count}{code}", self.data, position)

    def root(self) -> FlatbufferTable:
        """Return the root table."""
        return FlatbufferTable(self, self.scalar("uint32", 0))


class Vector(FrozenValue, frozen=True):
    """Where a vector's elements lie: byte ``start`` of the file, and how many there are."""

    start: int
    count: int


class FlatbufferTable:
    """A table of a flatbuffer; its fields are named by their slots in the schema, counted from 0."""

    __slots__ = ("_fields", "_file", "position", "slots")

    def __init__(self, file: FlatFile, position: int) -> None:
        file.spend(4)
        self._file = file
        self.position = position
        vtable = position - file.scalar("int32", position)
        self.slots = max(0, (file.scalar("uint16", vtable) - 4) // 2)
        self._fields = file.array("H", 2, vtable + 4, self.slots)

    def place(self, slot: int) -> int | None:
        """Return where the field in ``slot`` lies in the file; None when the table does not have it."""
        offset = self._fields[slot] if slot < self.slots else 0
        return self.position + offset if offset else None

    def raw(self) -> tuple[bytes, tuple[int, ...]]:
        """Return the table's own bytes, and per slot the field's offset in them (0: absent).

        Raises:
            ModelError: A field lies outside of the table.
        """
        vtable = self.position - self._file.scalar("int32", self.position)
        size = self._file.scalar("uint16", vtable + 2)
        if self.position + size > len(self._file.data) or any(offset >= max(size, 4) for offset in self._fields):
            raise ModelError("a table's fields lie outside of it; the file is damaged", code="damaged")
        self._file.spend(size)
        return self._file.data[self.position : self.position + max(size, 4)], self._fields

    def number(self, slot: int, kind: str, default: int = 0) -> int:
        """Return an integer field."""
        place = self.place(slot)
        return default if place is None else int(self._file.scalar(kind, place))

    def real(self, slot: int, default: float = 0.0) -> float:
        """Return a 32-bit float field."""
        place = self.place(slot)
        return default if place is None else float(self._file.scalar("float32", place))

    def target(self, slot: int) -> int | None:
        """Return where the object lies that a field refers to; None when the table does not have it."""
        place = self.place(slot)
        offset = 0 if place is None else int(self._file.scalar("uint32", place))
        # An offset of 0 leads to itself: other readers of flatbuffers also treat it as absent.
        return place + offset if place is not None and offset else None

    def table(self, slot: int) -> FlatbufferTable | None:
        """Return the table that a field refers to."""
        target = self.target(slot)
        return None if target is None else FlatbufferTable(self._file, target)

    def vector(self, slot: int, width: int) -> Vector | None:
        """Return the place of a vector of elements of ``width`` bytes, all inside the file; None when absent."""
        target = self.target(slot)
        if target is None:
            return None
        count = self._file.scalar("uint32", target)
        if target + 4 + count * width > len(self._file.data):
            raise ModelError("a vector reaches past the file's end; the file is truncated or damaged", code="damaged")
        return Vector(target + 4, count)

    def numbers(self, slot: int, kind: str = "int32") -> tuple[int, ...]:
        """Return a vector of numbers; empty when absent."""
        target = self.target(slot)
        if target is None:
            return ()
        return self._file.array(_ARRAY_CODES[kind], _WIDTHS[kind], target + 4, self._file.scalar("uint32", target))

    def tables(self, slot: int) -> list[FlatbufferTable]:
        """Return a vector of tables; empty when absent."""
        vector = self.vector(slot, 4)
        if vector is None:
            return []
        offsets = self._file.array("I", 4, vector.start, vector.count)
        if 0 in offsets:
            raise ModelError("an offset points at itself; the file is damaged", code="damaged")
        return [FlatbufferTable(self._file, vector.start + 4 * index + offset) for index, offset in enumerate(offsets)]

    def text(self, slot: int) -> str:
        """Return a string; empty when absent. What is no UTF-8 or not printable is replaced, so that it is one line."""
        vector = self.vector(slot, 1)
        if vector is None:
            return ""
        self._file.spend(vector.count)
        text = self._file.data[vector.start : vector.start + vector.count].decode("utf-8", "replace")
        return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
