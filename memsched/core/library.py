"""The shared library of the compiled core: where it is, and whether it is to be used."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

from memsched.errors import UsageError

__all__ = ["library"]

_ABI = 6
"""What `memsched_abi` of threshold.cpp returns: a library of another version is left alone."""

_CHOICE = "MEMSCHED_CORE"


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the library, or None where the Python modules are to be used.

    The environment's MEMSCHED_CORE decides: 0 for never, 1 for always, anything else for where there is one.

    Raises:
        UsageError: It must be there, and is not.
    """
    choice = os.environ.get(_CHOICE, "auto")
    found = None if choice == "0" else _load()
    if found is None and choice == "1":
        raise UsageError(
            f"{_CHOICE}=1, and this installation has no compiled core: it had no C++ compiler, or was made for another "
            f"machine; install it again where there is one, or leave {_CHOICE} out"
        )
    return found


def _load() -> ctypes.CDLL | None:
    for path in sorted(Path(__file__).parent.glob("core.*")):
        if path.suffix not in {".so", ".dylib", ".dll"}:
            continue
        try:
            found = ctypes.CDLL(str(path))
            if found.memsched_abi() == _ABI:
                return found
        except (OSError, AttributeError):
            continue
    return None
