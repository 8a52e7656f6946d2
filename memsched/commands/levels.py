"""What may be done to a model, by the names that ``--allow`` has for it, and what each level of ``-O`` permits."""

from __future__ import annotations

from typing import Final

__all__ = ["ALLOWED", "BY_CALLERS", "BY_DEFAULT", "BY_NAME", "LEVELS", "LONG_SEARCH", "named"]

ALLOWED: Final = ("reorder", "inplace", "tile", "remat")
"""What ``allow`` may name; "all" is all of it. The caller of the model need not know."""

BY_CALLERS: Final = ("io",)
"""What ``allow`` may name beside these, each by itself: the caller has to change."""

BY_NAME: Final = ("algebra", "reassociate", "fuse", "branch", *BY_CALLERS)
"""The same where one model is written, too: what "all" does not include."""

BY_DEFAULT: Final = ("reorder", "inplace")
"""What changes no operator."""

LEVELS: Final = (BY_DEFAULT, BY_DEFAULT, (*BY_DEFAULT, "tile"), ALLOWED)
"""What ``-O0`` to ``-O3`` permit; from ``-O1`` on layers in pieces as well where they cost nothing."""

LONG_SEARCH: Final = 600.0
"""The limit of time of ``-O3``, seconds, unless one is given."""


def named(
    reorder: bool,
    in_place: bool,
    tile: bool = False,
    remat: bool = False,
    fuse: bool = False,
    io: bool = False,
    algebra: bool = False,
    reassociate: bool = False,
    branch: bool = False,
) -> tuple[str, ...]:
    """Return what is permitted by the names that ``--allow`` has for it."""
    given = {"reorder": reorder, "inplace": in_place, "tile": tile, "remat": remat, "fuse": fuse, "io": io}
    given |= {"algebra": algebra, "reassociate": reassociate, "branch": branch}
    return tuple(name for name, permitted in given.items() if permitted)
