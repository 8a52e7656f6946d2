"""Bounds-checked reading of flatbuffers: no bytes, however damaged, make it loop, allocate much or read outside.

Written against the flatbuffers binary format: a table begins with a signed offset back to its vtable, which holds
two sizes and then one 16-bit field offset per slot; everything else is reached by unsigned offsets forward.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from memsched.errors import ModelError

__all__ = ["FlatFile", "Table", "Vector"]

_READERS = {
    "int8": struct.Struct("<b"),
    "uint8": struct.Struct("<B"),
    "uint16": struct.Struct("<H"),
    "int32": struct.Struct("<i"),
    "uint32": struct.Struct("<I"),
    "int64": struct.Struct("<q"),
    "uint64": struct.Struct("<Q"),
    "float32": struct.Struct("<f"),
}
_ARRAY_CODES = {"int32": "i", "int64": "q", "uint32": "I"}
_WIDTHS = {"int32": 4, "int64": 8, "uint32": 4}


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
            raise ModelError("its parts overlap each other; the file is damaged")

    def scalar(self, kind: str, position: int) -> int | float:
        """Return the little-endian scalar at ``position``."""
        if position < 0:
            raise ModelError("an offset points before the file's begin; the file is damaged")
        try:
            return _READERS[kind].unpack_from(self.data, position)[0]  # type: ignore[no-any-return]
        except struct.error:
            raise ModelError("an offset points past the file's end; the file is truncated or damaged") from None

    def integer(self, kind: str, position: int) -> int:
        """Return the little-endian integer at ``position``."""
        return int(self.scalar(kind, position))

    def root(self) -> Table:
        """Return the root table."""
        return Table(self, self.integer("uint32", 0))


@dataclass(frozen=True, slots=True)
class Vector:
    """Where a vector's elements lie: byte ``start`` of the file, and how many there are."""

    start: int
    count: int


class Table:
    """A table of a flatbuffer; its fields are named by their slots in the schema, counted from 0."""

    __slots__ = ("_fields", "_file", "position", "slots", "vtable")

    def __init__(self, file: FlatFile, position: int) -> None:
        file.spend(4)
        self._file = file
        self.position = position
        self.vtable = position - file.integer("int32", position)
        size = file.integer("uint16", self.vtable)
        self.slots = max(0, (size - 4) // 2)
        self._fields = self.vtable + 4

    def place(self, slot: int) -> int | None:
        """Return where the field in ``slot`` lies in the file; None when the table does not have it."""
        if slot >= self.slots:
            return None
        offset = self._file.integer("uint16", self._fields + 2 * slot)
        return self.position + offset if offset else None

    def number(self, slot: int, kind: str, default: int = 0) -> int:
        """Return an integer field."""
        place = self.place(slot)
        return default if place is None else self._file.integer(kind, place)

    def real(self, slot: int, default: float = 0.0) -> float:
        """Return a 32-bit float field."""
        place = self.place(slot)
        return default if place is None else float(self._file.scalar("float32", place))

    def _target(self, slot: int) -> int | None:
        place = self.place(slot)
        return None if place is None else place + self._file.integer("uint32", place)

    def table(self, slot: int) -> Table | None:
        """Return the table that a field refers to."""
        target = self._target(slot)
        return None if target is None else Table(self._file, target)

    def vector(self, slot: int, width: int) -> Vector | None:
        """Return the place of a vector of elements of ``width`` bytes, all inside the file; None when absent."""
        target = self._target(slot)
        if target is None:
            return None
        count = self._file.integer("uint32", target)
        if target + 4 + count * width > len(self._file.data):
            raise ModelError("a vector reaches past the file's end; the file is truncated or damaged")
        return Vector(target + 4, count)

    def numbers(self, slot: int, kind: str = "int32") -> tuple[int, ...]:
        """Return a vector of integers; empty when absent."""
        vector = self.vector(slot, _WIDTHS[kind])
        if vector is None or not vector.count:
            return ()
        self._file.spend(vector.count * _WIDTHS[kind])
        return struct.unpack_from(f"<{vector.count}{_ARRAY_CODES[kind]}", self._file.data, vector.start)

    def tables(self, slot: int) -> list[Table]:
        """Return a vector of tables; empty when absent."""
        vector = self.vector(slot, 4)
        if vector is None:
            return []
        self._file.spend(4 * vector.count)
        positions = range(vector.start, vector.start + 4 * vector.count, 4)
        return [Table(self._file, position + self._file.integer("uint32", position)) for position in positions]

    def text(self, slot: int) -> str:
        """Return a string; empty when absent. What is no UTF-8 or not printable is replaced, so that it is one line."""
        vector = self.vector(slot, 1)
        if vector is None:
            return ""
        self._file.spend(vector.count)
        text = self._file.data[vector.start : vector.start + vector.count].decode("utf-8", "replace")
        return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
