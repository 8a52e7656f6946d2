"""TOML text: a target as the text that describes it in full, whatever it was built on, and any text as its values."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from memsched.targets.model import Target

__all__ = ["LONGEST_FILE", "parse_toml", "shown_value", "to_toml"]

LONGEST_FILE: Final = 2**20
"""Most bytes of a target's or cluster's file."""

_LONGEST_LINE: Final = 10_000
"""The time to read a key grows with the square of its dots, and a key is one line."""


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values that TOML text states.

    Raises:
        ValueError: It is not TOML, or not TOML that a person would write; the message says in one line what is wrong.
    """
    # Most commands read none, and what only prints help imports as little as it can.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"line {number} has {len(line):,} characters, more than {_LONGEST_LINE:,}")
    try:
        values: dict[str, Any] = tomllib.loads(text)
    # ValueError: its own error, and that of integers with thousands of digits.
    except (ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    return values


def shown_value(value: object) -> str:
    """Return a value for a message; numbers of thousands of digits cannot even be written out."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def to_toml(target: Target) -> str:
    """Return TOML text that `load_target` reads as ``target``; it extends nothing."""
    return "\n".join(_lines(msgspec.to_builtins(target))) + "\n"


def _lines(values: dict[str, object]) -> Iterator[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, tuple | dict) and not _names(value)}
    for key, value in values.items():
        if key not in tables and value is not None:
            yield f"{key} = {_value(value)}"
    for key, found in tables.items():
        for table in (found,) if isinstance(found, dict) else found:
            yield f"\n[{key}]" if isinstance(found, dict) else f"\n[[{key}]]"
            yield from _entries(table)
            for name, value in table.items():
                if isinstance(value, dict):
                    yield f"\n[{key}.{name}]"
                    yield from _entries(value)


def _entries(table: dict[str, object]) -> Iterator[str]:
    for name, value in table.items():
        if value is not None and not isinstance(value, dict):
            yield f"{name} = {_value(value)}"


def _names(value: object) -> bool:
    return isinstance(value, tuple) and any(isinstance(one, str) for one in value)


def _value(value: object) -> str:
    # JSON's strings are TOML's, with two exceptions: TOML has no half surrogates, and escapes one more character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
