"""From a rewrite to a model that is written, read back and placed, whatever it is that is rewritten.

A rewritten model is written first in the order in which it was made, and read back. From then on it is a model like
any other: it gets orders and addresses, and what is reported is what its file does.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic

from memsched.commands.optimize.candidates import try_points
from memsched.commands.optimize.place import GivenUpError, ModulePlan, Request, as_stored, place, prepare_again
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import Maker, Part, Rewrite, RewriteBase, RewritePoint
from memsched.errors import InternalError, ModelError
from memsched.formats.module import Module
from memsched.graph.model import Graph
from memsched.planning.rewrite import plain, read_back, with_origins
from memsched.planning.values import TargetModule
from memsched.runtimes.known import runtime_of

__all__ = ["RewriteResult", "RewrittenModel", "apply", "attempt", "rank"]

_SMALL_SECONDS = 1.0
"""For the order and the addresses of a small model at least: they end by themselves, nearly always long before."""


@dataclass(frozen=True, slots=True)
class RewrittenModel:
    """A rewritten model, with its orders and addresses.

    Attributes:
        data: Its file, in the order in which it was made.
        extra_macs: Multiply-accumulates that the model it was made from does not have.
    """

    module: Module
    data: bytes
    prepared: TargetModule
    placed: ModulePlan
    extra_macs: int


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What came of a rewrite.

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


def apply(
    make: Maker[Part],
    base: RewriteBase,
    request: Request,
    *,
    percent: float,
    budget: int | None,
    before: Rewrites,
) -> RewriteResult:
    """Return the rewritten model that meets the budget with the least work, or that requires least.

    Args:
        percent: Extra work permitted, of the model's.
        budget: Bytes that the model may require.
        before: What is reported of rewrites that came before.
    """
    rewrite = make(base, request, percent, budget)
    models = _Models(rewrite, base, request, budget)
    while True:
        begun = request.run.clock()
        try:
            points = rewrite.search(models.meets)
            begun = request.run.clock()
            models.take_best(points)
        except UnwritableError as error:
            over = models.over()
            rewrite.drop(error.reasons, last=over)
            if not over:
                continue
        goes_on = rewrite.goes_on(met=models.met, seconds=request.run.clock() - begun)
        if models.over() or not goes_on:
            break
    model, used = models.taken or (None, None)
    if model is None or used is None or model.placed.required >= base.placed.required:
        return RewriteResult(None, Fraction(0), rewrite.describe(before, None, 0, models.read))
    work = Fraction(used.work, rewrite.total) if rewrite.total else Fraction(0)
    return RewriteResult(model, work, rewrite.describe(before, used, model.extra_macs, models.read))


def attempt(
    make: Maker[Part], base: RewriteBase, request: Request, placing: Request, *, percent: float
) -> RewrittenModel | None:
    """Return the model of the least peak that one search until ``request`` ends finds; None where it finds none.

    It is written, read back and placed as `apply` does it, within the limits of ``placing``.
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
        self._rewrite, self._base, self._plain = rewrite, base, plain(base.module)
        self._whole_request, self._budget = request, budget
        self._unhurried = rewrite.small and not hurried
        self._macs = sum(op.macs for op in rewrite.graph.ops)
        # The last one is most often the next one, too.
        self._written: tuple[tuple[Part, ...], Module, bytes, TargetModule, int] | None = None
        self._placed: tuple[tuple[Part, ...], RewrittenModel] | None = None
        self._at_most: dict[tuple[Part, ...], int] = {}
        self._requires: dict[tuple[Part, ...], int] = {}
        # Where the runtime's planner is known, what a point requires at most is told without a search.
        planned = runtime_of(base.module, base.prepared.target, request.opening).has_planner
        self._told_as_stored = planned and rewrite.told_as_stored
        self.taken: tuple[RewrittenModel, RewritePoint[Part]] | None = None

    @property
    def met(self) -> bool:
        """Whether the best one meets the budget."""
        return self.taken is not None and self._budget is not None and self.taken[0].placed.required <= self._budget

    def over(self) -> bool:
        """Whether no further model may be made."""
        return self._whole_request.stopped() if self._unhurried else self._whole_request.over()

    def take_best(self, points: Sequence[RewritePoint[Part]]) -> None:
        """Take the model with the least work that meets the budget, or that requires least, if it is a better one.

        Args:
            points: With rising work and falling peaks.

        Raises:
            UnwritableError: Parts of one of them cannot be written.
        """
        at_most = self._required_at_most if self._told_as_stored else None
        with contextlib.suppress(GivenUpError):
            try_points(points, self._budget, self._make, at_most=at_most, over=self.over)

    def meets(self, point: RewritePoint[Part]) -> bool:
        """Return whether the point's model requires what the budget permits; True where the time is up, too.

        Raises:
            UnwritableError: Parts of it cannot be written.
        """
        if self._budget is None:
            return False
        try:
            told = self._told_as_stored
            return (self._required_at_most(point) if told else self._model(point).placed.required) <= self._budget
        except GivenUpError:
            return True

    def read(self, graph: Graph) -> Module:
        """Return ``graph`` as it is read back from a file of it; raises as `read_back` does."""
        return read_back(self._plain, graph, self._base.options, self._base.prepared.target)[0]

    def _make(self, point: RewritePoint[Part]) -> int:
        if point.way not in self._requires:
            made = self._model(point)
            self._requires[point.way] = made.placed.required
            if self.taken is None or self._rank(made, point) < self._rank(*self.taken):
                self.taken = made, point
        return self._requires[point.way]

    def _rank(self, made: RewrittenModel, point: RewritePoint[Part]) -> tuple[bool, tuple[Fraction | int, ...]]:
        return rank(made.placed, point.work, self._budget)

    def _request(self) -> Request:
        if self._unhurried:
            return _unhurried(self._whole_request)
        return self._whole_request.as_optional(needed=self.taken is None)

    def _required_at_most(self, point: RewritePoint[Part]) -> int:
        """Return the bytes that the point's model requires in the order in which it is made."""
        if point.way not in self._at_most:
            again, _, anew, _ = self._made(point.way)
            self._at_most[point.way] = as_stored(again, anew, self._request()).required
        return self._at_most[point.way]

    def _model(self, point: RewritePoint[Part]) -> RewrittenModel:
        if self._placed is None or self._placed[0] != point.way:
            again, data, anew, extra = self._made(point.way)
            placed = place(again, anew, self._request().within(self._rewrite.share))
            self._placed = point.way, RewrittenModel(again, data, anew, placed, extra)
        return self._placed[1]

    def _made(self, way: tuple[Part, ...]) -> tuple[Module, bytes, TargetModule, int]:
        if self._written is None or self._written[0] != way:
            request = self._request()
            request.go_on()
            try:
                again, data, extra = self._file(way, request)
            except (InternalError, ModelError) as error:
                raise UnwritableError(self._at_fault(way, str(error), request)) from None
            request.go_on()
            self._written = way, again, data, prepare_again(again, self._base.prepared, request), extra
        return self._written[1:]

    def _file(self, way: tuple[Part, ...], request: Request) -> tuple[Module, bytes, int]:
        graph = self._rewrite.build(way)
        request.go_on()
        base = self._base
        again, data = read_back(self._plain, graph, base.options, base.prepared.target, request.go_on)
        if self._plain is not base.module:
            again = with_origins(again, base.module)
        return again, data, sum(op.macs for op in graph.ops) - self._macs

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
            self._file(way, request)
        except (InternalError, ModelError) as error:
            return str(error)
        return None


def _unhurried(request: Request) -> Request:
    """Return a request for a small model that is rewritten, which has a second of its own for order and addresses."""
    asked = request.as_optional(needed=True)
    run = dataclasses.replace(asked.run, stop=request.run.stop)
    if run.limits.time_limit is not None:
        left = max(request.remaining(), _SMALL_SECONDS)
        run = dataclasses.replace(run, limits=dataclasses.replace(run.limits, time_limit=run.elapsed() + left))
    return dataclasses.replace(asked, run=run)
