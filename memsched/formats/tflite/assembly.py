"""New flatbuffer objects in front of an old file that they refer to.

Offsets in a flatbuffer are relative and point forward. So new objects may refer to each other, parents before
children, and to anything in the old file, which follows them as it is, moved by a multiple of 64 bytes: every
alignment holds, and fields of later schemas in untouched tables are kept.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memsched.base.errors import InternalError, ModelError
from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST_INT32
from memsched.formats.tflite.file_numbers import FileNumbers

__all__ = [
    "Blob",
    "Item",
    "Kind",
    "Numbers",
    "OldObject",
    "RawTable",
    "References",
    "Scalar",
    "TableItem",
    "Text",
    "assemble",
]

Kind = Literal["int8", "uint8", "int32", "uint32", "float32", "int64", "uint64"]

_CODES: Mapping[str, tuple[str, int]] = {
    "int8": ("b", 1),
    "uint8": ("B", 1),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "float32": ("f", 4),
    "int64": ("q", 8),
    "uint64": ("Q", 8),
}


class OldObject(FrozenValue, frozen=True):
    """An object of the old file, by the byte at which it lies there."""

    position: int


class Scalar(FrozenValue, frozen=True):
    """A number in a table. ``moved``: it states a place in the old file and grows by how far that moves."""

    kind: Kind
    value: float
    moved: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Numbers:
    """A vector of numbers."""

    kind: Kind
    values: Sequence[float]


@dataclass(frozen=True, eq=False, slots=True)
class Blob:
    """A vector, as bytes, of elements of ``width`` bytes; the first is aligned to 16, as the schema asks of weights."""

    data: bytes
    width: int = 1


@dataclass(frozen=True, eq=False, slots=True)
class Text:
    """A string."""

    data: bytes


@dataclass(frozen=True, eq=False, slots=True)
class TableItem:
    """A table: slot of the schema to a number or what it refers to."""

    fields: Mapping[int, Scalar | Item]


@dataclass(frozen=True, eq=False, slots=True)
class References:
    """A vector of offsets to tables."""

    items: Sequence[Item]


@dataclass(frozen=True, eq=False, slots=True)
class RawTable:
    """A table as it lies in another file: only those of its fields that are references need to be known.

    Attributes:
        inline: Its own bytes, from the signed offset to its vtable on.
        offsets: Per slot the field's offset in ``inline``; 0: absent.
        phase: Where it lay, modulo 8: fields of 8 bytes are aligned in the file, not in the table.
        fields: What to write in the place of fields that are there.
    """

    inline: bytes
    offsets: tuple[int, ...]
    phase: int
    fields: Mapping[int, Scalar | Item]


Item = OldObject | Numbers | Blob | Text | TableItem | RawTable | References


def assemble(root: TableItem, old: bytes) -> tuple[bytes, int]:
    """Return a file with ``root`` and all new objects that it reaches in front of ``old``, and how far that moved.

    The caller corrects absolute places that the old file states of itself.

    Raises:
        ModelError: The file would be too large for the offsets of a flatbuffer.
    """
    items = _parents_first(root)
    places: dict[int, int] = {}
    end = FileNumbers.ROOT
    for item in items:
        places[id(item)], end = _place(item, end)
    shift = -(-end // FileNumbers.ALIGNMENT) * FileNumbers.ALIGNMENT
    if shift + len(old) > LARGEST_INT32:
        raise ModelError("it is too large to be rewritten as one flatbuffer (2 GB)", code="too-large")
    front = bytearray(shift)
    struct.pack_into("<I4s", front, 0, places[id(root)], b"TFL3")
    writer = _ObjectWriter(front, places, shift)
    for item in items:
        writer.write(item)
    return bytes(front) + old, shift


def _children(item: Item) -> list[Item]:
    if isinstance(item, (TableItem, RawTable)):
        return [value for value in item.fields.values() if not isinstance(value, Scalar)]
    return list(item.items) if isinstance(item, References) else []


def _parents_first(root: Item) -> list[Item]:
    """Return the new objects reachable from ``root``, each after everything that refers to it."""
    done: dict[int, Item] = {}
    finished: list[Item] = []
    stack: list[tuple[Item, bool]] = [(root, False)]
    while stack:
        item, left = stack.pop()
        if left:
            finished.append(item)
        elif id(item) not in done and not isinstance(item, OldObject):
            done[id(item)] = item
            stack.append((item, True))
            stack.extend((child, False) for child in reversed(_children(item)))
    return finished[::-1]


def _up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _place(item: Item, end: int) -> tuple[int, int]:
    """Return where ``item`` goes that may begin at byte ``end``, and the first byte after it."""
    if isinstance(item, TableItem):
        place = _up(end + _vtable_size(item), 8)
        return place, place + _field_offsets(item)[1]
    if isinstance(item, RawTable):
        place = _up(end + 4 + 2 * len(item.offsets) - item.phase, 8) + item.phase
        return place, place + len(item.inline)
    if isinstance(item, Numbers):
        width = _CODES[item.kind][1]
        place = _up(end + 4, max(width, 4)) - 4
        return place, place + 4 + width * len(item.values)
    if isinstance(item, Blob):
        place = _up(end + 4, FileNumbers.BLOB_ALIGNMENT) - 4
        return place, place + 4 + len(item.data)
    if isinstance(item, Text):
        place = _up(end, 4)
        return place, place + 4 + len(item.data) + 1
    if isinstance(item, References):
        place = _up(end, 4)
        return place, place + 4 + 4 * len(item.items)
    raise InternalError("an object of the old file has no place among the new ones", code="misplaced")


def _vtable_size(item: TableItem) -> int:
    return 4 + 2 * (max(item.fields, default=-1) + 1)


def _field_offsets(item: TableItem) -> tuple[dict[int, int], int]:
    """Return per slot its field's offset from the table's begin, and the table's size; wide fields come first."""
    offsets: dict[int, int] = {}
    at = 4
    widths = {slot: _CODES[value.kind][1] if isinstance(value, Scalar) else 4 for slot, value in item.fields.items()}
    for width in (4, 8, 1):
        for slot in sorted(slot for slot, own in widths.items() if own == width):
            at = _up(at, width)
            offsets[slot] = at
            at += width
    return offsets, _up(at, 4)


class _ObjectWriter:
    def __init__(self, front: bytearray, places: Mapping[int, int], shift: int) -> None:
        self._front, self._places, self._shift = front, places, shift

    def write(self, item: Item) -> None:
        place = self._places[id(item)]
        if isinstance(item, TableItem):
            offsets, size = _field_offsets(item)
            highest = max(item.fields, default=-1) + 1
            self._write_table(item, place, [offsets.get(slot, 0) for slot in range(highest)], size)
        elif isinstance(item, RawTable):
            self._front[place : place + len(item.inline)] = item.inline
            self._write_table(item, place, item.offsets, len(item.inline))
        elif isinstance(item, Numbers):
            code = _CODES[item.kind][0]
            struct.pack_into(f"<I{len(item.values)}{code}", self._front, place, len(item.values), *item.values)
        elif isinstance(item, (Blob, Text)):
            count = len(item.data) // (item.width if isinstance(item, Blob) else 1)
            struct.pack_into(f"<I{len(item.data)}s", self._front, place, count, item.data)
        elif isinstance(item, References):
            struct.pack_into("<I", self._front, place, len(item.items))
            for index, child in enumerate(item.items):
                self._write_offset(place + 4 + 4 * index, child)

    def _write_table(self, item: TableItem | RawTable, place: int, offsets: Sequence[int], size: int) -> None:
        vtable = place - 4 - 2 * len(offsets)
        struct.pack_into(f"<HH{len(offsets)}H", self._front, vtable, 4 + 2 * len(offsets), size, *offsets)
        struct.pack_into("<i", self._front, place, place - vtable)
        for slot, value in item.fields.items():
            at = place + offsets[slot]
            if isinstance(value, Scalar):
                number = value.value + (self._shift if value.moved else 0)
                struct.pack_into(f"<{_CODES[value.kind][0]}", self._front, at, number)
            else:
                self._write_offset(at, value)

    def _write_offset(self, at: int, item: Item) -> None:
        target = self._shift + item.position if isinstance(item, OldObject) else self._places[id(item)]
        struct.pack_into("<I", self._front, at, target - at)
