"""What may be done to a model, by the names that ``--allow`` has for it, and what each level of ``-O`` permits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

__all__ = [
    "ALL",
    "ALLOWED",
    "BY_CALLERS",
    "BY_DEFAULT",
    "BY_NAME",
    "CHANGES",
    "FREE",
    "LEVELS",
    "LONG_SEARCH",
    "SEARCH",
    "permitted_by",
    "spelled_out",
]

ALL: Final = "all"
"""What ``allow`` may name for `ALLOWED`."""

ALLOWED: Final = ("reorder", "inplace", "tile", "remat")
"""What ``allow`` may name. The caller of the model need not know."""

BY_CALLERS: Final = ("io",)
"""What ``allow`` may name beside these, each by itself: the caller has to change."""

BY_NAME: Final = ("algebra", "reassociate", "fuse", "branch", "opening", *BY_CALLERS)
"""The same where one model is written, too: what "all" does not include."""

BY_DEFAULT: Final = ("reorder", "inplace")
"""What changes no operator."""

FREE: Final = (*ALLOWED, "algebra")
"""What is tried by default, as far as outputs keep their bits and no more time than is permitted is taken."""

CHANGES: Final[Mapping[str, tuple[str, ...]]] = {
    "rounding": ("reassociate",),
    "inputs": BY_CALLERS,
    "opening": ("opening",),
}
"""What callers of a file may accept to change, by name, and what is tried then beside `FREE`."""

LEVELS: Final = (BY_DEFAULT, FREE, (*BY_DEFAULT, "tile"), ALLOWED)
"""What ``-O0`` to ``-O3`` permit; ``-O1`` only where it costs nothing."""

SEARCH: Final = 60.0
"""The limit of time, seconds, unless one is given."""

LONG_SEARCH: Final = 10 * SEARCH
"""The same of ``-O3``."""


def permitted_by(changes: Collection[str]) -> tuple[str, ...]:
    """Return what may be done where callers accept these changes, beyond what they do not notice."""
    # An operator of ONNX Runtime's own in place of a chain rounds otherwise, and only that runtime knows it.
    both = ("fuse",) if {"rounding", "opening"} <= set(changes) else ()
    return (*(name for change, names in CHANGES.items() if change in changes for name in names), *both)


def spelled_out(names: Collection[str]) -> tuple[str, ...]:
    """Return what ``allow`` names in one order, each once, with "all" in its own names."""
    wanted = {*names, *(ALLOWED if ALL in names else ())}
    return tuple(name for name in (*ALLOWED, *BY_NAME) if name in wanted)
