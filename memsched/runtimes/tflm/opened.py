"""TensorFlow Lite Micro's interpreter, and what it records of its arena. The child processes' side."""

from __future__ import annotations

import re
from typing import Any, Final

from memsched.base.frozen import FrozenValue

__all__ = ["RECORDS", "RecordedArena", "opened", "recorded"]

RECORDS: Final = "[RecordingMicroAllocator]"
"""How lines of what it records begin."""

_ALLOCATED: Final = re.compile(rf"^{re.escape(RECORDS)} Arena allocation (head|tail) (\d+) bytes", re.MULTILINE)


class RecordedArena(FrozenValue, frozen=True):
    """Bytes of an arena, those of the wheel's recorder included; None where nothing was recorded.

    Attributes:
        head: Its planned part.
        tail: What stays at its end.
    """

    head: int | None
    tail: int | None


def opened(model: bytes, arena: int) -> Any:
    """Return an interpreter with an arena of so many bytes."""
    from tflite_micro.python.tflite_micro import runtime

    return runtime.Interpreter.from_bytes(model, arena_size=arena)


def recorded(said: str) -> RecordedArena:
    """Return what the interpreter wrote of its arena to standard error."""
    parts = {name: int(size) for name, size in _ALLOCATED.findall(said)}
    return RecordedArena(parts.get("head"), parts.get("tail"))
