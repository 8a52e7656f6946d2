"""What less memory costs: the frontier of peak against extra work, over orders, pieces and repetitions.

Work is counted as for repetitions: multiply-accumulates, and one for each byte that an operator reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from memsched.commands.optimize.choose import Permitted
from memsched.commands.optimize.place import Placed, Request, place
from memsched.formats.module import Module
from memsched.graph.model import Graph
from memsched.planning.values import TargetModule
from memsched.remat.cost import MACS_PER_BYTE, work_of
from memsched.report.values.rewrites import FrontierRow
from memsched.tiling.pieces import TilingGroup

__all__ = ["Frontier", "Step", "find_frontier", "least"]

How = Literal["order", "tile", "remat"]

_ORDER_SHARE = 0.25
"""Of the time, for the order, where the model may be rewritten as well."""

_REPETITION_SHARE = 0.4
"""Of what is left then, for repetitions, where pieces are permitted as well."""


_SEARCH_SHARE = 0.9
"""Of the time for pieces, for their search; the work of what it found is counted in the rest."""


@dataclass(frozen=True, slots=True)
class Step:
    """A peak with the least extra work that is known to reach it.

    Attributes:
        extra_macs_percent: Of the model's multiply-accumulates.
        extra_work_percent: Of the model's multiply-accumulates and bytes moved.
        how: By the order alone, by pieces, or by values computed again.
    """

    peak_bytes: int
    extra_macs_percent: float
    extra_work_percent: float
    how: How


@dataclass(frozen=True, slots=True)
class Frontier:
    """Falling peaks with work that never falls; the first is the order's.

    Attributes:
        finished: Every search ended before its time was up.
    """

    steps: tuple[Step, ...]
    finished: bool

    def rows(self) -> tuple[FrontierRow, ...]:
        """Return what the report shows."""
        return tuple(FrontierRow(**asdict(step)) for step in self.steps)


def find_frontier(module: Module, prepared: TargetModule, request: Request, permitted: Permitted) -> Frontier:
    """Return the frontier of ``module``: pieces and repetitions each by themselves, in the best order found."""
    rewriting = permitted.tile or permitted.remat
    placed = place(module, prepared, request.within(_ORDER_SHARE) if rewriting else request)
    schedule = placed.plans[0].schedule
    steps = [Step(schedule.peak, 0.0, 0.0, "order")]
    finished = schedule.status == "optimal" or request.remaining() > 0
    percent = permitted.extra_percent
    # Repetitions first: their search often ends by itself, and pieces can use whatever time there is.
    if permitted.remat and not request.stopped():
        within = request.within(_REPETITION_SHARE) if permitted.tile else request
        found, ended = _by_repetition(module, prepared, placed, within, percent)
        steps += found
        finished = finished and ended
    if permitted.tile and not request.stopped():
        found, ended = _by_pieces(module, prepared, placed, request, percent)
        steps += found
        finished = finished and ended
    return Frontier(least(steps), finished and not request.stopped())


def least(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps that no other undercuts: the first one, and each that needs less than all with no more work.

    What changes no operator stays, even where a rewrite that costs nothing needs less.
    """
    first, *rest = steps
    kept = [first]
    for step in sorted(rest, key=lambda step: (step.extra_work_percent, step.peak_bytes, step.extra_macs_percent)):
        if step.peak_bytes < kept[-1].peak_bytes:
            kept.append(step)
    return tuple(kept)


def _by_pieces(
    module: Module, prepared: TargetModule, placed: Placed, request: Request, percent: float
) -> tuple[list[Step], bool]:
    from memsched.commands.optimize.tile import dialect_of, frontier, in_pieces

    graph, found = frontier(module, prepared, placed, request.within(_SEARCH_SHARE), percent=percent)
    macs, total = sum(op.macs for op in graph.ops), work_of(graph).total
    dialect = dialect_of(module, prepared.target)
    # Points share most of their groups, and groups do not touch each other.
    extra: dict[TilingGroup, int] = {}
    steps = []
    for point in found.frontier:
        if point.groups:
            for group in point.groups:
                if group not in extra:
                    extra[group] = _work(in_pieces(graph, (group,), dialect).graph, graph) - total
            work = max(0, sum(extra[group] for group in point.groups))
            steps.append(Step(point.peak, _percent(point.extra_macs, macs), _percent(work, total), "tile"))
    return steps, found.exhausted


def _by_repetition(
    module: Module, prepared: TargetModule, placed: Placed, request: Request, percent: float
) -> tuple[list[Step], bool]:
    from memsched.commands.optimize.recompute import frontier

    found = frontier(module, prepared, placed, request, percent=percent)
    macs = sum(op.macs for op in module.graphs[0].ops)
    steps = [
        Step(point.peak, _percent(point.extra_macs, macs), _percent(point.cost, found.total), "remat")
        for point in found.frontier
        if point.cost and 100 * point.cost <= percent * found.total
    ]
    return steps, found.finished


def _work(cut: Graph, given: Graph) -> int:
    """Return the work of a graph in pieces; slices, pads and concatenations move no more than twice what they make."""
    known = {op.name for op in given.ops}
    return sum(_costs(cut, known))


def _costs(cut: Graph, known: set[str]) -> Iterator[int]:
    work = work_of(cut)
    for number, op in enumerate(cut.ops):
        if op.origin is None and op.name not in known:
            yield max(1, 2 * MACS_PER_BYTE * sum(cut.tensors[tensor].size for tensor in op.outputs))
        else:
            yield work.cost(number)


def _percent(part: int, total: int) -> float:
    return round(100 * part / total, 3) if total else 0.0
