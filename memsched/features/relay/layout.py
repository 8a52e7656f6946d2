"""Where what stages hand over lies: at the end of the block, in front of which each stage has its arena.

While a stage is allocated and reads its inputs, all that crosses the cut before it must lie outside its arena. What it
makes is moved there when it has run, and its arena is of no more use: of both ends of a stage only the first counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memsched.base.frozen import FrozenValue
from memsched.features.relay.cuts import RelayCuts
from memsched.runtimes.arena_facts import ALIGNMENT, round_up

__all__ = ["HandOver", "RelayLayout", "lay_out"]


class HandOver(FrozenValue, frozen=True):
    """A tensor that goes from a stage, or from whoever calls the model, to later ones.

    Attributes:
        tensor: Of the graph.
        maker: The stage that makes it; -1: it is an input of the model.
        last: The last stage that reads it; as many as there are stages: it is an output of the model.
        size: Bytes.
        from_end: Its begin, in bytes before the block's end.
    """

    tensor: int
    maker: int
    last: int
    size: int
    from_end: int


class RelayLayout(FrozenValue, frozen=True):
    """The end of the block.

    Attributes:
        kept: Per stage the bytes at the block's end that its arena must leave alone.
        results: The bytes there that hold outputs of the model when all stages have run.
    """

    hand_overs: tuple[HandOver, ...]
    kept: tuple[int, ...]
    results: int

    def block_bytes(self, arenas: Sequence[int], places: Sequence[Mapping[int, int]]) -> int:
        """Return what the block must hold for stages with these arenas, bytes.

        Where a stage makes several tensors, they must be movable one by one, none over one that is still to be moved.

        Args:
            places: Per stage the addresses at which it makes the tensors that it hands on.
        """
        size = max(self.results, *(round_up(arena) + kept for arena, kept in zip(arenas, self.kept, strict=True)))
        while not all(self._movable(stage, made, size) for stage, made in enumerate(places)):
            size += ALIGNMENT
        return size

    def _movable(self, stage: int, places: Mapping[int, int], size: int) -> bool:
        """Whether what a stage hands on can be moved to the end of a block of that size; as the runner finds out."""
        waiting = [one for one in self.hand_overs if one.maker == stage]
        while waiting:
            free = next((one for one in waiting if not self._covers(one, waiting, places, size)), None)
            if free is None:
                return False
            waiting.remove(free)
        return True

    @staticmethod
    def _covers(one: HandOver, waiting: Sequence[HandOver], places: Mapping[int, int], size: int) -> bool:
        begin = size - one.from_end
        return any(
            begin < places[other.tensor] + other.size and places[other.tensor] < begin + one.size
            for other in waiting
            if other is not one
        )


def lay_out(cuts: RelayCuts, stages: Sequence[tuple[int, int]]) -> RelayLayout:
    """Return the layout for stages of the steps from the first number to the second, excluded."""
    waiting = _hand_overs(cuts, stages)
    # A packing of intervals: the first gap from the end on, long lives first or as they come, whichever is less.
    by_life = sorted(waiting, key=lambda one: (one.maker - one.last, -one.size, one.tensor))
    as_made = sorted(waiting, key=lambda one: (one.maker, -one.size, one.tensor))
    found = [_kept(_first_fit(one), len(stages)) for one in (by_life, as_made)]
    return min(found, key=lambda one: sum(one.kept))


def _hand_overs(cuts: RelayCuts, stages: Sequence[tuple[int, int]]) -> list[HandOver]:
    begins = [first for first, _ in stages]
    crossing = dict.fromkeys(tensor for first, last in stages for tensor in cuts.kept(first, last))
    found = []
    for tensor in crossing:
        made, needed = cuts.made[tensor], cuts.needed[tensor]
        maker = sum(begin < made for begin in begins) - 1
        last = sum(begin <= needed for begin in begins) - 1 if needed < len(cuts.order) else len(stages)
        found.append(HandOver(tensor, maker, last, cuts.graph.tensors[tensor].size, 0))
    return found


def _first_fit(waiting: Sequence[HandOver]) -> list[HandOver]:
    placed: list[HandOver] = []
    for one in waiting:
        near = sorted(
            (other.from_end - round_up(other.size), other.from_end)
            for other in placed
            if other.maker < one.last and one.maker < other.last
        )
        low, size = 0, round_up(one.size)
        for begin, end in near:
            if begin - low >= size:
                break
            low = max(low, end)
        placed.append(HandOver(one.tensor, one.maker, one.last, one.size, low + size))
    return placed


def _kept(placed: Sequence[HandOver], count: int) -> RelayLayout:
    # At stage s lies what was made before it and is needed by it or later.
    kept = tuple(
        max((one.from_end for one in placed if one.maker < stage <= one.last), default=0) for stage in range(count)
    )
    results = max((one.from_end for one in placed if one.last == count), default=0)
    order = sorted(placed, key=lambda one: (one.maker, one.tensor))
    return RelayLayout(tuple(order), kept, results)
