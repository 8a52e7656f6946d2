"""Which identities to use: those that lower the peak, found where the peak is, and no others.

A search begins with all identities of some kinds at once, goes on with those that touch a tensor at the peak, and ends
by leaving out what the peak does not need. Each state is judged by the peak of its best order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.graph.identity import Identity, IdentityKind
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Schedule
from memsched.lowering.apply import apply_target
from memsched.rewrites.algebra.apply import applied, drafted, identities
from memsched.rewrites.algebra.draft import AlgebraDraft
from memsched.search.limits import Limits
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.model import Target

__all__ = ["AlgebraPoint", "AlgebraSearch"]

_KINDS: Final[tuple[IdentityKind, ...]] = ("merge", "shift", "cross", "late", "split", "sum")

_ORDER_EFFORT: Final = 0.2
"""Work for the order of one graph on the way, as `Limits.effort`."""

_MOST_ROUNDS: Final = 8
"""Times that identities of the same kinds are looked for again in what they led to."""

_MOST_LEVEL: Final = 2
"""Steps in a row that may leave the peak as it is."""


class AlgebraPoint(FrozenValue, frozen=True):
    """A way and the peak, by liveness, of what it leads to."""

    peak: int
    way: tuple[Identity, ...]


class _JudgedDraft(FrozenValue, frozen=True):
    draft: AlgebraDraft
    way: tuple[Identity, ...]
    schedule: Schedule
    lowered: Graph

    @property
    def rank(self) -> tuple[int, int]:
        return self.schedule.peak, len(self.draft.graph.ops)


class AlgebraSearch:
    """A search for the identities of one graph.

    Args:
        given: The graph before any of them.

    Attributes:
        judged: How many graphs were ordered.
    """

    def __init__(self, given: AlgebraDraft, target: Target) -> None:
        self._given, self._target = given, target
        self._run = Run(Limits(None))
        self._dropped: set[Identity] = set()
        self.judged = 0

    def drop(self, gone: Iterable[Identity]) -> None:
        """Leave identities out from now on."""
        self._dropped.update(gone)

    def run(self, run: Run) -> Iterator[AlgebraPoint | None]:
        """Yield ways to falling peaks, and None in between; nothing where nothing can be done."""
        self._run = run
        begun = self._judged(self._given, ())
        if not any(True for _ in self._found(begun.draft, _KINDS)):
            return
        best = begun
        for kinds in self._starts():
            if run.over():
                break
            state = self._closed(begun, kinds)
            yield None
            if kinds and state.schedule.peak > best.schedule.peak:
                continue
            state = self._lowered(state)
            if state.schedule.peak < best.schedule.peak:
                best = self._pruned(state)
                yield AlgebraPoint(best.schedule.peak, best.way)

    def _starts(self) -> Iterator[tuple[IdentityKind, ...]]:
        """Yield the kinds of identities to begin with; more of them need not be better."""
        most = len(_KINDS) if self._given.sums else len(_KINDS) - 1
        yield from (_KINDS[:number] for number in range(most + 1))

    def _found(self, draft: AlgebraDraft, kinds: Sequence[IdentityKind]) -> Iterator[Identity]:
        for one in identities(draft):
            if one.kind in kinds and one not in self._dropped:
                yield one

    def _judged(self, draft: AlgebraDraft, way: tuple[Identity, ...]) -> _JudgedDraft:
        lowered = apply_target(draft.graph, self._target)
        limits = Limits(None, seed=self._run.limits.seed, effort=_ORDER_EFFORT)
        schedule = schedule_graph(lowered, self._run.again(limits).quiet()).schedule
        self._run.spend(len(draft.graph.ops) * MachinePace.OP_SECONDS)
        self.judged += 1
        return _JudgedDraft(draft, way, schedule, lowered)

    def _closed(self, state: _JudgedDraft, kinds: Sequence[IdentityKind]) -> _JudgedDraft:
        """Return what all identities of these kinds together lead to."""
        for _ in range(_MOST_ROUNDS if kinds else 0):
            further = self._all(state, list(self._found(state.draft, kinds)))
            if further is None:
                break
            state = further
        return state

    def _all(self, state: _JudgedDraft, found: Sequence[Identity]) -> _JudgedDraft | None:
        draft, way = state.draft, state.way
        # Of a sum, parts are added, not concatenated.
        sums = {(one.op, one.over) for one in found if one.kind == "sum"}
        for one in sorted(found, key=lambda one: one.kind != "sum"):
            if one.kind == "split" and (one.op, one.over) in sums:
                further = applied(draft, one) if one.op in {op.name for op in draft.graph.ops} else None
            else:
                further = applied(draft, one)
            if further is not None:
                draft, way = further, (*way, one)
        return None if len(way) == len(state.way) else self._judged(draft, way)

    def _lowered(self, state: _JudgedDraft) -> _JudgedDraft:
        """Return what identities at the peak lead to, those of one kind or all at once, as long as it falls."""
        best, level = state, 0
        while not self._run.over() and level < _MOST_LEVEL:
            near = list(self._at_peak(state))
            bundles = [[one for one in near if one.kind == kind] for kind in _KINDS]
            bundles = [bundle for bundle in bundles if bundle]
            tried = [self._all(state, bundle) for bundle in (*bundles, *([near] if len(bundles) > 1 else []))]
            further = [one for one in tried if one is not None and one.schedule.peak <= state.schedule.peak]
            if not further:
                break
            state = min(further, key=lambda one: one.rank)
            level = 0 if state.schedule.peak < best.schedule.peak else level + 1
            best = min(best, state, key=lambda one: one.rank)
        return best

    def _at_peak(self, state: _JudgedDraft) -> Iterator[Identity]:
        """Yield identities of ops that read or make what is live at the peak."""
        live = _live_at_peak(state.lowered, state.schedule)
        graph = state.draft.graph
        touched = {op.name for op in graph.ops if not live.isdisjoint((*op.inputs, *op.outputs))}
        for one in self._found(state.draft, _KINDS):
            if one.op in touched or one.over in touched:
                yield one

    def _pruned(self, state: _JudgedDraft) -> _JudgedDraft:
        """Return the state without identities that its peak does not need: in blocks first, then one by one."""
        block = max(1, len(state.way) // 2)
        while True:
            at = 0
            while at < len(state.way) and not self._run.over():
                way = (*state.way[:at], *state.way[at + block :])
                shorter = self._judged(drafted(self._given, way), way)
                if shorter.schedule.peak <= state.schedule.peak:
                    state = shorter
                else:
                    at += block
            if block == 1 or self._run.over():
                return state
            block //= 2


def _live_at_peak(graph: Graph, schedule: Schedule) -> set[int]:
    """Return the tensors that are live in the step that needs most."""
    step_of = {op: step for step, op in enumerate(schedule.order)}
    footprints = evaluate(Storage.of(graph), schedule.order).footprints
    at = max(range(len(footprints)), key=lambda step: footprints[step], default=-1)
    born = dict.fromkeys(graph.inputs, -1)
    last: dict[int, int] = {}
    for number, op in enumerate(graph.ops):
        born.update(dict.fromkeys(op.outputs, step_of[number]))
        for tensor in (*op.inputs, *op.outputs):
            last[tensor] = max(last.get(tensor, -1), step_of[number])
    last.update(dict.fromkeys(graph.outputs, len(schedule.order)))
    return {tensor for tensor, step in born.items() if step <= at <= last.get(tensor, -1)}
