"""Names and messages from models, made safe to print and fitted into the terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Final

from memsched.base.shown import LONGEST_TEXT

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "LEAST_COLUMNS",
    "SAME_OUTPUTS",
    "WITHHELD",
    "console_table",
    "ending_in_name",
    "error_line",
    "one_line",
    "print_line",
    "printable",
    "shortened",
    "wrapped",
]

SAME_OUTPUTS = "the outputs are the same for every input that was tried: that both models agree says little"
"""A warning where a verification's ``outputs_vary`` is false."""

WITHHELD = "no file was written, as the budget is missed: --keep-best writes the best result"
"""What is said if a result misses its budget, and nobody asked for it all the same."""

LEAST_COLUMNS: Final = 16
"""Fewest columns that a name keeps, however narrow the terminal."""

_LEAST_OF_A_NAME: Final = 24
"""Columns; with fewer left a name gets a line of its own."""

_UNIT = re.compile(r"(?<=\d) (?=(?:B|KB|MB|GB|s|%)(?!\w))")
_TOGETHER = "\N{NO-BREAK SPACE}"
"""Stands between a number and its unit, where no line may be broken."""


def printable(text: str) -> str:
    """Return ``text`` with everything that a terminal would act on written as an escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def one_line(text: str) -> str:
    """Return ``text`` as one printable line: runs of white space become one space."""
    return printable(" ".join(text.split()))


def error_line(message: str) -> str:
    """Return an error's message as one printable line that stays readable where the model's names are endless."""
    return shortened(one_line(message), LONGEST_TEXT)


def shortened(text: str, columns: int) -> str:
    """Return ``text`` printable and in so many columns at most, its middle left out: names differ at their ends."""
    shown, most = printable(text), max(columns, LEAST_COLUMNS)
    if len(shown) <= most:
        return shown
    end = (most - 3) * 2 // 3
    return f"{shown[: most - 3 - end]}...{shown[len(shown) - end :]}"


def ending_in_name(text: str, name: str, columns: int) -> Iterator[str]:
    """Yield ``text`` and ``name`` behind it, shortened, or on a line of its own where few columns are left."""
    alone = shortened(name, columns - 4)
    if len(text) + 1 + min(len(alone), _LEAST_OF_A_NAME) > columns:
        yield text
        yield f"    {alone}"
    else:
        yield f"{text} {shortened(name, columns - len(text) - 1)}"


def console_table(*headings: str, left: Container[int] = (), header: bool = True) -> Table:
    """Return a table without rows, whose cells stay in one line each: figures to the right, but in columns ``left``."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=header)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number in left else "right", no_wrap=True)
    return table


def print_line(
    console: Console, text: str, style: str | None = None, *, whole: bool = False, most: int | None = None
) -> None:
    """Print one line without markup or anything that a terminal would act on.

    A terminal gets it broken between words, further lines indented by two more columns; a file or pipe gets one line.

    Args:
        whole: Never broken: a path or an option that people copy.
        most: Lines of the terminal into which the text is broken, at most: the rest is left out.
    """
    lines = [printable(text)] if whole else wrapped(console, text)
    if most is not None and len(lines) > most:
        last = _cut_off(lines[most - 1], console.width)
        lines = [*lines[: most - 1], last]
    for line in lines:
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def wrapped(console: Console, text: str) -> list[str]:
    """Return the lines that a text takes in a terminal; a file or pipe takes it as one."""
    shown = printable(text)
    if not console.is_terminal:
        return [shown]
    indent = shown[: len(shown) - len(shown.lstrip())]
    lines = textwrap.wrap(
        _UNIT.sub(_TOGETHER, shown.strip()),
        max(console.width, 2 * LEAST_COLUMNS),
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TOGETHER, " ") for line in lines] or [""]


def _cut_off(text: str, columns: int) -> str:
    """Return ``text`` with an ending that says that more follows, in so many columns at most."""
    room = max(columns, LEAST_COLUMNS) - 4
    kept = text if len(text) <= room else text[: room + 1].rpartition(" ")[0] or text[:room]
    return f"{kept.rstrip(' ,;:')} ..."
