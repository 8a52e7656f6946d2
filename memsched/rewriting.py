"""Models whose layers are computed in pieces: the search, the file, and the same model read back from it.

A rewritten model is written first in the order in which it was made, and read back. From then on it is a model like
any other: it gets orders and addresses, and what is reported is what its file does.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsched import tflm
from memsched.errors import InternalError, MemschedError
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.graph.rewrite_checker import check_rewrite, check_written
from memsched.placing import GivenUpError, Placed, Request, place, prepare_again
from memsched.regions.geometry import has_windows
from memsched.schedule.portfolio import Progress
from memsched.sections import Prepared
from memsched.targets.model import Target
from memsched.tiling.fold import fold_pads
from memsched.tiling.pieces import Group, Pieces, plan_pieces
from memsched.tiling.rewrite import Rewritten as InPieces
from memsched.tiling.rewrite import rewrite
from memsched.tiling.search import Found, FrontierPoint, Search

__all__ = ["Rewritten", "attempt", "dialect_of", "frontier", "in_order", "in_pieces", "read_back", "tile"]

_TRIES = 4
"""Points of the frontier that are placed in full until one meets the budget."""

_AXES = {"onnx": ("batch", "channels", "rows", "columns"), "tflite": ("batch", "rows", "columns", "channels")}
"""What the axes of an image are called, by the format's layout; graphs without windows have no images."""

_SEARCH_SHARE = 0.45
"""Of the time that is left, for the search for groups until the first are placed, if there are any by then."""

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
    prepared: Prepared
    placed: Placed
    extra_macs: int


def dialect_of(module: Module, target: Target) -> Dialect:
    """Return how the module's format says what rewrites add, within what the target's runtime takes."""
    if module.format == "onnx":
        from memsched.formats import onnx_rewriter

        dialect = onnx_rewriter.dialect(module)
    else:
        from memsched.formats import tflite_rewriter

        dialect = tflite_rewriter.dialect(module)
    return dataclasses.replace(dialect, most_joined=target.most_join_inputs)


def in_order(graph: Graph, order: Sequence[int]) -> Graph:
    """Return ``graph`` with its ops in the given order."""
    place_of = {op: step for step, op in enumerate(order)}
    return dataclasses.replace(
        graph,
        ops=tuple(graph.ops[op] for op in order),
        dependencies=tuple((place_of[before], place_of[after]) for before, after in graph.dependencies),
    )


def read_back(
    module: Module, graph: Graph, options: LoadOptions, go_on: Callable[[], None] = lambda: None
) -> tuple[Module, bytes]:
    """Write ``module`` with its main graph rewritten to ``graph``, in the order of its ops, and read that file.

    Args:
        go_on: Called between the steps; may raise to give up.

    Returns:
        The module, whose ops say what they were made from, and the file's bytes.

    Raises:
        InternalError: The file does not hold the graph.
    """
    check_rewrite(module.graphs[0], graph)
    order = range(len(graph.ops))
    if module.format == "onnx":
        from memsched.formats import onnx_rewriter

        data = onnx_rewriter.serialize(module, graph, order, {})
    else:
        from memsched.formats import tflite_rewriter

        data = tflite_rewriter.serialize(module, graph, order)
    go_on()
    try:
        again = load_module(data, module.path, dataclasses.replace(options, settled=True))
    except MemschedError as error:
        raise InternalError(f"the rewritten model cannot be read back: {error}") from error
    go_on()
    found = again.graphs[0]
    check_written(graph, order, found, named=module.format == "onnx")
    ops = tuple(
        dataclasses.replace(op, origin=made.origin, region=made.region)
        for op, made in zip(found.ops, graph.ops, strict=True)
    )
    return dataclasses.replace(again, graphs=(dataclasses.replace(found, ops=ops), *again.graphs[1:])), data


def tile(
    module: Module,
    prepared: Prepared,
    placed: Placed,
    options: LoadOptions,
    request: Request,
    *,
    percent: float,
    budget: int | None,
) -> tuple[Rewritten | None, Mapping[str, Any]]:
    """Return the model with groups of its layers in pieces where that needs less, and the report's section.

    Args:
        placed: The model as it is; the result requires less, or there is none.
        percent: Extra multiply-accumulates permitted, of the model's.
        budget: Bytes that the arena may have: then the least extra work that meets it is sought.
    """
    dialect = dialect_of(module, prepared.target)
    graph = fold_pads(in_order(module.graphs[0], placed.plans[0].schedule.order), dialect)
    total = sum(op.macs for op in graph.ops)
    search = _search(graph, prepared.target, dialect, request, int(total * percent / 100), budget)
    best: Rewritten | None = None
    taken: tuple[Group, ...] = ()
    tried: set[tuple[Group, ...]] = set()
    pause, end = request.within(_SEARCH_SHARE).deadline(), request.deadline()
    while True:
        found = search.run(pause, end, request.effort())
        begun = time.monotonic()
        points = [point for point in _points(found, budget) if point.groups not in tried]
        for point in points:
            tried.add(point.groups)
            try:
                tiled = _tiled(module, graph, point, options, prepared, request.as_optional(needed=best is None))
            except GivenUpError:
                break
            if best is None or _rank(tiled, budget) < _rank(best, budget):
                best, taken = tiled, point.groups
            if request.over() or (budget is not None and tiled.placed.required <= budget):
                break
        # The search goes on while there is time for that and for placing what it finds.
        now = time.monotonic()
        pause = end = request.deadline() - _PLACINGS * (now - begun)
        if found.exhausted or math.isinf(end) or now >= end or request.over():
            break
    if best is not None and best.placed.required >= placed.required:
        best = None
    if best is None:
        taken = ()
    section = {
        "applied": best is not None,
        "max_extra_macs_percent": float(percent),
        "extra_macs": best.extra_macs if best is not None else 0,
        "extra_macs_percent": _percent(best.extra_macs, total) if best is not None else 0.0,
        "untiled": {"peak_bytes": placed.plans[0].schedule.peak, "arena_bytes": placed.allocation.arena},
        **_section(graph, found, taken, dialect, _AXES[module.format] if has_windows(graph) else ()),
        "frontier": _frontier_rows(module, prepared, graph, found, options, request),
    }
    return best, section


def _rank(found: Rewritten, budget: int | None) -> tuple[float, int]:
    """Return what is less for the better of two: the work of what meets the budget, the bytes of what does not."""
    required = found.placed.required
    return (found.extra_macs, required) if budget is not None and required <= budget else (math.inf, required)


def _frontier_rows(
    module: Module, prepared: Prepared, graph: Graph, found: Found, options: LoadOptions, request: Request
) -> list[dict[str, Any]]:
    """Return the frontier, for TensorFlow Lite Micro with estimates of the whole arena as long as there is time."""
    total = sum(op.macs for op in graph.ops)
    rows: list[dict[str, Any]] = []
    for point in found.frontier:
        row: dict[str, Any] = {
            "peak_bytes": point.peak,
            "extra_macs_percent": _percent(point.extra_macs, total),
        }
        if tflm.applies(module, prepared.target) and request.remaining() > 0 and not request.stopped():
            again = read_back(
                module, in_pieces(graph, point.groups, dialect_of(module, prepared.target)).graph, options
            )[0]
            row["whole_arena_bytes_estimate"] = tflm.whole_arena_bytes(again, point.peak)
        rows.append(row)
    return rows


def frontier(
    module: Module, prepared: Prepared, placed: Placed, request: Request, *, percent: float
) -> tuple[Graph, Found]:
    """Return the graph in the order found, and the least peaks of its pieces for rising work.

    Takes all the time of ``request``; ``percent``: extra multiply-accumulates permitted, of the model's.
    """
    dialect = dialect_of(module, prepared.target)
    graph = fold_pads(in_order(module.graphs[0], placed.plans[0].schedule.order), dialect)
    most = int(sum(op.macs for op in graph.ops) * percent / 100)
    search = _search(graph, prepared.target, dialect, request, most, None)
    return graph, search.run(request.deadline(), request.deadline(), request.effort())


def attempt(
    module: Module, prepared: Prepared, placed: Placed, options: LoadOptions, request: Request, *, percent: float
) -> Rewritten | None:
    """Return the model in the pieces that a search of the effort of ``request`` finds; None where it finds none.

    What it finds is written, read back and placed as `tile` does it, within the limits of ``request``.
    """
    dialect = dialect_of(module, prepared.target)
    graph = fold_pads(in_order(module.graphs[0], placed.plans[0].schedule.order), dialect)
    most = int(sum(op.macs for op in graph.ops) * percent / 100)
    found = _search(graph, prepared.target, dialect, request, most, None).run(math.inf, math.inf, request.effort())
    return _tiled(module, graph, found.best, options, prepared, request) if found.best.groups else None


def in_pieces(graph: Graph, groups: Sequence[Group], dialect: Dialect) -> InPieces:
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
) -> Search:
    def tell(peak: int, _: int) -> None:
        if request.on_progress:
            request.on_progress(Progress("tiling", peak, None, 0.0))

    return Search(
        graph,
        target,
        dialect,
        most_macs=most_macs,
        budget=budget,
        on_progress=tell,
        stop=request.stop,
    )


def _points(found: Found, budget: int | None) -> Iterator[FrontierPoint]:
    """Yield the points worth placing: the one asked for, and with a budget those below it, the cheapest first.

    Where none is below it, those just above it follow: addresses, or the runtime's planner, may need less for them.
    """
    if found.best.groups:
        yield found.best
    if budget is None:
        return
    if found.best.peak > budget:
        above = sorted((point for point in found.frontier if point.peak > found.best.peak), key=lambda one: one.peak)
        yield from (point for point in above[: _TRIES - 2] if point.groups)
        return
    lower = [point for point in found.frontier if point.peak < found.best.peak and point.groups]
    # The last one tried is the one that needs least.
    yield from lower if len(lower) < _TRIES else (*lower[: _TRIES - 2], lower[-1])


def _tiled(
    module: Module,
    graph: Graph,
    point: FrontierPoint,
    options: LoadOptions,
    prepared: Prepared,
    request: Request,
) -> Rewritten:
    request.go_on()
    made = in_pieces(graph, point.groups, dialect_of(module, prepared.target))
    request.go_on()
    again, data = read_back(module, made.graph, options, request.go_on)
    request.go_on()
    anew = prepare_again(again, prepared, request)
    found = place(again, anew, request.within(0.5))
    return Rewritten(again, data, anew, found, made.macs - sum(op.macs for op in graph.ops))


def _section(
    graph: Graph, found: Found, groups: Sequence[Group], dialect: Dialect, axes: Sequence[str]
) -> Mapping[str, Any]:
    kinds = {op.name: op.type for op in graph.ops}
    return {
        "groups": [_group_section(graph, group, dialect, axes) for group in groups],
        "refusals": [_refusal_section(name, kinds[name], reason) for name, reason in found.refusals],
        "judged": found.judged,
        "exhausted": found.exhausted,
    }


def _group_section(graph: Graph, group: Group, dialect: Dialect, axes: Sequence[str]) -> dict[str, Any]:
    pieces = plan_pieces(graph, group, dialect)
    shape = graph.tensors[graph.ops[group.ops[-1]].outputs[0]].shape or ()
    given = sum(graph.ops[op].macs for op in group.ops)
    return {
        "ops": [graph.ops[op].name for op in group.ops],
        "axes": list(group.axes),
        "axis_names": [axes[axis] if len(shape) == len(axes) else f"axis {axis}" for axis in group.axes],
        "pieces": list(group.counts),
        "kept_halos": [graph.tensors[tensor].name for tensor in group.kept],
        "padded_ops": [graph.ops[op].name for op in group.padded],
        "extra_macs": pieces.macs - given if isinstance(pieces, Pieces) else 0,
    }


def _refusal_section(name: str, kind: str, reason: str) -> dict[str, str]:
    return {"op": name, "type": kind, "reason": reason.removeprefix(f"op '{name}' ({kind}): ")}


def _percent(part: int, total: int) -> float:
    return round(100 * part / total, 3) if total else 0.0
