"""What ``allow`` names, from what is permitted one by one."""

from __future__ import annotations

from memsched.commands.levels import BY_DEFAULT

__all__ = ["allowed"]


def allowed(*, inplace: bool = True, **named: bool) -> tuple[str, ...] | None:
    """Return what ``allow`` has to name for what is permitted beside the order; None where that is nothing."""
    names = ("reorder", *(("inplace",) if inplace else ()), *(name for name, permitted in named.items() if permitted))
    return None if names == BY_DEFAULT else names
