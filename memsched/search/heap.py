"""The heap of the C library: after large values are gone it keeps their memory, which others then cannot have."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

__all__ = ["give_back", "give_back_at_once"]

_LINUX: Final = "linux"

_LARGE: Final = 1 << 20
"""Bytes of a file whose reading takes far more memory than what is read."""


_MMAP_THRESHOLD: Final = -3
"""glibc's M_MMAP_THRESHOLD, which otherwise rises with what is freed."""

_ALONE: Final = 1 << 16


def give_back_at_once() -> None:
    """Let every large block of this process have pages of its own, which go back to the system when it is freed.

    What a process holds is then no matter of chance: of where in the heap small blocks lie that are still in use.
    """
    if sys.platform != _LINUX:
        return
    try:
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _ALONE)
    except (OSError, AttributeError):  # another C library than glibc
        return


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
