"""What a benchmark says of itself, and the parts of what it prints."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

__all__ = [
    "ROOT",
    "TARGET",
    "Benchmark",
    "Heading",
    "Option",
    "Part",
    "Values",
    "Verdict",
    "chosen",
    "effort",
    "one_of",
    "option",
    "positional",
    "repeats",
    "time_limit",
]

ROOT: Final = Path(__file__).resolve().parents[3]
"""Of the checkout."""

Values = argparse.Namespace
"""What the command line gives for a benchmark's options, by name."""


@dataclass(frozen=True, slots=True)
class Heading:
    """The columns with which a table begins.

    A name that begins with ">" is aligned to the right; one with "~", perhaps after that, holds figures of the run
    itself, such as seconds and resident memory, which are never the same twice.
    """

    marked: tuple[str, ...]

    def __init__(self, *marked: str) -> None:
        object.__setattr__(self, "marked", marked)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names as they are printed."""
        return tuple(name.lstrip(">").lstrip("~") for name in self.marked)

    @property
    def varying(self) -> tuple[bool, ...]:
        """Whether a column holds figures of the run itself."""
        return tuple(name.lstrip(">").startswith("~") for name in self.marked)

    @property
    def right(self) -> tuple[bool, ...]:
        """Whether a column is aligned to the right."""
        return tuple(name.startswith(">") for name in self.marked)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A line that says what the figures come to; where that is wrong, the command ends with 1."""

    text: str
    wrong: bool


Part: TypeAlias = "str | Heading | Verdict | tuple[object, ...]"
"""A line of text, the beginning of a table, a verdict, or the cells of a row."""


@dataclass(frozen=True, slots=True)
class Option:
    """An argument of the command line, as argparse takes it."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark; its name is that of its module below `scripts.bench`.

    Attributes:
        shows: What it shows; the first sentence stands in the list of all.
        tables: Yields what is printed, part by part, as it is measured.
        options: What the command line may say.
        docs: The page that has a copy of its tables.
    """

    shows: str
    tables: Callable[[Values], Iterable[Part]]
    options: tuple[Option, ...] = ()
    docs: str = "docs/benchmarks/index.md"


def option(*names: str, help: str, **settings: Any) -> Option:  # noqa: A002 - argparse's name
    """Return an option; where it has a default and the help does not tell it, that is added."""
    default = settings.get("default")
    if default is not None and default is not False and default not in ((), []) and "default" not in help:
        shown = " ".join(map(str, default)) if isinstance(default, (list, tuple)) else default
        help = f"{help}; default: {shown}".removeprefix("; ")  # noqa: A001 - argparse's name
    return Option(names, MappingProxyType({"help": help, **settings}))


def positional(name: str, *, help: str, **settings: Any) -> Option:  # noqa: A002 - argparse's name
    """Return arguments without a name, none or several, kept as ``name``."""
    return Option((name,), MappingProxyType({"nargs": "*", "help": help, **settings}))


def one_of(what: str, known: Collection[str]) -> Callable[[str], str]:
    """Return the type of an argument that has to be one of ``known``."""

    def check(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"there is no {what} '{text}': choose from {', '.join(known)}")
        return text

    return check


def chosen(what: str, known: Collection[str], default: str) -> Option:
    """Return the arguments that name some of what is ``known``, kept as ``names``."""
    told = f"of {', '.join(known)}; default: {default}"
    return positional("names", type=one_of(what, known), metavar=what.upper(), help=told)


def time_limit(seconds: float, of: str = "of each search") -> Option:
    """Return the option of the seconds that a search has."""
    return option("--time-limit", type=float, default=seconds, metavar="SECONDS", help=of)


def effort() -> Option:
    """Return the option of the work that a search has instead of seconds: the same figures under any load."""
    return option("--effort", type=float, metavar="N", help="instead of the time limit: work, as optimize has it")


def repeats(count: int, what: str) -> Option:
    """Return the option of how often what is timed is run; ``what`` says which run counts."""
    return option("--repeats", type=int, default=count, metavar="N", help=what)


TARGET: Final = option("--target", default="paper", help="memory rules")
