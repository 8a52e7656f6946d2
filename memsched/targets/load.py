"""Targets from TOML: the built-in ones by name, others by the path of their file. Every key is checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memsched.base.errors import TargetError, UsageError
from memsched.base.suggestions import did_you_mean
from memsched.targets.model import KERNELS_OF, Pool, Target
from memsched.targets.tables import BadTableError, read_table
from memsched.targets.text import LONGEST_FILE, parse_toml, shown_value

__all__ = ["Target", "builtin_targets", "default_target", "load_target"]

_FOLDER = Path(__file__).parent
_DEFAULTS = {"onnx": "onnxruntime", "tflite": "litert"}
_EXTENDS = "extends"
"""The key that is no rule but says where to take the others from."""

_LARGEST_ALIGNMENT = 2**30
_LEAST_RATE = 1.0


def builtin_targets() -> tuple[str, ...]:
    """Return the names of the targets that ship with memsched, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def default_target(format: str) -> str:  # noqa: A002 - the word that the module's value uses
    """Return the target that a model of ``format`` ("onnx" or "tflite") is judged by when none is named.

    Raises:
        TargetError: No such format.
    """
    if format not in _DEFAULTS:
        raise TargetError(
            f"there is no default target for format '{format}'",
            code="no-default-target",
            action=f"name one of {', '.join(builtin_targets())}",
        )
    return _DEFAULTS[format]


def load_target(name_or_path: str) -> Target:
    """Return the built-in target of that name, or the one that a .toml file describes.

    Raises:
        UsageError: No target has that name.
        TargetError: The file is unreadable, or a key is unknown, of the wrong type or contradicts
            another.
    """
    if name_or_path in builtin_targets():
        path = _FOLDER / f"{name_or_path}.toml"
    elif name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    else:
        raise UsageError(_unknown(name_or_path), code="no-such-target", action=_known())
    values = _read(path, ())
    values.setdefault("name", path.stem)
    values.setdefault("description", "")
    return _build(path, values)


def _unknown(name: str) -> str:
    return f"unknown target '{name}'{did_you_mean(name, builtin_targets())}"


def _known() -> str:
    return f"choose one of {', '.join(builtin_targets())}, or give the path of a .toml file"


def _read(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """Return the keys of ``path`` on top of those of the target that it extends."""
    try:
        here = path.resolve()
    except (OSError, RuntimeError, ValueError):
        raise TargetError(
            "it is not the path of a file", code="target-unreadable", location=str(path).replace("\0", "?")
        ) from None
    if here in seen:
        chain = " -> ".join(p.name for p in (*seen[seen.index(here) :], here))
        raise TargetError(f"key 'extends' leads in a circle: {chain}", code="extends-circle", location=str(path))
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_FILE + 1)
        if len(data) > LONGEST_FILE:
            raise TargetError(
                f"it is larger than a target file can be ({LONGEST_FILE:,} bytes)",
                code="target-too-large",
                location=str(path),
            )
        values = parse_toml(data.decode("utf-8"))
    except FileNotFoundError:
        raise TargetError("no such target file", code="no-such-target-file", location=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            raise TargetError(
                f"it cannot be read: {error.strerror}", code="target-unreadable", location=str(path)
            ) from None
        raise TargetError("it is not UTF-8 text", code="target-not-text", location=str(path)) from None
    except ValueError as error:
        raise TargetError(f"not valid TOML: {error}", code="target-not-toml", location=str(path)) from None
    base = values.pop(_EXTENDS, None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise TargetError(
            "key 'extends' must be the name of a target or the path of a .toml file",
            code="value-type",
            location=str(path),
        )
    if base in builtin_targets():
        parent = _FOLDER / f"{base}.toml"
    elif base.endswith(".toml"):
        parent = path.parent / base
    else:
        raise TargetError(f"key 'extends': {_unknown(base)}", code="no-such-base", location=str(path), action=_known())
    inherited = _read(parent, (*seen, here))
    # A target that only changes another's rules is another target: its name must not pass for the base's.
    inherited.pop("name", None)
    return {**inherited, **values}


def _build(path: Path, values: dict[str, Any]) -> Target:
    try:
        target = read_table(values, Target, (_EXTENDS,))
    except BadTableError as error:
        raise TargetError(str(error), code=error.code, location=str(path)) from None
    problem = _contradiction(target)
    if problem is not None:
        raise TargetError(problem, code="contradiction", location=str(path))
    return target


def _contradiction(target: Target) -> str | None:
    """Return what is wrong beyond the bounds of single keys; None where nothing is."""
    alignment = target.alignment_bytes
    if not 1 <= alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
        most = f" of at most {_LARGEST_ALIGNMENT:,}" if alignment > _LARGEST_ALIGNMENT else ""
        return f"key 'alignment_bytes' must be a power of two{most}, not {shown_value(alignment)}"
    if target.int4_bytes_per_element not in {0.5, 1}:
        return f"key 'int4_bytes_per_element' must be 0.5 or 1, not {target.int4_bytes_per_element}"
    if target.overwrite_inputs and target.inputs != "arena":
        return f"key 'overwrite_inputs' contradicts inputs = \"{target.inputs}\""
    for key, rate in (
        ("bandwidth_bytes_per_second", target.bandwidth_bytes_per_second),
        ("flops_per_second", target.flops_per_second),
    ):
        if 0 < rate < _LEAST_RATE:
            return f"key '{key}' must be 0 or at least {_LEAST_RATE:g}, not {rate!r}"
    if target.kernels and target.kernels not in KERNELS_OF[target.planner]:
        return f'key \'kernels\' = "{target.kernels}" contradicts planner = "{target.planner}"'
    viewed = {name for rule in target.views for name in rule.ops}
    written = {name for rule in target.in_place for name in rule.ops}
    for name in sorted(viewed & written):
        return f"key 'in_place': '{name}' is in 'views' as well, which costs even less"
    return _wrong_pool(target.pools)


def _wrong_pool(pools: Sequence[Pool]) -> str | None:
    """Return which pool breaks the rules that costs rise and only the last may lack a size; None where none does."""
    for number, pool in enumerate(pools):
        where, before = f"[[pools]] number {number + 1}: ", pools[:number]
        if not pool.name or pool.name in {other.name for other in before}:
            return f"{where}key 'name': every pool needs a name of its own, not '{pool.name}'"
        if before and before[-1].size is None:
            return f"{where}'{before[-1].name}' before it has no key 'size', which only the last pool may lack"
        if before and pool.cost < before[-1].cost:
            return f"{where}key 'cost': the cheapest pool must come first, but {pool.cost} is below the last"
    return None
