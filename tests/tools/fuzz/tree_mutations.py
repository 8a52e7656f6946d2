"""Changes to files that are trees of values, JSON and TOML: values, types, keys, nesting; and then to their text."""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

from tests.tools.fuzz import text_mutations

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["MARK", "json_mutated", "toml_mutated"]

MARK = "<fuzz"
"""What texts hold that must not become markup: no page may have it as it stands."""

_NUMBERS = (
    *(-1, 0, 1, 2, 3, 5, 255, 256, 257, 2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 10**400),
    *(0.5, -0.0, -1.5, 1e-320, 5e-324, 1e6, 1e15, 1e16, 1e300, 1.7e308, float("nan"), float("inf"), float("-inf")),
)  # fmt: skip
_TEXTS = (
    *("", " ", "x", "default", "1KB", "64MB", "1e999GB", "-1B", "9" * 50, "a\nb", "\x00", "\x1b[31m", "\u202e"),
    *(f"{MARK}>", f"</script>{MARK}>", f"\">{MARK} onload='x'>", f"'{MARK}", f"<!--{MARK}", "]]>", "{{ page }}"),
    *("\ud800", "\U0001f600", "\u2028", "[red]x[/red]", "../../x", "/", "%s%n", "-", "{% x %}", "n" * 5000),
    *("broadcast", "optimize", "analyze", "batch"),
)  # fmt: skip
_DIGITS, _HEX, _DEEP, _DATE = "@digits@", "@hex@", "@deep@", "@date@"
"""Texts in whose place something comes that no library writes: thousands of digits, thousands of brackets, a date."""

_PLACES = 4_000
"""Values of a tree that can be changed: further ones are left alone."""
_TREE = 0.85
"""Of the cases: the others are changes to text alone."""


class _Repeating(dict[str, Any]):
    """An object one of whose keys is there twice."""

    def items(self) -> Any:
        return [*super().items(), *list(super().items())[-1:]]


def json_mutated(data: bytes, rng: random.Random) -> bytes:
    """Return JSON with a few changes; what is no JSON is changed as text."""

    def dump(tree: Any) -> str:
        return json.dumps(tree, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, None, 1)))

    return _mutated(data, rng, json.loads, dump)


def toml_mutated(data: bytes, rng: random.Random) -> bytes:
    """Return TOML with a few changes; what is no TOML is changed as text."""

    def dump(tree: Any) -> str:
        return "\n".join(f"{_key(key)} = {_toml(value)}" for key, value in _items(tree)) + "\n"

    return _mutated(data, rng, lambda given: tomllib.loads(given.decode()), dump)


def _mutated(data: bytes, rng: random.Random, load: Callable[[bytes], Any], dump: Callable[[Any], str]) -> bytes:
    try:
        tree = load(data)
    except (ValueError, RecursionError):
        return text_mutations.mutated(data, rng)
    if rng.random() > _TREE:
        return text_mutations.mutated(data, rng)
    try:
        text = dump(_changed(tree, rng))
    except (ValueError, RecursionError):
        return text_mutations.mutated(data, rng)
    return _finished(text, rng)


def _finished(text: str, rng: random.Random) -> bytes:
    digits, deep = rng.choice((50, 400, 5000)), rng.choice((20, 300, 3000, 100_000))
    text = text.replace(f'"{_DIGITS}"', "9" * digits).replace(f'"{_HEX}"', f"0x1{'0' * digits}")
    if _DEEP in text:
        text = text.replace(f'"{_DEEP}"', rng.choice(("[" * deep + "]" * deep, "[" * deep, '{"a":' * deep)), 1)
    result = text.replace(f'"{_DATE}"', "1979-05-27T07:32:00Z").encode("utf-8", "surrogatepass")
    return text_mutations.mutated(result, rng) if rng.random() < 0.1 else result


def _items(tree: Any) -> Iterable[tuple[str, Any]]:
    return tree.items() if isinstance(tree, dict) else [("value", tree)]


def _key(key: str) -> str:
    return json.dumps(key)


def _toml(value: Any) -> str:
    """Return a value as TOML has it within a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value) if isinstance(value, str | bool | int) or value is None else str(value)


def _changed(tree: Any, rng: random.Random) -> Any:
    root = {"": copy.deepcopy(tree)}
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        places = _places(root)
        parent, key = rng.choice(places)
        rng.choice(_CHANGES)(parent, key, places, rng)
        root.setdefault("", {})
    return root[""]


def _places(root: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return where the values of a tree are, each as the list or object it is in and its place there."""
    found: list[tuple[Any, Any]] = [(root, "")]
    for parent, key in found:
        value = parent[key]
        if len(found) > _PLACES:
            break
        if isinstance(value, dict):
            found.extend((value, name) for name in list(value))
        elif isinstance(value, list):
            found.extend((value, place) for place in range(len(value)))
    return found


_Place = tuple[Any, Any]


def _another_value(parent: Any, key: Any, _places: list[_Place], rng: random.Random) -> None:
    parent[key] = rng.choice(
        (
            None,
            True,
            False,
            [],
            {},
            [[]],
            {"": {}},
            rng.choice(_NUMBERS),
            rng.choice(_TEXTS),
            _DIGITS,
            _HEX,
            _DEEP,
            _DATE,
        )
    )


def _same_type(parent: Any, key: Any, _places: list[_Place], rng: random.Random) -> None:
    value = parent[key]
    if isinstance(value, bool):
        parent[key] = not value
    elif isinstance(value, int | float):
        parent[key] = rng.choice((*_NUMBERS, value + 1, value - 1, -value, value // 2, type(value)(2) * value))
    elif isinstance(value, str):
        parent[key] = rng.choice((*_TEXTS, value + rng.choice(_TEXTS), value[: len(value) // 2]))
    elif isinstance(value, list):
        parent[key] = value * rng.choice((0, 2, 3, 40)) if len(value) < 200 else []
    else:
        parent[key] = {}


def _gone(parent: Any, key: Any, _places: list[_Place], _rng: random.Random) -> None:
    del parent[key]


def _elsewhere(parent: Any, key: Any, places: list[_Place], rng: random.Random) -> None:
    other, place = rng.choice(places)
    parent[key] = copy.deepcopy(other[place])


def _renamed(parent: Any, key: Any, _places: list[_Place], rng: random.Random) -> None:
    if isinstance(parent, dict):
        parent[rng.choice((*_TEXTS, f"{key}x", str(key).upper()))] = parent.pop(key)
    else:
        parent.append(copy.deepcopy(parent[key]))


def _added(parent: Any, _key: Any, _places: list[_Place], rng: random.Random) -> None:
    if isinstance(parent, dict):
        parent[rng.choice(_TEXTS)] = rng.choice((*_NUMBERS, *_TEXTS))
    else:
        parent.insert(rng.randrange(len(parent) + 1), rng.choice((*_NUMBERS, *_TEXTS, None, {}, [])))


def _twice(parent: Any, key: Any, _places: list[_Place], _rng: random.Random) -> None:
    if isinstance(parent[key], dict) and parent[key]:
        parent[key] = _Repeating(parent[key])


def _swapped(parent: Any, key: Any, _places: list[_Place], rng: random.Random) -> None:
    siblings = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    other = rng.choice(siblings)
    parent[key], parent[other] = parent[other], parent[key]


_CHANGES: tuple[Callable[[Any, Any, list[_Place], random.Random], None], ...] = (
    *(_another_value, _same_type, _same_type, _same_type, _same_type),
    *(_gone, _elsewhere, _renamed, _added, _twice, _swapped),
)
