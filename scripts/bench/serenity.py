"""SERENITY's exact method, to compare with: dynamic programming over downsets with adaptive soft budgeting.

Written anew after Ahn et al., "Ordering Chaos: Memory-Aware Scheduling of Irregularly Wired Neural Networks for Edge
Devices" (MLSys 2020), sections 3.1 and 3.2, without the rewriting of graphs (3.3), which changes what is computed:

- *Dynamic programming*: step i holds every downset of i tasks that can be reached, each with the least peak of any
  order of it. The paper's signature, the set of tasks without open predecessors, names the same downset.
- *Divide and conquer*: the graph is cut at the tasks that every other task precedes or follows.
- *Adaptive soft budgeting*: downsets whose peak exceeds a budget are dropped. The budget starts at the peak of Kahn's
  algorithm; it falls by bisection when a step has too many downsets ("timeout" in the paper, counted here in downsets
  instead of seconds, so that results can be repeated) and rises when nothing is left ("no solution"). An order found
  under any budget is optimal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks
from memsched.solve.schedule.segments import split

__all__ = ["BudgetStep", "SerenityResult", "serenity"]

Ending = Literal["solution", "timeout", "no solution", "stopped"]


class BudgetStep(FrozenValue, frozen=True):
    """One run of the dynamic programming.

    Attributes:
        segment: Which part of the graph it ordered.
        budget: Bytes above which downsets were dropped.
        ending: "timeout" when a step had too many downsets, "stopped" when the total was used up.
        states: Downsets expanded.
    """

    segment: int
    budget: int
    ending: Ending
    states: int


class SerenityResult(FrozenValue, frozen=True):
    """What it found.

    Attributes:
        order: An order of all tasks; segments without a solution have that of Kahn's algorithm.
        peak: Of that order, bytes.
        states: Downsets expanded in all.
        budgets: The budgets tried, in turn.
        complete: Whether every segment was solved, so that the order is optimal.
    """

    order: tuple[int, ...]
    peak: int
    states: int
    budgets: tuple[BudgetStep, ...]
    complete: bool


def serenity(
    tasks: Tasks,
    *,
    states_per_step: int = 10_000,
    max_states: int = 2_000_000,
    stop: Callable[[], bool] = lambda: False,
) -> SerenityResult:
    """Return an order of least peak, or the best there is when a limit ends the search.

    Args:
        tasks: What to order.
        states_per_step: Downsets of one size that are too many: the paper's time limit per step.
        max_states: Downsets expanded in all.
        stop: Polled every 64 downsets; True ends the search.
    """
    order: list[int] = []
    budgets: list[BudgetStep] = []
    complete = True
    for segment, (part, numbers) in enumerate(split(tasks)):
        left = max_states - sum(step.states for step in budgets)
        program = _SegmentProgram(part, states_per_step, stop)
        found = _bisect(program, segment, left, budgets)
        complete &= found is not None
        order += [numbers[task] for task in (found if found is not None else program.kahn)]
    peak = max(tasks.run(order)[0], default=tasks.initial)
    return SerenityResult(tuple(order), peak, sum(step.states for step in budgets), tuple(budgets), complete)


def _bisect(program: _SegmentProgram, segment: int, max_states: int, budgets: list[BudgetStep]) -> list[int] | None:
    """Adapt the budget until there is a solution; None when that is out of reach."""
    # No order fits in ``low``; with ``high`` there are too many downsets.
    low, high, budget = 0, program.kahn_peak + 1, program.kahn_peak
    while True:
        before = program.states
        ending, order = program.run(budget, max_states)
        budgets.append(BudgetStep(segment, budget, ending, program.states - before))
        if ending == "timeout":
            high = budget
        elif ending == "no solution":
            low = budget
        else:
            return order
        if high - low <= 1:
            return None
        budget = (low + high) // 2


class _SegmentProgram:
    """The dynamic programming over one segment."""

    def __init__(self, tasks: Tasks, states_per_step: int, stop: Callable[[], bool]) -> None:
        self.states = 0
        self.kahn = _kahn(tasks)
        self.kahn_peak = max(tasks.run(self.kahn)[0], default=tasks.initial)
        self._tasks = tasks
        self._limit = states_per_step
        self._stop = stop
        self._needs = [sum(1 << before for before in befores) for befores in tasks.preds]
        self._created = [
            sum(tasks.sizes[b] for b in created if tasks.users[b] or tasks.kept[b]) for created in tasks.creates
        ]
        # Per task and buffer it reads that can die in it: (buffer, the other users, bytes).
        self._reads = [
            [
                (b, sum(1 << user for user in tasks.users[b] if user != task), tasks.sizes[b])
                for b in reads
                if not tasks.kept[b]
            ]
            for task, reads in enumerate(tasks.reads)
        ]
        self._excess: list[dict[tuple[int, ...], int]] = [{} for _ in tasks.reads]

    def run(self, budget: int, max_states: int) -> tuple[Ending, list[int] | None]:
        """Return how the dynamic programming under ``budget`` bytes ended, and the order that it found."""
        tasks = self._tasks
        ready = tuple(task for task, need in enumerate(self._needs) if not need)
        # Downset -> (least peak, residue, ready tasks).
        layer: dict[int, tuple[int, int, tuple[int, ...]]] = {0: (0, tasks.initial, ready)}
        # Per step: downset -> the task taken last.
        taken: list[dict[int, int]] = []
        for _ in range(len(tasks)):
            following: dict[int, tuple[int, int, tuple[int, ...]]] = {}
            last: dict[int, int] = {}
            for downset, (peak, residue, ready) in layer.items():
                if self.states >= max_states or (not self.states & 63 and self._stop()):
                    return "stopped", None
                self.states += 1
                for task in ready:
                    excess, change = self._cost(task, downset)
                    reached = max(peak, residue + excess)
                    after = downset | 1 << task
                    known = following.get(after)
                    if reached > budget or (known is not None and known[0] <= reached):
                        continue
                    following[after] = (
                        reached,
                        residue + change,
                        known[2] if known else self._ready_after(task, after, ready),
                    )
                    last[after] = task
                if len(following) > self._limit:
                    return "timeout", None
            if not following:
                return "no solution", None
            layer = following
            taken.append(last)
        return "solution", self._trace(taken)

    def _cost(self, task: int, downset: int) -> tuple[int, int]:
        """Return the footprint above the residue and the residue's change, bytes, of a task after a downset."""
        dying = []
        change = self._created[task]
        for buffer, others, size in self._reads[task]:
            if not others & ~downset:
                dying.append(buffer)
                change -= size
        key = tuple(dying)
        excess = self._excess[task].get(key)
        if excess is None:
            excess = self._excess[task][key] = self._tasks.excess(task, key)
        return excess, change

    def _ready_after(self, task: int, downset: int, ready: tuple[int, ...]) -> tuple[int, ...]:
        unlocked = [after for after in self._tasks.succs[task] if not self._needs[after] & ~downset]
        return tuple([other for other in ready if other != task] + unlocked)

    def _trace(self, taken: list[dict[int, int]]) -> list[int]:
        downset = (1 << len(taken)) - 1
        order: list[int] = []
        for last in reversed(taken):
            order.append(last[downset])
            downset ^= 1 << order[-1]
        order.reverse()
        return order


def _kahn(tasks: Tasks) -> list[int]:
    """Return the tasks first come, first served, as they become ready."""
    waiting = [len(befores) for befores in tasks.preds]
    queue = deque(task for task, count in enumerate(waiting) if not count)
    order: list[int] = []
    while queue:
        task = queue.popleft()
        order.append(task)
        for after in tasks.succs[task]:
            waiting[after] -= 1
            if not waiting[after]:
                queue.append(after)
    return order
