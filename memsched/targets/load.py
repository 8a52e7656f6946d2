"""Targets from TOML: the built-in ones by name, others by the path of their file. Every key is checked."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from memsched.errors import TargetError, UsageError
from memsched.suggestions import did_you_mean
from memsched.targets.model import InPlaceRule, PartViewRule, PipelineRules, Pool, Target, ViewRule, WorkspaceRule
from memsched.targets.text import LONGEST_FILE, parse_toml, shown_value
from memsched.units import parse_size

__all__ = ["Target", "builtin_targets", "default_target", "load_target"]

_FOLDER = Path(__file__).parent
_DEFAULTS = {"onnx": "onnxruntime", "tflite": "litert"}
_RULES: Mapping[str, type] = {
    "views": ViewRule,
    "part_views": PartViewRule,
    "in_place": InPlaceRule,
    "workspace": WorkspaceRule,
}
_NOT_NEGATIVE = {
    "input", "inputs", "above_bytes", "outputs", "size", "cost",
    "on_chip_bytes", "bandwidth_bytes_per_second", "flops_per_second", "parameter_cache_bytes", "parameter_bits",
}  # fmt: skip


_LARGEST = 2**50
"""Of a size or a count, as of a cluster's memory: more is a mistake, and more than searches can add up."""
_LARGEST_ALIGNMENT = 2**30
_LARGEST_FACTOR = 1e6
"""Of what a workspace is of its op's outputs."""
_LARGEST_NUMBER = 10**30
"""Of whole numbers where others are permitted: thousands of digits are no float."""
_RATES = {"bandwidth_bytes_per_second", "flops_per_second"}
_LEAST_RATE = 1.0
_LEAST_UTILISATION = 1e-6
"""So that no time is infinite."""


def builtin_targets() -> tuple[str, ...]:
    """Return the names of the targets that ship with memsched, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def default_target(format: str) -> str:  # noqa: A002 - the word that the module's value uses
    """Return the target that a model of ``format`` ("onnx" or "tflite") is judged by when none is named.

    Raises:
        TargetError: No such format.
    """
    if format not in _DEFAULTS:
        raise TargetError(f"no default target for format '{format}'; name one of: {', '.join(builtin_targets())}")
    return _DEFAULTS[format]


def load_target(name_or_path: str) -> Target:
    """Return the built-in target of that name, or the one that a .toml file describes.

    Raises:
        TargetError: An unknown name, an unreadable file, or a key that is unknown, of the wrong type or in
            contradiction to another.
    """
    if name_or_path in builtin_targets():
        path = _FOLDER / f"{name_or_path}.toml"
    elif name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    else:
        raise TargetError(_unknown(name_or_path))
    values = _read(path, ())
    values.setdefault("name", path.stem)
    values.setdefault("description", "")
    return _build(path, values)


def _unknown(name: str) -> str:
    names = builtin_targets()
    hint = did_you_mean(name, names)
    return f"unknown target '{name}'{hint}; built-in targets: {', '.join(names)}; or give the path of a .toml file"


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """Return the keys of ``path`` on top of those of the target that it extends."""
    try:
        here = path.resolve()
    except (OSError, RuntimeError, ValueError):
        raise TargetError(f"{path!s}: is no path of a target file".replace("\0", "?")) from None
    if here in seen:
        chain = " -> ".join(p.name for p in (*seen[seen.index(here) :], here))
        raise TargetError(f"{path}: key 'extends' leads in a circle: {chain}")
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_FILE + 1)
        if len(data) > LONGEST_FILE:
            raise TargetError(f"{path}: is larger than a target file can be ({LONGEST_FILE:,} bytes)")
        values = parse_toml(data.decode("utf-8"))
    except FileNotFoundError:
        raise TargetError(f"{path}: no such target file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise TargetError(f"{path}: cannot be read: {reason}") from None
    except ValueError as error:
        raise TargetError(f"{path}: not valid TOML: {error}") from None
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise TargetError(f"{path}: key 'extends' must be the name of a target or the path of a .toml file")
    if base in builtin_targets():
        parent = _FOLDER / f"{base}.toml"
    elif base.endswith(".toml"):
        parent = path.parent / base
    else:
        raise TargetError(f"{path}: key 'extends': {_unknown(base)}")
    inherited = _read(parent, (*seen, here))
    # A target that only changes another's rules is another target: its name must not pass for the base's.
    inherited.pop("name", None)
    return {**inherited, **values}


def _build(path: Path, values: dict[str, Any]) -> Target:
    for key, rule in _RULES.items():
        if key in values:
            values[key] = _rules(path, key, rule, values[key])
    if "pools" in values:
        values["pools"] = _pools(path, values["pools"])
    if "on_chip_bytes" in values:
        values["on_chip_bytes"] = _size(f"{path}: key 'on_chip_bytes': ", values["on_chip_bytes"])
    if "pipeline" in values:
        values["pipeline"] = _pipeline(path, values["pipeline"])
    target: Target = _construct(f"{path}: ", Target, values)
    alignment = target.alignment_bytes
    if not 1 <= alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
        most = f" of at most {_LARGEST_ALIGNMENT:,}" if alignment > _LARGEST_ALIGNMENT else ""
        raise TargetError(f"{path}: key 'alignment_bytes' must be a power of two{most}, not {shown_value(alignment)}")
    if target.int4_bytes_per_element not in {0.5, 1}:
        raise TargetError(f"{path}: key 'int4_bytes_per_element' must be 0.5 or 1, not {target.int4_bytes_per_element}")
    if target.overwrite_inputs and target.inputs != "arena":
        raise TargetError(f"{path}: key 'overwrite_inputs' contradicts inputs = \"{target.inputs}\"")
    if target.most_join_inputs is not None and target.most_join_inputs < 2:
        raise TargetError(f"{path}: key 'most_join_inputs' must be 2 or more, not {target.most_join_inputs}")
    viewed = {name for rule in target.views for name in rule.ops}
    written = {name for rule in target.in_place for name in rule.ops}
    for name in sorted(viewed & written):
        raise TargetError(f"{path}: key 'in_place': '{name}' is in 'views' as well, which costs even less")
    return target


def _rules(path: Path, key: str, rule: type, tables: object) -> tuple[Any, ...]:
    result = tuple(_construct(where, rule, table) for where, table in _tables(path, key, tables))
    for index, built in enumerate(result):
        if not built.ops:
            raise TargetError(f"{path}: [[{key}]] number {index + 1}: key 'ops' names no operator")
    return result


def _tables(path: Path, key: str, tables: object) -> list[tuple[str, dict[str, Any]]]:
    """Return each table of the list ``key`` with what messages call it."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise TargetError(f"{path}: key '{key}' must be a list of tables, written as [[{key}]]")
    return [(f"{path}: [[{key}]] number {index + 1}: ", table) for index, table in enumerate(tables)]


def _pools(path: Path, tables: object) -> tuple[Pool, ...]:
    """Return the pools, whose costs must rise and of which only the last may have no size."""
    result: list[Pool] = []
    for where, table in _tables(path, "pools", tables):
        sized = {**table, "size": _size(f"{where}key 'size': ", table["size"])} if "size" in table else table
        pool: Pool = _construct(where, Pool, sized)
        if pool.name in {other.name for other in result} or not pool.name:
            raise TargetError(f"{where}key 'name': every pool needs a name of its own, not '{pool.name}'")
        if result and result[-1].size is None:
            raise TargetError(
                f"{where}'{result[-1].name}' before it has no key 'size', which only the last pool may lack"
            )
        if result and pool.cost < result[-1].cost:
            raise TargetError(
                f"{where}key 'cost': the cheapest pool must come first, but {pool.cost} is below the last"
            )
        result.append(pool)
    return tuple(result)


def _pipeline(path: Path, table: object) -> PipelineRules:
    """Return the accelerators in a row, with whose rates no time is infinite."""
    if not isinstance(table, dict):
        raise TargetError(f"{path}: key 'pipeline' must be a table, written as [pipeline]")
    where = f"{path}: [pipeline]: "
    cache = "parameter_cache_bytes"
    sized = {**table, cache: _size(f"{where}key '{cache}': ", table[cache])} if cache in table else table
    rules: PipelineRules = _construct(where, PipelineRules, sized)
    least = {"link_bytes_per_second": _LEAST_RATE, "ops_per_second": _LEAST_RATE, "utilisation": _LEAST_UTILISATION}
    for key, bound in least.items():
        rate = getattr(rules, key)
        if not bound <= rate < float("inf"):
            raise TargetError(f"{where}key '{key}' must be {bound:g} or more and finite, not {rate!r}")
    if rules.utilisation > 1:
        raise TargetError(f"{where}key 'utilisation' must be at most 1, not {rules.utilisation!r}")
    return rules


def _size(where: str, value: object) -> object:
    """Return a size that may be written as text, such as "256KB", in bytes; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return parse_size(value)
    except UsageError as error:
        raise TargetError(f"{where}{error}") from None


def _construct(where: str, kind: type, values: Mapping[str, Any]) -> Any:
    known: dict[str, Field[Any]] = {field.name: field for field in fields(kind)}
    for key in values:
        if key not in known:
            hint = did_you_mean(key, known) or f"; known keys: {', '.join(known)}"
            raise TargetError(f"{where}unknown key '{key}'{hint}")
    for name, field in known.items():
        if name not in values and field.default is MISSING:
            raise TargetError(f"{where}key '{name}' is missing")
    hints = _hints(kind)
    return kind(**{key: _checked(where, key, hints[key], value) for key, value in values.items()})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _checked(where: str, key: str, hint: Any, value: Any) -> Any:
    """Return ``value`` as the type that the dataclass declares for ``key``."""
    if isinstance(value, (tuple, PipelineRules)):
        return value  # rules, built before
    if isinstance(hint, types.UnionType):
        hint = next(option for option in typing.get_args(hint) if option is not types.NoneType)
    if typing.get_origin(hint) is Literal:
        options = typing.get_args(hint)
        if value not in options:
            known = ", ".join(map(repr, options))
            raise TargetError(f"{where}key '{key}' must be one of {known}, not {shown_value(value)}")
        return value
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise TargetError(f"{where}key '{key}' must be a list, not {shown_value(value)}")
        return tuple(_checked(where, key, typing.get_args(hint)[0], item) for item in value)
    if type(value) is int and value > _LARGEST and hint is int:
        raise TargetError(f"{where}key '{key}' must be at most {_LARGEST:,}, not {shown_value(value)}")
    if hint is float and type(value) is int and abs(value) < _LARGEST_NUMBER:
        value = float(value)
    if type(value) is not hint:
        raise TargetError(f"{where}key '{key}' must be of type {hint.__name__}, not {shown_value(value)}")
    if key in _NOT_NEGATIVE and not 0 <= value < float("inf"):
        raise TargetError(f"{where}key '{key}' must not be negative, infinite or no number: {shown_value(value)}")
    if key in _RATES and 0 < value < _LEAST_RATE:
        raise TargetError(f"{where}key '{key}' must be 0 or at least {_LEAST_RATE:g}, not {shown_value(value)}")
    if key == "outputs" and value > _LARGEST_FACTOR:
        raise TargetError(f"{where}key '{key}' must be at most {_LARGEST_FACTOR:,.0f}, not {shown_value(value)}")
    return value
