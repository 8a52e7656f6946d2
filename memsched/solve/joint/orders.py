"""Many different orders under one limit of the peak, and different in-place choices for each.

A footprint limit leaves many orders: any path through the exact search's states under the threshold is one. They are
sampled here by re-ordering windows of a known order: what ran before and after a window stays, and within it a
depth-first walk takes ready ops at random as long as their footprints keep to the limit. A window may be the whole.
An order's in-place writes are chosen at random, too: over which of several dying inputs an output is written decides
what keeps its address, and a write that the limit does not need may ask for an address of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.liveness import Storage, evaluate, match_in_place
from memsched.graph.model import InPlace

__all__ = ["OrderCandidate", "reorder_window", "vary", "vary_in_place"]

_Pairs = tuple[tuple[int, int], ...]

_SIZES = (4, 8, 16, 32, 64)
_RELUCTANCE = (0.0, 0.5, 1.0)
_MOST_WALKED = 1000
"""How much ops that raise the residue are put off: 1 is almost always feasible, 0 gives the most different orders."""


class OrderCandidate(FrozenValue, frozen=True):
    """An order of ops and what is in place in it.

    Attributes:
        taken: Per step the pairs (created buffer, read buffer) that share an address.
        peak: The largest footprint with these choices, bytes.
    """

    order: tuple[int, ...]
    taken: tuple[_Pairs, ...]
    peak: int

    def in_place(self, storage: Storage) -> tuple[InPlace, ...]:
        """Return the in-place choices as ops and tensors."""
        return tuple(
            InPlace(op, storage.tensor_of[created], storage.tensor_of[read])
            for op, pairs in zip(self.order, self.taken, strict=True)
            for created, read in pairs
        )

    @staticmethod
    def of(storage: Storage, order: Sequence[int], merged: frozenset[tuple[int, int]] | None = None) -> OrderCandidate:
        """Return an order with the pairs ``merged`` in place; None: as `evaluate` chooses, for the least peak."""
        profile = evaluate(storage, order)
        if merged is None:
            return OrderCandidate(tuple(order), profile.taken, profile.peak)
        taken = tuple(tuple(pair for pair in storage.takes[op] if pair in merged) for op in order)
        return OrderCandidate(tuple(order), taken, _peak(storage, profile.footprints, profile.taken, taken))


def _peak(storage: Storage, footprints: Sequence[int], before: Sequence[_Pairs], after: Sequence[_Pairs]) -> int:
    sizes = storage.sizes
    return max(
        (
            footprint + sum(sizes[created] for created, _ in old) - sum(sizes[created] for created, _ in new)
            for footprint, old, new in zip(footprints, before, after, strict=True)
        ),
        default=storage.initial_residue(),
    )


def vary(
    storage: Storage, base: OrderCandidate, limit: int, rng: random.Random, around: Sequence[int]
) -> OrderCandidate | None:
    """Return another order near ``base`` whose peak is at most ``limit`` bytes; None when this attempt found none.

    Args:
        around: Steps that the re-ordered window should hold one of, such as those where the arena is exceeded.
    """
    count = len(base.order)
    if rng.random() < 0.2:
        return vary_in_place(storage, base.order, limit, rng)
    size = rng.choice([size for size in _SIZES if size < count] + [min(count, 2 * _SIZES[-1])])
    middle = rng.choice(around) if around and rng.random() < 0.75 else rng.randrange(count)
    start = min(max(0, middle - rng.randrange(size)), max(0, count - size))
    order = reorder_window(storage, base.order, start, start + size, limit, rng)
    if order is None or order == base.order:
        return None
    return vary_in_place(storage, order, limit, rng) if rng.random() < 0.5 else OrderCandidate.of(storage, order)


def vary_in_place(storage: Storage, order: Sequence[int], limit: int, rng: random.Random) -> OrderCandidate:
    """Return ``order`` with random in-place choices whose peak is at most ``limit``, which the order must keep to."""
    sizes = storage.sizes
    profile = evaluate(storage, order)
    remaining = storage.remaining_uses()
    taken: list[_Pairs] = []
    peak = 0 if order else profile.peak
    for step, op in enumerate(order):
        for buffer in storage.reads[op]:
            remaining[buffer] -= 1
        saved = sum(sizes[created] for created, _ in profile.taken[step])
        needed = profile.footprints[step] + saved - limit
        pairs = profile.taken[step]
        if storage.takes[op]:
            possible = [pair for pair in storage.takes[op] if not remaining[pair[1]]]
            chosen = _random_matching(possible, rng)
            if sum(sizes[created] for created, _ in chosen) >= needed:
                pairs = chosen
        taken.append(pairs)
        peak = max(peak, profile.footprints[step] + saved - sum(sizes[created] for created, _ in pairs))
    return OrderCandidate(tuple(order), tuple(taken), peak)


def _random_matching(possible: Sequence[tuple[int, int]], rng: random.Random) -> _Pairs:
    """Return pairs of which no two share a buffer, each left out with a small probability."""
    chosen: list[tuple[int, int]] = []
    used: set[int] = set()
    for created, read in rng.sample(possible, len(possible)):
        if created not in used and read not in used and rng.random() < 0.9:
            chosen.append((created, read))
            used |= {created, read}
    return tuple(sorted(chosen))


def reorder_window(
    storage: Storage,
    order: Sequence[int],
    start: int,
    end: int,
    limit: int,
    rng: random.Random,
) -> tuple[int, ...] | None:
    """Return ``order`` with the ops at positions [start, end) in a random order that keeps to ``limit`` bytes.

    None where a walk over `_MOST_WALKED` sets of executed ops finds none.
    """
    walk = _OrderWalk(storage, order[:start], order[start:end], limit, rng)
    found = walk.run(_MOST_WALKED)
    return None if found is None else (*order[:start], *found, *order[end:])


class _OrderWalk:
    """A randomised depth-first search for an order of some ops, from the state that the ops before them leave."""

    def __init__(
        self, storage: Storage, before: Sequence[int], window: Sequence[int], limit: int, rng: random.Random
    ) -> None:
        self._storage = storage
        self._limit = limit
        self._rng = rng
        self._reluctance = rng.choice(_RELUCTANCE)
        self._window = window
        self._bit = {op: 1 << place for place, op in enumerate(window)}
        self._waiting = {op: sum(other in self._bit for other in storage.preds[op]) for op in window}
        self._remaining = storage.remaining_uses()
        self._live = storage.initial_residue()
        for op in before:
            self._live += self._execute(op)

    def _execute(self, op: int) -> int:
        """Count down the uses and return the change of the residue."""
        storage, remaining = self._storage, self._remaining
        change = 0
        for buffer in storage.reads[op]:
            remaining[buffer] -= 1
            if not remaining[buffer]:
                change -= storage.sizes[buffer]
        for buffer in storage.creates[op]:
            if remaining[buffer]:
                change += storage.sizes[buffer]
        return change

    def _revoke(self, op: int) -> None:
        for buffer in self._storage.reads[op]:
            self._remaining[buffer] += 1

    def _cost(self, op: int) -> tuple[int, int]:
        """Return (footprint above the residue, change of the residue) of a ready op, bytes."""
        storage, remaining = self._storage, self._remaining
        change = -sum(storage.sizes[buffer] for buffer in storage.reads[op] if remaining[buffer] == 1)
        excess = storage.workspace[op]
        for buffer in storage.creates[op]:
            excess += storage.sizes[buffer]
            change += storage.sizes[buffer] if remaining[buffer] else 0
        if storage.takes[op]:
            pairs = [pair for pair in storage.takes[op] if remaining[pair[1]] == 1]
            excess -= sum(storage.sizes[created] for created, _ in match_in_place(pairs, storage.sizes))
        return excess, change

    def _options(self, ready: Sequence[int]) -> list[int]:
        """Return the ready ops that fit, the one to take first last."""
        fitting = []
        for op in ready:
            excess, change = self._cost(op)
            if self._live + excess <= self._limit:
                fitting.append((self._rng.random() + (self._reluctance if change > 0 else 0.0), op))
        return [op for _, op in sorted(fitting, reverse=True)]

    def run(self, max_states: int) -> list[int] | None:
        ready = [op for op in self._window if not self._waiting[op]]
        path: list[tuple[int, int, list[int]]] = []
        executed, dead = 0, set[int]()
        options = [self._options(ready)]
        for _ in range(max_states):
            if len(path) == len(self._window):
                return [op for op, _, _ in path]
            while options[-1] and executed | self._bit[options[-1][-1]] in dead:
                options[-1].pop()
            if options[-1]:
                op = options[-1].pop()
                change = self._execute(op)
                self._live += change
                executed |= self._bit[op]
                path.append((op, change, ready))
                ready = self._ready_after(op, ready)
                options.append(self._options(ready))
            elif path:
                dead.add(executed)
                options.pop()
                op, change, ready = path.pop()
                self._revoke(op)
                self._live -= change
                executed &= ~self._bit[op]
                for after in self._storage.succs[op]:
                    if after in self._waiting:
                        self._waiting[after] += 1
            else:
                return None
        return None

    def _ready_after(self, op: int, ready: list[int]) -> list[int]:
        result = [other for other in ready if other != op]
        for after in self._storage.succs[op]:
            if after in self._waiting:
                self._waiting[after] -= 1
                if not self._waiting[after]:
                    result.append(after)
        return result
