"""Exact search for the order of least peak: a threshold search over downsets with safe moves, in both directions.

States are downsets, the sets of executed tasks that are closed under predecessors. The search keeps a threshold that
is a proven lower bound: it rises only when every state reachable under it is exhausted, so the first complete state
is an optimum and no upper bound is needed. Unlike the integer program of "Iterative Graph Optimization", it needs no
time index at all.

Two facts of liveness carry it. Let f(D) be the residue after downset D.

- *Safe move.* A ready task that does not raise the residue and whose footprint fits under the threshold is executed at
  once, without branching. Proof: per buffer, "created and not yet fully read" is submodular on downsets, so the net
  change f(D + v) - f(D) of a task only falls as D grows; so does its footprint above f(D), because the set of reads
  that die in it (and with it what in-place writes save) only grows. Take any completion of D under the threshold and
  move v to its front: each residue before v's old place changes by v's net change, which is <= 0, and each footprint
  above the residue does not rise. Views, several outputs and several readers are covered: they only change which tasks
  read a buffer.
- *Both directions.* Executed backwards, from the outputs, f is submodular on the complements too, and the footprint
  above the later residue is the bytes that die in the task less what in-place writes save. Fewer buffers die in it the
  more later tasks were taken, and each that does not lowers the sum by its size and the saving by at most that. So
  the same safe move holds. Forwards alone fails where many branches fan out late, backwards where they fan out early;
  the two searches take turns with doubling effort and share the proven threshold.

What is branched on is in `events`: moves that depend on others. Of the states that these lead to, one that fits and has
no larger residue than the one it comes from is gone to at once if it has the least residue of them all (`threshold`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks
from memsched.solve.schedule.compiled import directed_search
from memsched.solve.schedule.moves import backward_moves, final_residue, forward_moves

__all__ = ["ExactResult", "OrderSearch", "search"]

_FIRST_TURN = 256
_BEHIND = 8
"""How many times fewer states the direction gets that did not raise the bound last."""


class ExactResult(FrozenValue, frozen=True):
    """What the search found.

    Attributes:
        order: An optimal order of the tasks; None when the search was stopped, or proved that none is better than
            the given upper bound.
        lower_bound: Bytes that every order needs; the optimum when the search was not stopped.
        complete: Whether the search finished, so that ``lower_bound`` is the optimum (or the upper bound).
        states: Downsets expanded in both directions, in this call.
    """

    order: tuple[int, ...] | None
    lower_bound: int
    complete: bool
    states: int


def search(
    tasks: Tasks,
    *,
    lower_bound: int = 0,
    upper_bound: int | None = None,
    max_states: int = 2_000_000,
    stop: Callable[[], bool] = lambda: False,
    on_bound: Callable[[int], None] = lambda _: None,
) -> ExactResult:
    """Return an order of ``tasks`` whose peak is least, or the best bound when stopped; see `OrderSearch.run`."""
    return OrderSearch(tasks).run(
        lower_bound=lower_bound, upper_bound=upper_bound, max_states=max_states, stop=stop, on_bound=on_bound
    )


class OrderSearch:
    """A search for an order of ``tasks`` whose peak is least, which may be left and taken up again."""

    def __init__(self, tasks: Tasks) -> None:
        self._directions = (
            directed_search(forward_moves(tasks), tasks.initial),
            directed_search(backward_moves(tasks), final_residue(tasks)),
        )
        self._leader: int | None = None
        self._turns = self._take_turns()

    @property
    def states(self) -> int:
        """The downsets expanded so far."""
        return sum(direction.states for direction in self._directions)

    def run(
        self,
        *,
        lower_bound: int = 0,
        upper_bound: int | None = None,
        max_states: int = 2_000_000,
        stop: Callable[[], bool] = lambda: False,
        on_bound: Callable[[int], None] = lambda _: None,
    ) -> ExactResult:
        """Return an order whose peak is least, or the best bound when stopped.

        Args:
            lower_bound: A known lower bound, bytes: an order that needs no more than this is good enough and counts
                as optimal.
            upper_bound: The peak of a known order, bytes, no larger than in earlier calls: the search ends when
                nothing below it is left.
            max_states: Stop after so many states of this call.
            stop: Polled every 8 states, every 1,024 of the compiled core; True ends the search.
            on_bound: Called with each proven lower bound.
        """
        threshold, before = lower_bound, self.states
        for turn, effort in self._turns:
            direction = self._directions[turn]
            ending = direction.run(threshold, upper_bound, min(effort, before + max_states - self.states), stop)
            if direction.threshold > threshold:
                threshold, self._leader = direction.threshold, turn
                on_bound(threshold if upper_bound is None else min(threshold, upper_bound))
            states = self.states - before
            if ending == "found":
                path = direction.path()
                return ExactResult(path if turn == 0 else tuple(reversed(path)), threshold, True, states)
            if ending == "exhausted" and upper_bound is not None:
                return ExactResult(None, upper_bound, True, states)
            if ending == "stopped" or states >= max_states:
                break
        return ExactResult(None, threshold, False, self.states - before)

    def _take_turns(self) -> Iterator[tuple[int, int]]:
        """Yield which direction comes next, with its states: the one that raised the bound last gets more of them."""
        effort = _FIRST_TURN
        while True:
            for turn in range(len(self._directions)):
                yield turn, effort if self._leader in {None, turn} else effort // _BEHIND
            effort *= 2
