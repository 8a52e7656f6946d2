"""Models whose layers are computed in pieces: the search, the file, and the same model read back from it.

A rewritten model is written first in the order in which it was made, and read back. From then on it is a model like
any other: it gets orders and addresses, and what is reported is what its file does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from memsched.check.rewrite import check_rewrite, check_written
from memsched.commands.optimize.candidates import try_points
from memsched.commands.optimize.place import (
    GivenUpError,
    Placed,
    Request,
    as_stored,
    place,
    prepare_again,
)
from memsched.errors import InternalError, MemschedError, ModelError
from memsched.formats.files import load_module
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.planning.values import TargetModule
from memsched.regions.geometry import has_windows
from memsched.report.values.rewrites import GroupRow, RefusalRow, TilingPointRow, TilingSection
from memsched.report.values.shared import FiguresSection
from memsched.runtimes.known import runtime_of
from memsched.targets.model import Target
from memsched.tiling.fold import fold_pads
from memsched.tiling.pieces import Pieces, TilingGroup, plan_pieces
from memsched.tiling.rewrite import TiledGraph as InPieces
from memsched.tiling.rewrite import rewrite
from memsched.tiling.search import FrontierPoint, TilingResult, TilingSearch

__all__ = ["Rewritten", "attempt", "dialect_of", "frontier", "in_order", "in_pieces", "read_back", "tile"]

_SEARCH_SHARE = 0.45
"""Of the time that is left, for the search for groups until the first are placed, if there are any by then."""

_PLACING_SHARE = 0.15
"""Of what is left, for orders and addresses of one model in pieces: it is made in a good order, and more may follow."""

_PLACINGS = 2.0
"""Times as long as placing took the last time, which is kept for the next when the search goes on."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A model in pieces, with its orders and addresses.

    Attributes:
        data: Its file, in the order in which it was made.
        extra_macs: Multiply-accumulates that the model as given does not have.
    """

    module: Module
    data: bytes
    prepared: TargetModule
    placed: Placed
    extra_macs: int


def dialect_of(module: Module, target: Target) -> Dialect:
    """Return how the module's format says what rewrites add, within what the target's runtime takes."""
    return dataclasses.replace(format_of(module).dialect(module), most_joined=target.most_join_inputs)


def in_order(graph: Graph, order: Sequence[int]) -> Graph:
    """Return ``graph`` with its ops in the given order."""
    place_of = {op: step for step, op in enumerate(order)}
    return dataclasses.replace(
        graph,
        ops=tuple(graph.ops[op] for op in order),
        dependencies=tuple((place_of[before], place_of[after]) for before, after in graph.dependencies),
    )


def read_back(
    module: Module, graph: Graph, options: LoadOptions, target: Target, go_on: Callable[[], None] = lambda: None
) -> tuple[Module, bytes]:
    """Write ``module`` with its main graph rewritten to ``graph``, in the order of its ops, and read that file.

    Args:
        target: Whose runtime shall take all that was added.
        go_on: Called between the steps; may raise to give up.

    Returns:
        The module, whose ops say what they were made from, and the file's bytes.

    Raises:
        InternalError: The file does not hold the graph.
        ModelError: The target's runtime would refuse an operator that ``module`` does not have in such a form.
    """
    check_rewrite(module.graphs[0], graph)
    form = format_of(module)
    data = form.rewrite(module, graph)
    go_on()
    try:
        again = load_module(data, module.path, dataclasses.replace(options, settled=True))
    except MemschedError as error:
        raise InternalError(f"the rewritten model cannot be read back: {error}") from error
    go_on()
    runtime_of(again, target).check_kernels(module, again)
    found = again.graphs[0]
    check_written(graph, range(len(graph.ops)), found, named=form.names_kept)
    ops = tuple(
        dataclasses.replace(op, origin=made.origin, region=made.region)
        for op, made in zip(found.ops, graph.ops, strict=True)
    )
    return dataclasses.replace(again, graphs=(dataclasses.replace(found, ops=ops), *again.graphs[1:])), data


def tile(
    module: Module,
    prepared: TargetModule,
    placed: Placed,
    options: LoadOptions,
    request: Request,
    *,
    percent: float,
    budget: int | None,
) -> tuple[Rewritten | None, TilingSection]:
    """Return the model with groups of its layers in pieces where that needs less, and the report's section.

    Args:
        placed: The model as it is; the result requires less, or there is none.
        percent: Extra multiply-accumulates permitted, of the model's.
        budget: Bytes that the arena may have: then the least extra work that meets it is sought.
    """
    dialect = dialect_of(module, prepared.target)
    graph = fold_pads(in_order(module.graphs[0], placed.plans[0].schedule.order), dialect)
    total = sum(op.macs for op in graph.ops)
    most = int(total * percent / 100)
    models = _Models(module, graph, options, prepared, request)

    def enough(point: FrontierPoint) -> bool:
        return budget is not None and bool(point.groups) and models.meets(point, budget)

    search = _search(graph, prepared.target, dialect, request, most, budget, enough)
    pause, end = request.within(_SEARCH_SHARE).deadline(), request.deadline()
    refused: dict[str, str] = {}
    while True:
        begun = now = time.monotonic()
        try:
            found = search.run(pause, end, request.effort())
            begun = time.monotonic()
            models.take_best([point for point in found.frontier if point.groups and point.extra_macs <= most], budget)
        except UnwritableError as error:
            search.drop(error.reasons)
            refused.update((graph.ops[group.ops[0]].name, reason) for group, reason in error.reasons.items())
            if not request.over():
                continue
            found = search.run(0.0, 0.0, 0.0)
        # The search goes on while there is time for that and for placing what it finds.
        now = time.monotonic()
        pause = end = request.deadline() - _PLACINGS * (now - begun)
        if found.exhausted or math.isinf(end) or now >= end or request.over():
            break
    best, taken = models.taken if models.taken is not None else (None, ())
    if best is None or best.placed.required >= placed.required:
        best, taken = None, ()
    axes = format_of(module).axes if has_windows(graph) else ()
    kinds = {op.name: op.type for op in graph.ops}
    section = TilingSection(
        applied=best is not None,
        max_extra_macs_percent=float(percent),
        extra_macs=best.extra_macs if best is not None else 0,
        extra_macs_percent=_percent(best.extra_macs, total) if best is not None else 0.0,
        untiled=FiguresSection(peak_bytes=placed.plans[0].schedule.peak, arena_bytes=placed.allocation.arena),
        groups=tuple(_group_row(graph, group, dialect, axes) for group in taken),
        refusals=tuple(
            _refusal_row(name, kinds[name], reason) for name, reason in {**dict(found.refusals), **refused}.items()
        ),
        judged=found.judged,
        exhausted=found.exhausted,
        frontier=tuple(_frontier_rows(module, prepared, graph, found, options, request)),
    )
    return best, section


def _frontier_rows(
    module: Module, prepared: TargetModule, graph: Graph, found: TilingResult, options: LoadOptions, request: Request
) -> Iterator[TilingPointRow]:
    """Yield the frontier, for TensorFlow Lite Micro with estimates of the whole arena as long as there is time."""
    total = sum(op.macs for op in graph.ops)
    runtime = runtime_of(module, prepared.target)
    whole_is_known = runtime.whole_bytes(module, 0) is not None
    for point in found.frontier:
        whole: int | None = None
        if whole_is_known and request.remaining() > 0 and not request.stopped():
            dialect = dialect_of(module, prepared.target)
            with contextlib.suppress(InternalError, ModelError):
                pieces = in_pieces(graph, point.groups, dialect)
                again, _ = read_back(module, pieces.graph, options, prepared.target)
                whole = runtime.whole_bytes(again, point.peak)
        yield TilingPointRow(
            peak_bytes=point.peak,
            extra_macs_percent=_percent(point.extra_macs, total),
            whole_arena_bytes_estimate=UNSET if whole is None else whole,
        )


def frontier(
    module: Module, prepared: TargetModule, placed: Placed, request: Request, *, percent: float
) -> tuple[Graph, TilingResult]:
    """Return the graph in the order found, and the least peaks of its pieces for rising work.

    Takes all the time of ``request``; ``percent``: extra multiply-accumulates permitted, of the model's.
    """
    dialect = dialect_of(module, prepared.target)
    graph = fold_pads(in_order(module.graphs[0], placed.plans[0].schedule.order), dialect)
    most = int(sum(op.macs for op in graph.ops) * percent / 100)
    search = _search(graph, prepared.target, dialect, request, most, None)
    return graph, search.run(request.deadline(), request.deadline(), request.effort())


def attempt(
    module: Module, prepared: TargetModule, placed: Placed, options: LoadOptions, request: Request, *, percent: float
) -> Rewritten | None:
    """Return the model in the pieces that a search of the effort of ``request`` finds; None where it finds none.

    What it finds is written, read back and placed as `tile` does it, within the limits of ``request``.
    """
    dialect = dialect_of(module, prepared.target)
    graph = fold_pads(in_order(module.graphs[0], placed.plans[0].schedule.order), dialect)
    most = int(sum(op.macs for op in graph.ops) * percent / 100)
    found = _search(graph, prepared.target, dialect, request, most, None).run(math.inf, math.inf, request.effort())
    models = _Models(module, graph, options, prepared, request)
    with contextlib.suppress(UnwritableError):
        models.take_best([found.best] if found.best.groups else [], None)
    return models.taken[0] if models.taken is not None else None


def in_pieces(graph: Graph, groups: Sequence[TilingGroup], dialect: Dialect) -> InPieces:
    """Return ``graph``, which a search was for, with ``groups`` that it found in pieces."""
    plans = [plan_pieces(graph, group, dialect) for group in groups]
    return rewrite(graph, [plan for plan in plans if isinstance(plan, Pieces)], dialect)


def _search(
    graph: Graph,
    target: Target,
    dialect: Dialect,
    request: Request,
    most_macs: int,
    budget: int | None,
    enough: Callable[[FrontierPoint], bool] | None = None,
) -> TilingSearch:
    return TilingSearch(graph, target, dialect, request.run, most_macs=most_macs, budget=budget, enough=enough)


class UnwritableError(Exception):
    """Groups whose pieces no file could be written with, each with the reason."""

    def __init__(self, reasons: Mapping[TilingGroup, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


def _rank(found: Rewritten, budget: int | None) -> tuple[float, float]:
    """Return what is less for the better of two: the work of what meets the budget, the bytes of what does not."""
    required, work = found.placed.required, found.extra_macs
    return (work, required) if budget is not None and required <= budget else (math.inf, required)


class _Models:
    """The models that points of a search become.

    Attributes:
        taken: The best so far, with its groups.
    """

    def __init__(
        self, module: Module, graph: Graph, options: LoadOptions, prepared: TargetModule, request: Request
    ) -> None:
        self._module, self._graph, self._options, self._prepared = module, graph, options, prepared
        self._whole_request = request
        # The last one is most often the next one, too.
        self._written: tuple[FrontierPoint, Module, bytes, TargetModule, int] | None = None
        self._placed: tuple[FrontierPoint, Rewritten] | None = None
        self._at_most: dict[FrontierPoint, int] = {}
        self._requires: dict[FrontierPoint, int] = {}
        # Where the runtime's planner is known, what a point requires at most is told without a search.
        self._planned = runtime_of(module, prepared.target, request.opening).figure is not None
        self.taken: tuple[Rewritten, tuple[TilingGroup, ...]] | None = None

    def take_best(self, points: Sequence[FrontierPoint], budget: int | None) -> None:
        """Take the model with the least work that meets the budget, or that requires least, if it is a better one.

        Args:
            points: With rising work and falling peaks, each with groups.

        Raises:
            UnwritableError: Groups of one of them cannot be written.
        """

        def make(point: FrontierPoint) -> int:
            if point not in self._requires:
                made = self._model(point)
                self._requires[point] = made.placed.required
                if self.taken is None or _rank(made, budget) < _rank(self.taken[0], budget):
                    self.taken = made, point.groups
            return self._requires[point]

        at_most = self._required_at_most if self._planned else None
        with contextlib.suppress(GivenUpError):
            try_points(points, budget, make, at_most=at_most, over=self._whole_request.over)

    def meets(self, point: FrontierPoint, budget: int) -> bool:
        """Return whether the point's model requires at most ``budget`` bytes; True where the time is up, too.

        Raises:
            UnwritableError: Groups of it cannot be written.
        """
        try:
            required = self._required_at_most(point) if self._planned else self._model(point).placed.required
        except GivenUpError:
            return True
        return required <= budget

    def _request(self) -> Request:
        return self._whole_request.as_optional(needed=self.taken is None)

    def _required_at_most(self, point: FrontierPoint) -> int:
        """Return the bytes that the point's model requires in the order in which it is made."""
        if point not in self._at_most:
            again, _, anew, _ = self._made(point)
            self._at_most[point] = as_stored(again, anew, self._request()).required
        return self._at_most[point]

    def _model(self, point: FrontierPoint) -> Rewritten:
        if self._placed is None or self._placed[0] != point:
            again, data, anew, extra = self._made(point)
            self._placed = (
                point,
                Rewritten(again, data, anew, place(again, anew, self._request().within(_PLACING_SHARE)), extra),
            )
        return self._placed[1]

    def _made(self, point: FrontierPoint) -> tuple[Module, bytes, TargetModule, int]:
        if self._written is None or self._written[0] != point:
            request = self._request()
            request.go_on()
            try:
                again, data, macs = self._file(point.groups, request)
            except (InternalError, ModelError):
                raise UnwritableError(self._at_fault(point.groups, request)) from None
            request.go_on()
            anew = prepare_again(again, self._prepared, request)
            self._written = point, again, data, anew, macs - sum(op.macs for op in self._graph.ops)
        return self._written[1:]

    def _file(self, groups: Sequence[TilingGroup], request: Request) -> tuple[Module, bytes, int]:
        made = in_pieces(self._graph, groups, dialect_of(self._module, self._prepared.target))
        request.go_on()
        again, data = read_back(self._module, made.graph, self._options, self._prepared.target, request.go_on)
        return again, data, made.macs

    def _at_fault(self, groups: Sequence[TilingGroup], request: Request) -> Mapping[TilingGroup, str]:
        """Return those of ``groups`` that cannot be written, alone or beside the others."""
        good: list[TilingGroup] = []
        reasons: dict[TilingGroup, str] = {}
        for group in groups:
            reason = self._reason([*good, group], request)
            if reason is None:
                good.append(group)
            else:
                pieces = " x ".join(map(str, group.counts))
                reasons[group] = f"{len(group.ops)} layers from here in {pieces} pieces cannot be written: {reason}"
        return reasons

    def _reason(self, groups: Sequence[TilingGroup], request: Request) -> str | None:
        """Return why a model with ``groups`` in pieces cannot be written; None where it can."""
        try:
            self._file(groups, request)
        except (InternalError, ModelError) as error:
            return str(error)
        return None


def _group_row(graph: Graph, group: TilingGroup, dialect: Dialect, axes: Sequence[str]) -> GroupRow:
    """Return what a report says of a group; the peak of its steps is known when the whole model is placed."""
    pieces = plan_pieces(graph, group, dialect)
    shape = graph.tensors[graph.ops[group.ops[-1]].outputs[0]].shape or ()
    given = sum(graph.ops[op].macs for op in group.ops)
    return GroupRow(
        ops=tuple(graph.ops[op].name for op in group.ops),
        axes=group.axes,
        axis_names=tuple(axes[axis] if len(shape) == len(axes) else f"axis {axis}" for axis in group.axes),
        pieces=group.counts,
        kept_halos=tuple(graph.tensors[tensor].name for tensor in group.kept),
        padded_ops=tuple(graph.ops[op].name for op in group.padded),
        extra_macs=pieces.macs - given if isinstance(pieces, Pieces) else 0,
        peak_bytes=0,
    )


def _refusal_row(name: str, kind: str, reason: str) -> RefusalRow:
    return RefusalRow(op=name, type=kind, reason=reason.removeprefix(f"op '{name}' ({kind}): "))


def _percent(part: int, total: int) -> float:
    return round(100 * part / total, 3) if total else 0.0
