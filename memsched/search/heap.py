"""The heap of the C library: after large values are gone it keeps their memory, which others then cannot have."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

__all__ = ["LARGEST_PAGE", "Glibc", "give_back", "give_back_at_once", "trim"]

_LINUX: Final = "linux"

_LARGE: Final = 1 << 20
"""Bytes of a file whose reading takes far more memory than what is read."""


class Glibc:
    """Numbers of the GNU C library's malloc.

    Attributes:
        MMAP_THRESHOLD: M_MMAP_THRESHOLD, the option of mallopt by which blocks have pages of their own; otherwise the
            threshold rises with what is freed.
        LARGEST_THRESHOLD: DEFAULT_MMAP_THRESHOLD_MAX, bytes: how far it rises.
    """

    MMAP_THRESHOLD: Final = -3
    LARGEST_THRESHOLD: Final = 32 << 20


LARGEST_PAGE: Final = 1 << 16
"""Bytes of a page on any processor: a block that is smaller has none of its own."""


def give_back_at_once() -> None:
    """Let every large block of this process have pages of its own, which go back to the system when it is freed.

    What a process holds is then no matter of chance: of where in the heap small blocks lie that are still in use.
    """
    if sys.platform != _LINUX:
        return
    try:
        ctypes.CDLL(None).mallopt(Glibc.MMAP_THRESHOLD, LARGEST_PAGE)
    except (OSError, AttributeError):  # another C library than glibc
        return


def give_back(read: int) -> None:
    """Hand memory that nothing uses back to the system after ``read`` bytes of a file; not after a small file."""
    if read >= _LARGE:
        trim()


def trim() -> None:
    """Hand memory that nothing uses back to the system, where the C library can; takes milliseconds."""
    if sys.platform != _LINUX:
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library than glibc
        return
