"""Schedules by tree decomposition, and by path decomposition with a long spine.

Source: "Scheduling Operations on a Computation Graph".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.rewrites.recompute.annotate import AnnotatedSchedule, annotate, footprints
from memsched.rewrites.recompute.path import path_decomposition, path_separators
from memsched.rewrites.recompute.recursion import Memo, Policy, Recursion, RecursionProblem, SequenceTooLongError
from memsched.rewrites.recompute.rewrite import extra_bytes, repeatable
from memsched.rewrites.recompute.separator import components, tree_decomposition, tree_separators, undirected
from memsched.rewrites.recompute.shorten import shorten
from memsched.rewrites.recompute.spine import add_spine, find_spine
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.orders import ORDERS

__all__ = ["execution_costs", "path_schedule", "tree_schedule"]

_LONGEST: Final = 30
"""Executions per op, on average, before repetitions are taken out, beyond which a schedule is given up."""

_IDLE: Final = 2

_VISITS: Final = 1000
_LEAST_VISITS: Final = 1_000_000
"""Nodes, per op and at least, that the recursions over one kind of separators may look at."""

_DEPTHS: Final = (1, 2, 3, 4, 6, 8, 12, 64)
_BALANCED: Final[tuple[Policy, ...]] = ("peak", "first")

_Separators = Callable[[Sequence[int]], Sequence[Sequence[int]]]
_Parts = Callable[[Sequence[int]], Sequence[Sequence[int]]]


@dataclass(frozen=True, slots=True)
class _Method:
    """What the recursion separates with, and the order in which it computes a separator's nodes."""

    separators: _Separators
    parts: _Parts
    rank: tuple[int, ...]
    memo: Memo = field(default_factory=Memo)


def tree_schedule(
    graph: Graph,
    *,
    budget: int | None = None,
    limits: Limits | None = None,
    order: Sequence[int] | None = None,
    width_limit: int | None = None,
) -> AnnotatedSchedule:
    """Return a schedule with repetitions by balanced separators of a tree decomposition (claims 1 to 6 and 11).

    Schedules of growing depth of recursion are compared, their separators chosen by peak and by size.

    Args:
        budget: Bytes, in-place writes included: of the schedules that fit it the one with the least extra work is
            returned, and the one of least peak where none fits. None: of least peak, then of least work.
        limits: Its time limit ends the search early; the same figures come out otherwise.
        order: The best order without repetition, where one is known; otherwise the best cheap one.
        width_limit: Decompositions of this width or more are not used (claim 5); then nothing is repeated.
    """
    return _best(graph, _tree_methods, budget, limits, order, width_limit)


def path_schedule(
    graph: Graph,
    *,
    budget: int | None = None,
    limits: Limits | None = None,
    order: Sequence[int] | None = None,
    width_limit: int | None = None,
) -> AnnotatedSchedule:
    """Return a schedule with repetitions by a path decomposition with a long spine (claims 7 to 10).

    A graph without a spine is given one. A separator's nodes are computed in the order of the spine, each from the
    parts left and right of the separator: the schedules of the two sides, cut at the separator's nodes, are merged.

    Args:
        budget: See `tree_schedule`, as for the other arguments.
    """
    return _best(graph, _path_methods, budget, limits, order, width_limit)


def execution_costs(graph: Graph) -> list[int]:
    """Return, per op, what one more execution costs: multiply-accumulates plus bytes read and written."""
    return [op.macs + extra_bytes(graph, number) for number, op in enumerate(graph.ops)]


def _best(
    graph: Graph,
    methods: Callable[[Sequence[Sequence[int]], Sequence[int], Sequence[int], int | None], Iterator[_Method]],
    budget: int | None,
    limits: Limits | None,
    order: Sequence[int] | None,
    width_limit: int | None,
) -> AnnotatedSchedule:
    deadline = Run(limits or Limits()).deadline()
    storage = Storage.of(graph)
    if order is None:
        order = min((make(storage) for make in ORDERS.values()), key=lambda found: evaluate(storage, found).peak)
    if not graph.ops or (budget is not None and evaluate(storage, order).peak <= budget):
        return annotate(graph, order)
    search = _DecompositionSearch(graph, storage, order, budget, deadline)
    found = list(methods(storage.preds, search.size, order, width_limit))
    search.visits = 3 * search.share
    for method in found:
        for policy in _BALANCED:
            search.deepen(method, policy)
    # Unbalanced separators only where balanced ones do not suffice.
    if not search.satisfied():
        search.visits = search.share
        for method in found:
            search.deepen(method, "hot")
    return annotate(graph, search.best)


class _DecompositionSearch:
    """The best sequence so far; sequences are offered with and without what `shorten` does."""

    def __init__(
        self,
        graph: Graph,
        storage: Storage,
        order: Sequence[int],
        budget: int | None,
        deadline: float,
    ) -> None:
        self.graph = graph
        self.storage = storage
        self.order = order
        self.budget = budget
        self.deadline = deadline
        self.once = [not again for again in repeatable(graph)]
        self.cost = execution_costs(graph)
        self.size = _held_bytes(graph, storage)
        self.share = max(_VISITS * len(graph.ops), _LEAST_VISITS)
        self.visits = 0
        self.best = list(order)
        self.key = self._judged(self.best, self._peak(order))

    def _judged(self, sequence: Sequence[int], peak: int) -> tuple[int, int, int]:
        """Return what is to be least. All that fits the budget is equally good; what does not is judged by its peak."""
        work = sum(self.cost[op] for op in sequence)
        return (peak if self.budget is None else max(peak, self.budget), work, len(sequence))

    def satisfied(self) -> bool:
        """Whether the budget is met; without one, whether anything was gained."""
        return len(self.best) > len(self.order) if self.budget is None else self.key[0] <= self.budget

    def offer(self, sequence: Sequence[int]) -> int:
        """Take ``sequence`` where it is better, with fewer repetitions; return its peak."""
        peak = self._peak(sequence)
        allowed = peak if self.budget is None else max(peak, self.budget)
        if allowed > self.key[0] or (self.budget is None and allowed == self.key[0]):
            return peak
        shorter = shorten(self.graph, self.storage, sequence, allowed, self.cost)
        key = self._judged(shorter, self._peak(shorter))
        if key < self.key:
            self.key, self.best = key, shorter
        return peak

    def _peak(self, sequence: Sequence[int]) -> int:
        return max(footprints(self.graph, self.storage, sequence), default=0)

    def deepen(self, method: _Method, policy: Policy) -> None:
        """Offer schedules of more and more levels of separators until two more gain nothing, or one is too long."""
        plain = self._peak(self.order)
        before = method.memo.visits
        method.memo.limit = before + min(self.visits, self.share)
        self._deepen(method, policy, plain)
        self.visits -= method.memo.visits - before

    def _deepen(self, method: _Method, policy: Policy, plain: int) -> None:
        reached, idle = plain, 0
        for depth in _DEPTHS:
            try:
                sequence = self._recursion(method, depth, policy).run()
            except SequenceTooLongError:
                return
            peak = self.offer(sequence)
            # Before the first gain there may be one further down: the part of the peak may still be a small one.
            idle = idle + 1 if peak >= reached < plain else 0
            if idle == _IDLE:
                return
            reached = min(reached, peak)

    def _recursion(self, method: _Method, depth: int, policy: Policy) -> Recursion:
        return Recursion(
            self.problem(method.rank),
            method.separators,
            method.parts,
            depth=depth,
            policy=policy,
            budget=self.budget,
            base=self.storage.initial_residue(),
            longest=_LONGEST * len(self.graph.ops),
            expired=lambda: time.monotonic() > self.deadline,
            memo=method.memo,
        )

    def problem(self, rank: Sequence[int]) -> RecursionProblem:
        """Return the graph as the recursion sees it."""
        graph, preds = self.graph, self.storage.preds
        outputs = set(graph.outputs)
        read = {before for befores in preds for before in befores}
        final = [not outputs.isdisjoint(op.outputs) for op in graph.ops]
        return RecursionProblem(
            preds=preds,
            size=self.size,
            workspace=self.storage.workspace,
            once=self.once,
            final=final,
            targets=[op for op in range(len(graph.ops)) if final[op] or op not in read],
            rank=rank,
        )


def _held_bytes(graph: Graph, storage: Storage) -> list[int]:
    """Return, per op, the bytes of the buffers that its outputs lie in: what holding them holds."""
    return [
        sum(
            storage.sizes[buffer]
            for buffer in sorted({buffer for tensor in op.outputs for buffer in storage.buffers_of[tensor]})
            if storage.creator[buffer] >= 0
        )
        for op in graph.ops
    ]


def _ranks(order: Sequence[int]) -> tuple[int, ...]:
    result = [0] * len(order)
    for place, node in enumerate(order):
        result[node] = place
    return tuple(result)


def _tree_methods(
    preds: Sequence[Sequence[int]], size: Sequence[int], order: Sequence[int], width_limit: int | None
) -> Iterator[_Method]:
    tree = tree_decomposition(preds, width_limit)
    if tree is None:
        return
    neighbours = undirected(preds)

    def cost(nodes: Iterable[int]) -> int:
        return sum(size[node] for node in nodes)

    yield _Method(
        lambda part: tree_separators(tree, part, neighbours, cost),
        lambda nodes: components(nodes, neighbours),
        _ranks(order),
    )


def _path_methods(
    preds: Sequence[Sequence[int]], size: Sequence[int], order: Sequence[int], width_limit: int | None
) -> Iterator[_Method]:
    neighbours = undirected(preds)
    spine = find_spine(preds)
    path = path_decomposition(neighbours, [spine or order], width_limit)
    if path is None:
        return
    added: tuple[tuple[int, int], ...] = ()
    if spine is None:
        spine, path, added = add_spine(preds, path)
    joined: list[list[int]] = [list(befores) for befores in preds]
    for before, after in added:
        joined[after].append(before)

    def cost(nodes: Iterable[int]) -> int:
        return sum(size[node] for node in nodes)

    # The spine first as the patent has it, then without the edges it adds: they carry no data.
    for edges in dict.fromkeys((tuple(undirected(joined)), tuple(neighbours))):
        yield _Method(
            lambda part, edges=edges: path_separators(path, part, edges, cost),  # type: ignore[misc]
            lambda nodes, edges=edges: components(nodes, edges),  # type: ignore[misc]
            _ranks(spine),
        )
