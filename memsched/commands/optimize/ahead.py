"""Models made in other processes before they are asked for, of what a search has found and of what it finds meanwhile.

Nothing that is found depends on it: a model is a pure function of its way and of the work that it may take, and is used
only where it is asked for with as much. Whatever is missing, or was lost with its process, is made where it is needed.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, runtime_checkable

from memsched.commands.optimize.candidates import told_first
from memsched.commands.optimize.looks import Looks
from memsched.commands.optimize.making import ModelMaker, RewrittenModel, WayBuilder
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.rewrite import Part, RewriteBase, RewritePoint
from memsched.search.run import Run
from memsched.search.workers import shared_number, submitted, worker_pool

__all__ = ["AheadRewrite", "ModelsAhead"]

_POLL_SECONDS = 0.05

_MOST_BYTES = 2**27
"""Weights of a model that every process may hold, and every result."""

_WORTH_SECONDS = 1.5
"""How long what is known to be made has to take in one process before others are started."""

_LAST = 2**62
"""A look that there is none of: what is for it is made until all ends."""

_Kind = Literal["at most", "model"]
_Key = tuple[_Kind, Any, float | None]


@runtime_checkable
class AheadRewrite(Protocol[Part]):
    """A `Rewrite` whose search can go on before models of what it returned last are made."""

    def builder(self) -> WayBuilder[Part]:
        """Return what builds its graphs in another process."""

    def goes_ahead(self) -> bool:
        """Return whether there is something to search for now."""

    def go_ahead(self) -> tuple[Looks, Sequence[RewritePoint[Part]]] | None:
        """Search on for a moment; return the next look and what it is at, once there is one."""


@dataclass(slots=True)
class _MakingCall:
    """A call of `ModelMaker` in another process.

    Attributes:
        look: The number of the earliest look that it is for.
        until: How many looks are over when nobody will ask for it any more.
        future: None where it waits for a process.
    """

    kind: _Kind
    way: tuple[Any, ...]
    request: Request
    look: int
    until: int = _LAST
    future: Future[Any] | None = None

    @property
    def done(self) -> bool:
        return self.future is not None and self.future.done()

    def result(self) -> Any:
        """Return what was found; None where there is nothing, as it cannot be made or its process died."""
        if self.future is None or self.future.cancelled() or self.future.exception() is not None:
            return None
        return self.future.result()


@dataclass(slots=True)
class _MakingCrew:
    """Processes that hold a model, and what they are to do, the earliest looks first."""

    pool: ProcessPoolExecutor
    ended: Any
    most: int
    waiting: list[tuple[int, int, _MakingCall]] = field(default_factory=list)
    running: list[_MakingCall] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def want(self, one: _MakingCall) -> None:
        heapq.heappush(self.waiting, (one.look, next(self._numbers), one))
        self.feed()

    def feed(self) -> None:
        """Give processes that have nothing to do the next call."""
        self.running = [one for one in self.running if not one.done]
        while self.waiting and len(self.running) < self.most:
            one = heapq.heappop(self.waiting)[2]
            if one.future is not None:
                continue
            one.future = submitted(self.pool, _make, one.kind, one.way, one.request, one.until)
            self.running.append(one)

    def close(self) -> None:
        self.ended.value = _LAST
        self.waiting.clear()
        # None is killed: one that sends a result would leave the other end waiting for ever.
        self.pool.shutdown(cancel_futures=True)


class ModelsAhead(Generic[Part]):
    """Makes models for one `RewriteRun`.

    Args:
        budget: Bytes that a model may require; then nothing is searched for ahead, as what is found decides.
        asked: Returns the requests for telling what models of a look require at most, and for one of its models.
        told: What models of ways were found to require at most.
        required: What those that were made require.

    Attributes:
        seconds: What the making of one model took at the most.
    """

    def __init__(
        self,
        rewrite: AheadRewrite[Part],
        base: RewriteBase,
        budget: int | None,
        workers: int,
        asked: Callable[[Looks], tuple[Request, Request]],
        told: Mapping[tuple[Part, ...], int],
        required: Mapping[tuple[Part, ...], int],
    ) -> None:
        self._rewrite, self._base, self._budget, self._workers = rewrite, base, budget, workers
        self._asked, self._told, self._required = asked, told, required
        self._crew: _MakingCrew | None = None
        self._wanted: dict[_Key, _MakingCall] = {}
        self._first: dict[tuple[_Kind, Any], _MakingCall] = {}
        self._plans: list[Generator[None, None, None]] = []
        self._looks = self._over = 0
        self._perhaps: list[_Key] = []
        self.seconds = 0.0

    @staticmethod
    def permitted(base: RewriteBase, run: Run) -> bool:
        """Return whether there may be other processes: the clock has to be theirs, too."""
        return run.limits.workers > 1 and base.module.weights_bytes <= _MOST_BYTES and run.timed_by_system()

    def begin(self, points: Sequence[RewritePoint[Part]], looks: Looks, seconds: float) -> None:
        """Start processes for a look, if that is worth the while.

        Args:
            seconds: What it took to tell what one model requires at most.
        """
        further = self._rewrite.goes_ahead() if self._budget is None else False
        if (
            self._crew is None
            and seconds * len(told_first(points, self._budget)) * (2 if further else 1) >= _WORTH_SECONDS
        ):
            ended = shared_number()
            held = (self._rewrite.builder(), self._base, self._budget, ended)
            self._crew = _MakingCrew(worker_pool(self._workers, _hold, held), ended, self._workers + 1)
            self.plan(points, looks)

    def over(self) -> None:
        """Make nothing more that only the look that is over could have asked for."""
        for key in self._perhaps:
            self._wanted.pop(key, None)
            self._first.pop(key[:2], None)
        self._perhaps.clear()
        self._over += 1
        if self._crew is not None:
            self._crew.ended.value = max(self._crew.ended.value, self._over)

    def plan(self, points: Sequence[RewritePoint[Part]], looks: Looks, *, now: bool = True) -> None:
        """Make what is likely to be asked for of the points of a look; nothing before `begin`.

        Args:
            now: It is this look that models are made for now, and not one ahead.
        """
        if self._crew is not None and points:
            self._plans.append(self._plan(self._looks, points, *self._asked(looks), now=now))
            self._looks += 1
            self._go_on_with_plans()

    def required_at_most(self, way: tuple[Part, ...], request: Request) -> tuple[int, float] | None:
        """Return what `ModelMaker.at_most` does, and the work; None where it has to be found here."""
        found: tuple[int, float] | None = self._result("at most", way, request)
        return found

    def model(self, way: tuple[Part, ...], request: Request) -> tuple[RewrittenModel, float] | None:
        """Return what `ModelMaker.model` does; None where it has to be made here."""
        found = self._result("model", way, request)
        if found is None:
            return None
        made: tuple[RewrittenModel, float] = found[0]
        self.seconds = max(self.seconds, found[1])
        return made

    def close(self) -> None:
        """End the processes."""
        crew, self._crew = self._crew, None
        self._plans.clear()
        self._wanted.clear()
        self._first.clear()
        if crew is not None:
            crew.close()

    def _result(self, kind: _Kind, way: tuple[Part, ...], request: Request) -> Any:
        crew = self._crew
        if crew is None:
            return None
        # What is asked for is of the earliest look that there is.
        one = self._want(-1, kind, way, request, exactly=True)
        while not one.done:
            if request.stopped():
                crew.ended.value = _LAST
            crew.feed()
            self._go_on_with_plans()
            if not self._search_on() and one.future is not None and not one.done:
                wait([one.future], timeout=_POLL_SECONDS)
        crew.feed()
        # Models are large, and used once.
        self._wanted.pop((kind, way, request.run.effort()), None)
        self._first.pop((kind, way), None)
        return one.result()

    def _search_on(self) -> bool:
        """Search for a moment, if there is anything to search for."""
        if self._budget is not None or not self._rewrite.goes_ahead():
            return False
        found = self._rewrite.go_ahead()
        if found is not None:
            self.plan(found[1], found[0], now=False)
        return True

    def _want(
        self,
        look: int,
        kind: _Kind,
        way: tuple[Part, ...],
        request: Request,
        *,
        exactly: bool = False,
        until: int = _LAST,
    ) -> _MakingCall:
        """Return a call that was made before, with as much work where it has to be ``exactly`` so, or a new one."""
        key = kind, way, request.run.effort()
        one = self._wanted.get(key) or (None if exactly else self._first.get((kind, way)))
        if one is None or (look < one.look and one.future is None):
            one = one or _MakingCall(kind, way, _portable(request), look, until)
            one.look = look
            self._wanted[key] = one
            self._first.setdefault((kind, way), one)
            if self._crew is not None:
                self._crew.want(one)
        return one

    def _plan(
        self, look: int, points: Sequence[RewritePoint[Part]], telling: Request, making: Request, *, now: bool
    ) -> Generator[None, None, None]:
        """Want what `try_points` will ask for; it yields while it waits for what decides that."""
        ways = [points[number].way for number in told_first(points, self._budget)]
        asked = {way: self._want(look, "at most", way, telling) for way in ways if way not in self._told}
        if self._budget is not None:
            return
        known: dict[tuple[Part, ...], int] = {}
        for way in ways:
            while way not in self._told and not asked[way].done:
                yield
            told = (self._told[way],) if way in self._told else asked[way].result()
            if told is None:
                return
            known[way] = told[0]
        first, *others = sorted(known, key=lambda way: known[way])
        if first not in self._required:
            self._want(look, "model", first, making)
            peaks = {point.way: point.peak for point in points}
            # Whether another one is made depends on what the first one requires.
            perhaps = next((way for way in others if peaks[way] < known[first]), None)
            if now and perhaps is not None and perhaps not in self._required:
                self._perhaps.append(("model", perhaps, making.run.effort()))
                self._want(_LAST, "model", perhaps, making, until=self._over + 1)

    def _go_on_with_plans(self) -> None:
        self._plans = [plan for plan in self._plans if next(plan, self) is None]


def _portable(request: Request) -> Request:
    """Return the request for another process, which is told by it of nothing that happens here."""
    limits = dataclasses.replace(request.run.limits, workers=1, executor=None, effort=request.run.effort())
    return dataclasses.replace(request, run=Run(limits, request.run.started), needed=False)


_held: list[tuple[ModelMaker[Any], Any]] = []
"""In a process of a crew: what makes models, and how many looks are over."""


def _hold(builder: WayBuilder[Any], base: RewriteBase, budget: int | None, ended: Any) -> None:
    _held.append((ModelMaker(builder, base, budget), ended))


def _make(kind: _Kind, way: tuple[Any, ...], request: Request, until: int) -> Any:
    maker, ended = _held[-1]
    begun = time.monotonic()
    run = dataclasses.replace(request.run, stop=lambda: bool(ended.value >= until))
    request = dataclasses.replace(request, run=run)
    written = maker.written(way, request)
    if kind == "at most":
        stored = maker.stored(written, request)
        return maker.at_most(written, stored, request), written.work + stored.work
    return maker.model(way, written, request), time.monotonic() - begun
