"""The shared library of the compiled core: where it is, and whether it is to be used."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from memsched.base.errors import UsageError

__all__ = ["Core", "StopCallback", "library"]

_CHOICE = "MEMSCHED_CORE"

_Stop = ctypes.CFUNCTYPE(ctypes.c_int32)


class Core:
    """Numbers of the core's sources.

    Attributes:
        ABI: What `memsched_abi` of threshold.cpp returns: a library of another version is left alone.
        WORD_BITS: Members of a set that are kept in one word.
        WORDS: Of which there are sets of tasks.
        MOST_AXES: Of a tensor that is cut (pieces.cpp).
        MOST_INPUTS: Of an op that is cut.
    """

    ABI: Final = 8
    WORD_BITS: Final = 64
    WORDS: Final = (1, 2, 3, 4, 6, 8)
    MOST_AXES: Final = 8
    MOST_INPUTS: Final = 60


class StopCallback:
    """Answers the core whether to stop; what ``stop`` raises is kept, as C++ would not pass it on.

    Attributes:
        pointer: What the core calls; valid as long as this object.
    """

    def __init__(self, stop: Callable[[], bool]) -> None:
        self._stop = stop
        self._raised: BaseException | None = None
        self.pointer = _Stop(self._asked)

    def _asked(self) -> int:
        try:
            return int(bool(self._stop()))
        except BaseException as error:
            self._raised = self._raised or error
            return 1

    def raise_again(self) -> None:
        """Raise what ``stop`` raised; return where it raised nothing."""
        if self._raised is not None:
            raise self._raised


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
            "machine",
            code="no-compiled-core",
            action=f"install it again where there is one, or leave {_CHOICE} out",
        )
    return found


def _load() -> ctypes.CDLL | None:
    for path in sorted(Path(__file__).parent.glob("core.*")):
        if path.suffix not in {".so", ".dylib", ".dll"}:
            continue
        try:
            found = ctypes.CDLL(str(path))
            if found.memsched_abi() == Core.ABI:
                return found
        except (OSError, AttributeError):
            continue
    return None
