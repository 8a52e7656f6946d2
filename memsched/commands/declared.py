"""How an option is declared once: its default, and what the command line says about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from memsched.base.arguments import check_fields
from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.suggestions import did_you_mean
from memsched.commands.levels import ALL, ALLOWED, BY_CALLERS, BY_NAME, CHANGES, SEARCH, spelled_out

__all__ = [
    "ALLOW_KINDS",
    "AUTO",
    "REQUIRED",
    "CommandOptions",
    "Shown",
    "TimeLimit",
    "default_of",
    "flag_of",
    "has_range",
    "option",
    "said",
    "shown",
]


Kind = Literal[
    "text",
    "texts",
    "size",
    "budget",
    "percentage",
    "slowdown",
    "allow",
    "allow_io",
    "allow_more",
    "changes",
    "partitions",
    "shapes",
    "dims",
    "ranges",
    "number",
    "seconds",
    "count",
    "flag",
    "switch",
]
"""How the command line writes a value; "texts": several of them, "count": a whole number or none, "slowdown": a
percentage or none, "switch": a flag with its opposite; "allow_io" and "allow_more": an "allow" that may name
`BY_CALLERS` or `BY_NAME`, too."""

ALLOW_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "allow": (*ALLOWED, ALL),
    "allow_io": (*ALLOWED, *BY_CALLERS, ALL),
    "allow_more": (*ALLOWED, *BY_NAME, ALL),
    "changes": tuple(CHANGES),
}
"""Per kind of list what it may name."""

AUTO: Final = "auto"
"""A limit of time that nobody named."""

TimeLimit = float | Literal["auto"] | None
"""Seconds; None for no limit."""

REQUIRED: Final = dataclasses.MISSING
"""The default of an option that must be given."""


class Shown(FrozenValue, frozen=True):
    """How the command line shows an option.

    Attributes:
        flag: With its dashes; None for the name of the field.
        choices: The only values that there are; empty for any.
        least: The smallest number that there is; None for any.
        most: The largest one; None for any.
        unnamed: The default that help shows, where the value says that nobody named one; None: it is the value.
        python: Only calls of a function have it: the command line says the same in another way.
        process: It limits a whole process: who starts one names it, no call of a function.
    """

    help: str
    kind: Kind = "text"
    flag: str | None = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    unnamed: Any = None
    process: bool = False
    python: bool = False


def option(default: Any, text: str, kind: Kind = "text", **values: Any) -> Any:
    """Return a field with its default, and with what the command line says about it: ``values`` are of `Shown`."""
    known = {"option": Shown(text, kind, **values)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=known)
    return dataclasses.field(default=default, metadata=known)


def said(of: type[Any], name: str, text: str | None = None, **values: Any) -> Any:
    """Return the option ``name`` of one command for another one, described by ``text`` if that is given."""
    known: dataclasses.Field[Any] = of.__dataclass_fields__[name]
    default = values.pop("default", known.default)
    metadata = {"option": dataclasses.replace(shown(known), help=text or shown(known).help, **values)}
    if known.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=known.default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def shown(field: dataclasses.Field[Any]) -> Shown:
    """Return what the command line says about an option."""
    one: Shown = field.metadata["option"]
    return one


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of an option; `REQUIRED` if it has none."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def has_range(dims: Mapping[str, Any]) -> bool:
    """Whether a dimension stays open."""
    return any(not isinstance(one, int) for one in dims.values())


def flag_of(field: dataclasses.Field[Any]) -> str:
    """Return the name of an option on the command line."""
    return shown(field).flag or f"--{field.name.replace('_', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """The options of a command.

    Raises:
        UsageError: An option has no such value.
    """

    def __post_init__(self) -> None:
        """Check all values as the command line does for what is typed, and spell out what is permitted."""
        fields = dataclasses.fields(self)
        check_fields(self, [field.name for field in fields])
        for field in fields:
            value = getattr(self, field.name)
            if value is not None:
                _check(field, value)
                if ALL in ALLOW_KINDS.get(shown(field).kind, ()):
                    object.__setattr__(self, field.name, spelled_out(value))

    def named(self) -> dict[str, Any]:
        """Return the options whose values are not those by default, by their fields."""
        values = {field: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {field.name: value for field, value in values.items() if value != default_of(field)}

    @property
    def unnamed_seconds(self) -> float:
        """The limit of a search where nobody named one."""
        return SEARCH


def _check(field: dataclasses.Field[Any], value: Any) -> None:
    known, flag = shown(field), flag_of(field)
    if known.choices and value not in known.choices:
        action = f"choose one of {', '.join(known.choices)}"
        raise UsageError(f"{flag} {value} does not exist", code="option-choice", action=action)
    if known.least is not None and not value >= known.least:
        raise UsageError(f"{flag} {value} is not possible", code="option-range", action=f"give {known.least:g} or more")
    if known.most is not None and not value <= known.most:
        raise UsageError(f"{flag} {value} is not possible", code="option-range", action=f"give {known.most:g} or less")
    if known.kind == "seconds" and isinstance(value, str) and value != AUTO:
        problem = f"{flag} {value} is not a number of seconds"
        raise UsageError(problem, code="option-range", action="give 0 or more")
    names = ALLOW_KINDS.get(known.kind, ())
    for name in value if names else ():
        if name not in names:
            action = f"choose from {', '.join(names)}"
            problem = f"{flag} {name} does not exist{did_you_mean(name, names)}"
            raise UsageError(problem, code="option-choice", action=action)
