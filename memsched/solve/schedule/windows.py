"""Improving an order by exact re-optimisation of windows: for graphs too large for a proof.

A window is a run of consecutive tasks around a step that sets the peak. What runs before and after it stays, so the
window is a problem of its own (`contraction.restrict`) with fixed residues at both ends, and whatever order lowers its
peak lowers the whole's footprints there and changes nothing elsewhere. Windows grow until one helps or none does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks, restrict
from memsched.solve.schedule import exact

__all__ = ["WindowResult", "improve"]

_SIZES = (24, 48, 96, 192, 384)


class WindowResult(FrozenValue, frozen=True):
    """The improved order of tasks, its peak in bytes, and the states that the windows took together."""

    order: tuple[int, ...]
    peak: int
    states: int


def improve(
    tasks: Tasks,
    order: Sequence[int],
    *,
    lower_bound: int = 0,
    states_per_window: int = 20_000,
    stop: Callable[[], bool] = lambda: False,
    on_peak: Callable[[int], None] = lambda _: None,
    on_states: Callable[[int], None] = lambda _: None,
) -> WindowResult:
    """Return an order with a peak no larger than that of ``order``.

    Args:
        tasks: What is ordered.
        order: A topological order of all tasks.
        lower_bound: Bytes below which nothing need be tried.
        states_per_window: Downsets that the search of one window may expand.
        stop: Polled often; True ends the search with the best order so far.
        on_peak: Called with each smaller peak, bytes.
        on_states: Called with the states that each window took.
    """
    state = _Improver(tasks, order, lower_bound, states_per_window, stop, on_states)
    while state.peak > lower_bound and not stop():
        before = state.peak
        if not state.lower_step(state.footprints.index(before)):
            break
        if state.peak < before:
            on_peak(state.peak)
    return WindowResult(tuple(state.order), state.peak, state.states)


class _WindowPrefix(FrozenValue, frozen=True):
    """The tasks at positions before ``start``."""

    position: Sequence[int]
    start: int

    def __contains__(self, task: object) -> bool:
        return isinstance(task, int) and self.position[task] < self.start


class _Improver:
    """An order with its footprints and residues, kept up to date window by window."""

    def __init__(
        self,
        tasks: Tasks,
        order: Sequence[int],
        lower_bound: int,
        states_per_window: int,
        stop: Callable[[], bool],
        on_states: Callable[[int], None],
    ) -> None:
        self.order = list(order)
        self.footprints, self._residues = tasks.run(self.order)
        self.states = 0
        self._tasks = tasks
        self._lower_bound = lower_bound
        self._states_per_window = states_per_window
        self._stop = stop
        self._on_states = on_states
        self._position = [0] * len(self.order)
        for place, task in enumerate(self.order):
            self._position[task] = place

    @property
    def peak(self) -> int:
        return max(self.footprints, default=self._tasks.initial)

    def lower_step(self, step: int) -> bool:
        """Lower the footprints around ``step``, which sets the peak, by the first window that can."""
        for size in _SIZES:
            for start in _starts(step, size, len(self.order)):
                if self._stop():
                    return False
                if self._reorder(start, start + size):
                    return True
            if size >= len(self.order):
                return False
        return False

    def _reorder(self, start: int, end: int) -> bool:
        window = sorted(self.order[start:end])
        residue = self._residues[start - 1] if start else self._tasks.initial
        part = restrict(self._tasks, window, _WindowPrefix(self._position, start), residue)
        found = exact.search(
            part,
            lower_bound=self._lower_bound,
            upper_bound=max(self.footprints[start:end]),
            max_states=self._states_per_window,
            stop=self._stop,
        )
        self.states += found.states
        self._on_states(found.states)
        if found.order is None:
            return False
        footprints, residues = part.run(found.order)
        self.order[start:end] = [window[local] for local in found.order]
        self.footprints[start:end], self._residues[start:end] = footprints, residues
        for place in range(start, start + len(window)):
            self._position[self.order[place]] = place
        return True


def _starts(step: int, size: int, count: int) -> list[int]:
    """Return where windows of ``size`` begin that hold ``step`` in the middle, late and early."""
    places = (step - size // 2, step - size + 1 + size // 8, step - size // 8)
    return list(dict.fromkeys(max(0, min(place, count - size)) for place in places))
