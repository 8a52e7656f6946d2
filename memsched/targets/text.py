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
    tables = {key: value for key, value in values.items() if isinstance(value, tuple)}
    for key, value in values.items():
        if key not in tables:
            yield f"{key} = {json.dumps(value)}"
    for key, rules in tables.items():
        for rule in rules:
            yield f"\n[[{key}]]"
            for name, value in rule.items():
                if value is not None:
                    yield f"{name} = {json.dumps(value)}"
