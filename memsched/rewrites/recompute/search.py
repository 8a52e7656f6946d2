"""Sequences with repetitions for a model: the least peak for some work, and what less work leads to.

Small graphs are searched in full, over all orders and all repetitions, and graphs whose groups are few over those. For
the others, and where that takes too long, the greedy comes first, from several orders and for a ladder of budgets; its
best result is improved by the local search. All that any of them finds is judged by liveness of the rewritten graph and
kept on one frontier, so what is found for a small budget serves every larger.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from memsched.graph.dialect import Dialect
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.cost import RematPoint, judge, least_peak, work_of
from memsched.rewrites.recompute.found import PointFrontier, RematResult, untried
from memsched.rewrites.recompute.greedy import GreedyResult, reduce_to
from memsched.rewrites.recompute.holding import Game, TooLargeError, relaxed
from memsched.rewrites.recompute.local import improve
from memsched.rewrites.recompute.rewrite import rematerialise, repeatable
from memsched.rewrites.recompute.settle import BudgetProofs, settle
from memsched.rewrites.recompute.trace import Tracer
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule.orders import ORDERS
from memsched.targets.model import Target

__all__ = ["SMALL", "RematPoint", "RematResult", "search"]

_LADDER: Final = (0.97, 0.95, 0.925, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Budgets that the frontier is sought for, as parts of the peak without repetition."""

SMALL: Final = 16
"""Ops of a graph at most that is searched in full however little time there is: that takes a second or so."""

_SEARCHED: Final = 32
"""Ops, or groups of them, at most that a full search is begun with."""

_GROUPED: Final = 200
"""Ops of a graph at most whose groups are looked at."""

_GROUPING_WORK: Final = 400_000
"""The effort of finding groups, which does not depend on the machine's speed."""

_LADDER_STEPS: Final = 2_000_000
_LOWERING_STEPS: Final = 1_500_000
"""Steps to execute, in all budgets of the ladder together and in a round of local search: the effort, which does not
depend on the machine's speed."""

_LADDER_SHARE: Final = 0.35
_LOWERING_SHARE: Final = 0.3
"""Largest share of the time left, so that the other methods have their turn even where there is little."""

_SETTLED_SHARE: Final = 0.3
"""Share of a limit of work for one full search, which settles small graphs with less."""

_DECOMPOSED_OPS: Final = 600
"""Ops of the largest graph whose schedules by decomposition are tried: they seldom win, and take long."""

_DECOMPOSED_SHARE: Final = 0.1
_DECOMPOSED_SECONDS: Final = 10.0
"""Decomposing a graph takes a second or two that are not divided up: not begun where less than this is left, or where
there is a limit of less work."""


_LOCAL_EFFORT: Final = 0.1
"""Share of the limit of work for one local search."""

_DECOMPOSING: Final = 2.0
"""Work of both schedules by decomposition, as `Limits.effort`, about: it is not counted in detail."""


def search(
    graph: Graph,
    order: Sequence[int],
    target: Target,
    dialect: Dialect,
    run: Run,
    *,
    most_extra: float,
    most_macs: float = math.inf,
    known: Sequence[RematPoint] = (),
) -> RematResult:
    """Return sequences of the ops of ``graph`` with repetitions.

    Args:
        graph: Not lowered.
        order: The best order without repetitions, as ops of ``graph``.
        run: When to end, with what there is; told the peak of the best point whenever it or its cost changes.
        most_extra: Extra work permitted, as a part of the work of executing every op once, both in multiply-accumulates
            plus `cost.MACS_PER_BYTE` for each byte moved.
        most_macs: Multiply-accumulates that repetitions may add, however few bytes they move.
        known: What an earlier search of the same ops found.
    """
    if ((run.late() and len(graph.ops) > SMALL) or run.stop()) and not known:
        return untried(graph, tuple(order), target)
    return _FrontierSearch(graph, order, target, dialect, run, most_extra, most_macs, known).run()


class _FrontierSearch:
    def __init__(
        self,
        graph: Graph,
        order: Sequence[int],
        target: Target,
        dialect: Dialect,
        run: Run,
        most_extra: float,
        most_macs: float,
        known: Sequence[RematPoint],
    ) -> None:
        self._graph, self._target, self._dialect, self._limits = graph, target, dialect, run.limits
        self._order = tuple(order)
        self._run = run
        given = Storage.of(apply_target(graph, target))
        work = work_of(graph)
        self.total = work.total
        self._most = most_extra * self.total
        peak = evaluate(given, self._order).peak
        first = RematPoint(peak, 0, 0, 0, self._order, method="no repetition")
        self._frontier = PointFrontier(first, self._most, most_macs)
        for point in known:
            self._frontier.keep(point)
        # Numbered as executed: all below works on these numbers, and `_offer` turns them back.
        self._ordered = rematerialise(graph, self._order, dialect).graph
        lowered = apply_target(self._ordered, target)
        may = repeatable(self._ordered)
        costs = tuple(work.cost(op) for op in self._order)
        self._tracer = Tracer(lowered, costs, may)
        self._lowered = lowered
        self.lower_bound = least_peak(lowered, may)
        self._judged = 0
        self._cut = False
        self._counted = 0
        self._of_all = BudgetProofs(self.lower_bound)
        self._of_groups = BudgetProofs(self.lower_bound)

    # The frontier --------------------------------------------------------------------------------------------------

    def _offer(self, sequence: Sequence[int], method: str) -> RematPoint:
        """Judge a sequence of the tracer's numbers, and keep it where it is not dominated."""
        mine = tuple(sequence)
        point = judge(self._graph, [self._order[op] for op in mine], self._target, self._dialect, method)
        self._judged += 1
        before = self._best()
        self._frontier.keep(point)
        after = self._best()
        if after is not before:
            self._run.tell("rematerialisation", after.peak, None)
        return point

    def _best(self) -> RematPoint:
        return self._frontier.best()

    def _numbered(self, point: RematPoint) -> GreedyResult:
        """Return a point of the frontier in the tracer's numbers."""
        place = {op: number for number, op in enumerate(self._order)}
        sequence = tuple(place[op] for op in point.sequence)
        return GreedyResult(sequence, self._tracer.run(sequence).peak, point.cost)

    # The stages ----------------------------------------------------------------------------------------------------

    def run(self) -> RematResult:
        """Run all stages as far as the time goes."""
        settled = self._settle() and not self._frontier.left_out
        if not settled:
            self._climb()
            if not self._done():
                self._decomposed()
            if not self._done():
                self._lower()
        self._frontier.replace([self._with_proof(point) for point in self._frontier])
        finished = settled or not (self._cut or self._run.over())
        return RematResult(
            self._best(), tuple(self._frontier), self.lower_bound, self.total, finished, settled, self._judged
        )

    def _settle(self) -> bool:
        """Search a small graph in full, or else its groups; return whether nothing better exists."""
        if self._frontier.first.peak <= self.lower_bound:
            return True
        if self._tracer.count > _GROUPED:
            return False
        best = relaxed(self._ordered, self._target)
        if self._tracer.count <= _SEARCHED:
            self._of_all = self._searched(best, None)
            self.lower_bound = max(self.lower_bound, self._of_all.lower_bound)
            if self._of_all.settled or best == self._lowered:
                return self._of_all.settled
            # Sequences for what ops may surely share: the others hold more than the search thought.
            self._searched(self._lowered, None)
            return False
        groups = fuse(Storage.of(best), work_limit=_GROUPING_WORK, stop=self._run.over).tasks.members
        if len(groups) <= _SEARCHED:
            self._of_groups = self._searched(best, groups)
        return False

    def _searched(self, graph: Graph, groups: Sequence[Sequence[int]] | None) -> BudgetProofs:
        try:
            game = Game(graph, self._tracer.costs, self._tracer.repeat, groups)
        except TooLargeError:
            return BudgetProofs(self.lower_bound)
        left = self._run.within(_SETTLED_SHARE).effort()
        proofs = settle(
            game,
            self._frontier.first,
            self.lower_bound,
            most_cost=self._most,
            most_moves=int(min(1.0, math.inf if left is None else left) * MachinePace.MOVES),
            offer=self._offer,
            stop=self._run.stop if self._tracer.count <= SMALL else self._run.over,
        )
        self._run.spend(game.moves / MachinePace.MOVES)
        return proofs

    def _with_proof(self, point: RematPoint) -> RematPoint:
        """Return ``point`` with the widest proof that its cost is least."""
        if point.cost and point.cost <= self._of_all.least(point.peak):
            return dataclasses.replace(point, cost_bound=point.cost, scope="all")
        if point.cost and point.status == "feasible" and point.cost <= self._of_groups.least(point.peak):
            return dataclasses.replace(point, cost_bound=point.cost, scope="groups")
        return point

    def _ending(self, share: float, steps: float = math.inf) -> Callable[[], bool]:
        """Return what says when a stage of so much effort, and of this share of the time left, must end."""
        now = self._run.clock()
        end, last = now + share * (self._run.deadline() - now), self._tracer.steps + steps

        def over() -> bool:
            if self._tracer.steps >= last:
                return True
            if self._run.stop() or self._run.clock() >= end:
                self._cut = True
                return True
            return False

        return over

    def _count(self) -> None:
        """Count the steps that were executed since this was asked last."""
        self._run.spend((self._tracer.steps - self._counted) / MachinePace.EXECUTIONS)
        self._counted = self._tracer.steps

    def _steps(self, most: int, share: float) -> int:
        """Return ``most`` steps, or as many as a share of the limit of work, or what is left of it, permits."""
        self._count()
        left = self._run.effort()
        if left is None:
            return most
        return min(most, int(min(left, share * (self._limits.effort or 0.0)) * MachinePace.EXECUTIONS))

    def _done(self) -> bool:
        self._count()
        return self._run.over() or self._best().peak <= self.lower_bound

    def _starts(self) -> Iterator[tuple[int, ...]]:
        """Yield the order given and the cheap ones, each once."""
        storage = Storage.of(self._lowered)
        yield from dict.fromkeys([tuple(range(self._tracer.count)), *(rule(storage) for rule in ORDERS.values())])

    def _climb(self) -> None:
        """Let the greedy meet each budget of the ladder, from each order and from what met the one before."""
        starts = list(self._starts())
        steps = self._steps(_LADDER_STEPS, _LADDER_SHARE)
        over = self._ending(_LADDER_SHARE, steps)
        base = self._frontier.first.peak
        failed: set[int] = set()
        for rung in (int(base * part) for part in _LADDER):
            if rung < self.lower_bound:
                continue
            if len(failed) == len(starts) or over():
                break
            previous = next((one for one in reversed([*self._frontier]) if one.peak > rung), self._frontier.first)
            for number, start in enumerate(starts):
                if number not in failed and not self._greedy(start, rung, over):
                    failed.add(number)
            if previous.cost:
                self._greedy(self._numbered(previous).sequence, rung, over)

    def _greedy(self, start: Sequence[int], rung: int, over: Callable[[], bool]) -> bool:
        """Return whether the greedy met the budget ``rung`` within the permitted work."""
        aim = rung
        for _ in range(3):
            found = reduce_to(
                self._tracer,
                start,
                aim,
                most_cost=None if self._most == math.inf else int(self._most),
                stop=over,
            )
            point = self._offer(found.sequence, "greedy")
            if found.peak > aim:
                return False
            if point.peak <= rung:
                return True
            # The rewritten graph shares less memory than the tracer thought: aim lower by as much.
            aim -= point.peak - rung
        return False

    def _decomposed(self) -> None:
        """Try the schedules by tree and path decomposition."""
        if self._tracer.count > _DECOMPOSED_OPS:
            return
        left = self._run.effort()
        if min(math.inf if left is None else left, self._run.remaining()) < _DECOMPOSED_SECONDS:
            self._cut = True
            return
        self._run.spend(_DECOMPOSING)
        from memsched.rewrites.recompute.decompose import path_schedule, tree_schedule

        for schedule in (tree_schedule, path_schedule):
            over = self._ending(_DECOMPOSED_SHARE)
            run = self._run
            timed = run.limits.time_limit is not None
            part = run.anew(_DECOMPOSED_SHARE * run.remaining()) if timed else run.within(_DECOMPOSED_SHARE)
            whole = tuple(range(self._tracer.count))
            found = schedule(self._lowered, limits=part.limits, order=whole)
            over()
            self._offer(found.sequence, schedule.__name__.replace("_", " "))

    def _improve(self, budget: int, seed: int) -> None:
        steps = self._steps(_LOWERING_STEPS, _LOCAL_EFFORT)
        point = self._best()
        start = self._numbered(point)
        # Where the rewritten graph needs more than the tracer says, the budget is less here.
        aim = min(budget, budget - (point.peak - start.peak)) if point.cost else budget
        found = improve(
            self._tracer,
            start,
            aim,
            seed=self._limits.seed + seed,
            most_steps=steps,
            most_cost=None if self._most == math.inf else int(self._most),
            stop=self._ending(_LOWERING_SHARE),
            on_point=lambda reached: self._told(reached, aim),
        )
        self._offer(found.sequence, "local search")

    def _told(self, reached: GreedyResult, aim: int) -> None:
        if reached.peak <= aim:
            self._offer(reached.sequence, "local search")

    def _lower(self) -> None:
        """Lower the peak within the permitted work: budgets a little below the best, smaller steps when they fail."""
        step = 0.03
        seed = 0
        while not self._done() and step > 0.002:
            before = self._best().peak
            aim = max(self.lower_bound, int(before * (1 - step)))
            seed += 1
            self._improve(aim, seed)
            if self._best().peak > aim:
                step /= 2
