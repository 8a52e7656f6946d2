"""What may be done to a model, by the names that ``--allow`` has for it, and what each level of ``-O`` permits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

__all__ = [
    "ALL",
    "ALLOWED",
    "ALLOW_HELP",
    "ALLOW_IO_HELP",
    "ALLOW_MORE_HELP",
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

ALLOW_HELP: Final = (
    "What may be done, separated by commas. reorder: permute operators; inplace: let outputs take dying inputs' bytes "
    "as the target does; tile: compute groups of layers piece by piece, with some work done twice; remat: compute "
    "values again instead of keeping them; all: all of these."
)
_IO: Final = (
    "io: give inputs and outputs the form that the layers use, quantised or with other axes, so that the caller has to "
    "change."
)
ALLOW_IO_HELP: Final = f"{ALLOW_HELP} Not included in all: {_IO}"
ALLOW_MORE_HELP: Final = (
    f"{ALLOW_HELP} Not included in all: algebra: compute operators otherwise with the same values, where less waits "
    "then; reassociate: with it, add up sums over concatenations, and with a range in --dim over long axes, in another "
    "order, which rounds floats otherwise, and leave layers to LiteRT's built-in kernels; fuse, for ONNX Runtime: one "
    "operator of its own for each activation that was exported as a chain of them, and, with a range in --dim, for "
    "attention, to 1e-5; branch, for ONNX Runtime: make large values in a branch of an If, where sessions without "
    "options take less so; opening, for ONNX Runtime: write what a session executes, opened as told, where its process "
    f"takes less so; {_IO}"
)
"""What help says of the names, and of those in `BY_CALLERS` and `BY_NAME`."""

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
