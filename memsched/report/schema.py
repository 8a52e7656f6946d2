"""JSON Schemas of all files that memsched writes or reads as tables, made from the types that check them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import msgspec

from memsched.base.errors import UsageError
from memsched.base.suggestions import did_you_mean
from memsched.base.typed import fields_of, notes_of

__all__ = ["SCHEMAS", "json_schema", "json_schema_of"]

SCHEMAS: Mapping[str, tuple[str, str]] = {
    "report": ("memsched.report.values.optimize", "OptimizeReport"),
    "allocate": ("memsched.report.values.allocate", "AllocateReport"),
    "batch": ("memsched.report.values.batch", "BatchReport"),
    "decoder": ("memsched.report.values.decoder", "DecoderReport"),
    "emit": ("memsched.report.values.emit", "EmitReport"),
    "stream": ("memsched.report.values.stream", "StreamReport"),
    "diff": ("memsched.report.values.diff", "DiffReport"),
    "doctor": ("memsched.report.values.doctor", "DoctorReport"),
    "overview": ("memsched.report.values.overview", "OverviewReport"),
    "distribute": ("memsched.report.values.distribute", "DistributionReport"),
    "pipeline": ("memsched.report.values.pipeline", "PipelineReport"),
    "relay": ("memsched.report.values.relay", "RelayReport"),
    "target": ("memsched.targets.model", "TargetFile"),
    "cluster": ("memsched.targets.cluster", "ClusterTable"),
}
"""Module and type by name."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIZE_AS_TEXT = {"type": "string", "maxLength": 40, "description": 'A size such as "1536MB".'}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*)$")


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of that name, one of `SCHEMAS`.

    Raises:
        UsageError: There is none of that name.
    """
    if name not in SCHEMAS:
        raise UsageError(
            f"there is no schema '{name}'{did_you_mean(name, SCHEMAS)}",
            code="no-such-schema",
            action=f"choose one of {', '.join(SCHEMAS)}",
        )
    module, kind = SCHEMAS[name]
    return json_schema_of(getattr(import_module(module), kind))


def json_schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a type, described in the words of the docstrings."""
    (top,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for one in _structures(kind):
        found = parts.get(one.__name__)
        if found is not None:
            _describe(found, one)
    whole = parts.pop(top["$ref"].rpartition("/")[2])
    return {"$schema": _DIALECT, **whole, "$defs": dict(sorted(parts.items()))}


def _structures(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield ``kind`` and every structure that it is made of."""
    seen: list[type[msgspec.Struct]] = []
    rest: list[Any] = [msgspec.inspect.type_info(kind)]
    while rest:
        one = rest.pop()
        if isinstance(one, msgspec.inspect.StructType):
            if one.cls in seen:
                continue
            seen.append(one.cls)
            yield one.cls
            rest.extend(field.type for field in one.fields)
        inner = (getattr(one, name, None) for name in ("item_type", "value_type", "type"))
        rest.extend(found for found in inner if isinstance(found, msgspec.inspect.Type))
        for name in ("item_types", "types"):
            rest.extend(getattr(one, name, ()))


def _describe(part: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Put the words of a docstring into a schema: of the type itself, and of each attribute."""
    about, _ = _words(inspect.getdoc(kind) or "")
    attributes: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        attributes |= _words(inspect.getdoc(one) or "")[1] if issubclass(one, msgspec.Struct) else {}
    part.pop("description", None)
    if about:
        part["description"] = about
    for inner in part["properties"].values():
        inner.pop("default", None)
    for name, hint in fields_of(kind).items():
        if any((note.extra or {}).get("unit") == "bytes" for note in notes_of(hint)):
            numbers = part["properties"][name]
            part["properties"][name] = {"anyOf": [*numbers.get("anyOf", [numbers]), _SIZE_AS_TEXT]}
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    for name, text in attributes.items():
        part["properties"][names[name]]["description"] = text


def _words(text: str) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of the type, and of its attributes."""
    about, _, rest = text.partition("\nAttributes:\n")
    found: dict[str, list[str]] = {}
    for line in rest.splitlines():
        start = _ATTRIBUTE.match(line)
        if start:
            found[start[1]] = [start[2]]
        elif line.strip():
            found[next(reversed(found))].append(line.strip())
    return " ".join(about.split()), {name: " ".join(lines) for name, lines in found.items()}
