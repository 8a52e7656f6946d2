"""Searches for pieces and loops that are run for some work, and what they have found then."""

from __future__ import annotations

import math
from dataclasses import dataclass

from memsched.rewrites.tile.loop_search import LoopPoint, LoopSearch
from memsched.rewrites.tile.search import FrontierPoint, TilingSearch

__all__ = ["Found", "loops", "searched"]


@dataclass(frozen=True)
class Found:
    """What a search for pieces has found."""

    best: FrontierPoint
    frontier: tuple[FrontierPoint, ...]
    judged: int
    exhausted: bool


def searched(search: TilingSearch, until: float = math.inf) -> Found:
    """Go on until so much work is done in all."""
    search.go_on(until)
    return Found(search.best(), tuple(search.frontier()), search.judged, search.exhausted)


def loops(search: LoopSearch, work: float) -> tuple[LoopPoint, ...]:
    """Go on for so much more work."""
    search.go_on(work, lambda: False)
    return search.points()
