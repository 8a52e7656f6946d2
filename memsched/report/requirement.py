"""What a runtime allocates for a model, in words: the figure that decides, what it is called, and what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET

from memsched.base.frozen import FrozenValue
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.verdict import Unit

__all__ = ["NeededMemory", "arena_column", "frontier_column", "needed_memory"]


class NeededMemory(FrozenValue, frozen=True):
    """The figure that decides.

    Attributes:
        noun: What is allocated, as "arena"; where only a part of it was asked for, that part.
        given: For the model as given, bytes.
        now: For the model written, or for the one given where none was.
        parts: What ``now`` is for, such as "activations", and bytes; none where that is not known.
    """

    noun: str
    given: int
    now: int
    parts: tuple[tuple[str, int], ...]

    @property
    def saved(self) -> int:
        """Bytes that the model written needs less; below 0: more."""
        return self.given - self.now

    @property
    def percent(self) -> float:
        """The same in percent of what the model as given needs."""
        return 100 * self.saved / self.given if self.given else 0.0

    def parts_text(self) -> str:
        """Return the parts that there are in a line; "" where there is one at most."""
        there = [f"{size:,} B {name}" for name, size in self.parts if size]
        return ", ".join(there) if len(there) > 1 else ""


_NOUNS: Final[Mapping[Unit, str]] = {
    "interpreter": "process",
    "process": "process",
    "requested": "session",
    "tflm_planned": "planned part of the arena",
}


def needed_memory(report: OptimizeReport) -> NeededMemory:
    """Return what is required."""
    needed = report.sections.requirement
    parts = tuple(
        (name.removesuffix("_bytes").replace("_", " "), size)
        for name, size in msgspec.to_builtins(needed.parts).items()
        if size
    )
    noun = _NOUNS.get(report.verdict.unit, "arena")
    return NeededMemory(noun, needed.given_bytes, needed.bytes, parts)


def arena_column(report: OptimizeReport) -> str:
    """Return what the addresses of an order take: all of the arena, or its planned part where more is kept beside."""
    return "planned" if _keeps_more(report) else "arena"


def frontier_column(report: OptimizeReport) -> str:
    """Return what the frontier's figures are: peaks, or whole arenas where more is kept beside the tensors."""
    return "arena" if _keeps_more(report) else "peak"


def _keeps_more(report: OptimizeReport) -> bool:
    return report.sections.requirement.parts.persistent_bytes is not UNSET
