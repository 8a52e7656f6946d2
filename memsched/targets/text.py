"""A target as the TOML that describes it in full, whatever it was built on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from memsched.targets.model import Target

__all__ = ["to_toml"]


def to_toml(target: Target) -> str:
    """Return TOML text that `load_target` reads as ``target``; it extends nothing."""
    return "\n".join(_lines(dataclasses.asdict(target))) + "\n"


def _lines(values: dict[str, object]) -> Iterator[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, tuple | dict)}
    for key, value in values.items():
        if key not in tables and value is not None:
            yield f"{key} = {_value(value)}"
    for key, found in tables.items():
        for table in (found,) if isinstance(found, dict) else found:
            yield f"\n[{key}]" if isinstance(found, dict) else f"\n[[{key}]]"
            for name, value in table.items():
                if value is not None:
                    yield f"{name} = {_value(value)}"


def _value(value: object) -> str:
    # JSON's strings are TOML's but for this: no half characters, and one more that is escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
