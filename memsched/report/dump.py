"""Reports as the text of JSON files."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from memsched.report.values.base import Section

__all__ = ["dump_report", "json_text"]

_NOT_ASCII = re.compile("[^\x00-\x7f]")


def dump_report(report: Section) -> str:
    """Return the report as JSON text, with one line per entry of the long lists: quick to write and to read."""
    lines = [f"  {json_text(key)}: {_section(value)}" for key, value in _fields(report)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


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


def _section(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        return "[\n    " + _entries(value) + "\n  ]"
    if isinstance(value, dict | msgspec.Struct) and (fields := _fields(value)):
        return "{\n" + ",\n".join(f"    {json_text(key)}: {json_text(item)}" for key, item in fields) + "\n  }"
    return json_text(value)


def _entries(values: list[Any] | tuple[Any, ...]) -> str:
    """Return the entries of a list, one to a line, encoded at one go: entry by entry takes five times as long."""
    if not isinstance(values[0], dict | msgspec.Struct) or not (fields := _fields(values[0])):
        return ",\n    ".join(json_text(value) for value in values)
    # No string can hold this: its first quote would be escaped, or would end the string before a name.
    start = f"{{{json_text(fields[0][0])}: "
    return json_text(values)[1:-1].replace(f", {start}", f",\n    {start}")


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]
