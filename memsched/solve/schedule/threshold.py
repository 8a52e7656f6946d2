"""A threshold search over downsets in one direction: safe moves, events, and commits to states that cost nothing.

A *one-hill commit* goes to a state E from D at once, without a way back: of all that events lead to under the
threshold, E has the least residue, and no more than D has. Proof: every downset between D and E without E's event has
at least the residue of D, as risers only raise it; any with the event holds one of the states compared and risers
beside it. So E has the least residue of the interval, and as the residue is submodular, what a completion of D takes
can be taken after E with no larger footprint. That holds at every higher threshold as well, so D is not looked at
again.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memsched.graph.dag import bitset, members
from memsched.search.limits import LOOK_EVERY
from memsched.solve.schedule.events import Events, pure_deaths
from memsched.solve.schedule.moves import Moves

__all__ = ["ThresholdSearch"]


@dataclass(slots=True)
class _OpenState:
    """A state to expand.

    Attributes:
        taken: Its tasks, as a bitset.
        residue: Bytes live after them.
        ready: The tasks that can be taken next.
        expanded_to: The threshold up to which this very state was expanded before, -1 for a new one.
    """

    taken: int
    residue: int
    ready: int
    expanded_to: int


class ThresholdSearch:
    """A threshold search in one direction that can be paused and continued.

    Args:
        moves: Of the direction.
        residue: Bytes live before the first move.
        events: Of the moves.
    """

    def __init__(self, moves: Moves, residue: int, events: Events) -> None:
        self.states = 0
        self.threshold = 0
        self._moves = moves
        self._residue = residue
        self._upper_bound: int | None = None
        self._full = (1 << len(moves.needs)) - 1
        self._excess: list[dict[int, int]] = [{} for _ in moves.needs]
        self._events = events
        self._pure_deaths = [pure_deaths(moves, task) for task in range(len(moves.needs))]
        # Per task all others that read one of its shared buffers.
        self._meets = [functools.reduce(operator.or_, (others for others, _ in shared), 0) for shared in moves.shared]
        self._after = [sum(1 << later for later in unlocked) for unlocked in moves.unlocks]
        ready = sum(1 << task for task, need in enumerate(moves.needs) if not need)
        self._origin: dict[int, int] = {0: 0}
        self._last = 0
        self._stack = [_OpenState(0, residue, ready, -1)]
        # Expanded states with moves above the threshold: (least such footprint, number, state).
        self._deferred: list[tuple[int, int, _OpenState]] = []

    def path(self) -> tuple[int, ...]:
        """Return the tasks in the order in which this direction took them, after "found"."""
        chain = [self._full]
        if self._last != self._full:
            chain.append(self._last)
        while chain[-1]:
            chain.append(self._origin[chain[-1]])
        return self.order_along(chain[::-1], self.threshold)

    def run(self, threshold: int, upper_bound: int | None, budget: int, stop: Callable[[], bool]) -> str:
        """Expand up to ``budget`` states and return how that ended.

        "found" when everything is taken, "paused", "stopped", or "exhausted" when nothing is left below the bound.
        """
        self._upper_bound = upper_bound
        if upper_bound is not None and threshold >= upper_bound:
            return "exhausted"
        if threshold > self.threshold:
            self.threshold = threshold
            self._release()
        end = self.states + budget
        while True:
            while self._stack:
                if self.states >= end:
                    return "paused"
                if self.states % LOOK_EVERY == 0 and stop():
                    return "stopped"
                if self._expand(self._stack.pop()):
                    return "found"
            if not self._deferred:
                # Every order was cut off by the caller's bound.
                return "exhausted"
            self.threshold = self._deferred[0][0]
            if upper_bound is not None and self.threshold >= upper_bound:
                return "exhausted"
            self._release()

    def _release(self) -> None:
        while self._deferred and self._deferred[0][0] <= self.threshold:
            self._stack.append(heapq.heappop(self._deferred)[2])

    # One state -----------------------------------------------------------------------------------------------------

    def _expand(self, state: _OpenState) -> bool:
        """Take all safe moves from ``state``, then branch on events; True when all that is left can be taken."""
        self.states += 1
        start = state.taken
        self._take_safe(state)
        if state.taken != start:
            state.expanded_to = -1
            if state.taken in self._origin:
                return False
            self._origin[state.taken] = start
        self._last = state.taken
        deferred = self._need_of_rest(state)
        if deferred is not None and deferred <= self.threshold:
            return True
        found, above, commit = self._children(state)
        if commit is not None:
            found = [commit]
        else:
            least = min((need for need in (deferred, above) if need is not None), default=None)
            if least is not None and (self._upper_bound is None or least < self._upper_bound):
                again = _OpenState(state.taken, state.residue, state.ready, self.threshold)
                heapq.heappush(self._deferred, (least, self.states, again))
        found.sort(key=lambda child: (child[0], child[1], -child[2]), reverse=True)
        for residue, _, taken in found:
            if taken not in self._origin:
                self._origin[taken] = state.taken
                self._stack.append(_OpenState(taken, residue, self._ready_after(state, taken), -1))
        return False

    def _take_safe(self, state: _OpenState) -> None:
        moved = True
        while moved:
            moved = False
            for task in members(state.ready):
                change, excess, _ = self._look(task, state.taken)
                if change <= 0 and state.residue + excess <= self.threshold:
                    state.taken |= 1 << task
                    state.residue += change
                    state.ready = state.ready & ~(1 << task) | self._unlocked(self._after[task], state.taken)
                    moved = True
                    break

    def _look(self, task: int, taken: int) -> tuple[int, int, int]:
        """Return a task's change of the residue, its footprint above the residue before it, and what dies in it."""
        moves = self._moves
        dying, change = 0, moves.change[task]
        for place, (others, size) in enumerate(moves.shared[task]):
            if (others & taken) == (others if moves.last_reader else 0):
                dying |= 1 << place
                change += moves.sign * size
        excess = self._excess[task].get(dying)
        if excess is None:
            excess = self._excess[task][dying] = moves.excess(task, dying)
        return change, excess, dying

    def _unlocked(self, candidates: int, taken: int) -> int:
        needs = self._moves.needs
        return sum(1 << task for task in members(candidates & ~taken) if not needs[task] & ~taken)

    def _ready_after(self, state: _OpenState, taken: int) -> int:
        candidates = 0
        for task in members(taken & ~state.taken):
            candidates |= self._after[task]
        return state.ready & ~taken | self._unlocked(candidates, taken)

    # Events --------------------------------------------------------------------------------------------------------

    def _children(
        self, state: _OpenState
    ) -> tuple[list[tuple[int, int, int]], int | None, tuple[int, int, int] | None]:
        """Return the states that events lead to, the least threshold of one that is too high, and one to commit to.

        A state is (residue, threshold that it needs, tasks taken).
        """
        found: list[tuple[int, int, int]] = []
        above: int | None = None
        commit: tuple[int, int, int] | None = None
        lightest: int | None = None
        risers, reach = self._within_risers(state)
        for task in members(reach):
            for first in self._firsts(task, state, risers):
                child = self._child(state, task, first)
                if child is None:
                    continue
                residue, need, taken, over = child
                if need > self.threshold:
                    above = need if above is None else min(above, need)
                    continue
                lightest = over if lightest is None else min(lightest, over)
                rank = residue, taken.bit_count()
                if residue <= state.residue and (commit is None or rank < (commit[0], commit[2].bit_count())):
                    commit = residue, need, taken
                if need > state.expanded_to:
                    found.append((residue, need, taken))
        if commit is None and lightest is not None:
            for heavy in self._heavy_risers(state, risers, lightest):
                if heavy[1] <= self.threshold:
                    found.append(heavy)
                else:
                    above = heavy[1] if above is None else min(above, heavy[1])
        return found, above, commit

    def _firsts(self, task: int, state: _OpenState, risers: int) -> Iterator[int]:
        """Yield what of ``risers`` may be taken before an event: what it needs, and what gives it deaths."""
        needed, taken = self._events.needed[task], state.taken
        within, least = taken | risers, taken | needed
        choices = []
        for (others, _), meeting in zip(self._moves.shared[task], self._events.meeting[task], strict=True):
            if self._moves.last_reader or not others & least:
                choices.append((0, *(before for before in meeting if not before & ~within and before & ~least)))
        firsts = (functools.reduce(operator.or_, chosen, needed) & ~taken for chosen in itertools.product(*choices))
        yield from dict.fromkeys(firsts)

    def _heavy_risers(self, state: _OpenState, risers: int, lightest: int) -> Iterator[tuple[int, int, int]]:
        """Yield the states after risers that need more above them than some event, and after what these need."""
        above = self._events.above
        for task in members(risers):
            if above[task] <= lightest:
                continue
            first = self._events.needed[task] & ~state.taken
            if any(above[other] > above[task] for other in members(first)):
                continue
            both = first | 1 << task
            residue = self._after_risers(state.residue, both, state.taken | both)
            if residue is not None:
                yield residue, self._need_of(both, residue), state.taken | both

    def _within_risers(self, state: _OpenState) -> tuple[int, int]:
        """Return the pure risers that only others come before, and all that can be taken after some."""
        rising, needs = self._events.risers, self._moves.needs
        risers, reach, latest = 0, state.ready, state.ready
        while more := bitset(task for task in members(latest & rising) if self._is_pure(task, state.taken)):
            risers |= more
            within, candidates, latest = state.taken | risers, 0, 0
            for task in members(more):
                candidates |= self._after[task]
            for task in members(candidates & ~reach):
                if not needs[task] & ~within:
                    latest |= 1 << task
            reach |= latest
        return risers, reach

    def _child(self, state: _OpenState, task: int, first: int) -> tuple[int, int, int, int] | None:
        """Return the state after risers, ``first``, and the event ``task``; None where they are no such.

        It is (residue, threshold that it needs, tasks taken, footprint of the event above the residue after it).
        """
        before = state.taken | first
        change, excess, dying = self._look(task, before)
        if self._events.risers >> task & 1 and dying == self._pure_deaths[task]:
            return None
        residue = self._after_risers(state.residue, first, before)
        if residue is None:
            return None
        need = max(residue + excess, self._need_of(first, residue))
        return residue + change, need, before | 1 << task, excess - change

    def _after_risers(self, residue: int, risers: int, together: int) -> int | None:
        """Return the residue after ``risers``, which end in the state ``together``; None where one is an event."""
        if risers & ~self._events.risers:
            return None
        for task in members(risers):
            if not self._is_pure(task, together):
                return None
            residue += self._events.rise[task]
        return residue

    def _is_pure(self, task: int, taken: int) -> bool:
        """Whether nothing about a task depends on what is taken; once it does, it goes on to."""
        if not self._moves.last_reader:
            return not self._meets[task] & taken
        return all(others & ~taken for others, _ in self._moves.shared[task])

    def _need_of(self, risers: int, residue: int) -> int:
        """Return the least threshold under which pure ``risers`` can be taken, after which the ``residue`` is such."""
        return max((need for _, need in self._from_the_back(risers, residue)), default=0)

    def _from_the_back(self, risers: int, residue: int) -> list[tuple[int, int]]:
        """Return pure ``risers`` with their footprints in the best order, the last one first."""
        above, after = self._events.above, self._after
        order = []
        while risers:
            last = min(
                (task for task in members(risers) if not after[task] & risers), key=lambda task: (above[task], task)
            )
            order.append((last, residue + above[last]))
            residue -= self._events.rise[last]
            risers ^= 1 << last
        return order

    def _need_of_rest(self, state: _OpenState) -> int | None:
        """Return the least threshold under which all that is left can be taken; None where events are left."""
        rest = self._full & ~state.taken
        residue = self._after_risers(state.residue, rest, self._full)
        return None if residue is None else self._need_of(rest, residue)

    # The order -----------------------------------------------------------------------------------------------------

    def order_along(self, chain: Sequence[int], threshold: int) -> tuple[int, ...]:
        """Return an order in which the states of ``chain``, each found from the one before, follow under a threshold.

        Args:
            chain: From the empty state to the full one, as bitsets of tasks.
            threshold: Bytes, no less than when any of them was found.
        """
        self.threshold = threshold
        order: list[int] = []
        residue = self._residue
        for state, after in itertools.pairwise(chain):
            step = _OpenState(state, residue, self._unlocked(after & ~state, state), -1)
            for task in self._safe_order(step, after) or self._event_order(step, after):
                order.append(task)
                residue += self._look(task, step.taken)[0]
                step.taken |= 1 << task
        return tuple(order)

    def _safe_order(self, step: _OpenState, end: int) -> list[int]:
        """Return an order of safe moves from ``step`` to ``end``; empty where there is none."""
        state = _OpenState(step.taken, step.residue, step.ready, -1)
        order: list[int] = []
        while state.taken != end:
            for task in members(self._unlocked(end & ~state.taken, state.taken)):
                change, excess, _ = self._look(task, state.taken)
                if change <= 0 and state.residue + excess <= self.threshold:
                    order.append(task)
                    state.taken |= 1 << task
                    state.residue += change
                    break
            else:
                return []
        return order

    def _event_order(self, step: _OpenState, end: int) -> list[int]:
        """Return risers in their best order and, unless nothing but them is left, the event after them."""
        taken = end & ~step.taken
        for task in members(taken):
            first = taken ^ 1 << task
            if self._moves.needs[task] & ~(step.taken | first) or self._after[task] & first:
                continue
            child = self._child(step, task, first)
            if child is not None and child[1] <= self.threshold:
                return [*self._forwards(first, child[0] - self._look(task, step.taken | first)[0]), task]
        residue = self._after_risers(step.residue, taken, end) or 0
        return self._forwards(taken, residue)

    def _forwards(self, risers: int, residue: int) -> list[int]:
        return [task for task, _ in reversed(self._from_the_back(risers, residue))]
