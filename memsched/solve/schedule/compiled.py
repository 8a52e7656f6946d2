"""The threshold search of `threshold`, compiled: the same states, thresholds and orders, many times faster."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from memsched.base.units import LARGEST_INT64, MOST_BYTES
from memsched.core.library import Core, library
from memsched.graph.dag import bitset
from memsched.solve.schedule.events import Events, find_events
from memsched.solve.schedule.moves import Moves
from memsched.solve.schedule.threshold import ThresholdSearch

__all__ = ["CompiledThresholdSearch", "DirectedSearch", "directed_search"]

_MOST_TASKS = Core.WORD_BITS * Core.WORDS[-1]

_ENDINGS = ("paused", "found", "exhausted", "stopped", "no memory", "failed")
_UNKNOWN = -LARGEST_INT64 - 1

_Excess = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int32, ctypes.c_uint64)
_Stop = ctypes.CFUNCTYPE(ctypes.c_int32)


class DirectedSearch(Protocol):
    """A threshold search in one direction that can be paused and continued; see `ThresholdSearch`."""

    @property
    def states(self) -> int:
        """The states expanded so far."""

    @property
    def threshold(self) -> int:
        """The threshold under which all is exhausted below it, bytes."""

    def run(self, threshold: int, upper_bound: int | None, budget: int, stop: Callable[[], bool]) -> str:
        """Expand up to ``budget`` states and return how that ended."""

    def path(self) -> tuple[int, ...]:
        """Return the tasks in the order in which this direction took them, after "found"."""


def directed_search(moves: Moves, residue: int) -> DirectedSearch:
    """Return a search of ``moves`` from ``residue``, compiled where there is a core and the moves are not too large."""
    core = library()
    if core is None or not _fits(moves, residue):
        return ThresholdSearch(moves, residue, find_events(moves))
    return CompiledThresholdSearch(moves, residue, find_events(moves), core)


def _fits(moves: Moves, residue: int) -> bool:
    total = residue + sum(size for shared in moves.shared for _, size in shared) + sum(map(abs, moves.change))
    few = all(len(shared) <= Core.WORD_BITS - 1 for shared in moves.shared)
    return 0 < len(moves.needs) <= _MOST_TASKS and few and total < MOST_BYTES


class _OrderProblem(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("tasks", "words", "last_reader")),
        *((name, ctypes.c_void_p) for name in ("needs", "after", "risers", "shared_begin", "others", "sizes")),
        *((name, ctypes.c_void_p) for name in ("change", "rise", "above", "needed", "meeting_begin", "meeting")),
        ("residue", ctypes.c_int64),
        ("excess", _Excess),
        ("stop", _Stop),
    )


class CompiledThresholdSearch:
    """A threshold search in one direction by the compiled core; see `ThresholdSearch`.

    Raises:
        MemoryError: There is no room for it.
    """

    def __init__(self, moves: Moves, residue: int, events: Events, core: ctypes.CDLL) -> None:
        self._core, self._moves, self._residue, self._events = core, moves, residue, events
        self._stop: Callable[[], bool] = lambda: False
        self._raised: BaseException | None = None
        # The core keeps no reference to what it calls.
        self._called = (_Excess(self._excess), _Stop(self._asked))
        problem, kept = _problem(moves, residue, events, *self._called)
        core.memsched_threshold_new.restype = ctypes.c_void_p
        self._handle = core.memsched_threshold_new(ctypes.byref(problem))
        del kept
        if not self._handle:
            raise MemoryError

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._core.memsched_threshold_free(ctypes.c_void_p(self._handle))

    @property
    def states(self) -> int:
        """The states expanded so far."""
        return self._asked_of("states", ctypes.c_int64)

    @property
    def threshold(self) -> int:
        """The threshold under which all is exhausted below it, bytes."""
        return self._asked_of("threshold", ctypes.c_int64)

    def run(self, threshold: int, upper_bound: int | None, budget: int, stop: Callable[[], bool]) -> str:
        """Expand up to ``budget`` states and return how that ended; see `ThresholdSearch.run`.

        Raises:
            MemoryError: The states have no room.
        """
        self._stop = stop
        upper = -1 if upper_bound is None else upper_bound
        numbers = (ctypes.c_int64(one) for one in (threshold, upper, budget))
        ending = _ENDINGS[self._asked_of("run", ctypes.c_int32, *numbers)]
        if self._raised is not None:
            raise self._raised
        if ending == "no memory":
            raise MemoryError
        return ending

    def path(self) -> tuple[int, ...]:
        """Return the tasks in the order in which this direction took them, after "found"."""
        words = _words(len(self._moves.needs))
        count = self._asked_of("chain", ctypes.c_int64, None)
        room = (ctypes.c_uint64 * (count * words))()
        self._asked_of("chain", ctypes.c_int64, room)
        whole = bytes(room)
        states = [int.from_bytes(whole[at : at + 8 * words], "little") for at in range(0, len(whole), 8 * words)]
        return ThresholdSearch(self._moves, self._residue, self._events).order_along(states[::-1], self.threshold)

    def _asked_of(self, name: str, kind: Any, *arguments: object) -> int:
        function = getattr(self._core, f"memsched_threshold_{name}")
        function.restype = kind
        return int(function(ctypes.c_void_p(self._handle), *arguments))

    def _excess(self, task: int, dying: int) -> int:
        try:
            return self._moves.excess(task, dying)
        except BaseException as error:  # C++ would not pass it on.
            self._raised = error
            return _UNKNOWN

    def _asked(self) -> int:
        try:
            return int(bool(self._stop()))
        except BaseException as error:  # C++ would not pass it on.
            self._raised = error
            return 1


def _words(tasks: int) -> int:
    return next(words for words in Core.WORDS if tasks <= Core.WORD_BITS * words)


def _problem(moves: Moves, residue: int, events: Events, excess: Any, stop: Any) -> tuple[_OrderProblem, list[Any]]:
    """Return the problem as the core reads it, with the arrays that must live until it has."""
    tasks = len(moves.needs)
    words = _words(tasks)
    kept: list[Any] = []

    def kept_at(array: Any) -> int:
        kept.append(array)
        return ctypes.addressof(array)

    def sets(members: Sequence[int]) -> int:
        whole = b"".join(one.to_bytes(8 * words, "little") for one in members)
        return kept_at((ctypes.c_uint64 * (len(members) * words)).from_buffer_copy(whole))

    def begins(lists: Iterable[Sequence[object]]) -> int:
        places = list(itertools.accumulate((len(one) for one in lists), initial=0))
        return kept_at((ctypes.c_int32 * len(places))(*places))

    def numbers(values: Sequence[int]) -> int:
        return kept_at((ctypes.c_int64 * len(values))(*values))

    shared = [one for of_task in moves.shared for one in of_task]
    meeting = [one for of_task in events.meeting for one in of_task]
    return _OrderProblem(
        tasks,
        words,
        moves.last_reader,
        sets(moves.needs),
        sets([bitset(later) for later in moves.unlocks]),
        sets([events.risers]),
        begins(moves.shared),
        sets([others for others, _ in shared]),
        numbers([size for _, size in shared]),
        numbers(moves.change),
        numbers(events.rise),
        numbers(events.above),
        sets(events.needed),
        begins(meeting),
        sets([before for of_buffer in meeting for before in of_buffer]),
        residue,
        excess,
        stop,
    ), kept
