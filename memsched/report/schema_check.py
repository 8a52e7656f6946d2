"""Checks values against the JSON Schemas that ship with memsched, without a library that only development has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from memsched.report.text import one_line, shortened

__all__ = ["first_violation"]

_NAME_COLUMNS = 40
"""Of a value or a key that a message quotes."""

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}

_PYTHON = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": float,
    "object": dict,
    "string": str,
}
_PLAIN = {
    *("type", "description", "minimum", "items", "minItems", "maxItems"),
    *("properties", "required", "additionalProperties"),
}
"""What `_all_agree` understands."""

_WORDS = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a text",
}


def first_violation(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return in a line where ``value`` does not agree with ``schema``, and why; None where it does.

    Knows the keywords that the package's own schemas use, and ignores all others. Goes as deep as the schema does,
    however deep the value is.
    """
    return next(_violations(value, schema, schema, ""), None)


def _violations(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> Iterator[str]:
    if "$ref" in schema:
        target: Any = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        yield from _violations(value, target, root, where)
    if "oneOf" in schema:
        branches = [list(_violations(value, branch, root, where)) for branch in schema["oneOf"]]
        if all(branches):
            # The last is the one that is not null, whose reason says most.
            yield branches[-1][0]
        return
    yield from _of_one_value(value, schema, where)
    if isinstance(value, dict):
        yield from _of_an_object(value, schema, root, where)
    elif isinstance(value, list) and "items" in schema:
        if _all_agree(value, schema["items"]):
            return
        for place, item in enumerate(value):
            yield from _violations(item, schema["items"], root, f"{where}[{place}]")


def _of_one_value(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield what is wrong with a value, whatever it holds."""
    label = where or "the whole"
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        yield f"{label} is {_shown(value)}, not {' or '.join(_WORDS[kind] for kind in kinds)}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{label} is {_shown(value)}, not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{label} is {_shown(value)}, not one of {', '.join(schema['enum'])}"
    if "minimum" in schema and _TYPES["number"](value) and value < schema["minimum"]:
        yield f"{label} is {_shown(value)}, less than {schema['minimum']}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{label} is {_shown(value)}, which is not of its form"
    if isinstance(value, list) and not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{label} has {len(value):,} entries"


def _of_an_object(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], where: str
) -> Iterator[str]:
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{where or 'it'} has no '{key}'"
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for key, item in value.items():
        path = f"{where}.{shortened(key, _NAME_COLUMNS)}".lstrip(".")
        if key in known:
            yield from _violations(item, known[key], root, path)
        elif others is False:
            yield f"'{path}' is nothing that this version knows"
        elif isinstance(others, Mapping):
            yield from _violations(item, others, root, path)


def _all_agree(values: list[Any], schema: Mapping[str, Any]) -> bool:
    """Whether all values surely agree with a schema of the plain kind; False leaves it to a look at each.

    Whole columns of a list are looked at together, as one by one takes ten times as long for large graphs.
    """
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if not kinds or not schema.keys() <= _PLAIN or not set(map(type, values)) <= {_PYTHON[kind] for kind in kinds}:
        return False
    if "minimum" in schema and min((value for value in values if value is not None), default=0) < schema["minimum"]:
        return False
    if "items" in schema:
        lists = [value for value in values if value is not None]
        lengths = set(map(len, lists))
        if any(not schema.get("minItems", 0) <= length <= schema.get("maxItems", length) for length in lengths):
            return False
        return _all_agree(list(chain.from_iterable(lists)), schema["items"])
    if "properties" in schema:
        known, needed = schema["properties"], set(schema.get("required", ()))
        for keys in set(map(tuple, values)):
            if not needed <= set(keys) <= known.keys():
                return False
        return all(_all_agree([value[key] for value in values if key in value], known[key]) for key in known)
    return "object" not in kinds and "array" not in kinds


def _shown(value: Any) -> str:
    """Return a value as a message quotes it; of lists and objects only what they are."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str):
        return f"'{shortened(one_line(value), _NAME_COLUMNS)}'"
    return json.dumps(value)
