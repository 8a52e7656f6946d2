"""What less memory costs: the frontier of peak against extra work, over orders, pieces and repetitions.

Work is counted as for repetitions: multiply-accumulates, and one for each byte that an operator reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from memsched.commands.optimize.choose import Permissions
from memsched.commands.optimize.place import Request, place
from memsched.commands.optimize.rewrite import Maker, Part, RewriteBase
from memsched.formats.module import LoadOptions, Module
from memsched.planning.values import TargetModule
from memsched.remat.cost import work_of
from memsched.report.values.rewrites import FrontierRow
from memsched.units import percent_of

__all__ = ["Frontier", "FrontierStep", "find_frontier", "least"]

How = Literal["order", "tile", "remat"]

_ORDER_SHARE = 0.25
"""Share of the time for the order, where the model may be rewritten as well."""

_REPETITION_SHARE = 0.4
"""Share of what is left then for repetitions, where pieces are permitted as well."""

_LOOP_SHARE = 0.4
"""Share of what is left then for pieces in loops, where the format has loops and the target permits them."""

_SEARCH_SHARE = 0.9
"""Share of the time for pieces that goes to their search; in the rest the work of what it found is counted."""


@dataclass(frozen=True, slots=True)
class FrontierStep:
    """A peak with the least extra work that is known to reach it.

    Attributes:
        peak: Bytes, with what the runtime is known to keep beside it.
        extra_macs: Multiply-accumulates.
        extra_work: Multiply-accumulates and bytes moved.
        how: By the order alone, by pieces, or by values computed again.
    """

    peak: int
    extra_macs: int
    extra_work: int
    how: How


@dataclass(frozen=True, slots=True)
class Frontier:
    """Falling peaks with work that never falls; the first is the order's.

    Attributes:
        finished: Every search ended before its time was up.
        macs: Of the model as given.
        work: The same with bytes moved.
    """

    steps: tuple[FrontierStep, ...]
    finished: bool
    macs: int
    work: int

    def rows(self) -> tuple[FrontierRow, ...]:
        """Return what the report shows."""
        return tuple(
            FrontierRow(
                peak_bytes=step.peak,
                extra_macs_percent=percent_of(step.extra_macs, self.macs),
                extra_work_percent=percent_of(step.extra_work, self.work),
                how=step.how,
            )
            for step in self.steps
        )


def find_frontier(
    module: Module, prepared: TargetModule, options: LoadOptions, request: Request, permitted: Permissions
) -> Frontier:
    """Return the frontier of ``module``: pieces and repetitions each by themselves, in the best order found."""
    rewriting = permitted.tile or permitted.remat
    placed = place(module, prepared, request.within(_ORDER_SHARE) if rewriting else request)
    base = RewriteBase(module, prepared, placed, options)
    schedule = placed.plans[0].schedule
    # As points have it: by liveness, and for TensorFlow Lite Micro with what its arena holds beside.
    steps = [FrontierStep(schedule.peak + placed.requirement.beside, 0, 0, "order")]
    finished = schedule.status == "optimal" or not request.over()
    percent = permitted.extra_percent
    # Repetitions first: their search often ends by itself, and pieces can use whatever time there is.
    if permitted.remat and not request.stopped():
        from memsched.commands.optimize.recompute import RematRewrite

        within = request.within(_REPETITION_SHARE) if permitted.tile else request
        found, ended = _searched(RematRewrite, base, within, percent, "remat")
        steps += found
        finished = finished and ended
    if permitted.tile and base.dialect.loop is not None and not request.stopped():
        from memsched.commands.optimize.loops import LoopRewrite

        found, ended = _searched(LoopRewrite, base, request.within(_LOOP_SHARE), percent, "tile")
        steps += found
        finished = finished and ended
    if permitted.tile and not request.stopped():
        from memsched.commands.optimize.tile import TileRewrite

        found, ended = _searched(TileRewrite, base, request.within(_SEARCH_SHARE), percent, "tile")
        steps += found
        finished = finished and ended
    graph = module.graphs[0]
    macs, work = sum(op.macs for op in graph.ops), work_of(graph).total
    return Frontier(least(steps), finished and not request.stopped(), macs, work)


def least(steps: Iterable[FrontierStep]) -> tuple[FrontierStep, ...]:
    """Return the steps that no other undercuts: the first one, and each that needs less than all with no more work.

    What changes no operator stays, even where a rewrite that costs nothing needs less.
    """
    first, *rest = steps
    kept = [first]
    for step in sorted(rest, key=lambda step: (step.extra_work, step.peak, step.extra_macs)):
        if step.peak < kept[-1].peak:
            kept.append(step)
    return tuple(kept)


def _searched(
    make: Maker[Part], base: RewriteBase, request: Request, percent: float, how: How
) -> tuple[list[FrontierStep], bool]:
    """Return the steps that one kind of rewrite leads to, and whether its search ended before its time was up."""
    rewrite = make(base, request, percent, None)
    points = [point for point in rewrite.search_out() if rewrite.parts(point.way)]
    steps = [FrontierStep(point.peak, point.extra_macs, rewrite.cost(point), how) for point in points]
    return steps, rewrite.finished
