"""The heap of the C library: after large values are gone it keeps their memory, which others then cannot have."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

__all__ = ["give_back"]

_LINUX: Final = "linux"


def give_back() -> None:
    """Hand memory that nothing uses back to the system, where the C library can; takes milliseconds."""
    if sys.platform != _LINUX:
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library than glibc
        return
