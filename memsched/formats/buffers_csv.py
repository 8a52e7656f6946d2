"""Buffers as CSV: the interchange format of the minimalloc benchmark, read in full and written back with addresses.

One row per buffer, the columns in any order: ``id``, ``lower``, ``upper`` and ``size``, and optionally ``alignment``,
``hint``, ``gaps`` and ``offset``. Lifetimes are half-open, [lower, upper). ``buffer`` and ``buffer_id`` mean ``id``;
``begin`` and ``start`` mean ``lower``; ``end`` is an ``upper`` that is the last moment of the lifetime, not the first
after it, and in a file with that column the ends of gaps are meant so, too (as in the benchmark's own reader).
Columns of other names are carried through.
"""

from __future__ import annotations

import bisect
import csv
import errno
import heapq
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence

from memsched.base.errors import MemschedError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST
from memsched.formats.reading import read_text
from memsched.graph.packing import Block, BlockPart

__all__ = ["BufferTable", "BuffersError", "parse_table", "read_bytes", "write_table"]


_ALIASES = {
    "id": "id",
    "buffer": "id",
    "buffer_id": "id",
    "lower": "lower",
    "begin": "lower",
    "start": "lower",
    "upper": "upper",
    "end": "upper",
    "size": "size",
    "alignment": "alignment",
    "hint": "hint",
    "gaps": "gaps",
    "offset": "offset",
}
_REQUIRED = ("id", "lower", "upper", "size")
_GAP = re.compile(r"([+-]?\d+)-([+-]?\d+)(?:@([+-]?\d+):([+-]?\d+))?", re.ASCII)
_QUOTED = re.compile(r'["\r\n]')
_SPECIAL = re.compile(r'[",\r\n]')
_STANDARD = "-"


class BuffersError(MemschedError):
    """A file of buffers is unreadable or contradictory; the message names file, line and column."""


class BufferTable(FrozenValue, frozen=True):
    """A file of buffers as it was read.

    Attributes:
        path: What messages call it; "-" is standard input.
        header: The names of the columns as given.
        rows: Per buffer its fields as given.
        lines: Per buffer the line that its row starts in, from 1.
        ids: Per buffer its name.
        lifetimes: Per buffer the half-open range of times [lower, upper).
        blocks: Per buffer what is to be packed.
        carried: The columns that have no meaning here.
        offset_column: Where the addresses stand; the number of columns when the file has none.
        newline: How lines end.
        byte_order_mark: Whether the file began with one.
    """

    path: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    ids: tuple[str, ...]
    lifetimes: tuple[tuple[int, int], ...]
    blocks: tuple[Block, ...]
    carried: tuple[str, ...]
    offset_column: int
    newline: str
    byte_order_mark: bool

    @property
    def name(self) -> str:
        """How messages name the file."""
        return _named(self.path)

    def check_capacity(self, capacity: int) -> None:
        """Refuse given addresses that contradict the capacity (bytes).

        Raises:
            BuffersError: A buffer with a given address ends above ``capacity``.
        """
        for index, block in enumerate(self.blocks):
            if block.offset is not None and block.offset + block.size > capacity:
                column = self.header[self.offset_column]
                raise BuffersError(
                    f"buffer '{self.ids[index]}' would end at {block.offset + block.size}, above the capacity of "
                    f"{capacity} bytes",
                    code="above-capacity",
                    location=f"{self.name} line {self.lines[index]}, column '{column}'",
                )


def _named(path: str) -> str:
    return "standard input" if path == _STANDARD else f"'{path}'"


def read_bytes(source: str | os.PathLike[str]) -> bytes:
    """Return what the file, or standard input for "-", holds.

    Raises:
        BuffersError: It does not exist, is a folder or cannot be read.
        UsageError: Standard input is a terminal.
    """
    path = os.fspath(source)
    if path == _STANDARD and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError(
            "standard input is a terminal",
            code="terminal",
            action="give a CSV file, or send one in with '< buffers.csv'",
        )
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.ENOENT:
            raise BuffersError(
                f"{_named(path)} does not exist", code="no-such-buffers", action="check the path"
            ) from None
        if number == errno.EISDIR:
            action = "give the CSV file in it"
            raise BuffersError(f"{_named(path)} is a folder", code="buffers-is-folder", action=action) from None
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise BuffersError(f"{_named(path)} cannot be read: {reason}", code="buffers-unreadable") from None


def parse_table(data: bytes, path: str, *, alignment: int = 1) -> BufferTable:
    """Read the buffers in ``data``, in time linear in its length but for sorting.

    Args:
        path: What messages call it.
        alignment: Of the addresses of buffers that state none, bytes.

    Raises:
        BuffersError: It is no such file, or what it says cannot be; the message names line and column.
    """
    text = _text(data, path)
    largest = csv.field_size_limit()
    try:
        csv.field_size_limit(max(largest, len(text)))  # a buffer may have many gaps
        table = _table(text, path, alignment, data.startswith(b"\xef\xbb\xbf"))
    finally:
        csv.field_size_limit(largest)
    _check_sum(table)
    _check_given(table)
    return table


def _table(text: str, path: str, alignment: int, byte_order_mark: bool) -> BufferTable:
    records = _records(text, path)
    first = next(records, None)
    if first is None:
        action = f"give a CSV file with the columns {', '.join(_REQUIRED)}"
        raise BuffersError(f"{_named(path)} is empty", code="no-buffers", action=action)
    line, header = first
    columns = _columns(header, f"{_named(path)} line {line}")
    parser = _Parser(path, header, columns, alignment)
    for line, fields in records:
        parser.add(line, fields)
    return parser.table(text, byte_order_mark)


def _text(data: bytes, path: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = f"{_named(path)} line {line}"
        raise BuffersError(
            "this is not UTF-8 text", code="buffers-not-text", location=where, action="give a CSV file"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        where = f"{_named(path)} line {line}"
        raise BuffersError("this is binary data", code="buffers-not-text", location=where, action="give a CSV file")
    return text


def _records(text: str, path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line that each row starts in and its fields; blank lines are left out."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 0
    try:
        while True:
            line = reader.line_num + 1
            fields = next(reader, None)
            if fields is None:
                return
            if len(fields) > 1 or (fields and fields[0].strip()):
                yield line, fields
    except csv.Error as error:
        raise BuffersError(f"not valid CSV: {error}", code="not-csv", location=f"{_named(path)} line {line}") from None


def _columns(header: Sequence[str], where: str) -> dict[str, int]:
    """Return the place of each column that has a meaning, by its meaning."""
    columns: dict[str, int] = {}
    for place, name in enumerate(header):
        meaning = _ALIASES.get(name.strip().lower())
        if meaning is None:
            continue
        if meaning in columns:
            other = header[columns[meaning]]
            raise BuffersError(
                f"the columns '{other}' and '{name}' both give the {meaning}",
                code="column-twice",
                location=where,
                action="keep one of them",
            )
        columns[meaning] = place
    missing = [meaning for meaning in _REQUIRED if meaning not in columns]
    if missing:
        shown = ",".join(header)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        names = ", ".join(f"'{name}'" for name in missing)
        raise BuffersError(
            f"no column {names}",
            code="no-such-column",
            location=where,
            action=f"the header must name them, separated by commas; it is '{shown}'",
        )
    return columns


def _integer(text: str) -> int:
    digits = text.strip()
    negative = digits[:1] == "-"
    if digits[:1] in {"-", "+"}:
        digits = digits[1:]
    if not (digits.isascii() and digits.isdigit()):
        if not text.strip():
            raise BuffersError("it is empty", code="empty-field")
        raise BuffersError(f"'{text.strip()[:40]}' is not a whole number", code="not-a-number")
    if len(digits) > 19 or int(digits) > LARGEST:
        raise BuffersError(f"{text.strip()[:40]} is too large: 2**62 is the limit", code="number-too-large")
    return -int(digits) if negative else int(digits)


class _Parser:
    """Rows to blocks."""

    def __init__(self, path: str, header: Sequence[str], columns: dict[str, int], alignment: int) -> None:
        self._path = path
        self._header = tuple(header)
        self._columns = columns
        self._alignment = alignment
        self._inclusive = int(header[columns["upper"]].strip().lower() == "end")
        self._rows: list[tuple[str, ...]] = []
        self._lines: list[int] = []
        self._lifetimes: list[tuple[int, int]] = []
        self._blocks: list[Block] = []
        self._line_of: dict[str, int] = {}

    def add(self, line: int, fields: list[str]) -> None:
        """Take the row that starts in ``line``."""
        if len(fields) != len(self._header):
            raise BuffersError(
                f"{len(fields)} fields, but the header has {len(self._header)}",
                code="field-count",
                location=f"{_named(self._path)} line {line}",
            )
        self._check_id(line, fields[self._columns["id"]])
        meaning = "lower"
        try:
            lower = _integer(fields[self._columns["lower"]])
            meaning = "upper"
            upper = _integer(fields[self._columns["upper"]]) + self._inclusive
            if lower >= upper:
                raise BuffersError(
                    f"the lifetime [{lower}, {upper}) is empty: it must begin before it ends", code="empty-lifetime"
                )
            meaning = "size"
            size = _integer(fields[self._columns["size"]])
            if size < 0:
                raise BuffersError(f"{size} is negative", code="buffer-below-zero", action="give a number of bytes")
        except BuffersError as error:
            raise error.at(self._place(line, meaning)) from None
        if len(self._columns) == len(_REQUIRED):
            block = Block.whole(size, lower, upper, self._alignment)
        else:
            block = self._block(fields, lower, upper, size)
        self._rows.append(tuple(fields))
        self._lines.append(line)
        self._lifetimes.append((lower, upper))
        self._blocks.append(block)

    def _check_id(self, line: int, name: str) -> None:
        if not name.strip():
            raise BuffersError("it is empty", code="empty-field", location=self._place(line, "id"))
        if name in self._line_of:
            known = self._line_of[name]
            raise BuffersError(
                f"'{name}' is the buffer of line {known} already", code="buffer-twice", location=self._place(line, "id")
            )
        self._line_of[name] = line

    def _place(self, line: int, meaning: str) -> str:
        return f"{_named(self._path)} line {line}, column '{self._header[self._columns[meaning]]}'"

    def _block(self, fields: list[str], lower: int, upper: int, size: int) -> Block:
        """Return the block of a row in a file with optional columns."""
        given: dict[str, str] = {
            meaning: fields[self._columns[meaning]].strip()
            for meaning in ("alignment", "hint", "gaps", "offset")
            if meaning in self._columns
        }
        alignment, hint, offset = self._alignment, None, None
        line = self._line_of[fields[self._columns["id"]]]
        meaning = "alignment"
        try:
            if given.get("alignment"):
                alignment = _integer(given["alignment"])
                if alignment < 1:
                    raise BuffersError(
                        f"{alignment} is not an alignment", code="bad-alignment", action="give 1 or more"
                    )
            meaning = "hint"
            if given.get("hint"):
                hint = _integer(given["hint"])
                if hint < -1:
                    raise BuffersError(
                        f"{hint} is not an address", code="bad-address", action="give 0 or more, or -1 for none"
                    )
            meaning = "gaps"
            parts = _parts(given.get("gaps", ""), lower, upper, size, self._inclusive)
            meaning = "offset"
            if given.get("offset"):
                offset = _integer(given["offset"])
                if offset < 0:
                    raise BuffersError(
                        f"{offset} is negative", code="bad-address", action="give an address, or leave the field empty"
                    )
                if offset % alignment:
                    raise BuffersError(
                        f"{offset} is not a multiple of the alignment of {alignment} bytes", code="offset-misaligned"
                    )
        except BuffersError as error:
            raise error.at(self._place(line, meaning)) from None
        return Block(size, parts, alignment, offset, None if hint == -1 else hint)

    def table(self, text: str, byte_order_mark: bool) -> BufferTable:
        """Return all rows."""
        end = text.find("\n")
        meant = set(self._columns.values())
        return BufferTable(
            path=self._path,
            header=self._header,
            rows=tuple(self._rows),
            lines=tuple(self._lines),
            ids=tuple(self._line_of),
            lifetimes=tuple(self._lifetimes),
            blocks=tuple(self._blocks),
            carried=tuple(name for place, name in enumerate(self._header) if place not in meant),
            offset_column=self._columns.get("offset", len(self._header)),
            newline="\r\n" if end > 0 and text[end - 1] == "\r" else "\n",
            byte_order_mark=byte_order_mark,
        )


def _parts(text: str, lower: int, upper: int, size: int, inclusive: int) -> tuple[BlockPart, ...]:
    """Return the bytes in use, and when, of a buffer with the gaps that ``text`` lists."""
    if not text:
        return (BlockPart(lower, upper, 0, size),)
    gaps = []
    for word in text.split():
        match = _GAP.fullmatch(word)
        if match is None:
            raise BuffersError(
                f"'{word[:40]}' is not a gap",
                code="bad-gap",
                action="write 5-8, or 5-8@0:64 where bytes [0, 64) stay in use",
            )
        begin, end = _integer(match[1]), _integer(match[2]) + inclusive
        low, high = (_integer(match[3]), _integer(match[4])) if match[3] else (0, 0)
        if begin >= end:
            raise BuffersError(f"the gap '{word}' must begin before it ends", code="empty-gap")
        if begin < lower or end > upper:
            raise BuffersError(f"the gap '{word}' is not inside the lifetime [{lower}, {upper})", code="gap-outside")
        if low > high:
            raise BuffersError(f"the window of the gap '{word}' must begin before it ends", code="empty-gap")
        if low < 0 or high > size:
            raise BuffersError(
                f"the window of the gap '{word}' is not inside the buffer's {size} bytes", code="gap-outside"
            )
        gaps.append((begin, end, low, high, word))
    gaps.sort()
    parts, time, last = [], lower, ""
    for begin, end, low, high, word in gaps:
        if begin < time:
            raise BuffersError(f"the gaps '{last}' and '{word}' overlap", code="gaps-overlap")
        if time < begin:
            parts.append(BlockPart(time, begin, 0, size))
        if low < high:
            parts.append(BlockPart(begin, end, low, high))
        time, last = end, word
    if time < upper:
        parts.append(BlockPart(time, upper, 0, size))
    return tuple(parts)


def _check_sum(table: BufferTable) -> None:
    """Refuse buffers so large that no solver could stack them within 64 bits."""
    given = max([block.offset for block in table.blocks if block.offset is not None], default=0)
    needed = given + sum([block.size + block.alignment for block in table.blocks])
    if needed > LARGEST:
        raise BuffersError(
            "all sizes and alignments together are more than 2**62 bytes", code="number-too-large", location=table.name
        )


def _check_given(table: BufferTable) -> None:
    """Refuse two given addresses of which bytes are in use at the same time.

    Sweeps over time with the ranges in use sorted by address: as long as they are disjoint, a new one can overlap
    only those beside it.
    """
    parts = sorted(
        (part.begin, part.end, block.offset + part.low, block.offset + part.high, index)
        for index, block in enumerate(table.blocks)
        if block.offset is not None
        for part in block.parts
        if part.low < part.high
    )
    active: list[tuple[int, int, int]] = []
    ending: list[tuple[int, tuple[int, int, int]]] = []
    for begin, end, low, high, index in parts:
        while ending and ending[0][0] <= begin:
            gone = heapq.heappop(ending)[1]
            del active[bisect.bisect_left(active, gone)]
        entry = (low, high, index)
        place = bisect.bisect_left(active, entry)
        for other in active[max(place - 1, 0) : place + 1]:
            if low < other[1] and other[0] < high:
                column = table.header[table.offset_column]
                raise BuffersError(
                    f"buffer '{table.ids[index]}' is given bytes that '{table.ids[other[2]]}' of line "
                    f"{table.lines[other[2]]} uses at the same time",
                    code="offsets-overlap",
                    location=f"{table.name} line {table.lines[index]}, column '{column}'",
                )
        active.insert(place, entry)
        heapq.heappush(ending, (end, entry))


def write_table(table: BufferTable, offsets: Sequence[int]) -> str:
    """Return the file with ``offsets`` (bytes, one per buffer): the same rows and columns, as they were given.

    Blank lines are left out, and quotes that nothing needs.
    """
    place = table.offset_column
    name = table.header[place] if place < len(table.header) else "offset"
    lines = ["\ufeff" if table.byte_order_mark else ""]
    lines[0] += _line((*table.header[:place], name, *table.header[place + 1 :]))
    lines += [
        _line((*row[:place], str(offset), *row[place + 1 :])) for row, offset in zip(table.rows, offsets, strict=True)
    ]
    return table.newline.join([*lines, ""])


def _line(fields: Sequence[str]) -> str:
    """Return a row, quoted where it must be; `csv.writer` leaves a carriage return bare that is no end of line."""
    text = ",".join(fields)
    if text.count(",") < len(fields) and not _QUOTED.search(text):
        return text
    return ",".join('"' + field.replace('"', '""') + '"' if _SPECIAL.search(field) else field for field in fields)
