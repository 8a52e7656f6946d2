"""Reports as the text of JSON files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from memsched.report.values.base import Section

__all__ = ["dump_report", "json_text", "report_pieces"]

_AT_ONCE: Final = 4_096
"""Entries of a list that are encoded at one go."""

_NOT_ASCII = re.compile("[^\x00-\x7f]")


def dump_report(report: Section) -> str:
    """Return the report as JSON text, with one line per entry of the long lists: quick to write and to read."""
    return b"".join(report_pieces(report)).decode("ascii")


def report_pieces(report: Section) -> Iterator[bytes]:
    """Yield what `dump_report` returns, in ASCII and in pieces: of a large graph the whole takes much memory."""
    before = "{\n"
    for key, value in _fields(report):
        yield f"{before}  {json_text(key)}: ".encode()
        yield from _section(value)
        before = ",\n"
    yield b"\n}\n"


def json_text(value: Any) -> str:
    """Return ``value`` as ``json.dumps`` writes it, but for very small and very large floats, much faster."""
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    except UnicodeEncodeError:  # the name of a file that is no UTF-8
        return json.dumps(msgspec.to_builtins(value))
    return text if text.isascii() else _NOT_ASCII.sub(_escaped, text)


def _fields(part: Any) -> list[tuple[str, Any]]:
    """Return what is written of a struct or a mapping, by name."""
    if not isinstance(part, msgspec.Struct):
        return list(part.items())
    found = [(name, getattr(part, name)) for name in part.__struct_fields__]
    return [(name, value) for name, value in found if value is not msgspec.UNSET]


def _section(value: Any) -> Iterator[bytes]:
    if isinstance(value, list | tuple) and value:
        yield from _list(value, b"  ")
    elif isinstance(value, dict | msgspec.Struct) and (fields := _fields(value)):
        before = "{\n"
        for key, item in fields:
            yield f"{before}    {json_text(key)}: ".encode()
            if isinstance(item, list | tuple) and item and isinstance(item[0], dict | msgspec.Struct):
                yield from _list(item, b"    ")
            else:
                yield json_text(item).encode()
            before = ",\n"
        yield b"\n  }"
    else:
        yield json_text(value).encode()


def _list(values: list[Any] | tuple[Any, ...], indent: bytes) -> Iterator[bytes]:
    yield b"[\n  " + indent
    yield from _entries(values, f",\n  {indent.decode()}")
    yield b"\n" + indent + b"]"


def _entries(values: list[Any] | tuple[Any, ...], between: str) -> Iterator[bytes]:
    """Yield the entries of a list, one to a line, many encoded at one go: entry by entry takes five times as long."""
    if not isinstance(values[0], dict | msgspec.Struct) or not (fields := _fields(values[0])):
        yield between.join(json_text(value) for value in values).encode()
        return
    # No string can hold this: its first quote would be escaped, or would end the string before a name.
    start = f"{{{json_text(fields[0][0])}: "
    for place in range(0, len(values), _AT_ONCE):
        lines = json_text(values[place : place + _AT_ONCE])[1:-1].replace(f", {start}", f"{between}{start}")
        yield (f"{between}{lines}" if place else lines).encode()


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]
