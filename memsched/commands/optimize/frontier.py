"""What less memory costs: the frontier of peak against extra work, over orders, pieces, repetitions, and both.

Work is counted as for repetitions: multiply-accumulates, and one for each byte that an operator reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.base.units import percent_of
from memsched.commands.optimize.choose import Permissions, pricing_of, rewrites_of
from memsched.commands.optimize.driver import Driver
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.place import Request, place
from memsched.formats.module import LoadOptions, Module
from memsched.plan.values import TargetModule
from memsched.report.values.rewrites import FrontierRow
from memsched.rewrites.recompute.cost import work_of

__all__ = ["Frontier", "FrontierStep", "find_frontier", "least"]

How = Literal["order", "tile", "remat", "both"]

_ORDER_SHARE = 0.25
"""Share of the time for the order, where the model may be rewritten as well."""


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
    """Return the frontier of ``module``: what all that was proposed for it needs and costs."""
    rewrites = rewrites_of(permitted)
    placed = place(module, prepared, request.within(_ORDER_SHARE) if rewrites else request)
    schedule = placed.plans[0].schedule
    finished = schedule.status == "optimal" or not request.over()
    # As proposals have it: by liveness, and for TensorFlow Lite Micro with what its arena holds beside.
    steps = [FrontierStep(schedule.peak + placed.requirement.beside, 0, 0, "order")]
    if rewrites:
        given = FinalModel(module, b"", prepared, placed, options=options)
        driver = Driver(given, rewrites, request.rest(), pricing_of(permitted, request, None))
        driver.run()
        finished = finished and driver.ended
        steps += _steps(driver)
    graph = module.graphs[0]
    macs, work = sum(op.macs for op in graph.ops), work_of(graph).total
    return Frontier(least(steps), finished and not request.stopped(), macs, work)


def _steps(driver: Driver) -> Iterator[FrontierStep]:
    """Yield the steps that proposals are."""
    for arm in driver.arms:
        if arm.rewrite.name not in _HOW:
            continue
        names = {name for name in (*arm.base.names, arm.rewrite.name) if name in _HOW}
        how: How = "both" if len(names) > 1 else _HOW[arm.rewrite.name]
        done, macs = _cost(arm.base), arm.base.extra_macs
        for one in arm.found:
            if one.ways.parts(one.way):
                yield FrontierStep(one.promise, macs + one.extra_macs, done + one.ways.cost(one), how)


_HOW: dict[str, Literal["tile", "remat"]] = {"tile": "tile", "remat": "remat"}


def _cost(model: FinalModel) -> int:
    """Return the extra multiply-accumulates and bytes moved of a model."""
    if model.made is None or model.before is None:
        return 0
    return _cost(model.before) + model.made.ways.cost(model.made)


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
