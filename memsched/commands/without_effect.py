"""Options that have no effect beside others, and are refused there rather than left out without a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from memsched.base.errors import UsageError
from memsched.commands.levels import CHANGES

__all__ = ["refuse_for_c", "refuse_for_range", "refuse_for_session"]

_ONE_SIZE: Final = ("tile", "remat", "io", "branch")
"""What ``--allow`` may name that is done to a model of one size alone."""

_FOR_RUNTIMES: Final = ("budget_for", "tflm_plan", "control_dependencies", "order_guarantee")
"""What a runtime is told that opens the file in one way alone."""

_NO_RANGE: Final = ("session", *_FOR_RUNTIMES, "shapes_from_run", "max_extra_macs", "header")
_NO_C: Final = ("budget", "allow", "session", *_FOR_RUNTIMES, "header", "c_array", "html")
_NAMED: Final = frozenset({"session", "order_guarantee", "budget_for"})
"""Told with their values."""


def refuse_for_range(given: Mapping[str, Any]) -> None:
    """Refuse what a file for every size in a range does not have.

    Args:
        given: Options by the names of their fields: those typed, or those that are not as by default.

    Raises:
        UsageError: One of them has no effect.
    """
    guarantee = given.get("order_guarantee")
    for option in _found({**given, "order_guarantee": None if guarantee == "default" else guarantee}, _NO_RANGE):
        raise UsageError(
            "--dim with a range is for every size, in sessions without options",
            code="option-conflict",
            action=f"leave {option} out",
        )
    changed = {name: change for change in given.get("may_change") or () for name in CHANGES[change]}
    for name in given.get("allow") or ():
        if name in _ONE_SIZE:
            option = f"--may-change {changed[name]}" if name in changed else f"--allow {name}"
            raise UsageError(
                "--dim with a range is for every size", code="option-conflict", action=f"leave {option} out"
            )


def refuse_for_session(given: Mapping[str, Any]) -> None:
    """Refuse what a graph does not have that sessions are to execute as it is; see `refuse_for_range`."""
    for option in _found(given, _FOR_RUNTIMES):
        raise UsageError(
            "--session writes what a session executes that keeps the file's order",
            code="option-conflict",
            action=f"leave {option} out",
        )


def refuse_for_c(given: Mapping[str, Any]) -> None:
    """Refuse what C in place of a model does not have; see `refuse_for_range`."""
    for option in _found(given, _NO_C):
        raise UsageError("--emit c writes no model", code="option-conflict", action=f"leave {option} out")


def _found(given: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        value = given.get(name)
        if value is not None and value is not False:
            flag = f"--{name.replace('_', '-')}"
            yield f"{flag} {value}" if name in _NAMED else flag
