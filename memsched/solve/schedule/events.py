"""Events and risers: which moves of a threshold search have to be branched on, and what must come before them.

In some state, let d be those of a task's shared buffers that die in it (forwards) or become live in it (backwards). The
task changes the residue by ch(d), and its footprint lies exc(d) above the residue before it, so bexc(d) = exc(d) -
ch(d) above the one after it. A task is *pure* where nothing about it depends on others that were taken: forwards no
shared buffer dies in it, backwards none of its shared buffers was read before. A *riser* is pure with ch > 0; whatever
is not is an *event*. Risers make bytes live and free none, their changes add up, and they can wait.

Take a completion of the state D under a threshold T, its first event w with deaths d, and the risers U before it.

- Where no riser of U needs more above it than w, bexc(r) <= bexc(w, d): let A be the part of U that w needs and that
  gives it d. Without the others each level is lower and w's excess the same, so D + A + w is reached under T. A riser r
  that was left out shares no buffer with w that w changed, so it is pure after w, too, where its footprint is at most
  bexc(r) above the residue with all of U and w, and thus no more than w's was. So D + A + w lies on a completion.
- Where one needs more, let h be the riser of U with the largest bexc, and A what it needs. Any r before h that h does
  not need can move right behind it: what is in between falls, and r's footprint there is bexc(r) above the residue that
  h had after it, and thus no more than h's was. So D + A + h lies on a completion.

So a state has these children: each event that fits with each set of risers before it; and each riser whose bexc is
above that of some event that fits, after what it needs, none of which has a larger bexc. All other risers wait.

bexc never falls as d grows forwards, and never rises backwards: a further buffer that dies lowers the later residue by
its size, and the footprint by no more.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import bitset, members
from memsched.solve.schedule.moves import Moves

__all__ = ["Events", "find_events", "pure_deaths"]

_MOST_TASKS = 192
"""Tasks above which every move is branched on: where many risers are ready at once, a state takes too long."""

_MOST_WAYS = 65_536
"""Ways in which sets before events can be joined, in all: a search with more of them branches on every move instead."""


class Events(FrozenValue, frozen=True):
    """What events need.

    Attributes:
        risers: The tasks that are risers when they are pure, as a bitset.
        rise: Per task what it adds to the residue when it is pure, bytes.
        above: Per task its footprint above the residue after it when it is pure, bytes.
        needed: Per task all that must be taken before it, as a bitset.
        meeting: Per task and shared buffer the sets one of which comes before it where the buffer dies in it (forwards:
            all other readers) or is live already (backwards: one of them), each closed under what tasks need.
    """

    risers: int
    rise: tuple[int, ...]
    above: tuple[int, ...]
    needed: tuple[int, ...]
    meeting: tuple[tuple[tuple[int, ...], ...], ...]


def find_events(moves: Moves, *, most_ways: int = _MOST_WAYS) -> Events:
    """Return the events of ``moves``; without risers where there are too many tasks or sets before events."""
    rise, above = _pure(moves)
    if len(moves.needs) > _MOST_TASKS:
        return Events(0, rise, above, moves.needs, tuple(((),) * len(shared) for shared in moves.shared))
    needed = _closures(moves)
    risers = bitset(task for task, more in enumerate(rise) if more > 0)
    meeting = tuple(_meeting(moves, needed, task) for task in range(len(needed)))
    ways = sum(math.prod(1 + len(sets) for sets in of_task) for of_task in meeting)
    if ways > most_ways:
        risers, meeting = 0, tuple(((),) * len(shared) for shared in moves.shared)
    return Events(risers, rise, above, needed, meeting)


def pure_deaths(moves: Moves, task: int) -> int:
    """Return which of a task's shared buffers die in it, or become live in it, when it is pure."""
    return 0 if moves.last_reader else (1 << len(moves.shared[task])) - 1


def _change(moves: Moves, task: int, dying: int) -> int:
    return moves.change[task] + moves.sign * sum(moves.shared[task][place][1] for place in members(dying))


def _pure(moves: Moves) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return per task its change and its footprint above the later residue, when it is pure."""
    deaths = [pure_deaths(moves, task) for task in range(len(moves.needs))]
    rise = tuple(_change(moves, task, dying) for task, dying in enumerate(deaths))
    above = tuple(moves.excess(task, dying) - rise[task] for task, dying in enumerate(deaths))
    return rise, above


def _closures(moves: Moves) -> tuple[int, ...]:
    """Return per task all that must be taken before it."""
    before = [0] * len(moves.needs)
    waiting = [need.bit_count() for need in moves.needs]
    ready = [task for task, count in enumerate(waiting) if not count]
    for task in ready:
        need = moves.needs[task]
        before[task] = functools.reduce(operator.or_, (before[other] for other in members(need)), need)
        for later in moves.unlocks[task]:
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    return tuple(before)


def _meeting(moves: Moves, needed: Sequence[int], task: int) -> tuple[tuple[int, ...], ...]:
    """Return `Events.meeting` of a task."""
    found = []
    for others, _ in moves.shared[task]:
        readers = [needed[reader] | 1 << reader for reader in members(others)]
        if moves.last_reader:
            readers = [functools.reduce(operator.or_, readers, 0)]
        # Whoever needs the task itself does not come before it.
        found.append(tuple(before for before in readers if not before >> task & 1))
    return tuple(found)
