"""From a rewrite to a model that is written, read back and placed, whatever it is that is rewritten.

A rewritten model is written first in the order in which it was made, and read back. From then on it is a model like
any other: it gets orders and addresses, and what is reported is what its file does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Generic

from memsched.commands.optimize.ahead import AheadRewrite, ModelsAhead
from memsched.commands.optimize.candidates import Lookout, fewest, one_meets, try_points
from memsched.commands.optimize.looks import Looks
from memsched.commands.optimize.making import ModelMaker, RewrittenModel, StoredPlan, WrittenModel
from memsched.commands.optimize.place import GivenUpError, ModulePlan, Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import Maker, Part, Rewrite, RewriteBase, RewritePoint
from memsched.commands.optimize.worth import LEAST_GAIN
from memsched.errors import InternalError, ModelError
from memsched.frozen import FrozenValue

__all__ = ["RewriteResult", "RewriteRun", "RewrittenModel", "attempt", "rank"]

_PLACING_WORK = 0.05
"""Share of the limit of work for the order and the addresses of one model: most are proven with far less."""

_LOOK_SHARE = 0.5
"""The same of the work for the models of a look."""

_TIMED_LOOK = 4.0
"""How many times as much work that may be where time alone is the limit, so that nothing is set aside for others."""

_SMALL_SECONDS = 1.0
"""For the order and the addresses of a small model at least: they end by themselves, nearly always long before."""


class RewriteResult(FrozenValue, frozen=True):
    """The result of a rewrite.

    Attributes:
        model: None where none requires less.
        extra_work: Of the model, as a part of the work of the graph that it was made from.
        rewrites: The report's sections.
    """

    model: RewrittenModel | None
    extra_work: Fraction
    rewrites: Rewrites


def rank(placed: ModulePlan, work: Fraction | int, budget: int | None) -> tuple[bool, tuple[Fraction | int, ...]]:
    """Return what is less for the better of two: the work of what meets the budget, the bytes of what does not."""
    met = budget is not None and placed.required <= budget
    least = (*placed.requirement.rank, placed.allocation.arena)
    return (not met, (work, *least) if met else (*least, work))


class RewriteRun(Generic[Part]):
    """A search for one kind of rewrite, which may be left and taken up again, and the best model of it so far.

    Args:
        base: The model as it is; a result requires less.
        percent: Extra work permitted, of the model's.
        budget: Bytes that the model may require.
        what: The rewrite in words, for a failure.
    """

    def __init__(
        self,
        make: Maker[Part],
        base: RewriteBase,
        request: Request,
        *,
        percent: float,
        budget: int | None,
        what: str = "a rewrite",
    ) -> None:
        self._base, self._budget, self._what = base, budget, what
        self._search: tuple[Rewrite[Part], _Models[Part]] | None = None
        self._failed = True
        with request.failures.left_out(what):
            rewrite = make(base, request, percent, budget)
            self._search = rewrite, _Models(rewrite, base, request, budget)
            self._failed = False

    def go_on(self, request: Request, *, until_met: bool) -> None:
        """Search on within ``request``, and make models of what is found.

        Args:
            until_met: As without a budget, and no longer than until a model meets it, by whatever work.
        """
        if self._search is None or self._failed:
            return
        rewrite, models = self._search
        self._failed = True
        with request.failures.left_out(self._what):
            rewrite.resume(request)
            models.request = request
            with models.made_ahead(rewrite):
                self._search_on(rewrite, models, request, until_met=until_met)
            self._failed = False

    def _search_on(self, rewrite: Rewrite[Part], models: _Models[Part], request: Request, *, until_met: bool) -> None:
        lookout = None
        if until_met and self._budget is not None:
            lookout = Lookout[RewritePoint[Part]](self._budget, models.one_meets)
        while True:
            begun = request.run.clock()
            try:
                points = rewrite.search(models.meets, lookout)
                begun = request.run.clock()
                models.look(request, rewrite.looks)
                models.take_best(points)
            except UnwritableError as error:
                models.look(request, None)
                over = models.over()
                rewrite.drop(error.reasons, last=over)
                if not over:
                    continue
            models.look(request, None)
            goes_on = rewrite.goes_on(max(request.run.clock() - begun, models.seconds))
            if models.over() or not goes_on or (lookout is not None and models.met):
                return

    @property
    def finished(self) -> bool:
        """Whether nothing was left to search for."""
        return self._search is None or self._failed or self._search[0].finished

    def settled(self, request: Request) -> bool:
        """Whether nothing is left to look for: the budget is met for nothing, or the time is up."""
        if self._search is None or self._failed:
            return True
        models = self._search[1]
        models.request = request
        return models.over() or (models.met and not models.least_work)

    def result(self, before: Rewrites, *, ties: bool = False, anyway: bool = False) -> RewriteResult:
        """Return the result so far, beside what is reported of earlier rewrites.

        Args:
            ties: A model that requires as much as the one it was made from is a result, too.
            anyway: One that requires more is, too.
        """
        if self._search is None:
            return RewriteResult(None, Fraction(0), before)
        rewrite, models = self._search
        model, used = models.taken or (None, None)
        if model is None and self._failed:
            return RewriteResult(None, Fraction(0), before)
        least = self._base.placed.requirement.weight + ties
        if model is None or used is None or (model.placed.requirement.weight >= least and not anyway):
            return RewriteResult(None, Fraction(0), rewrite.describe(before, None, 0))
        return _result(rewrite, model, used, before)

    def fewer(self, before: Rewrites) -> Iterator[RewriteResult]:
        """Yield results that save as much as the best one, half as much, and so on, with as little done as needed."""
        if self._search is None:
            return
        rewrite, models = self._search
        for model, used in models.fewer():
            if model.placed.requirement.weight < self._base.placed.requirement.weight:
                yield _result(rewrite, model, used, before)


def _result(rewrite: Rewrite[Part], model: RewrittenModel, used: RewritePoint[Part], before: Rewrites) -> RewriteResult:
    work = Fraction(used.work, rewrite.total) if rewrite.total else Fraction(0)
    return RewriteResult(model, work, rewrite.describe(before, used, model.extra_macs))


def attempt(
    make: Maker[Part], base: RewriteBase, request: Request, placing: Request, *, percent: float
) -> RewrittenModel | None:
    """Return the model of the least peak that one search until ``request`` ends finds; None where it finds none.

    It is written, read back and placed as `RewriteRun` does it, within the limits of ``placing``.
    """
    rewrite = make(base, request, percent, None)
    points = [point for point in rewrite.search_out() if rewrite.parts(point.way)]
    models = _Models(rewrite, base, placing, None, hurried=True)
    with contextlib.suppress(UnwritableError):
        models.take_best(points[-1:])
    return models.taken[0] if models.taken is not None else None


class UnwritableError(Exception):
    """Parts of a way that no file could be written with, each with the reason."""

    def __init__(self, reasons: Mapping[tuple[Any, ...], str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


class _Models(Generic[Part]):
    """The models that points of a search become.

    Attributes:
        request: How their orders and addresses are to be found.
        taken: The best so far, with its point.
    """

    def __init__(
        self,
        rewrite: Rewrite[Part],
        base: RewriteBase,
        request: Request,
        budget: int | None,
        *,
        hurried: bool = False,
    ) -> None:
        self._rewrite, self._base, self._maker = rewrite, base, ModelMaker(rewrite, base, budget)
        self.request, self._budget = request, budget
        self._unhurried = rewrite.small and not hurried
        self._work: float | None = None
        self._whole = request
        # The last one is most often the next one, too.
        self._written: tuple[tuple[Part, ...], WrittenModel] | None = None
        self._stored: tuple[tuple[Part, ...], StoredPlan] | None = None
        self._told_last: tuple[Part, ...] | None = None
        self._placed: tuple[tuple[Part, ...], RewrittenModel] | None = None
        self._at_most: dict[tuple[Part, ...], int] = {}
        self._requires: dict[tuple[Part, ...], int] = {}
        self._ahead: ModelsAhead[Part] | None = None
        self._look: tuple[Sequence[RewritePoint[Part]], Looks] | None = None
        self.taken: tuple[RewrittenModel, RewritePoint[Part]] | None = None

    def look(self, request: Request, looks: Looks | None) -> None:
        """Make models within ``request`` from now on; of ``looks``, with what is theirs alone."""
        self._whole = request
        self._work, self.request = _of_look(request, looks)

    @contextlib.contextmanager
    def made_ahead(self, rewrite: Rewrite[Part]) -> Iterator[None]:
        """Make models in other processes meanwhile, where the run has several workers."""
        request = self.request

        def asked(looks: Looks) -> tuple[Request, Request]:
            work, within = _of_look(request, looks)
            within = within.as_optional()
            return within, self._for_one(request.as_optional(), work)

        if isinstance(rewrite, AheadRewrite) and ModelsAhead.permitted(self._base, request.run):
            self._ahead = ModelsAhead(
                rewrite,
                self._base,
                self._budget,
                request.run.limits.workers,
                asked,
                self._at_most,
                self._requires,
            )
        try:
            yield
        finally:
            ahead, self._ahead, self._look = self._ahead, None, None
            if ahead is not None:
                ahead.close()

    @property
    def seconds(self) -> float:
        """What the making of one model took elsewhere, at the most."""
        return self._ahead.seconds if self._ahead is not None else 0.0

    @property
    def met(self) -> bool:
        """Whether the best one meets the budget."""
        return self.taken is not None and self._budget is not None and self.taken[0].placed.required <= self._budget

    def over(self) -> bool:
        """Whether no further model may be made."""
        return self.request.stopped() if self._unhurried else self.request.over()

    def take_best(self, points: Sequence[RewritePoint[Part]]) -> None:
        """Take the model with the least work that meets the budget, or that requires least, if it is a better one.

        Args:
            points: With rising work and falling peaks.

        Raises:
            UnwritableError: Parts of one of them cannot be written.
        """
        looks = self._rewrite.looks
        if self._ahead is not None and looks is not None and self._told is not None:
            self._look = points, looks
            self._ahead.plan(points, looks)
        try:
            with contextlib.suppress(GivenUpError):
                try_points(points, self._budget, self._make, at_most=self._told, over=self.over)
        finally:
            if self._ahead is not None:
                self._ahead.over()

    def one_meets(self, points: Sequence[RewritePoint[Part]]) -> bool:
        """Take the model with little work that is sure to meet the budget; return whether there is one.

        Where parts cannot be written there is none: what is to be done about that is decided without the budget.
        """
        with contextlib.suppress(GivenUpError, UnwritableError):
            if self._budget is not None:
                return one_meets(points, self._budget, self._make, at_most=self._told, over=self.over)
        return False

    @property
    def _told(self) -> Callable[[RewritePoint[Part]], int] | None:
        return self._required_at_most if self._rewrite.told_as_stored else None

    @property
    def least_work(self) -> int:
        """The extra work of the best one."""
        return self.taken[1].work if self.taken is not None else 0

    def fewer(self) -> Iterator[tuple[RewrittenModel, RewritePoint[Part]]]:
        """Yield models that save as much as the best one, half as much, and so on, with as few and coarse parts."""
        if self.taken is None:
            return
        request = self._whole.as_optional(needed=True)
        known: dict[tuple[Part, ...], float] = {}

        def requires(chosen: Sequence[tuple[Part, ...]]) -> float:
            way = _joined(chosen)
            if way not in known:
                known[way] = math.inf
                with contextlib.suppress(InternalError, ModelError):
                    known[way], work = self._told_here(self._maker.written(way, request), way, request)
                    request.run.spend(work)
            return known[way]

        given, parts = self._base.placed.requirement.weight, self._rewrite.parts(self.taken[1].way)
        saved = given - self.taken[0].placed.requirement.weight
        way = self.taken[1].way
        while parts and saved >= LEAST_GAIN * given and not request.late():
            parts, saved, last = fewest(parts, given - saved, requires, self._rewrite.coarser), saved // 2, way
            way = _joined(parts)
            if way == last:
                continue
            with contextlib.suppress(InternalError, ModelError):
                made, work = self._maker.model(way, self._maker.written(way, request), request)
                request.run.spend(work + made.work)
                # Parts that can be done alone add multiply-accumulates and no other work.
                yield made, RewritePoint(made.placed.plans[0].schedule.peak, made.extra_macs, made.extra_macs, way)

    def meets(self, point: RewritePoint[Part]) -> bool:
        """Return whether the point's model requires what the budget permits; True where the time is up, too."""
        if self._budget is None:
            return False
        try:
            told = self._rewrite.told_as_stored
            return (self._required_at_most(point) if told else self._model(point).placed.required) <= self._budget
        except GivenUpError:
            return True
        except UnwritableError:
            self._at_most[point.way] = sys.maxsize
            return False

    def _for_one(self, request: Request, work: float | None) -> Request:
        """Return a request for the order and the addresses of one model, of a look with so much work."""
        share = self._rewrite.share
        if work is None:
            timed = request.run.limits.time_limit is not None
            return request.within(share if timed else min(share, _PLACING_WORK))
        if request.effort() is None:
            return request.within(share).taking(_TIMED_LOOK * work)
        return request.taking(_LOOK_SHARE * work)

    def _make(self, point: RewritePoint[Part]) -> int:
        if point.way not in self._requires:
            made = self._model(point)
            self._requires[point.way] = made.placed.requirement.weight
            if self.taken is None or self._rank(made, point) < self._rank(*self.taken):
                self.taken = made, point
        return self._requires[point.way]

    def _rank(self, made: RewrittenModel, point: RewritePoint[Part]) -> tuple[bool, tuple[Fraction | int, ...]]:
        return rank(made.placed, point.work, self._budget)

    def _request(self, request: Request | None = None) -> Request:
        request = request or self.request
        return _unhurried(request) if self._unhurried else request.as_optional(needed=self.taken is None)

    def _required_at_most(self, point: RewritePoint[Part]) -> int:
        """Return the bytes that the point's model requires in the order in which it is made."""
        if point.way not in self._at_most:
            request = self._request()
            told = self._ahead.required_at_most(point.way, request) if self._ahead is not None else None
            if told is None:
                begun = request.run.clock()
                told = self._told_here(self._made(point.way), point.way, request)
                if self._ahead is not None and self._look is not None:
                    self._ahead.begin(*self._look, request.run.clock() - begun)
            self._at_most[point.way], self._told_last = told[0], point.way
            request.run.spend(told[1])
        return self._at_most[point.way]

    def _told_here(self, written: WrittenModel, way: tuple[Part, ...], request: Request) -> tuple[int, float]:
        """Return the bytes that a way's model requires in the order in which it was made, and the work for them."""
        stored = self._maker.stored(written, request)
        self._stored = way, stored
        return self._maker.at_most(written, stored, request), written.work + stored.work

    def _model(self, point: RewritePoint[Part]) -> RewrittenModel:
        if self._placed is None or self._placed[0] != point.way:
            # As much for each that is made of a look: then it does not depend on what others took.
            request = self._for_one(self._request(None if self._work is None else self._whole), self._work)
            found = self._ahead.model(point.way, request) if self._ahead is not None else None
            if found is None:
                stored = self._stored[1] if self._stored is not None and self._stored[0] == point.way else None
                found = self._maker.model(point.way, self._made(point.way), request, stored)
            self._placed = point.way, found[0]
            # As much in whichever process: here the one told last is not written again.
            request.run.spend(found[1] + (0.0 if self._told_last == point.way else found[0].work))
        return self._placed[1]

    def _made(self, way: tuple[Part, ...]) -> WrittenModel:
        if self._written is None or self._written[0] != way:
            request = self._request()
            try:
                self._written = way, self._maker.written(way, request)
            except (InternalError, ModelError) as error:
                raise UnwritableError(self._at_fault(way, _said(error), request)) from None
        return self._written[1]

    def _at_fault(self, way: tuple[Part, ...], reason: str, request: Request) -> Mapping[tuple[Part, ...], str]:
        """Return those parts of a way that cannot be written, alone or beside the others; all of it at the least."""
        parts = self._rewrite.parts(way)
        if len(parts) < 2:
            return {way: reason}
        good: tuple[Part, ...] = ()
        reasons: dict[tuple[Part, ...], str] = {}
        for part in parts:
            found = self._reason((*good, *part), request)
            if found is None:
                good = (*good, *part)
            else:
                reasons[part] = found
        return reasons or {way: reason}

    def _reason(self, way: tuple[Part, ...], request: Request) -> str | None:
        """Return why a model cannot be written; None where it can."""
        try:
            self._maker.file(way, request)
        except (InternalError, ModelError) as error:
            return _said(error)
        return None


def _joined(parts: Sequence[tuple[Part, ...]]) -> tuple[Part, ...]:
    return tuple(one for part in parts for one in part)


def _said(error: InternalError | ModelError) -> str:
    """Return why a model cannot be written; whose fault it is, too."""
    return f"a defect of memsched, please report it: {error}" if isinstance(error, InternalError) else str(error)


def _of_look(request: Request, looks: Looks | None) -> tuple[float | None, Request]:
    """Return the work for the models of a look, and a request for them: with a limit of work, that alone."""
    work = looks.work if looks is not None and looks.fixed else None
    return work, request if work is None or request.effort() is None else request.taking(work)


def _unhurried(request: Request) -> Request:
    """Return a request for a small model that is rewritten, which has a second of its own for order and addresses."""
    asked = request.as_optional(needed=True)
    run = dataclasses.replace(asked.run, stop=request.run.stop)
    if run.limits.time_limit is not None:
        left = max(request.remaining(), _SMALL_SECONDS)
        run = dataclasses.replace(run, limits=dataclasses.replace(run.limits, time_limit=run.elapsed() + left))
    return dataclasses.replace(asked, run=run)
