"""Models that compute some values again: the search, the file, and the same model read back from it."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from memsched.commands.optimize.candidates import try_points
from memsched.commands.optimize.place import GivenUpError, Placed, Request, place, prepare_again
from memsched.commands.optimize.tile import Rewritten, dialect_of, in_order, read_back
from memsched.errors import InternalError, ModelError
from memsched.formats.module import LoadOptions, Module
from memsched.graph.model import Graph
from memsched.planning.values import TargetModule
from memsched.remat.cost import work_of
from memsched.remat.rewrite import rematerialise
from memsched.remat.search import SMALL, RematPoint, RematResult, search
from memsched.report.values.rewrites import CopyRow, RematPointRow, RematSection
from memsched.report.values.shared import FiguresSection

__all__ = ["attempt", "frontier", "recompute"]

_NEVER = sys.maxsize
"""Bytes that a model requires which cannot be written."""

_SMALL_SECONDS = 1.0
"""For the order and the addresses of a small model at least: they end by themselves, nearly always long before."""

_SEARCH_SHARE = 0.6
"""Of the time that is left, for the search; orders and addresses of what it found take the rest."""


def frontier(
    module: Module, prepared: TargetModule, placed: Placed, request: Request, *, percent: float
) -> RematResult:
    """Return the least peaks for rising work, up to ``percent`` of the model's; takes all the time of ``request``."""
    return _search(module, prepared, placed, request, percent, None)


def recompute(
    module: Module,
    prepared: TargetModule,
    placed: Placed,
    options: LoadOptions,
    request: Request,
    *,
    percent: float,
    budget: int | None,
) -> tuple[Rewritten | None, RematSection]:
    """Return the model with some ops executed several times where that needs less, and the report's section.

    Args:
        placed: The model as it is; the result requires less, or there is none.
        percent: Extra work permitted, of the model's: multiply-accumulates and bytes moved.
        budget: Bytes that the arena may have: then the least extra work that meets it is sought.
    """
    aim, peak = budget, placed.plans[0].schedule.peak
    if budget is not None and peak <= budget < placed.required:
        # By the peak alone it would be met: what is required follows the peak down.
        aim = None
    models = _Models(module, placed, options, prepared, request, budget)
    found = _search(module, prepared, placed, request.within(_SEARCH_SHARE), percent, aim)
    models.take_best(found, percent)
    complete = found.settled and (found.best.cost > 0 or not found.met)
    if aim is not None and not complete and not models.met and not models.over():
        # As for every other budget: what one of them leads to, a larger one does, too.
        found = _search(module, prepared, placed, request.within(_SEARCH_SHARE), percent, None)
        models.take_best(found, percent)
    best, used = models.taken if models.taken is not None else (None, None)
    if best is None or best.placed.required >= placed.required:
        best = used = None
    return best, _section(module.graphs[0], found, used, placed, percent, models.refused)


class _Models:
    """The models that points of a search become.

    Attributes:
        taken: The best so far, with its point.
        refused: Why models could not be written, or read back, each reason once.
    """

    def __init__(
        self,
        module: Module,
        placed: Placed,
        options: LoadOptions,
        prepared: TargetModule,
        request: Request,
        budget: int | None,
    ) -> None:
        self._module, self._options, self._prepared = module, options, prepared
        self._request, self._budget = request, budget
        self._peak = placed.plans[0].schedule.peak
        self._graph = in_order(_plain(module).graphs[0], placed.plans[0].schedule.order)
        # What was searched in full is written in full, however little time there is: it takes next to none.
        self._small = len(self._graph.ops) <= SMALL
        self._requires: dict[tuple[int, ...], int] = {}
        self.taken: tuple[Rewritten, RematPoint] | None = None
        self.refused: list[str] = []

    @property
    def met(self) -> bool:
        """Whether the best one meets the budget."""
        return self.taken is not None and self._meets(self.taken[0].placed.required)

    def over(self) -> bool:
        """Whether no further model may be made."""
        return self._request.stopped() if self._small else self._request.over()

    def take_best(self, found: RematResult, percent: float) -> None:
        """Take the model with the least work that meets the budget, or that requires least, if it is a better one."""
        most = percent / 100 * found.total
        # Where the time was too short for the best order, the search may know a better one that costs nothing.
        points = [point for point in found.frontier if point.cost <= most and point.peak < self._peak]
        with contextlib.suppress(GivenUpError):
            try_points(points, self._budget, self._make, over=self.over)

    def _make(self, point: RematPoint) -> int:
        if point.sequence not in self._requires:
            needed = self.taken is None
            asked = _unhurried(self._request) if self._small else self._request.as_optional(needed=needed)
            try:
                done = _rewritten(self._module, self._graph, point, self._options, self._prepared, asked)
            except (InternalError, ModelError) as error:
                if str(error) not in self.refused:
                    self.refused.append(str(error))
                self._requires[point.sequence] = _NEVER
                return _NEVER
            self._requires[point.sequence] = done.placed.required
            if self.taken is None or self._rank(done, point) < self._rank(*self.taken):
                self.taken = done, point
        return self._requires[point.sequence]

    def _rank(self, done: Rewritten, point: RematPoint) -> tuple[bool, int, int]:
        required = done.placed.required
        return (False, point.cost, required) if self._meets(required) else (True, required, point.cost)

    def _meets(self, required: int) -> bool:
        return self._budget is not None and required <= self._budget


def attempt(
    module: Module,
    prepared: TargetModule,
    placed: Placed,
    options: LoadOptions,
    request: Request,
    placing: Request,
    *,
    percent: float,
) -> Rewritten | None:
    """Return the model with the repetitions that are found until ``request`` ends; None where that is none.

    What is found is written, read back and placed as `recompute` does it, within the limits of ``placing``.
    """
    found = _search(module, prepared, placed, request, percent, None)
    graph = in_order(_plain(module).graphs[0], placed.plans[0].schedule.order)
    if len(found.best.sequence) <= len(graph.ops):
        return None
    with contextlib.suppress(InternalError, ModelError):
        return _rewritten(module, graph, found.best, options, prepared, placing)
    return None


def _unhurried(request: Request) -> Request:
    """Return a request for a small model that is rewritten, which has a second of its own for order and addresses."""
    asked = request.as_optional(needed=True)
    run = replace(asked.run, stop=request.run.stop)
    if run.limits.time_limit is not None:
        left = max(request.remaining(), _SMALL_SECONDS)
        run = replace(run, limits=replace(run.limits, time_limit=run.elapsed() + left))
    return replace(asked, run=run)


def _search(
    module: Module, prepared: TargetModule, placed: Placed, request: Request, percent: float, budget: int | None
) -> RematResult:
    plan = placed.plans[0]

    return search(
        _plain(module).graphs[0],
        plan.schedule.order,
        prepared.target,
        dialect_of(module, prepared.target),
        request.run,
        budget=budget,
        most_extra=percent / 100,
    )


def _plain(module: Module) -> Module:
    """Return ``module``, which may have been rewritten before, as a model that is given."""
    graph = module.graphs[0]
    ops = tuple(replace(op, origin=None, region=None) for op in graph.ops)
    return replace(module, graphs=(replace(graph, ops=ops), *module.graphs[1:]))


def _with_origins(again: Module, before: Module) -> Module:
    """Return ``again``, a rewritten ``before``, with ops that say what they were made from in the first place."""
    known = {op.name: op for op in before.graphs[0].ops}
    ops = []
    for op in again.graphs[0].ops:
        source = known.get(op.origin or op.name)
        region = source.region if source is not None else None
        ops.append(replace(op, origin=(source.origin if source is not None else None) or op.origin, region=region))
    graph = replace(again.graphs[0], ops=tuple(ops))
    return replace(again, graphs=(graph, *again.graphs[1:]))


def _rewritten(
    module: Module, graph: Graph, point: RematPoint, options: LoadOptions, prepared: TargetModule, request: Request
) -> Rewritten:
    number = {op.name: place for place, op in enumerate(graph.ops)}
    # The search counts ops as the module has them; the graph here is in the order of execution.
    sequence = [number[module.graphs[0].ops[op].name] for op in point.sequence]
    request.go_on()
    made = rematerialise(graph, sequence, dialect_of(module, prepared.target))
    again, data = read_back(_plain(module), made.graph, options, prepared.target, request.go_on)
    request.go_on()
    again = _with_origins(again, module)
    anew = prepare_again(again, prepared, request)
    return Rewritten(again, data, anew, place(again, anew, request.within(0.5)), made.extra_macs)


def _section(
    graph: Graph, found: RematResult, used: RematPoint | None, placed: Placed, percent: float, refused: Sequence[str]
) -> RematSection:
    """Return what a report says of a search.

    Args:
        used: The point that the model was rewritten to.
        refused: Why points could not be used.
    """
    macs = sum(op.macs for op in graph.ops)
    point = used or found.frontier[0]
    return RematSection(
        applied=used is not None and used.cost > 0,
        max_extra_work_percent=round(float(percent), 3),
        extra_macs=point.extra_macs,
        extra_macs_percent=_percent(point.extra_macs, macs),
        extra_bytes_moved=point.extra_bytes,
        extra_work_percent=_percent(point.cost, found.total),
        status=point.status if used is not None else "feasible",
        extra_work_bound_percent=_percent(min(point.cost_bound, point.cost), found.total),
        proof=point.proof,
        lower_bound_bytes=found.lower_bound,
        without=FiguresSection(peak_bytes=placed.plans[0].schedule.peak, arena_bytes=placed.allocation.arena),
        copies=tuple(_copies(graph, point)),
        frontier=tuple(
            RematPointRow(
                peak_bytes=step.peak,
                extra_macs_percent=_percent(step.extra_macs, macs),
                extra_work_percent=_percent(step.cost, found.total),
            )
            for step in found.frontier
        ),
        refusals=tuple(refused),
        judged=found.judged,
        finished=found.finished,
        settled=found.settled,
    )


def _copies(graph: Graph, point: RematPoint) -> Iterator[CopyRow]:
    """Yield the ops that are executed several times, in order of execution, with what their repetitions cost."""
    work = work_of(graph)
    for op, count in Counter(point.sequence).items():
        if count > 1:
            again = count - 1
            yield CopyRow(
                op=graph.ops[op].name,
                type=graph.ops[op].type,
                times=again,
                extra_macs=again * work.macs[op],
                extra_bytes_moved=again * work.bytes[op],
            )


def _percent(part: int, total: int) -> float:
    return round(100 * part / total, 3) if total else 0.0
