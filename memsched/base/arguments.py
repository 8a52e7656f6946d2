"""Arguments of the Python API, compared with their annotations: a value of another type is told in one line."""

from __future__ import annotations

import collections.abc
import functools
import numbers
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, ParamSpec, TypeVar

from memsched.base.errors import UsageError

__all__ = ["check_fields", "checked"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_LISTS: Final = frozenset({tuple, list, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable})
_WORDS: Final[Mapping[Any, str]] = {
    bytes: "bytes",
    float: "a number",
    int: "a whole number",
    os.PathLike: "a path",
    str: "text",
    types.NoneType: "None",
    collections.abc.Callable: "a function",
}


def checked(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function that refuses arguments of other types than its annotations name.

    Lists and dictionaries are looked into for text and bytes alone: who reads numbers says better what they mean.
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]

    @functools.wraps(function)
    def called(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        _check(function, (*zip(names, args, strict=False), *kwargs.items()))
        return function(*args, **kwargs)

    return called


def check_fields(value: object, names: Iterable[str]) -> None:
    """Refuse a value whose fields are of other types than the annotations of its class name; see `checked`."""
    _check(type(value), [(name, getattr(value, name)) for name in names])


def _check(annotated: Callable[..., Any], given: Iterable[tuple[str, object]]) -> None:
    hints = _hints(annotated)
    for name, value in given:
        if name in hints and not _fits(value, hints[name]):
            words = list(dict.fromkeys(word for one in _options(hints[name]) for word in _words(one)))
            known = " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
            raise UsageError(f"give {known}, not {reprlib.repr(value)}", code="argument-type", location=name)


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function)


def _options(hint: Any) -> Iterator[Any]:
    """Yield the types that a value may be of; of a literal that of its values, which are looked up elsewhere."""
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        for one in typing.get_args(hint):
            yield from _options(one)
    elif typing.get_origin(hint) is Literal:
        yield from dict.fromkeys(map(type, typing.get_args(hint)))
    else:
        yield hint


def _fits(value: object, hint: Any) -> bool:
    return any(_is_one(value, option) for option in _options(hint))


def _is_one(value: object, hint: Any) -> bool:
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in {int, float}:
        number = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)
    if kind in _LISTS:
        items: Any = value
        listed = isinstance(items, collections.abc.Collection) and not isinstance(items, str | bytes | Mapping)
        count = len(inner) if kind is tuple and Ellipsis not in inner else 0
        return listed and (not inner or _all_fit(items, inner[0])) and (not count or len(items) == count)
    if kind is collections.abc.Mapping:
        return isinstance(value, Mapping) and _all_fit(value.keys(), inner[0]) and _all_fit(value.values(), inner[1])
    if kind is collections.abc.Callable:
        return callable(value)
    return not isinstance(kind, type) or isinstance(value, kind)


def _all_fit(items: Iterable[Any], hint: Any) -> bool:
    return hint not in {str, bytes} or all(isinstance(item, hint) for item in items)


def _words(hint: Any) -> tuple[str, ...]:
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is bool:
        return "True", "False"
    if kind in _LISTS:
        several = {str: "texts", int: "whole numbers"}.get(inner[0], "values") if inner else "values"
        return (f"{len(inner)} {several}" if kind is tuple and Ellipsis not in inner else f"a list of {several}",)
    if kind is collections.abc.Mapping:
        return ("a dictionary by text" if inner[0] is str else "a dictionary",)
    return (_WORDS.get(kind) or f"a value of type {getattr(kind, '__name__', kind)}",)
