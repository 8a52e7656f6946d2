"""Exact search for the order of least peak: a threshold search over downsets with safe moves, in both directions.

States are downsets, the sets of executed tasks that are closed under predecessors. The search keeps a threshold that
is a proven lower bound: it rises only when every state reachable under it is exhausted, so the first complete state
is an optimum and no upper bound is needed. Unlike the integer program of "Iterative Graph Optimization", it needs no
time index at all.

Two facts of liveness carry it. Let f(D) be the residue after downset D.

- *Safe move.* A ready task that does not raise the residue and whose footprint fits under the threshold is executed at
  once, without branching. Proof: per buffer, "created and not yet fully read" is submodular on downsets, so the net
  change f(D + v) - f(D) of a task only falls as D grows; so does its footprint above f(D), because the set of reads
  that die in it (and with it what in-place writes save) only grows. Take any completion of D under the threshold and
  move v to its front: each residue before v's old place changes by v's net change, which is <= 0, and each footprint
  above the residue does not rise. Views, several outputs and several readers are covered: they only change which tasks
  read a buffer.
- *Both directions.* Executed backwards, from the outputs, f is submodular on the complements too, and the footprint
  above the later residue is the bytes that die in the task less what in-place writes save. Fewer buffers die in it the
  more later tasks were taken, and each that does not lowers the sum by its size and the saving by at most that. So
  the same safe move holds. Forwards alone fails where many branches fan out late, backwards where they fan out early;
  the two searches take turns with doubling effort and share the proven threshold.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memsched.graph.contraction import Tasks

__all__ = ["ExactResult", "search"]

_FIRST_TURN = 256


@dataclass(frozen=True, slots=True)
class ExactResult:
    """What the search found.

    Attributes:
        order: An optimal order of the tasks; None when the search was stopped, or proved that none is better than
            the given upper bound.
        lower_bound: Bytes that every order needs; the optimum when the search was not stopped.
        complete: Whether the search finished, so that ``lower_bound`` is the optimum (or the upper bound).
        states: Downsets expanded in both directions.
    """

    order: tuple[int, ...] | None
    lower_bound: int
    complete: bool
    states: int


def search(
    tasks: Tasks,
    *,
    lower_bound: int = 0,
    upper_bound: int | None = None,
    max_states: int = 2_000_000,
    stop: Callable[[], bool] = lambda: False,
    on_bound: Callable[[int], None] = lambda _: None,
) -> ExactResult:
    """Return an order of ``tasks`` whose peak is least, or the best bound when stopped.

    Args:
        tasks: What to order.
        lower_bound: A known lower bound, bytes: an order that needs no more than this is good enough and counts as
            optimal.
        upper_bound: The peak of a known order, bytes: the search ends when nothing below it is left.
        max_states: Stop after so many states in total.
        stop: Polled every 64 states; True ends the search.
        on_bound: Called with each proven lower bound.
    """
    forward = _ThresholdSearch(_forward_moves(tasks), tasks.initial)
    backward = _ThresholdSearch(_backward_moves(tasks), _final_residue(tasks))
    threshold, effort = lower_bound, _FIRST_TURN
    while True:
        for direction in (forward, backward):
            budget = min(effort, max_states - forward.states - backward.states)
            ending = direction.run(threshold, upper_bound, budget, stop)
            if direction.threshold > threshold:
                threshold = direction.threshold
                on_bound(threshold if upper_bound is None else min(threshold, upper_bound))
            states = forward.states + backward.states
            if ending == "found":
                path = direction.path()
                order = path if direction is forward else tuple(reversed(path))
                return ExactResult(order, threshold, True, states)
            if ending == "exhausted" and upper_bound is not None:
                return ExactResult(None, upper_bound, True, states)
            if ending == "stopped" or states >= max_states:
                return ExactResult(None, threshold, False, states)
        effort *= 2


def _final_residue(tasks: Tasks) -> int:
    """Bytes live after the last task: what was there from the start or created, and never dies."""
    created = sum(tasks.sizes[b] for made in tasks.creates for b in made)
    dying = sum(size for size, users, kept in zip(tasks.sizes, tasks.users, tasks.kept, strict=True) if not kept)
    return tasks.initial + created - dying


@dataclass(frozen=True, slots=True)
class _Moves:
    """One direction's moves over states S, the bitsets of tasks taken so far.

    Attributes:
        needs: Per task the bitset that S must hold before the task can be taken.
        unlocks: Per task the tasks that may become ready after it.
        shared: Per task, per read buffer that others read too and that is not kept: (others as bitset, size).
        last_reader: True forwards: a shared buffer dies when all others are in S; False: when none is.
        change: Per task the residue's change, bytes, when no shared buffer dies in it.
        excess: (task, bitset over its shared buffers that die) -> footprint above the residue of S, bytes.
        sign: What a dying shared buffer adds to the residue's change per byte.
    """

    needs: tuple[int, ...]
    unlocks: tuple[tuple[int, ...], ...]
    shared: tuple[tuple[tuple[int, int], ...], ...]
    last_reader: bool
    change: tuple[int, ...]
    excess: Callable[[int, int], int]
    sign: int


def _forward_moves(tasks: Tasks) -> _Moves:
    shared, own, change = _split_reads(tasks)

    def excess(task: int, dying: int) -> int:
        buffers = [b for i, b in enumerate(shared[task]) if dying >> i & 1]
        return tasks.excess(task, {*own[task], *buffers})

    return _Moves(
        needs=tuple(_bitset(befores) for befores in tasks.preds),
        unlocks=tasks.succs,
        shared=_others(tasks, shared),
        last_reader=True,
        change=change,
        excess=excess,
        sign=-1,
    )


def _backward_moves(tasks: Tasks) -> _Moves:
    shared, own, change = _split_reads(tasks)

    def excess(task: int, dying: int) -> int:
        buffers = [b for i, b in enumerate(shared[task]) if dying >> i & 1]
        later = change[task] - sum(tasks.sizes[b] for b in buffers)
        return tasks.excess(task, {*own[task], *buffers}) - later

    return _Moves(
        needs=tuple(_bitset(afters) for afters in tasks.succs),
        unlocks=tasks.preds,
        shared=_others(tasks, shared),
        last_reader=False,
        change=tuple(-bytes_ for bytes_ in change),
        excess=excess,
        sign=1,
    )


def _split_reads(tasks: Tasks) -> tuple[list[list[int]], list[list[int]], tuple[int, ...]]:
    """Return per task the reads shared with others, the reads of its own, and the change when only those die."""
    shared = [[b for b in reads if not tasks.kept[b] and len(tasks.users[b]) > 1] for reads in tasks.reads]
    own = [[b for b in reads if not tasks.kept[b] and len(tasks.users[b]) == 1] for reads in tasks.reads]
    change = tuple(
        sum(tasks.sizes[b] for b in created if tasks.users[b] or tasks.kept[b]) - sum(tasks.sizes[b] for b in dying)
        for created, dying in zip(tasks.creates, own, strict=True)
    )
    return shared, own, change


def _others(tasks: Tasks, shared: list[list[int]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    return tuple(
        tuple((_bitset(tasks.users[b]) & ~(1 << task), tasks.sizes[b]) for b in buffers)
        for task, buffers in enumerate(shared)
    )


def _bitset(members: Sequence[int]) -> int:
    bits = 0
    for member in members:
        bits |= 1 << member
    return bits


class _ThresholdSearch:
    """A threshold search in one direction that can be paused and continued."""

    def __init__(self, moves: _Moves, residue: int) -> None:
        self.states = 0
        self.threshold = 0
        self._moves = moves
        self._upper_bound: int | None = None
        self._full = (1 << len(moves.needs)) - 1
        self._excess: list[dict[int, int]] = [{} for _ in moves.needs]
        ready = tuple(task for task, need in enumerate(moves.needs) if not need)
        # State -> (state it came from, tasks taken in between).
        self._origin: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
        self._stack: list[tuple[int, int, tuple[int, ...], int]] = [(0, residue, ready, -1)]
        # Expanded states with moves above the threshold: (least such footprint, number, state).
        self._deferred: list[tuple[int, int, tuple[int, int, tuple[int, ...], int]]] = []

    def path(self) -> tuple[int, ...]:
        """Return the tasks in the order in which this direction took them, after "found"."""
        pieces: list[tuple[int, ...]] = []
        state = self._full
        while state:
            state, taken = self._origin[state]
            pieces.append(taken)
        return tuple(task for piece in reversed(pieces) for task in piece)

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
                if not self.states & 63 and stop():
                    return "stopped"
                if self._expand(*self._stack.pop()):
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

    def _expand(self, state: int, residue: int, ready: tuple[int, ...], expanded_to: int) -> bool:
        """Take all safe moves from ``state``, then branch; True when everything is taken.

        ``expanded_to`` is the threshold up to which this very state was expanded before, -1 for a new one.
        """
        self.states += 1
        start = state
        taken: list[int] = []
        while True:
            safe, change, options, deferred = self._look(state, residue, ready)
            if safe < 0:
                break
            state |= 1 << safe
            residue += change
            ready = self._ready_after(safe, state, ready)
            taken.append(safe)
        if taken:
            expanded_to = -1
            if state in self._origin:
                return False
            self._origin[state] = (start, tuple(taken))
        if state == self._full:
            return True
        if deferred >= 0 and (self._upper_bound is None or deferred < self._upper_bound):
            heapq.heappush(self._deferred, (deferred, self.states, (state, residue, ready, self.threshold)))
        options.sort(reverse=True)
        for change, footprint, task in options:
            after = state | 1 << task
            if footprint > expanded_to and after not in self._origin:
                self._origin[after] = (state, (task,))
                self._stack.append((after, residue + change, self._ready_after(task, after, ready), -1))
        return False

    def _look(
        self, state: int, residue: int, ready: tuple[int, ...]
    ) -> tuple[int, int, list[tuple[int, int, int]], int]:
        """Return a safe move (-1: none), its change, the moves that fit, and the least footprint that does not (-1).

        A move that fits is (change, footprint, task).
        """
        shared, changes, sign = self._moves.shared, self._moves.change, self._moves.sign
        last_reader, threshold = self._moves.last_reader, self.threshold
        options: list[tuple[int, int, int]] = []
        deferred = -1
        for task in ready:
            dying, change = 0, changes[task]
            for index, (others, size) in enumerate(shared[task]):
                if (others & state) == (others if last_reader else 0):
                    dying |= 1 << index
                    change += sign * size
            excess = self._excess[task].get(dying)
            if excess is None:
                excess = self._excess[task][dying] = self._moves.excess(task, dying)
            footprint = residue + excess
            if footprint <= threshold:
                if change <= 0:
                    return task, change, options, deferred
                options.append((change, footprint, task))
            elif deferred < 0 or footprint < deferred:
                deferred = footprint
        return -1, 0, options, deferred

    def _ready_after(self, task: int, state: int, ready: tuple[int, ...]) -> tuple[int, ...]:
        needs = self._moves.needs
        unlocked = [after for after in self._moves.unlocks[task] if not needs[after] & ~state]
        return tuple([other for other in ready if other != task] + unlocked)
