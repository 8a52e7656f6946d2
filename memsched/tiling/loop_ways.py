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
    """Loops up to a place between ops.

    Attributes:
        added: Ops that they add.
        work: Extra multiply-accumulates.
        peak: Largest footprint, bytes.
        chain: Of those that end there, the ones whose outputs lie where the last one's does.
        top: Where these end at most, without the bytes that tiles take, from there on.
    """

    added: int
    work: int
    groups: tuple[LoopGroup, ...]
    peak: int
    chain: tuple[LoopCost, ...] = ()
    top: int = 0

    def then(self, one: LoopCost, level: int, before: int) -> LoopWay | None:
        """Return this way with one more loop; None where that needs more than ``level`` bytes.

        After another loop, the input is that one's output, which lies where its padded input begins. The padding before
        it takes bytes below all of these loops, where their tiles may lie; or the padded copy lies elsewhere.

        Args:
            before: Bytes of the step before, if that is no loop.
        """
        if self.chain:
            top = max(self.top + one.ahead, one.alone)
            chain = (*self.chain, one)
            if top <= level and (peak := _peak_of(chain)) <= level:
                return self._with(one, peak, chain, top)
            peak = max(one.peak, one.copying)
        else:
            peak = one.behind(before) if before else one.peak
        return self._with(one, peak, (one,), one.alone) if peak <= level else None

    def _with(self, one: LoopCost, peak: int, chain: tuple[LoopCost, ...], top: int) -> LoopWay:
        groups = (*self.groups, one.group)
        peak = max(self.peak, peak)
        return LoopWay(self.added + one.added, self.work + one.extra_macs, groups, peak, chain, top)


def _peak_of(chain: Sequence[LoopCost]) -> int:
    """Return the largest footprint of loops of which each reads what the one before has made, in its place."""
    peak = below = 0
    for one in reversed(chain):
        peak = max(peak, one.alone + below + one.beside(below))
        below += one.ahead
    return peak


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
    return one.alone <= other.alone and one.ahead <= other.ahead


def pareto(ways: Sequence[LoopWay]) -> list[LoopWay]:
    """Return the ways that add least or cost least work; of those that end in a loop, by the room that it has, too."""
    found: list[LoopWay] = []
    for way in sorted(ways, key=lambda way: (way.added, way.work, -_room(way), way.peak)):
        if not any(other.work <= way.work and _room(other) >= _room(way) for other in found):
            found.append(way)
    return found


def _room(way: LoopWay) -> float:
    return -way.top if way.chain else math.inf
