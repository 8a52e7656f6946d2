"""Which of several ways of computing layers in loops are worth keeping: those that no other one equals or beats."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from memsched.tiling.loop import LoopGroup
from memsched.tiling.loop_cost import LoopCost

__all__ = ["LoopWay", "pareto", "take_up"]


@dataclass(frozen=True, slots=True)
class LoopWay:
    """Loops up to a place between ops: ops added, extra work, largest peak, and where loops that end there reach to."""

    added: int
    work: int
    groups: tuple[LoopGroup, ...]
    peak: int
    top: int | None

    def then(self, one: LoopCost, peak: int, top: int) -> LoopWay:
        """Return this way with one more loop."""
        groups = (*self.groups, one.group)
        return LoopWay(self.added + one.added, self.work + one.extra_macs, groups, max(self.peak, peak), top)


def take_up(costs: list[LoopCost], one: LoopCost) -> None:
    """Take up a way of one interval, unless another one equals or beats it in all respects; drop those that it beats.

    Args:
        costs: The others, by rising peaks.
    """
    if not any(_beats(other, one) for other in costs):
        costs[:] = [other for other in costs if not _beats(one, other)]
        bisect.insort(costs, one, key=lambda cost: (cost.peak, cost.extra_macs, cost.added))


def _beats(one: LoopCost, other: LoopCost) -> bool:
    if one.peak > other.peak or one.extra_macs > other.extra_macs or one.added > other.added:
        return False
    # Behind another loop, what counts is where its output ends and where its input begins.
    return one.peak - one.inner <= other.peak - other.inner and one.ahead <= other.ahead


def pareto(ways: Sequence[LoopWay]) -> list[LoopWay]:
    """Return the ways that add least or cost least work; of those that end in a loop, by the room that it has, too."""
    found: list[LoopWay] = []
    for way in sorted(ways, key=lambda way: (way.added, way.work, -_room(way), way.peak)):
        if not any(other.work <= way.work and _room(other) >= _room(way) for other in found):
            found.append(way)
    return found


def _room(way: LoopWay) -> float:
    return math.inf if way.top is None else -way.top
