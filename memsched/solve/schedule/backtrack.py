"""BTSearch: backtracking over the states of a graph, with marked states and memoised parsing.

MemoriaNova, section 3.2 and Algorithm 1, iteratively. A state is the set of executed tasks (definition 3.2), a bitset.

- *Metrics*: "sum" is the paper's, the sum over the steps of full memory less the memory in use, to be maximised;
  full memory is a constant, so the sum of the footprints is minimised. "peak" is the largest footprint.
- *State marking* (3.2.1): per state the least cost at which it was reached. A path that reaches it at no less cost is
  cut off: what is still to come depends on the state alone, since residue and footprints follow from the set of
  executed ops, and both max(cost, rest) and cost + rest only grow with the cost so far.
- *Memoised parsing* (3.2.2): the ready tasks of a state, what each costs and where it leads are found once.

``plain`` runs exactly this. It expands a state again whenever it is reached at less cost, and then everything after it,
although 3.2.3 counts each serial subgraph once. So by default

- the graph is cut at the tasks that every other one precedes or follows, and the parts are searched apart;
- for the peak a path ends where it cannot beat the best order known;
- for the sum, which falls in many small steps, a state is marked with the least cost of what follows it, found when
  the search leaves it: no state is expanded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks
from memsched.graph.dag import bitset
from memsched.solve.schedule.segments import split

__all__ = ["MOST_STATES", "BacktrackResult", "Metric", "search"]

MOST_STATES: Final = 50_000_000
"""States that a search expands at most."""

Metric = Literal["peak", "sum"]

_Move = tuple[int, int, int, int]
"""What a ready task's steps cost, the task, the state after it, and the residue there in bytes."""

_Parsed = tuple[tuple[int, ...], tuple[_Move, ...]]
"""The ready tasks of a state, and its moves in the order in which they are tried."""

_Found = tuple[tuple[int, ...], int]
"""An order of a part's tasks and its cost."""


class BacktrackResult(FrozenValue, frozen=True):
    """What the search found.

    Attributes:
        order: The best order of the tasks found; the given one where none is better.
        cost: Of ``order``, bytes: its peak, or the sum of the footprints of all its ops' steps.
        complete: Whether the search finished: no order costs less, or ``cost`` is within the given bound.
        states: States expanded, one again whenever it was reached at less cost.
        distinct: Different states among them.
    """

    order: tuple[int, ...]
    cost: int
    complete: bool
    states: int
    distinct: int


def search(
    tasks: Tasks,
    *,
    metric: Metric = "peak",
    start: Sequence[int] | None = None,
    lower_bound: int = 0,
    plain: bool = False,
    max_states: int = MOST_STATES,
    max_marked: int = 2_000_000,
    max_parsed: int = 200_000,
    stop: Callable[[], bool] = lambda: False,
    on_order: Callable[[tuple[int, ...]], None] = lambda _: None,
) -> BacktrackResult:
    """Return an order of ``tasks`` of least cost, or the best so far when a limit ends the search.

    Args:
        tasks: What to order. On fused tasks "peak" has the same optimum as on single ops; "sum" is then the least of
            those orders only that execute each task at one go.
        start: A known order of the tasks; by default their numbering.
        lower_bound: With "peak": an order that needs no more than this, bytes, is good enough.
        plain: Run the paper's algorithm without additions; tasks are tried in the order of their numbers.
        max_states: Stop after so many expansions.
        max_marked: Stop when so many states are marked: about 200 bytes each.
        max_parsed: States whose parsing is kept, about 1 KB each; the others are parsed whenever they are met.
        stop: Polled every 64 states; True ends the search.
        on_order: Called with each better order of all tasks.
    """
    begin = tuple(range(len(tasks)) if start is None else start)
    parts = [(tasks, range(len(tasks)))] if plain else split(tasks)
    # Separating tasks keep their places in every order, so each part's piece of the order is contiguous.
    orders = [tuple(task - numbers.start for task in begin[numbers.start : numbers.stop]) for _, numbers in parts]
    costs = [_cost(part, order, metric) for (part, _), order in zip(parts, orders, strict=True)]
    together = max if metric == "peak" else sum
    states = distinct = 0
    complete = True
    enough = lower_bound if metric == "peak" else 0

    def whole() -> tuple[int, ...]:
        return tuple(numbers[task] for (_, numbers), order in zip(parts, orders, strict=True) for task in order)

    for index in sorted(range(len(parts)), key=lambda index: (-costs[index], index)):
        limits = _PartLimits(max_states - states, max_marked - distinct, max_parsed, stop)
        part = _PartSearch(parts[index][0], metric, plain, limits)
        run = part.from_the_end if metric == "sum" and not plain else part.from_the_start
        for order, cost in run((orders[index], costs[index]), enough):
            before = together(costs)
            orders[index], costs[index] = order, cost
            if together(costs) < before:
                on_order(whole())
        if metric == "peak":
            # The others need not do better than this part can.
            enough = max(enough, costs[index])
        complete = complete and part.complete
        states, distinct = states + part.states, distinct + part.distinct
    return BacktrackResult(whole(), together(costs), complete, states, distinct)


def _cost(tasks: Tasks, order: Sequence[int], metric: Metric) -> int:
    """Return what an order of all tasks costs, bytes."""
    remaining = [len(users) + kept for users, kept in zip(tasks.users, tasks.kept, strict=True)]
    live = tasks.initial
    footprints: list[int] = []
    for task in order:
        for buffer in tasks.reads[task]:
            remaining[buffer] -= 1
        above, residues = tasks.profile(task, [buffer for buffer in tasks.reads[task] if not remaining[buffer]])
        footprints += [live + footprint for footprint in above]
        live += residues[-1]
    return max(footprints, default=live) if metric == "peak" else sum(footprints)


class _PartLimits(FrozenValue, frozen=True):
    """What the search of a part may take; see `search`."""

    states: int
    marked: int
    parsed: int
    stop: Callable[[], bool]


class _PartSearch:
    """The search of tasks that are ordered apart.

    Attributes:
        states: States expanded.
        distinct: Different ones.
        complete: Whether nothing is left that could cost less.
    """

    def __init__(self, tasks: Tasks, metric: Metric, plain: bool, limits: _PartLimits) -> None:
        self.states = 0
        self.distinct = 0
        self.complete = False
        self._tasks = tasks
        self._peak = metric == "peak"
        self._plain = plain
        self._limits = limits
        self._full = (1 << len(tasks)) - 1
        self._parsed: dict[int, _Parsed] = {}
        self._needs = [bitset(befores) for befores in tasks.preds]
        # Per task and buffer it reads that can die in it: (buffer, its other users as a bitset).
        self._reads = [
            [(b, bitset(tasks.users[b]) & ~(1 << task)) for b in reads if not tasks.kept[b]]
            for task, reads in enumerate(tasks.reads)
        ]
        # Per task: the read buffers that die in it -> (its steps above the residue before it, the residue's change).
        self._steps: list[dict[tuple[int, ...], tuple[int, int]]] = [{} for _ in tasks.reads]

    def from_the_start(self, known: _Found, enough: int) -> Iterator[_Found]:
        """Yield orders of falling cost, each below that of ``known``, until one costs no more than ``enough``."""
        _, cost = known
        marks: dict[int, int] = {}
        path: list[int] = []
        ready, options = self._root()
        # Before the first task and per task on the path: cost so far, ready tasks, moves to try.
        frames = [(0, ready, iter(options))]
        while frames and cost > enough:
            so_far, ready, moves = frames[-1]
            move = next(moves, None)
            if move is None:
                frames.pop()
                del path[-1:]
                continue
            step, task, after, _ = move
            reached = max(so_far, step) if self._peak else so_far + step
            if (not self._plain and reached >= cost) or reached >= marks.get(after, reached + 1):
                continue
            if after == self._full:
                marks[after] = reached
                if reached < cost:
                    cost = reached
                    yield (*path, task), cost
                continue
            if self._ended():
                return
            self.states += 1
            self.distinct += after not in marks
            marks[after] = reached
            path.append(task)
            ready, options = self._parse(move, ready)
            frames.append((reached, ready, iter(options)))
        self.complete = True

    def from_the_end(self, known: _Found, enough: int) -> Iterator[_Found]:
        """Yield orders as `from_the_start` does, of the sum; a state is marked when all that follows it is known.

        Where a limit ends the search, what the states on the path have found so far counts.
        """
        _, cost = known
        # Per state the least cost of what follows, and the task with which it begins.
        marks: dict[int, tuple[int, int]] = {self._full: (0, -1)}
        ended = False
        frames = [_Frame(0, *self._root())]
        while frames and cost > enough:
            frame = frames[-1]
            move = None if ended else next(frame.moves, None)
            if move is None:
                frames.pop()
                if frame.best is None or not frames:
                    continue
                marks[frame.state] = frame.best
                frame = frames[-1]
            elif move[2] not in marks:
                ended = self._ended()
                if not ended:
                    frame.move = move
                    self.states += 1
                    self.distinct += 1
                    frames.append(_Frame(move[2], *self._after(move, frame.ready)))
                continue
            else:
                frame.move = move
            total = frame.take(marks[frame.move[2]][0])
            if len(frames) == 1 and total < cost:
                cost = total
                yield self._follow(frame.move[1], marks), cost
        self.complete = not ended

    def _follow(self, task: int, marks: dict[int, tuple[int, int]]) -> tuple[int, ...]:
        """Return the order that begins with ``task`` and continues along the marks."""
        order, state = [task], 1 << task
        while state != self._full:
            order.append(marks[state][1])
            state |= 1 << order[-1]
        return tuple(order)

    def _ended(self) -> bool:
        limits = self._limits
        if self.states >= limits.states or self.distinct >= limits.marked:
            return True
        return not self.states & 63 and limits.stop()

    def _root(self) -> _Parsed:
        return self._moves(0, self._tasks.initial, tuple(task for task, need in enumerate(self._needs) if not need))

    def _parse(self, move: _Move, ready: tuple[int, ...]) -> _Parsed:
        """Parse the state after ``move``, before which the tasks ``ready`` were, unless that was done before."""
        parsed = self._parsed.get(move[2])
        if parsed is None:
            parsed = self._after(move, ready)
            if len(self._parsed) < self._limits.parsed:
                self._parsed[move[2]] = parsed
        return parsed

    def _after(self, move: _Move, ready: tuple[int, ...]) -> _Parsed:
        _, task, state, residue = move
        unlocked = [after for after in self._tasks.succs[task] if not self._needs[after] & ~state]
        return self._moves(state, residue, tuple([other for other in ready if other != task] + unlocked))

    def _moves(self, state: int, residue: int, ready: tuple[int, ...]) -> _Parsed:
        """Return a state's moves: in the order of the tasks' numbers if plain, else the cheapest first."""
        moves: list[_Move] = []
        for task in ready:
            above, change = self._costs(task, tuple([b for b, others in self._reads[task] if not others & ~state]))
            steps = 1 if self._peak else len(self._tasks.members[task])
            moves.append((steps * residue + above, task, state | 1 << task, residue + change))
        moves.sort(key=_number if self._plain else _cheapness)
        return ready, tuple(moves)

    def _costs(self, task: int, dying: tuple[int, ...]) -> tuple[int, int]:
        """Return what a task's steps need above the residue before it, by the metric, and the residue's change."""
        found = self._steps[task].get(dying)
        if found is None:
            footprints, residues = self._tasks.profile(task, dying)
            found = max(footprints) if self._peak else sum(footprints), residues[-1]
            self._steps[task][dying] = found
        return found


class _Frame:
    """A state on the path of `_PartSearch.from_the_end`.

    Attributes:
        move: The move being tried.
        best: The least cost of what follows the state as far as is known, and the task with which it begins.
    """

    __slots__ = ("best", "move", "moves", "ready", "state")

    def __init__(self, state: int, ready: tuple[int, ...], moves: tuple[_Move, ...]) -> None:
        self.state = state
        self.ready = ready
        self.moves = iter(moves)
        self.move: _Move = (0, -1, 0, 0)
        self.best: tuple[int, int] | None = None

    def take(self, rest: int) -> int:
        """Return the cost of the move and the ``rest`` after it; keep them if nothing known is less."""
        step, task, _, _ = self.move
        if self.best is None or step + rest < self.best[0]:
            self.best = step + rest, task
        return step + rest


def _number(move: _Move) -> int:
    return move[1]


def _cheapness(move: _Move) -> tuple[int, int, int]:
    return move[0], move[3], move[1]
