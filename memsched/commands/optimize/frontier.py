"""What less memory costs: the frontier of peak against extra work, over orders, pieces, repetitions, and both.

Work is counted as for repetitions: multiply-accumulates, and one for each byte that an operator reads or writes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from memsched.commands.optimize.choose import Permissions
from memsched.commands.optimize.permissions import percent_left
from memsched.commands.optimize.place import GivenUpError, Request, place, prepare_again
from memsched.commands.optimize.rewrite import Maker, Part, Rewrite, RewriteBase, RewritePoint
from memsched.errors import InternalError, ModelError
from memsched.formats.module import LoadOptions, Module
from memsched.frozen import FrozenValue
from memsched.planning.rewrite import plain, read_back
from memsched.planning.values import TargetModule
from memsched.remat.cost import work_of
from memsched.report.values.rewrites import FrontierRow
from memsched.units import percent_of

__all__ = ["Frontier", "FrontierStep", "find_frontier", "least"]

How = Literal["order", "tile", "remat", "both"]

_ORDER_SHARE = 0.25
"""Share of the time for the order, where the model may be rewritten as well."""

_REPETITION_SHARE = 1 / 3
"""Share for the order and repetitions, where pieces are permitted as well. A third, and as much for pieces: with three
times the work, both together find all that each finds alone, from the same order on."""

_LOOP_SHARE = 0.4
"""Share of what is left then for pieces in loops, where the format has loops and the target permits them."""

_SEARCH_SHARE = 0.9
"""Share of the time for pieces that goes to their search; in the rest the work of what it found is counted."""

_PIECES_SHARE = 0.5
"""Share of the time left then for pieces, where repetitions of models in pieces may follow."""

_REPEATED = 3
"""Models in pieces that repetitions are sought for: that of the least peak, and others spread over the frontier."""

_REPEATED_SHARE = 0.7
"""Share of what is left then for these; the rest is for pieces of the model with the most repetitions."""

Other = TypeVar("Other", bound=Hashable)


class FrontierStep(FrozenValue, frozen=True):
    """A peak with the least extra work that is known to reach it.

    Attributes:
        peak: Bytes, with what the runtime is known to keep beside it.
        extra_macs: Multiply-accumulates.
        extra_work: Multiply-accumulates and bytes moved.
        how: By the order alone, by pieces, by values computed again, or by repetitions of a model in pieces.
    """

    peak: int
    extra_macs: int
    extra_work: int
    how: How


class Frontier(FrozenValue, frozen=True):
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
    """Return the frontier of ``module``: pieces, repetitions, and repetitions of a few models in pieces."""
    both = permitted.tile and permitted.remat
    first = request.within(_REPETITION_SHARE) if both else request
    rewriting = permitted.tile or permitted.remat
    placed = place(module, prepared, first.within(_ORDER_SHARE) if rewriting else request)
    alone = first.rest()
    base = RewriteBase(module, prepared, placed, options)
    schedule = placed.plans[0].schedule
    # As points have it: by liveness, and for TensorFlow Lite Micro with what its arena holds beside.
    steps = [FrontierStep(schedule.peak + placed.requirement.beside, 0, 0, "order")]
    finished = schedule.status == "optimal" or not request.over()
    percent = permitted.extra_percent
    again = pieces = None
    # Repetitions first: their search often ends by itself, and pieces can use whatever time there is.
    if permitted.remat and not request.stopped():
        from memsched.commands.optimize.recompute import RematRewrite

        again = _Searched.by(RematRewrite, base, alone, percent)
        steps += again.steps("remat")
        finished = finished and again.rewrite.finished
    if both:
        alone = request.as_much(alone, _PIECES_SHARE)
    if permitted.tile and base.dialect.loop is not None and not request.stopped():
        from memsched.commands.optimize.loops import LoopRewrite

        loops = _Searched.by(LoopRewrite, base, alone.within(_LOOP_SHARE), percent)
        steps += loops.steps("tile")
        finished = finished and loops.rewrite.finished
    if permitted.tile and not request.stopped():
        from memsched.commands.optimize.tile import TileRewrite

        pieces = _Searched.by(TileRewrite, base, alone.within(_SEARCH_SHARE), percent)
        steps += pieces.steps("tile")
        finished = finished and pieces.rewrite.finished
        if again is not None:
            steps += pieces.further(RematRewrite, request.rest().within(_REPEATED_SHARE), percent, _REPEATED)
            steps += again.further(TileRewrite, request.rest(), percent, 1)
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


@dataclass(frozen=True, slots=True)
class _Searched(Generic[Part]):
    """One kind of rewrite that was searched for.

    Attributes:
        points: What it leads to, with rising work and falling peaks.
    """

    rewrite: Rewrite[Part]
    points: Sequence[RewritePoint[Part]]
    base: RewriteBase

    @classmethod
    def by(cls, make: Maker[Part], base: RewriteBase, request: Request, percent: float) -> _Searched[Part]:
        """Search until nothing is left or the time is up."""
        rewrite = make(base, request, percent, None)
        return cls(rewrite, [point for point in rewrite.search_out() if rewrite.parts(point.way)], base)

    def steps(self, how: How) -> list[FrontierStep]:
        """Return the steps that the points are."""
        return [FrontierStep(one.peak, one.extra_macs, self.rewrite.cost(one), how) for one in self.points]

    def further(self, make: Maker[Other], request: Request, percent: float, most: int) -> Iterator[FrontierStep]:
        """Yield the steps to which another kind of rewrite leads in the models of ``most`` of the points."""
        base, count = self.base, min(most, len(self.points))
        for left in range(count, 0, -1):
            if request.over():
                return
            point = self.points[len(self.points) * left // count - 1]
            turn = request.within(1 / left)
            graph = self.rewrite.build(point.way)
            try:
                module, _ = read_back(
                    plain(base.module), graph, base.options, base.prepared.target, opening=turn.opening
                )
                prepared = prepare_again(module, base.prepared, turn)
                placed = place(module, prepared, turn.within(_ORDER_SHARE))
            except (GivenUpError, InternalError, ModelError):
                continue
            given, paid = sum(op.macs for op in self.rewrite.graph.ops), point.work / max(1, self.rewrite.total)
            left_percent = percent_left(percent, given, point.extra_macs, paid)
            made = RewriteBase(module, prepared, placed, base.options)
            found = _Searched.by(make, made, turn.rest(), left_percent)
            for more in found.steps("both"):
                macs, work = point.extra_macs + more.extra_macs, self.rewrite.cost(point) + more.extra_work
                yield FrontierStep(more.peak, macs, work, "both")
            request = request.rest()
