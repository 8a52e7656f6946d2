"""Orders that ONNX Runtime's default rule can produce: the best file order for sessions that set no option.

The rule (`orders.default_order`) walks depth first against the edges and visits leaves and
inputs by falling index. A file may store its ops in any topological order, so what can be chosen is which of the
unvisited predecessors of an op is visited next, with one exception: one that another of them needs comes with that
one. A *walk* is such a sequence of choices; the file order that makes the runtime take it is a topological order
of the edges together with "visited first has the higher index".

Walks are found in three ways: by following good orders (at each choice the predecessor that they run first) and by
Sethi and Ullman's rule for trees (the subtree with the largest peak above what it leaves comes first); by enumeration
with backjumping, which is complete on small graphs; by seeded local search over the choices.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from memsched.base.frozen import FrozenValue
from memsched.graph.liveness import Storage
from memsched.runtimes.onnxruntime.orders import walk_backwards
from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse

__all__ = ["DefaultOrder", "best_default_order"]

LARGEST = 4000
"""Ops of the largest graph that is searched: which predecessors need each other takes bits squared."""

_Choices = list[list[int]]
_ENUMERATED = 0.4


class DefaultOrder(FrozenValue, frozen=True):
    """A file order and what ONNX Runtime makes of it.

    Attributes:
        file_order: A topological order of all ops, as the file should store them.
        executed: The order in which a session without options runs that file.
        peak: What that costs when dead buffers are handed on, bytes.
        complete: Whether every walk was tried, or the lower bound was reached.
    """

    file_order: tuple[int, ...]
    executed: tuple[int, ...]
    peak: int
    complete: bool


def best_default_order(
    planned: PlannerGraph,
    guides: Sequence[Sequence[int]],
    *,
    reuse: bool = True,
    lower_bound: int = 0,
    effort: int = 300_000,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> DefaultOrder:
    """Return the best file order found for sessions that take the default order; never worse than the given file.

    Args:
        planned: The graph; its ops are numbered as the given file stores them.
        guides: Good orders to follow.
        reuse: Whether the session hands dead buffers on (``enable_mem_reuse``).
        lower_bound: Bytes below which nothing need be tried.
        effort: Ops to simulate in all: 300,000 take about half a second.
        stop: Polled often; True ends the search with the best order so far.
    """
    search = _DefaultOrderSearch(planned, reuse, lower_bound, effort, seed, stop)
    if search.count <= LARGEST:
        search.follow(guides)
        search.enumerate_walks()
        search.improve()
    return search.best


@dataclass(slots=True)
class _Decision:
    """A point of a walk where more than one op could be visited next.

    Attributes:
        at: The op whose predecessors are chosen from; the number of ops for the leaves.
        emitted: How many ops had been executed before it.
    """

    at: int
    options: Sequence[int]
    taken: int
    emitted: int


class _DefaultOrderSearch:
    def __init__(
        self,
        planned: PlannerGraph,
        reuse: bool,
        lower_bound: int,
        effort: int,
        seed: int,
        stop: Callable[[], bool],
    ) -> None:
        self.planned, self.storage, self.reuse = planned, planned.storage, reuse
        self.lower_bound, self.stop = lower_bound, stop
        self.rng = random.Random(seed)  # noqa: S311 - a search, no secret
        self.count = len(self.storage.preds)
        self.left = max(20, effort // max(1, self.count))
        self.starts: list[tuple[int, _Choices]] = []
        self.complete = False
        leaves = [op for op, afters in enumerate(self.storage.succs) if not afters]
        self.preds: list[Sequence[int]] = [*self.storage.preds, leaves]
        self.needs: list[dict[int, int]] = []
        self.best = self._ordered(range(self.count))

    def done(self) -> bool:
        return self.best.peak <= self.lower_bound

    def cost(self, executed: Sequence[int]) -> int:
        self.left -= 1
        return simulate_reuse(self.planned, executed, reuse=self.reuse).peak

    def _ordered(self, file_order: Sequence[int]) -> DefaultOrder:
        executed = walk_backwards(self.storage.preds, self.storage.succs, file_order)
        peak = self.cost(executed)
        return DefaultOrder(tuple(file_order), executed, peak, peak <= self.lower_bound)

    def offer(self, decisions: Sequence[_Decision], peak: int) -> None:
        """Take the walk that ``decisions`` made when its ``peak`` is better than the best one's."""
        if peak < self.best.peak:
            found = self._ordered(_file_order(self.storage, decisions))
            if found.peak < self.best.peak:
                self.best = found

    def follow(self, guides: Sequence[Sequence[int]]) -> None:
        """Try the walks that come nearest to ``guides``, and the one of Sethi and Ullman's rule."""
        self.needs = _needs(self.preds, self.count)
        for ranks in [rank for guide in guides for rank in _rankings(self.storage, guide)]:
            self._start([sorted(befores, key=ranks.__getitem__) for befores in self.preds])
        self._start(_subtrees(self.storage, self.preds))
        self.starts.sort(key=lambda start: start[0])

    def _start(self, choices: _Choices) -> None:
        if self.done() or self.stop():
            return
        executed, decisions = self.walk(choices)
        peak = self.cost(executed)
        self.starts.append((peak, choices))
        self.offer(decisions, peak)

    def walk(self, choices: _Choices, forced: Sequence[int] = ()) -> tuple[list[int], list[_Decision]]:
        """Walk as ``choices`` prefer, with the first decisions ``forced``: which option, by its number."""
        visited = bytearray(self.count + 1)
        emitted: list[int] = []
        decisions: list[_Decision] = []
        stack = [self.count]
        needs = self.needs
        while stack:
            op = stack[-1]
            open_ = [before for before in choices[op] if not visited[before]]
            if not open_:
                stack.pop()
                if op < self.count:
                    emitted.append(op)
                continue
            if len(open_) > 1 and needs[op]:
                bits = sum(1 << before for before in open_)
                open_ = [before for before in open_ if not needs[op].get(before, 0) & bits]
            chosen = 0
            if len(open_) > 1:
                if len(decisions) < len(forced):
                    chosen = forced[len(decisions)]
                decisions.append(_Decision(op, open_, chosen, len(emitted)))
            visited[open_[chosen]] = True
            stack.append(open_[chosen])
        return emitted, decisions

    def enumerate_walks(self) -> None:
        """Try every walk, the last decisions first; a walk is left at the step where it costs too much."""
        if self.done() or not self.starts:
            return
        choices = self.starts[0][1]
        end = self.left - int(self.left * _ENUMERATED)
        forced: list[int] = []
        while self.left > end and not self.done() and not self.stop():
            executed, decisions = self.walk(choices, forced)
            self.left -= 1
            alone = simulate_reuse(self.planned, executed, reuse=False)
            # Whatever is decided after the first step that costs as much as the best order cannot help.
            reached = next((step for step, size in enumerate(alone.footprints) if size >= self.best.peak), self.count)
            if reached == self.count:
                self.offer(decisions, self.cost(executed))
            forced = _next(decisions, reached)
            if not forced:
                self.complete = True
                break
        if self.complete:
            self.best = replace(self.best, complete=True)

    def improve(self) -> None:
        """Change random choices of the best walks, and keep what is not worse."""
        starts = self.starts[:3]
        for number, (peak, given) in enumerate(starts):
            if self.complete or self.done():
                return
            choices, current = [list(befores) for befores in given], peak
            decisions = self.walk(choices)[1]
            end = self.left - self.left // (len(starts) - number)
            while self.left > end and decisions and not self.done() and not self.stop():
                changed = self._changed(choices, self.rng.choice(decisions))
                executed, after = self.walk(changed)
                cost = self.cost(executed)
                if cost <= current:
                    choices, current, decisions = changed, cost, after
                    self.offer(after, cost)

    def _changed(self, choices: _Choices, decision: _Decision) -> _Choices:
        """Prefer another option of ``decision``, or reverse what its op prefers."""
        changed = list(choices)
        befores = list(choices[decision.at])
        if self.rng.random() < 0.2:
            self.rng.shuffle(befores)
        else:
            other = self.rng.choice(decision.options)
            befores.remove(other)
            befores.insert(self.rng.randrange(len(befores) + 1), other)
        changed[decision.at] = befores
        return changed


def _next(decisions: Sequence[_Decision], reached: int) -> list[int]:
    """Return the next numbers of options after a walk of which only what was decided before ``reached`` matters."""
    kept = list(decisions)
    while kept and (kept[-1].emitted > reached or kept[-1].taken + 1 == len(kept[-1].options)):
        kept.pop()
    return [*(one.taken for one in kept[:-1]), kept[-1].taken + 1] if kept else []


def _needs(preds: Sequence[Sequence[int]], count: int) -> list[dict[int, int]]:
    """Return per op, for those of its predecessors that others of them need, the bitset of these others."""
    ancestors: list[int] = []
    for befores in preds[:count]:
        bits = 0
        for before in befores:
            bits |= ancestors[before] | 1 << before
        ancestors.append(bits)
    result: list[dict[int, int]] = []
    for befores in preds:
        needed: dict[int, int] = {}
        for other in befores if len(befores) > 1 and len(result) < count else ():
            for before in befores:
                if ancestors[other] >> before & 1:
                    needed[before] = needed.get(before, 0) | 1 << other
        result.append(needed)
    return result


def _rankings(storage: Storage, order: Sequence[int]) -> list[list[int]]:
    """Return ranks of ops: when an order runs them, and when it runs the first op that only they need."""
    place = [0] * len(order)
    for position, op in enumerate(order):
        place[op] = position
    first = list(place)
    for op in order:
        for before in storage.preds[op]:
            if len(storage.succs[before]) == 1:
                first[op] = min(first[op], first[before])
    return [place, first]


def _subtrees(storage: Storage, preds: Sequence[Sequence[int]]) -> _Choices:
    """Return choices by Sethi and Ullman's rule, as if the graph were a tree."""
    held = [sum(storage.sizes[b] for b in created) for created in storage.creates]
    peaks: list[int] = []
    choices: _Choices = []
    for op, befores in enumerate(preds):
        ranked = sorted(befores, key=lambda before: (held[before] - peaks[before], before))
        choices.append(ranked)
        live = peak = 0
        for before in ranked:
            peak = max(peak, live + peaks[before])
            live += held[before]
        if op < len(held):
            peaks.append(max(peak, live + held[op] + storage.workspace[op]))
    return choices


def _file_order(storage: Storage, decisions: Sequence[_Decision]) -> list[int]:
    """Return a topological order in which each option taken has a higher place than those that were not."""
    afters = [list(succs) for succs in storage.succs]
    waiting = [len(befores) for befores in storage.preds]
    for decision in decisions:
        chosen = decision.options[decision.taken]
        for other in decision.options:
            if other != chosen:
                afters[other].append(chosen)
                waiting[chosen] += 1
    ready = [op for op, count in enumerate(waiting) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        op = heappop(ready)
        order.append(op)
        for after in afters[op]:
            waiting[after] -= 1
            if not waiting[after]:
                heappush(ready, after)
    # No walk is known whose wishes contradict each other; one that did would get the file's own order.
    return order if len(order) == len(waiting) else list(range(len(waiting)))
