"""Tables of TOML files as typed values: what they may hold, and a line on what is wrong with one."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from memsched.base.errors import UsageError
from memsched.base.suggestions import did_you_mean
from memsched.base.typed import Fault, UnfitError, converted, fields_of, notes_of, structure_in
from memsched.base.units import parse_size
from memsched.targets.text import shown_value

__all__ = ["BadTableError", "read_table"]

_Kind = TypeVar("_Kind", bound=msgspec.Struct)

_LONGEST_SIZE = 40
"""Most characters of a size that is written as text."""

_TYPES = {
    "boolean": "of type bool",
    "integer": "of type int",
    "number": "of type float",
    "string": "of type str",
    "object": "a table",
    "array": "a list",
}

_CODES = {
    "missing": "missing-key",
    "unknown": "unknown-key",
    "choice": "value-choice",
    "type": "value-type",
    "bounds": "value-range",
    "form": "value-form",
    "length": "value-form",
}


class BadTableError(ValueError):
    """A table does not hold what it must; the message says in a line where in the file, and why.

    Attributes:
        code: Which problem it is, as in `MemschedError`.
    """

    def __init__(self, problem: str, code: str) -> None:
        super().__init__(problem)
        self.code = code


def read_table(values: dict[str, Any], kind: type[_Kind], read: tuple[str, ...] = ()) -> _Kind:
    """Return the values of a TOML file as ``kind``; sizes may be written as text, such as "256KB".

    Args:
        read: Keys that the file may have as well, and that were taken out of it.

    Raises:
        BadTableError: A key is unknown, missing, of another type or beyond a bound.
    """
    try:
        return converted(_sized(values, kind, ()), kind)
    except UnfitError as error:
        raise BadTableError(_worded(error.fault, read), _CODES[error.fault.reason]) from None


def _sized(value: Any, kind: Any, path: tuple[str | int, ...]) -> Any:
    """Return ``value`` with every size that is written as text converted to bytes."""
    if isinstance(value, str) and any((note.extra or {}).get("unit") == "bytes" for note in notes_of(kind)):
        try:
            return parse_size(value) if len(value) <= _LONGEST_SIZE else value
        except (UsageError, OverflowError) as error:
            raise BadTableError(f"{_key(path)}: {error}", "bad-size") from None
    if isinstance(value, list):
        return [_sized(item, kind, (*path, place)) for place, item in enumerate(value)]
    structure = structure_in(kind)
    if structure is None or not isinstance(value, dict):
        return value
    known = fields_of(structure)
    return {key: _sized(item, known[key], (*path, key)) if key in known else item for key, item in value.items()}


def _worded(fault: Fault, read: tuple[str, ...]) -> str:
    """Return a line on where a table is wrong, and why."""
    if fault.reason == "missing":
        return f"{_where(fault.path)}key '{fault.key}' is missing"
    if fault.reason == "unknown":
        known = fault.known if fault.path else (*read, *fault.known)
        hint = did_you_mean(fault.key, known) or f"; known keys: {', '.join(known)}"
        return f"{_where(fault.path)}unknown key {shown_value(fault.key)}{hint}"
    return f"{_key(fault.path)} {_reason(fault)}"


def _reason(fault: Fault) -> str:
    shown = shown_value(fault.value)
    if fault.reason == "choice":
        return f"must be one of {', '.join(map(repr, fault.choices))}, not {shown}"
    if fault.reason == "type":
        return f"must be {_type(fault, shown)}"
    if fault.reason == "bounds":
        return _bounds(fault, shown)
    return "must not be empty" if not fault.value else f"must be of another form, not {shown}"


def _type(fault: Fault, shown: str) -> str:
    name = next((step for step in reversed(fault.path) if isinstance(step, str)), "")
    kinds = [kind for kind in fault.kinds if kind != "null"]
    if kinds == ["objects"] or (kinds == ["object"] and isinstance(fault.path[-1], int)):
        return f"a list of tables, written as [[{name}]]"
    if kinds == ["object"]:
        return f"a table, written as [{name}]"
    return f"{' or '.join(_TYPES[kind] for kind in kinds)}, not {shown}"


def _bounds(fault: Fault, shown: str) -> str:
    value, least = fault.value, fault.least
    if not isinstance(value, int | float) or (least is not None and not least <= value < math.inf):
        if not least:
            return f"must not be negative, infinite or no number: {shown}"
        return f"must be {least:g} or more{' and finite' if isinstance(value, float) else ''}, not {shown}"
    return f"must be at most {0 if fault.most is None else fault.most:,.0f}, not {shown}"


def _key(path: tuple[str | int, ...]) -> str:
    """Return the key in which a path ends, and where that is."""
    end = max((place for place, step in enumerate(path) if isinstance(step, str)), default=0)
    return f"{_where(path[:end])}key '{path[end]}'"


def _where(path: tuple[str | int, ...]) -> str:
    """Return how a message names the table that a path leads to."""
    if not path:
        return ""
    if len(path) > 1 and isinstance(path[1], int):
        return f"[[{path[0]}]] number {path[1] + 1}: " + "".join(f"{step}: " for step in path[2:])
    return f"[{'.'.join(map(str, path))}]: "
