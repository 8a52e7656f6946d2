"""When the arena exceeds what is live at once: other orders of no larger peak, then order and addresses together.

In turn, until the arena equals the bound, the time is up, or nothing has helped for a while:

1. exact packing of the order as it is, with some effort;
2. orders of no larger peak in which less is live in all, packed exactly too: what is free beside the peak is room to
   pack in;
3. a walk over other orders and in-place choices under the same peak (`orders`), each packed greedily and then, where
   that is not far above the best, exactly with little effort (`fit`). Effort is better spent on many orders than on
   one: of orders of one peak some pack at once and others not in a minute;
4. order and addresses in one integer program (`cpsat`), where the graph is small enough.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence

from memsched.base.errors import GraphError
from memsched.graph.contraction import Tasks, single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.graph.packing import height_of
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.solve.allocate.portfolio import pack
from memsched.solve.fusion.iterate import fuse
from memsched.solve.joint import cpsat
from memsched.solve.joint.layout import Layout, live_bytes
from memsched.solve.joint.orders import OrderCandidate, vary

__all__ = ["improve"]

_FIRST_FIT_EFFORT = 0.03
_FIT_EFFORT = 0.01
_EXACT_EFFORT = 4.0
_EXACT_SHARE = 0.25
"""The most that one exact packing may do, as `Limits.effort`, and the share of what is left that it may take."""

_CALM_ORDERS = 3
_CALM_STEPS = 80_000
_CALM_SHARE = 0.1
"""Orders with less live in all that are packed, the ops evaluated on the way to each, and what of the work that is
left that may take."""

"""Deterministic seconds per packing, 0.2 s and less on the clock. Packings that exist were mostly found in a tenth of
it; on random graphs where they were not, fifty times as much found none either, but other orders did."""

_STALE_ATTEMPTS = 150
"""Orders tried in vain before giving up: of 60 improvements on random graphs the latest came after 127."""

_TOLERANCE = 0.02
"""How much higher than the last order's greedy arena the next one's may be, to leave plateaus."""

_GAP_KEPT = (0.0, 0.5, 0.75)
"""What of the gap to the bound the exact packing of an order may leave, in turn."""

_FEW_OPS = 16
"""Up to which the program is solved in less time than orders are tried."""

_MOST_BLOCKS = 3_000
"""Buffers above which planning one order takes a second and more, so that few could be tried."""

_MOST_SINGLE_OPS = 75
"""Up to which the program orders single ops, and what it proves holds for the graph; above it, fused tasks."""

_MOST_TASKS = 150
_PROGRAM_EFFORT = 5.0
"""Deterministic seconds, about 15 s on the clock: of 25 ops most were proven in 0.5 s, of 40 some not in 30 s."""

_FOUND_PART = 0.1
"""Share of its effort within which a packing that exists is usually found."""


def improve(
    graph: Graph,
    storage: Storage,
    schedule: Schedule,
    allocation: Allocation,
    run: Run,
    *,
    alignment: int,
    reorder: bool = True,
) -> tuple[Schedule, Allocation]:
    """Return an order and addresses with neither a larger peak nor a larger arena than the given ones.

    At once where the arena equals the bytes live at once in the order, or the buffers are too many. The result is
    repeatable, on any machine, unless the time limit cuts it short; a limit of work ends it where it is used up.

    Args:
        graph: With the target's rules applied.
        storage: Of ``graph``.
        schedule: The order to start from; the limit of the peak.
        allocation: Its addresses.
        run: Says when to end, with the best so far, and receives each smaller arena.
        alignment: Of offsets and sizes, bytes.
        reorder: False: the order and its in-place choices stay, and only its addresses are looked for.
    """
    if len(allocation.placements) > _MOST_BLOCKS or allocation.arena <= live_bytes(allocation):
        return schedule, allocation
    search = _JointSearch(graph, storage, schedule, allocation, run, alignment)
    search.pack_as_it_is()
    if not reorder:
        return search.schedule, search.allocation
    if len(graph.ops) <= _FEW_OPS:
        search.together()
    search.calm()
    search.walk()
    if len(graph.ops) > _FEW_OPS:
        search.together()
    return search.schedule, search.allocation


class _JointSearch:
    """The best pair of order and addresses so far."""

    def __init__(
        self,
        graph: Graph,
        storage: Storage,
        schedule: Schedule,
        allocation: Allocation,
        run: Run,
        alignment: int,
    ) -> None:
        self.schedule = schedule
        self.allocation = allocation
        self._graph = graph
        self._storage = storage
        self._limit = schedule.peak
        self._bound = live_bytes(allocation)
        self._rng = random.Random(run.limits.seed)  # noqa: S311 - a search, no secret
        self._alignment = alignment
        self._run = run
        # No order has a smaller peak, and no arena is smaller than the peak.
        self.goal = -(-schedule.lower_bound // alignment) * alignment

    @property
    def _left(self) -> float:
        left = self._run.effort()
        return math.inf if left is None else left

    def done(self) -> bool:
        """Return whether the arena is what is live at once in its order, or the least of all, or a limit ends it."""
        return self.allocation.arena <= self._bound or self._left <= 0 or self._run.over()

    def _take(self, layout: Layout, offsets: Sequence[int], method: str, stage: str) -> bool:
        if height_of(layout.packed.blocks, offsets) >= self.allocation.arena or layout.schedule.peak > self._limit:
            return False
        self.schedule, self.allocation = layout.schedule, layout.allocation(offsets, method)
        self._bound = layout.bound
        self._run.tell(stage, self.allocation.arena, self.goal)
        return True

    def _layout(self, candidate: OrderCandidate) -> Layout | None:
        """Return greedy addresses for a candidate; None where its part views contradict each other."""
        known = self.schedule
        schedule = dataclasses.replace(
            known,
            order=candidate.order,
            in_place=candidate.in_place(self._storage),
            peak=candidate.peak,
            status="optimal" if candidate.peak == known.lower_bound else "feasible",
            method=known.method if candidate.order == known.order else "order of least arena",
        )
        try:
            return self._planned(schedule)
        except GraphError:
            return None

    def _planned(self, schedule: Schedule) -> Layout:
        layout = Layout.of(self._graph, self._storage, schedule, self._alignment, self._run.over)
        self._run.spend(MachinePace.PLANNED_BLOCK_SECONDS * len(layout.packed.blocks))
        return layout

    def _fit(self, layout: Layout, capacity: int, effort: float, stage: str) -> bool:
        """Look for addresses at or below ``capacity`` bytes, and take them."""
        capacity = min(capacity, self.allocation.arena - 1)
        effort = min(effort, max(0.0, self._left) / MachinePace.SOLVING_SECONDS)
        offsets = layout.fit(capacity, effort=effort, run=self._run)
        self._run.spend(MachinePace.SOLVING_SECONDS * effort * (1.0 if offsets is None else _FOUND_PART))
        return offsets is not None and self._take(layout, offsets, "CP-SAT", stage)

    def pack_as_it_is(self) -> None:
        """Pack the order as it is, unless its addresses are proven to be the best."""
        if self.allocation.status == "optimal" or self.done():
            return
        layout = self._planned(self.schedule)
        if self.done():
            return
        stage = "exact packing"
        gap = self.allocation.arena - layout.bound
        if not self._fit(layout, layout.bound, _FIRST_FIT_EFFORT, stage):
            self._fit(layout, layout.bound + gap // 2, _FIT_EFFORT, stage)
        if not self.done():
            self._solve(layout, stage)

    def _solve(self, layout: Layout, stage: str) -> None:
        """Pack exactly, as low as can be found, and take that."""
        effort = min(_EXACT_EFFORT, _EXACT_SHARE * self._left)
        limits = dataclasses.replace(self._run.limits, time_limit=None, effort=effort)
        run = dataclasses.replace(self._run.again(limits).quiet(), stop=self._run.over)
        packed = pack(layout.packed.blocks, run)
        self._take(layout, packed.offsets, packed.method, stage)

    def calm(self) -> None:
        """Pack orders in which less is live in all."""
        current = OrderCandidate.of(self._storage, self.schedule.order)
        for _ in range(_CALM_ORDERS):
            if self.done():
                return
            current = self._calmer(current)
            layout = self._layout(current)
            if layout is not None and not self.done():
                self._solve(layout, "other orders")

    def _calmer(self, current: OrderCandidate) -> OrderCandidate:
        """Return an order of no larger peak with less live in all, by moves that do not raise it."""
        end = (1 - _CALM_SHARE) * self._left
        least = sum(evaluate(self._storage, current.order).footprints)
        for _ in range(_CALM_STEPS // len(current.order)):
            if self._run.over() or self._left < end:
                break
            self._run.spend(MachinePace.PLANNED_BLOCK_SECONDS * len(current.order))
            candidate = vary(self._storage, current, self._limit, self._rng, ())
            if candidate is None or candidate.order == current.order:
                continue
            live = sum(evaluate(self._storage, candidate.order).footprints)
            if live <= least:
                current, least = candidate, live
        return OrderCandidate.of(self._storage, current.order)

    def walk(self) -> None:
        """Go from order to order under the peak, and pack what is promising."""
        if self.done():
            return
        current = OrderCandidate.of(self._storage, self.schedule.order, _merged(self._storage, self.schedule))
        layout = self._layout(current)
        if layout is None:
            return
        seen = {(current.order, current.taken)}
        stale = tried = 0
        while stale < _STALE_ATTEMPTS and not self.done():
            stale += 1
            self._run.spend(MachinePace.PLANNED_BLOCK_SECONDS * len(self._graph.ops))
            candidate = vary(self._storage, current, self._limit, self._rng, layout.exceeding())
            if candidate is None or (candidate.order, candidate.taken) in seen:
                continue
            seen.add((candidate.order, candidate.taken))
            following = self._layout(candidate)
            if following is None or following.height > layout.height * (1 + _TOLERANCE):
                continue
            current, layout = candidate, following
            taken = self._take(layout, layout.offsets, layout.method, "other orders")
            # Closing the whole gap at once often works; otherwise half or a quarter of it does.
            gap = self.allocation.arena - layout.bound
            capacity = layout.bound + int(_GAP_KEPT[tried % len(_GAP_KEPT)] * gap)
            tried += 1
            if self._fit(layout, capacity, _FIT_EFFORT, "other orders") or taken:
                stale = 0

    def together(self) -> None:
        """Solve order and addresses as one program."""
        if self.done():
            return
        tasks = _tasks(self._storage)
        if tasks is None:
            return
        # What it finds is packed then, which takes its part.
        effort = min(_PROGRAM_EFFORT, self._left / MachinePace.SOLVING_SECONDS / 2)
        found = cpsat.solve(
            tasks,
            alignment=self._alignment,
            peak_limit=self._limit,
            lower_bound=self.goal,
            upper_bound=self.allocation.arena,
            hint=self.schedule.order,
            effort=effort,
            run=self._run,
        )
        self._run.spend(MachinePace.SOLVING_SECONDS * effort * (_FOUND_PART if found.status == "optimal" else 1.0))
        if found.order is not None:
            layout = self._layout(OrderCandidate.of(self._storage, found.order, frozenset(found.merged)))
            if layout is not None:
                self._take(layout, layout.offsets, layout.method, "joint program")
                self._fit(layout, found.arena, math.inf, "joint program")
        if found.status in {"optimal", "infeasible"} and len(tasks) == len(self._graph.ops):
            # Every order and every choice was covered, this one's packings among them.
            self._bound = self.allocation.arena
            self.allocation = dataclasses.replace(self.allocation, lower_bound=self._bound, status="optimal")


def _merged(storage: Storage, schedule: Schedule) -> frozenset[tuple[int, int]]:
    return frozenset(
        (storage.buffers_of[choice.output][0], storage.buffers_of[choice.input][0]) for choice in schedule.in_place
    )


def _tasks(storage: Storage) -> Tasks | None:
    """Return what the program orders: single ops where they are few, else fused tasks, None where those are many."""
    if len(storage.reads) <= _MOST_SINGLE_OPS:
        return single_op_tasks(storage)
    tasks = fuse(storage).tasks
    return tasks if len(tasks) <= _MOST_TASKS else None
