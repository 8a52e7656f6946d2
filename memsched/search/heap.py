"""The heap of the C library: after large values are gone it keeps their memory, which others then cannot have."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

__all__ = ["give_back"]

_LINUX: Final = "linux"

_LARGE: Final = 1 << 20
"""Bytes of a file whose reading takes far more memory than what is read."""


def give_back(read: int) -> None:
    """Hand memory that nothing uses back to the system, where the C library can, after ``read`` bytes of a file.

    Takes milliseconds, and nothing where the file is small.
    """
    if sys.platform != _LINUX or read < _LARGE:
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library than glibc
        return
