"""How an option is declared once: its default, and what the command line says about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from memsched.errors import UsageError
from memsched.frozen import FrozenValue

__all__ = [
    "REQUIRED",
    "CommandOptions",
    "Shown",
    "check_given",
    "flag_of",
    "from_keywords",
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
    "partitions",
    "shapes",
    "dims",
    "ranges",
    "number",
    "count",
    "flag",
    "switch",
]
"""How the command line writes a value; "texts": several of them, "count": a whole number or none, "slowdown": a
percentage or none, "switch": a flag with its opposite; "allow_io" and "allow_more": an "allow" that may name
`BY_CALLERS` or `BY_NAME`, too."""

REQUIRED: Final = dataclasses.MISSING
"""The default of an option that must be given."""


class Shown(FrozenValue, frozen=True):
    """How the command line shows an option.

    Attributes:
        flag: With its dashes; None for the name of the field.
        choices: The only values that there are; empty for any.
        least: The smallest number that there is; None for any.
        most: The largest one; None for any.
    """

    help: str
    kind: Kind = "text"
    flag: str | None = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None


def option(
    default: Any,
    text: str,
    kind: Kind = "text",
    *,
    flag: str | None = None,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """Return a field with its default, and with what the command line says about it."""
    known = {"option": Shown(text, kind, flag, metavar, choices, least, most)}
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


def has_range(dims: Mapping[str, Any]) -> bool:
    """Whether a dimension stays open."""
    return any(not isinstance(one, int) for one in dims.values())


def flag_of(field: dataclasses.Field[Any]) -> str:
    """Return the name of an option on the command line."""
    return shown(field).flag or f"--{field.name.replace('_', '-')}"


def check_given(of: type[Any], **values: Any) -> None:
    """Check values of a command's options, as the command line does for what is typed.

    Raises:
        UsageError: An option has no such value.
    """
    for name, value in values.items():
        field: dataclasses.Field[Any] = of.__dataclass_fields__[name]
        known, flag = shown(field), flag_of(field)
        if value is None and field.default is None:
            continue
        if known.choices and value not in known.choices:
            raise UsageError(
                f"{flag} {value} does not exist",
                code="option-choice",
                action=f"choose one of {', '.join(known.choices)}",
            )
        if known.least is not None and not value >= known.least:
            raise UsageError(
                f"{flag} {value} is not possible", code="option-range", action=f"give {known.least:g} or more"
            )


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The arguments of the function of a command."""

    def keywords(self) -> dict[str, Any]:
        """Return them as the function takes them: each permission by itself, and no limit of the whole process."""
        values = dataclasses.asdict(self)
        values.pop("memory_limit", None)
        if "allow" in values:
            allow = values.pop("allow")
            values |= {"reorder": "reorder" in allow, "in_place": "inplace" in allow}
            values |= {name: name in allow for name in ("tile", "remat")}
        return values


_Options = TypeVar("_Options", bound=CommandOptions)


def from_keywords(of: type[_Options], values: Mapping[str, Any]) -> _Options:
    """Return a command's options from the arguments of its function, as `CommandOptions.keywords` gives them."""
    given: dict[str, Any] = {}
    for field in dataclasses.fields(of):
        value = values.get(field.name)
        if field.name in values and (value is not None or field.default_factory is dataclasses.MISSING):
            given[field.name] = value
    names = {"reorder": "reorder", "inplace": "in_place", "tile": "tile", "remat": "remat"}
    given["allow"] = tuple(name for name, argument in names.items() if values[argument])
    return of(**given)
