"""Sources made from templates: files of this package in which ``@name@`` stands for a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Final

__all__ = ["comment", "fill"]

_PLACE: Final = re.compile(r"@(\w+)@")
_HARMFUL: Final = re.compile(r"[^A-Za-z0-9_.,:;()\[\]+ -]")
_LONGEST_COMMENT: Final = 100


def comment(text: str) -> str:
    """Return text of a model as it can stand in a comment of C: other characters could end it."""
    return _HARMFUL.sub("_", text)[:_LONGEST_COMMENT]


def fill(package: str, file: str, values: Mapping[str, str | int], blocks: Mapping[str, Iterable[str]]) -> str:
    """Return the text of a template with its places filled.

    Args:
        package, file: Where it is: ``templates/<file>`` of the package.
        values: What takes a place within a line.
        blocks: Lines that take the place of a line that names them and nothing else; of none, nothing is left.
    """
    text = (resources.files(package) / "templates" / file).read_text(encoding="utf-8")
    return "".join(_filled(line, values, blocks) for line in text.splitlines(keepends=True))


def _filled(line: str, values: Mapping[str, str | int], blocks: Mapping[str, Iterable[str]]) -> str:
    alone = _PLACE.fullmatch(line.rstrip("\n"))
    if alone is not None and alone[1] in blocks:
        return "".join(f"{one}\n" for one in blocks[alone[1]])
    return _PLACE.sub(lambda place: str(values[place[1]]), line)
