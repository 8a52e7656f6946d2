"""The recursive schedule: compute the separator's nodes one after the other, each from its own component.

Source: "Scheduling Operations on a Computation Graph", Figures 4, 5 and 8.

To have some nodes in memory (the *targets*), with others in memory already (the
constraints): take a separator of what is missing; for each of its nodes in topological order have its predecessors in
memory, execute it, and drop them again; then have the remaining targets in memory; then drop the separator. What lies
between is computed afresh each time it is needed, so little is ever held: at each level one separator and the
predecessors of one node. Components halve (or lose a third) from level to level.

A part is not separated further when it fits the budget as it is, when nothing would be gained, or at a given depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from memsched.base.frozen import FrozenValue

__all__ = ["Memo", "Policy", "Recursion", "RecursionProblem", "SequenceTooLongError"]

Separators = Callable[[Sequence[int]], Sequence[Sequence[int]]]
"""(connected nodes) -> separators of the graph that they induce, the best first."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_MEMO_NODES: Final = 10_000_000

_HOT: Final = (-1, 0, 1, 2)
"""Steps of the plain order, from that of its peak, whose nodes are tried as separators."""

Policy = Literal["first", "peak", "hot"]

Parts = Callable[[Sequence[int]], Sequence[Sequence[int]]]
"""(nodes) -> the parts that no edge joins, each in the order of the nodes."""


class SequenceTooLongError(Exception):
    """The sequence, the effort or the time is beyond its limit; caught where the recursion is started."""


class RecursionProblem(FrozenValue, frozen=True):
    """What a graph is to the recursion.

    Attributes:
        preds: Per node its direct predecessors.
        size: Per node the bytes of its output.
        workspace: Per node the bytes that it needs beside inputs and outputs.
        once: Per node whether it may be executed only once; then its output is held from there on.
        final: Per node whether its output is held to the end.
        targets: Nodes that must be executed, ascending: final ones and those that no op reads.
        rank: Per node its place in an order without repetition, which every list of nodes follows.
    """

    preds: Sequence[Sequence[int]]
    size: Sequence[int]
    workspace: Sequence[int]
    once: Sequence[bool]
    final: Sequence[bool]
    targets: Sequence[int]
    rank: Sequence[int]


@dataclass
class Memo:
    """What recursions over one problem with one kind of separators need not find out twice.

    A part's orders and separators follow from the part and its targets: whatever else its nodes read is in memory.
    Large problems leave the memo full; then things are found out again.

    Attributes:
        visits: Nodes looked at so far: the effort.
        limit: Visits at most, so that the effort is limited without a clock.
    """

    room: int = _MEMO_NODES
    visits: int = 0
    limit: int | None = None

    plain: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, Sequence[int]]] = field(default_factory=dict)
    separators: dict[tuple[int, ...], Sequence[Sequence[int]]] = field(default_factory=dict)
    chosen: dict[tuple[tuple[int, ...], tuple[int, ...], Policy], Sequence[int]] = field(default_factory=dict)

    def store(self, kept: dict[_Key, _Value], key: _Key, nodes: int, value: _Value) -> _Value:
        """Keep ``value``, which takes about ``nodes`` numbers, in a dict of this memo while there is room."""
        if self.room > 0:
            self.room -= nodes
            kept[key] = value
        return value


@dataclass
class _RecursionState:
    held: bytearray
    used: int
    peak: int
    sequence: list[int]

    def copy(self) -> _RecursionState:
        """Return the state with an empty sequence and no peak behind it."""
        return _RecursionState(bytearray(self.held), self.used, self.used, [])


class Recursion:
    """One schedule of a `RecursionProblem`; see the module."""

    def __init__(
        self,
        problem: RecursionProblem,
        separators: Separators,
        parts: Parts,
        *,
        depth: int,
        policy: Policy,
        pure: bool = False,
        budget: int | None = None,
        base: int = 0,
        longest: int,
        expired: Callable[[], bool] = lambda: False,
        memo: Memo | None = None,
    ) -> None:
        """Prepare.

        Args:
            depth: Levels of separators at most.
            policy: Which separator to choose: "first" the first one given; "peak" the one whose schedule, its parts in
                plain order, has the least peak; "hot" among these and single nodes near the peak of the plain order,
                balanced or not (claim 1 asks for no balance).
            pure: Separate down to single nodes, even where that gains nothing.
            budget: Bytes; a part that fits is not separated.
            base: Bytes held all the time.
            longest: Executions at most.
            expired: Whether the time is over.
            memo: Shared by recursions over this problem with these separators.
        """
        self.problem = problem
        self.separators = separators
        self.parts = parts
        self.depth = depth
        self.policy = policy
        self.pure = pure
        self.budget = budget
        self.longest = longest
        self.expired = expired
        self.memo = memo or Memo()
        self.state = _RecursionState(bytearray(len(problem.preds)), base, base, [])
        self.read = [False] * len(problem.preds)
        for befores in problem.preds:
            for before in befores:
                self.read[before] = True

    def run(self) -> list[int]:
        """Return the sequence.

        Raises:
            SequenceTooLongError: It is longer than ``longest``, or the time is over.
        """
        self._have(self.problem.targets, self.depth)
        return self.state.sequence

    def _have(self, targets: Iterable[int], depth: int) -> None:
        """Execute what is needed so that ``targets`` are in memory, and nothing more than before beside them."""
        missing = self._missing(targets)
        if not missing:
            return
        wanted = {node for node in targets if not self.state.held[node]}
        plans = []
        for part in self.parts(missing) if depth else [missing]:
            own = [node for node in part if node in wanted]
            plain = self._plain(part, own)
            left = sum(self._weight(node) for node in own)
            plans.append((plain[0] - left, part, own, plain))
        # What frees the most of what it needs comes first.
        for _, part, own, plain in sorted(plans, key=lambda plan: -plan[0]):
            self._solve(part, own, plain, depth)

    def _is_over(self) -> bool:
        return (self.memo.limit is not None and self.memo.visits > self.memo.limit) or self.expired()

    def _missing(self, targets: Iterable[int]) -> list[int]:
        """Return, by rank, what has to be executed to have ``targets``."""
        held, preds = self.state.held, self.problem.preds
        if self._is_over():
            raise SequenceTooLongError
        found = {node for node in targets if not held[node]}
        stack = list(found)
        while stack:
            for before in preds[stack.pop()]:
                if not held[before] and before not in found:
                    found.add(before)
                    stack.append(before)
        self.memo.visits += len(found)
        return sorted(found, key=self.problem.rank.__getitem__)

    def _solve(self, part: Sequence[int], targets: list[int], plain: tuple[int, Sequence[int]], depth: int) -> None:
        """Have ``targets`` in memory, whose missing ancestors are ``part``, a connected graph."""
        peak, order = plain
        state = self.state
        fits = self.budget is not None and state.used + peak <= self.budget
        separator = None if not depth or fits or len(part) < 3 else self._choose(part, targets)
        if separator is None:
            self._emit(order, targets, state.used + peak)
            return
        if self.pure:
            self._split(part, targets, separator, depth - 1)
            return
        outer = state.peak
        self.state = tried = state.copy()
        # What was written before counts, too.
        self.longest -= len(state.sequence)
        try:
            self._split(part, targets, separator, depth - 1)
        finally:
            self.longest += len(state.sequence)
            self.state = state
        if tried.peak >= state.used + peak:
            self._emit(order, targets, state.used + peak)
            return
        state.sequence += tried.sequence
        state.held, state.used, state.peak = tried.held, tried.used, max(outer, tried.peak)

    def _choose(self, part: Sequence[int], targets: list[int]) -> Sequence[int] | None:
        nodes = tuple(part)
        candidates = self.memo.separators.get(nodes)
        if candidates is None:
            self.memo.visits += 20 * len(part)
            candidates = self.memo.store(self.memo.separators, nodes, 2 * len(part), self.separators(part))
        if self.policy == "first":
            return candidates[0] if candidates else None
        key = (nodes, tuple(targets), self.policy)
        chosen = self.memo.chosen.get(key)
        if chosen is None:
            tried = [*candidates, *(self._hot(part, targets) if self.policy == "hot" else ())]
            if not tried:
                return None
            best = self._least_peak(part, targets, tried) if len(tried) > 1 else tried[0]
            chosen = self.memo.store(self.memo.chosen, key, 2 * len(part), best)
        return chosen

    def _hot(self, part: Sequence[int], targets: list[int]) -> list[tuple[int, ...]]:
        """Return nodes that are executed near the peak of the plain order, each as a separator of its own."""
        order = self._plain(part, targets)[1]
        footprints = self._footprints(order, targets)
        step = footprints.index(max(footprints))
        return [(order[step + ahead],) for ahead in _HOT if 0 <= step + ahead < len(order)]

    def _least_peak(
        self, part: Sequence[int], targets: list[int], candidates: Sequence[Sequence[int]]
    ) -> Sequence[int]:
        """Return the candidate whose schedule, the parts that it leaves in plain order, has the least peak."""
        found = []
        state = self.state
        for number, candidate in enumerate(candidates):
            self.state = tried = state.copy()
            try:
                self._split(part, targets, candidate, 0)
            except SequenceTooLongError:
                if self._is_over():
                    raise
                continue
            finally:
                self.state = state
            found.append((tried.peak, len(tried.sequence), number))
        return candidates[min(found)[2]] if found else candidates[0]

    def _split(self, part: Sequence[int], targets: list[int], separator: Sequence[int], depth: int) -> None:
        """Have ``targets`` in memory by way of ``separator``."""
        rank, preds = self.problem.rank, self.problem.preds
        ordered = sorted(separator, key=rank.__getitem__)
        stays = set(targets)
        before = {node for node in part if self.state.held[node]}
        kept: list[int] = []
        for place, node in enumerate(ordered):
            if self.state.held[node]:
                continue
            fetched = [pred for pred in preds[node] if not self.state.held[pred]]
            self._have(fetched, depth)
            self._run(node)
            kept.append(node)
            self._release(fetched, stays)
            kept = self._release_unneeded(kept, [*ordered[place + 1 :], *targets], stays)
        self._have(targets, depth)
        self._release([node for node in (*kept, *ordered) if node not in before], stays)

    def _release_unneeded(self, kept: list[int], ahead: Iterable[int], stays: set[int]) -> list[int]:
        """Drop nodes of the separator that nothing still to come reads, and return the others."""
        needed = {before for node in self._missing(ahead) for before in self.problem.preds[node]}
        self._release([node for node in kept if node not in needed], stays)
        return [node for node in kept if node in needed]

    def _weight(self, node: int) -> int:
        """Return the bytes that a node leaves behind: none where nobody reads it and it is no output."""
        return self.problem.size[node] if self.read[node] or self.problem.final[node] else 0

    def _run(self, node: int) -> None:
        problem, state = self.problem, self.state
        state.sequence.append(node)
        self.memo.visits += 1
        if len(state.sequence) > self.longest:
            raise SequenceTooLongError
        state.peak = max(state.peak, state.used + problem.size[node] + problem.workspace[node])
        state.held[node] = 1
        state.used += self._weight(node)

    def _release(self, nodes: Iterable[int], stays: set[int]) -> None:
        state, once = self.state, self.problem.once
        for node in nodes:
            if state.held[node] and node not in stays and not once[node]:
                state.held[node] = 0
                state.used -= self._weight(node)

    def _emit(self, order: Sequence[int], targets: list[int], peak: int) -> None:
        """Execute a part in plain order; afterwards only its targets, and what may not be repeated, are held."""
        for node in order:
            self._run_quietly(node)
        self._release(order, set(targets))
        self.state.peak = max(self.state.peak, peak)

    def _run_quietly(self, node: int) -> None:
        peak = self.state.peak
        self._run(node)
        self.state.peak = peak

    def _plain(self, part: Sequence[int], targets: list[int]) -> tuple[int, Sequence[int]]:
        """Return the better of two orders without repetition, with its peak above what is held already."""
        key = (tuple(part), tuple(targets))
        found = self.memo.plain.get(key)
        if found is None:
            self.memo.visits += 4 * len(part)
            found = self.memo.store(self.memo.plain, key, 3 * len(part), self._better_order(part, targets))
        return found

    def _better_order(self, part: Sequence[int], targets: list[int]) -> tuple[int, Sequence[int]]:
        best: tuple[int, Sequence[int]] = (self._peak(part, targets), part)
        if len(part) > 2:
            other = self._depth_first(part, targets)
            best = min(best, (self._peak(other, targets), other), key=lambda pair: pair[0])
        return best

    def _peak(self, order: Sequence[int], targets: list[int]) -> int:
        return max(self._footprints(order, targets))

    def _footprints(self, order: Sequence[int], targets: list[int]) -> list[int]:
        """Return the bytes of each step of an order without repetition, above what is held already."""
        problem = self.problem
        size, workspace, preds = problem.size, problem.workspace, problem.preds
        uses: dict[int, int] = dict.fromkeys(order, 0)
        for node in order:
            for before in preds[node]:
                if before in uses:
                    uses[before] += 1
        for node in targets:
            uses[node] += 1
        used = 0
        result = []
        for node in order:
            result.append(used + size[node] + workspace[node])
            used += self._weight(node)
            for before in preds[node]:
                if before in uses:
                    uses[before] -= 1
                    if not uses[before] and not problem.once[before]:
                        used -= size[before]
        return result

    def _depth_first(self, part: Sequence[int], targets: list[int]) -> list[int]:
        """Return a post-order that visits the predecessor first that needs the most beyond what it leaves.

        Optimal on trees (Liu's rule with one number per subtree); a heuristic elsewhere.
        """
        problem = self.problem
        size, preds = problem.size, problem.preds
        need: dict[int, int] = {}
        visits: dict[int, list[int]] = {}
        for node in part:
            befores = sorted(
                (before for before in preds[node] if before in need),
                key=lambda before: (size[before] - need[before], problem.rank[before]),
            )
            used = most = 0
            for before in befores:
                most = max(most, used + need[before])
                used += size[before]
            need[node] = max(most, used + size[node] + problem.workspace[node])
            visits[node] = befores
        order: dict[int, None] = {}
        for target in sorted(targets, key=lambda node: (size[node] - need[node], problem.rank[node])):
            stack: list[tuple[int, Iterator[int]]] = [(target, iter(visits[target]))]
            while stack:
                node, rest = stack[-1]
                following = next((before for before in rest if before not in order), None)
                if following is None:
                    order.setdefault(node)
                    stack.pop()
                else:
                    stack.append((following, iter(visits[following])))
        return list(order)
