"""Plain data, as JSON and TOML give it, as the values of a type; what does not fit is told by where it is and why."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from memsched.base.frozen import FrozenValue

__all__ = ["Fault", "UnfitError", "converted", "dotted", "fields_of", "notes_of", "structure_in"]

_Kind = TypeVar("_Kind")
_Step = str | int

_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_UNKNOWN = "Object contains unknown field `"
_PLACE = re.compile(r" - at (?:`key` in )?`\$([^`]*)`$")
"""Ends a message; the names of fields have no backticks, keys that are not known may have any."""
_DEEPEST = 50
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class Fault(FrozenValue, frozen=True):
    """What does not fit, and where.

    Attributes:
        path: Keys and places in lists that lead to it; of a key that is missing or unknown, to the table of it.
        reason: "type": of another one than ``kinds``. "choice": none of ``choices``. "bounds": below ``least``, above
            ``most``, or no number. "form": a text of another form. "length": a list of too few entries or too many.
        key: That is missing or unknown; "" for other reasons.
        value: What was there; the table of a key that is missing or unknown.
        kinds: What it may be: "array", "boolean", "integer", "null", "number", "object", "objects" (a list of such),
            "string".
        known: The keys that the table may have.
    """

    path: tuple[_Step, ...]
    reason: Literal["missing", "unknown", "type", "choice", "bounds", "form", "length"]
    value: object
    key: str = ""
    kinds: tuple[str, ...] = ()
    choices: tuple[object, ...] = ()
    least: float | None = None
    most: float | None = None
    known: tuple[str, ...] = ()


class UnfitError(ValueError):
    """Data does not fit a type."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{dotted(fault.path) or 'the whole'}: {fault.reason} {fault.key}".rstrip())
        self.fault = fault


def dotted(path: Sequence[_Step]) -> str:
    """Return a path as people write it, such as "steps[2].op"; "" for the whole."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def converted(data: object, kind: type[_Kind]) -> _Kind:
    """Return plain data as a value of ``kind``, a msgspec structure.

    Raises:
        UnfitError: It does not fit.
    """
    try:
        return msgspec.convert(data, kind)
    except UnicodeEncodeError:
        # msgspec cannot look at half a character, which JSON may have, and of which no choice and no form consists.
        return converted(_whole_characters(data), kind)
    except msgspec.ValidationError as error:
        raise UnfitError(_fault(str(error), data, kind)) from None


def _whole_characters(data: Any, depth: int = _DEEPEST) -> Any:
    """Return plain data with a mark in place of each half of a character, as deep as any type goes."""
    if isinstance(data, str):
        return data.encode("utf-8", "replace").decode()
    if isinstance(data, list) and depth:
        return [_whole_characters(item, depth - 1) for item in data]
    if isinstance(data, dict) and depth:
        return {_whole_characters(key): _whole_characters(item, depth - 1) for key, item in data.items()}
    return data


def _fault(message: str, data: object, kind: Any) -> Fault:
    place = _PLACE.search(message)
    path, value, inner = _follow(place[1] if place else "", data, kind)
    missing = _MISSING.match(message)
    if missing is None and not message.startswith(_UNKNOWN):
        return _of_a_value(path, value, inner)
    known = next((tuple(fields_of(one)) for one in _options(inner) if _is_struct(one)), ())
    if missing is not None:
        return Fault(path, "missing", value, missing[1], known=known)
    key = next((key for key in value if key not in known), "") if isinstance(value, dict) else ""
    return Fault(path, "unknown", value, str(key), known=known)


def _follow(steps: str, value: Any, kind: Any) -> tuple[tuple[_Step, ...], Any, Any]:
    """Return the path that a message gives, with the keys that it leaves out, what is there and what it should be."""
    path: list[_Step] = []
    for name, place in _STEP.findall(steps):
        step: _Step = name or (int(place) if place.isdigit() else _unfit_key(value, kind))
        if isinstance(value, dict) and step not in value:
            break
        path.append(step)
        kind = _inner(kind, step)
        value = value[step]
    return tuple(path), value, kind


def _unfit_key(value: dict[str, object], kind: Any) -> str:
    """Return the first key of a table of one kind whose value does not fit."""
    return next((key for key, item in value.items() if not _fits(item, _inner(kind, key))), "")


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _inner(kind: Any, step: _Step) -> Any:
    """Return the type of an entry of ``kind``."""
    for one in _options(kind):
        bare = _bare(one)
        arguments = typing.get_args(bare)
        if isinstance(step, str) and _is_struct(bare) and step in fields_of(bare):
            return fields_of(bare)[step]
        if isinstance(step, str) and typing.get_origin(bare) is dict:
            return arguments[1]
        if isinstance(step, int) and typing.get_origin(bare) in {tuple, list}:
            return arguments[0] if len(arguments) < 2 or arguments[1] is Ellipsis else arguments[step]
    return Any


def _options(kind: Any) -> Iterator[Any]:
    """Yield the types that a value may be of, each with its annotations."""
    if _is_union(kind):
        for one in typing.get_args(kind):
            yield from _options(one)
    else:
        yield kind


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in {typing.Union, types.UnionType}


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the types of a structure's fields by the names that they have in data."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


_NAMES: dict[Any, str] = {
    bool: "boolean",
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
    tuple: "array",
    types.NoneType: "null",
}


def notes_of(kind: Any) -> Iterator[msgspec.Meta]:
    """Yield what a type is annotated with, and what the types are that it is a union of."""
    for one in _options(kind):
        if typing.get_origin(one) is Annotated:
            yield from (note for note in typing.get_args(one)[1:] if isinstance(note, msgspec.Meta))


def structure_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the structure that a type is, or that a list or a union of it is of; None where there is none."""
    for one in _options(kind):
        bare = _bare(one)
        if _is_struct(bare):
            found: type[msgspec.Struct] = bare
            return found
        if typing.get_origin(bare) in {tuple, list}:
            return structure_in(typing.get_args(bare)[0])
    return None


def _name(bare: Any) -> str:
    if _is_struct(bare):
        return "object"
    if typing.get_origin(bare) is Literal:
        return _NAMES[type(typing.get_args(bare)[0])]
    if typing.get_origin(bare) in {tuple, list} and structure_in(bare) is not None:
        return "objects"
    return _NAMES.get(typing.get_origin(bare) or bare, "")


def _of_a_value(path: tuple[_Step, ...], value: object, kind: Any) -> Fault:
    """Return why a value does not fit, by looking at it again."""
    options = [one for one in _options(kind) if _bare(one) is not msgspec.UnsetType]
    names = tuple(dict.fromkeys(name for one in options if (name := _name(_bare(one)))))
    given = _NAMES.get(type(value), "")
    literal = next((_bare(one) for one in options if typing.get_origin(_bare(one)) is Literal), None)
    if literal is not None:
        return Fault(path, "choice", value, choices=typing.get_args(literal))
    alike = next((one for one in options if given in _accepted(_name(_bare(one)))), None)
    if alike is None:
        return Fault(path, "type", value, kinds=names)
    if given in {"integer", "number"}:
        least, most = (
            next((b for n in notes_of(alike) if (b := getattr(n, name)) is not None), None) for name in ("ge", "le")
        )
        return Fault(path, "bounds", value, least=least, most=most)
    return Fault(path, "length" if given == "array" else "form", value)


def _accepted(name: str) -> tuple[str, ...]:
    """Return of what kinds values are that are taken for ``name``."""
    return {"number": ("integer", "number"), "objects": ("array",)}.get(name, (name,))
