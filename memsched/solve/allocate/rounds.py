"""Rounds of search attempts at falling heights and rising bounds, side by side in processes where that pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Final, Literal, Protocol

from memsched.base.frozen import FrozenValue
from memsched.graph.packing import Block, height_of
from memsched.search.limits import POLL_SECONDS, Limits
from memsched.search.run import Run
from memsched.search.workers import submitted, worker_pool
from memsched.solve.allocate.cpsat import fit, preferred
from memsched.solve.allocate.growth import grow
from memsched.solve.allocate.preprocess import PackingProblem, common_unit, is_uniform, problem_of
from memsched.solve.allocate.rebuild import can_rebuild, rebuild
from memsched.solve.allocate.search import ATTEMPTS, Attempt, PackingOutcome, attempt

__all__ = ["PackingTask", "Rounds"]

_FIRST_NODES = 1.5
"""Nodes per item in the attempts of the first round."""

_ALONE_EFFORT = 0.5
"""What `Limits.effort` counts before it pays to start processes."""


_ROUNDS_BEFORE_CPSAT = 12
"""Rounds of the own searches before CP-SAT joins, whose first conflicts take longer on a tight instance than these."""

_FIRST_CONFLICTS = 150

_ROUNDS_BEFORE_OTHERS = 2
"""Rounds before packings are grown and rebuilt too, which takes more nodes than easy instances need."""

_SHARE_OF_GROWTH = 4
"""Nodes of a growth for each node of all other attempts of its round."""

_LOOSE = 0.9
"""How full sections are, on average, below which packings are rebuilt: the fuller, the better for the tree search."""

_SHARE_OF_REBUILDING = 48
_SHARE_ABOVE_THE_GOAL = 12
"""Nodes of rebuilding for each node of the tree search in its round, at the least capacity and at higher ones."""

_Way = Literal["search", "growth", "rebuilding", "solver"]
"""The tree search, one from window to window, rebuilding, or CP-SAT."""

_PRICES: Final[Mapping[_Way, float]] = {"search": 5e-8, "growth": 5e-8, "rebuilding": 1.5e-8, "solver": 3e-6}
"""What `Limits.effort` is charged for a node or a conflict per item of the problem: each looks at all items."""

_OWN: Final[Mapping[_Way, Callable[[PackingProblem, Attempt, Callable[[], bool]], PackingOutcome]]] = {
    "search": attempt,
    "growth": grow,
    "rebuilding": rebuild,
}

MOST_BLOCKS = 2000
"""Blocks of which CP-SAT's model, all windows to grow in, and the pairs that meet are each made in a second."""


class PackingTask(FrozenValue, frozen=True):
    """What is to be packed.

    Attributes:
        unit: Bytes of which all addresses are multiples in some lowest packing.
        problem: The same for the own search; None where only CP-SAT can do it.
    """

    blocks: tuple[Block, ...]
    unit: int
    problem: PackingProblem | None

    @staticmethod
    def of(blocks: Sequence[Block]) -> PackingTask | None:
        """Return the task of packing ``blocks``, each of which uses some bytes; None when it is too large."""
        if all(is_uniform(block) for block in blocks):
            problem = problem_of(blocks)
            return None if problem is None else PackingTask(tuple(blocks), problem.unit, problem)
        return PackingTask(tuple(blocks), common_unit(blocks), None) if len(blocks) <= MOST_BLOCKS else None


class _SolverAttempt(FrozenValue, frozen=True):
    """One attempt: of ``most`` nodes of the own searches, or conflicts of CP-SAT."""

    way: _Way
    number: int
    seed: int
    capacity: int
    most: int


class _Result(FrozenValue, frozen=True):
    """Addresses in bytes; ``least`` is the least capacity that is not excluded, bytes."""

    status: Literal["found", "infeasible", "unknown"]
    offsets: tuple[int, ...] = ()
    least: int = 0
    states: int = 0
    stopped: bool = False


def _make(task: PackingTask, wanted: _SolverAttempt, run: Run) -> _Result:
    if wanted.way != "solver" and task.problem is not None:
        asked = Attempt(wanted.number, wanted.seed, wanted.capacity, wanted.most)
        outcome = _OWN[wanted.way](task.problem, asked, run.over)
        pairs = zip(outcome.positions, task.problem.shifts, strict=True) if outcome.positions else ()
        offsets = tuple([(position - shift) * task.unit for position, shift in pairs])
        return _Result(outcome.status, offsets, outcome.least * task.unit, outcome.nodes, outcome.stopped)
    order = preferred(task.blocks, wanted.number // 2, wanted.seed) if wanted.number % 2 else None
    found = fit(
        task.blocks,
        wanted.capacity * task.unit,
        task.unit,
        order,
        seed=wanted.seed,
        conflicts=wanted.most,
        run=run,
    )
    least = (wanted.capacity + 1) * task.unit
    return _Result(found.status, found.offsets, least, found.conflicts, found.stopped)


class Rounds:
    """The search for one task. All heights outside are bytes, all inside units."""

    def __init__(self, task: PackingTask, run: Run) -> None:
        self._task = task
        self._run = run
        self._limits = run.limits
        self._effort = 0.0
        self._crew: _Crew | None = None
        self.states = 0

    def settle(
        self, offsets: tuple[int, ...], height: int, bound: int, enough: int, *, minimize: bool
    ) -> tuple[tuple[int, ...], int, int]:
        """Return addresses, height and lower bound: of ``enough`` bytes or less, the least, or the best in time.

        Args:
            offsets: Of the best packing known, ``height`` bytes high.
            minimize: Look for lower packings also where those of ``enough`` bytes are not found at once.
        """
        unit = self._task.unit
        bound = -(-bound // unit) * unit
        number = 0
        most = math.inf if self._limits.rounds is None else self._limits.rounds
        while height > max(bound, enough) and number < most and not self._ended():
            least = capacity = max(-(-bound // unit), enough // unit)
            decided, lowest = False, capacity
            while least <= capacity < -(-height // unit):
                outcome = self._round(capacity, number, goal=capacity == lowest)
                if outcome.status == "found":
                    offsets = outcome.offsets
                    height = height_of(self._task.blocks, offsets)
                elif outcome.status == "infeasible":
                    bound = max(bound, min(outcome.least, height) if minimize else outcome.least)
                    least = max(least, -(-bound // unit))
                else:
                    least = capacity + 1
                decided = decided or outcome.status != "unknown"
                if not minimize or self._ended():
                    break
                # This round gives up what lies below: halve what is left, so that a round ends after few capacities.
                capacity = (least + -(-height // unit) - 1) // 2
            number += minimize or not decided
        return offsets, height, bound

    def close(self) -> None:
        """End the processes."""
        if self._crew is not None:
            self._crew.close()

    def _ended(self) -> bool:
        """Whether the search was asked to end, or has done all its work."""
        return self._run.over()

    def _count(self, made: _SolverAttempt, result: _Result) -> None:
        self.states += result.states
        # CP-SAT takes its time without conflicts, too.
        counted = made.most if made.way == "solver" else result.states
        work = len(self._task.blocks) * counted * _PRICES[made.way]
        self._effort += work
        self._run.spend(work)

    def _tries(self, capacity: int, number: int, *, goal: bool) -> list[_SolverAttempt]:
        seed, count = self._limits.seed, len(self._task.blocks)
        tries: list[_SolverAttempt] = []

        def add(way: _Way, numbers: Iterable[int], most: int) -> None:
            most = self._most(most, _PRICES[way])
            tries.extend([_SolverAttempt(way, one, seed, capacity, most) for one in numbers])

        if self._task.problem is not None:
            nodes = int(_FIRST_NODES * count) << number // 2
            add("search", range(number * ATTEMPTS, (number + 1) * ATTEMPTS), nodes)
            if number >= _ROUNDS_BEFORE_OTHERS and count <= MOST_BLOCKS:
                add("growth", [number], nodes * ATTEMPTS * _SHARE_OF_GROWTH)
            if number >= _ROUNDS_BEFORE_OTHERS and self._is_loose(capacity):
                share = _SHARE_OF_REBUILDING if goal else _SHARE_ABOVE_THE_GOAL
                add("rebuilding", [number], nodes * ATTEMPTS * share)
        if count <= MOST_BLOCKS and (number >= _ROUNDS_BEFORE_CPSAT or not tries):
            add("solver", [2 * number, 2 * number + 1], _FIRST_CONFLICTS << number // 2)
        return tries

    def _is_loose(self, capacity: int) -> bool:
        """Whether there is so much room that packings are rebuilt."""
        problem = self._task.problem
        if problem is None or len(problem.widths) > MOST_BLOCKS or not can_rebuild(problem):
            return False
        used = sum([width * len(live) for width, live in zip(problem.widths, problem.sections, strict=True)])
        return used < _LOOSE * capacity * problem.section_count

    def _most(self, wanted: int, price: float) -> int:
        """Return as many nodes or conflicts as are wanted, or as the work that is left permits; one at least."""
        left = self._run.effort()
        return wanted if left is None else max(1, min(wanted, int(left / price / max(1, len(self._task.blocks)))))

    def _round(self, capacity: int, number: int, *, goal: bool = True) -> _Result:
        """Make the attempts of a round; ``goal``: at the least capacity that is not excluded."""
        result = _Result("unknown")
        wanted = self._tries(capacity, number, goal=goal)
        for index, one in enumerate(wanted):
            if self._limits.workers > 1 and self._effort >= _ALONE_EFFORT:
                return self._together(wanted[index:])
            result = _make(self._task, one, self._run)
            self._count(one, result)
            if result.status != "unknown" or result.stopped or self._ended():
                break
        return result

    def _together(self, wanted: Sequence[_SolverAttempt]) -> _Result:
        if self._crew is None:
            self._crew = _Crew(self._task, self._run)
        result = _Result("unknown")
        for one, result in zip(wanted, self._crew.run(wanted), strict=False):
            self._count(one, result)
            if result.status != "unknown" or result.stopped or self._ended():
                break
        self._crew.stop()
        return result


class _Crew:
    """Processes that hold the task and make attempts."""

    def __init__(self, task: PackingTask, run: Run) -> None:
        self._task = task
        self._run = run
        # Without a lock: a process that was killed while it held one would stop all others for ever.
        self._current = get_context("spawn").Value("q", 0, lock=False)
        self._pool = worker_pool(run.limits.workers, _hold, (task, self._current))

    def run(self, wanted: Sequence[_SolverAttempt]) -> Iterator[_Result]:
        """Yield the outcome of each attempt, in their order."""
        call = self._current.value
        futures = [submitted(self._pool, _attempt, one, call, self._run.remaining()) for one in wanted]
        return _in_order(futures, wanted, self._task, self._run)

    def stop(self) -> None:
        """End the attempts that are still being made."""
        self._current.value += 1

    def close(self) -> None:
        self.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _in_order(
    futures: Sequence[Future[_Result]], wanted: Sequence[_SolverAttempt], task: PackingTask, run: Run
) -> Iterator[_Result]:
    """Yield outcomes in the order of the attempts; one whose process died is made again here."""
    for future, one in zip(futures, wanted, strict=True):
        while not future.done() and not run.over():
            wait([future], timeout=POLL_SECONDS)
        if not future.done():
            yield _Result("unknown", stopped=True)
            return
        try:
            yield future.result()
        except BrokenProcessPool:
            yield _make(task, one, run)


class _Number(Protocol):
    """A number in memory that processes share."""

    value: int


_held: list[tuple[PackingTask, _Number]] = []
"""In a process of a crew: its task, and the number of the call that is still wanted."""


def _hold(task: PackingTask, current: _Number) -> None:
    _held.append((task, current))


def _attempt(wanted: _SolverAttempt, call: int, seconds: float) -> _Result:
    task, current = _held[-1]
    limits = Limits(None if math.isinf(seconds) else seconds)
    return _make(task, wanted, Run(limits, stop=lambda: current.value != call))
