"""Measure schedules by decomposition: widths, separators, peaks and what the repetitions cost.

The schedules are those of "Scheduling Operations on a Computation Graph".

Three tables: networks as they are executed for inference, their training graphs, and graphs of known structure whose
outputs have one byte each. Peaks count in-place writes. ``--growth`` adds seconds on graphs of 1000 ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Op, Tensor
from memsched.rewrites.recompute.annotate import AnnotatedSchedule
from memsched.rewrites.recompute.decompose import path_schedule, tree_schedule
from memsched.rewrites.recompute.path import path_decomposition
from memsched.rewrites.recompute.separator import (
    TreeDecomposition,
    components,
    tree_decomposition,
    tree_separators,
    undirected,
)
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.bounds import largest_step
from memsched.solve.schedule.portfolio import schedule_graph
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option
from scripts.bench.runner.models import light_model, network
from scripts.bench.runner.text import kilobytes, percent
from scripts.bench.runner.timing import Stopwatch, timed
from scripts.bench.stated_recursion import full_schedule, memory
from scripts.networks.growth import layered, stacked
from scripts.networks.table import lowered
from scripts.networks.training_graphs import training_graph

__all__ = ["BENCH", "table"]

NETWORKS: Final = ("unetpp", "hrnet_w18_small_v1", "randwire1", "nasnet_a", "transformer")
BUDGETS: Final = (None, 0.9, 0.8)
_COLUMNS = (
    *("graph", "ops", "tree width", "path width", "separator", "largest op", "best order"),
    *("budget", "tree peak", "extra ops", "extra MACs", "~s", "path peak", "extra ops", "extra MACs", "~s"),
)


def table(graphs: Iterable[Graph], limits: Limits, budgets: Sequence[float | None] = BUDGETS) -> Iterator[Part]:
    """Yield a table with one line per graph and budget; budgets are shares of the best order's peak found."""
    yield Heading(*_COLUMNS)
    for graph in graphs:
        storage = Storage.of(graph)
        preds, sizes = storage.preds, [sum(storage.sizes[b] for b in made) for made in storage.creates]
        best = schedule_graph(graph, Run(limits)).schedule
        tree, path = tree_decomposition(preds), path_decomposition(undirected(preds), [best.order])
        if tree is None or path is None:
            raise ValueError("a decomposition without a limit of its width was not found")
        first = _separator(tree, preds, sizes)
        cells = (graph.name, len(graph.ops), tree.width, path.width, first, largest_step(storage), best.peak)
        described = [*cells[:5], kilobytes(cells[5]), kilobytes(cells[6])]
        for share in budgets:
            budget = None if share is None else math.floor(share * best.peak)
            row = [*described, "least" if share is None else percent(share)]
            for make in (tree_schedule, path_schedule):
                row += _measured(graph, make, best.order, budget)
            yield tuple(row)


def _separator(tree: TreeDecomposition, preds: Sequence[Sequence[int]], sizes: Sequence[int]) -> str:
    """Return the ops and KB of the cheapest separator of the largest connected part."""
    neighbours = undirected(preds)
    part = max(components(range(len(preds)), neighbours), key=len)
    found = tree_separators(tree, part, neighbours, lambda nodes: sum(sizes[op] for op in nodes))
    return f"{len(found[0])} ops, {kilobytes(sum(sizes[op] for op in found[0]))}" if found else "-"


def _measured(
    graph: Graph, make: Callable[..., AnnotatedSchedule], order: Sequence[int], budget: int | None
) -> list[str]:
    found, seconds = timed(lambda: make(graph, order=order, budget=budget))
    again = sum(graph.ops[op].macs for op in found.sequence) - sum(op.macs for op in graph.ops)
    share = again / max(1, sum(op.macs for op in graph.ops))
    peak = memory(graph, found).peak
    missed = " (above)" if budget is not None and peak > budget else ""
    return [f"{kilobytes(peak)}{missed}", str(found.extra), percent(share), f"{seconds:.2f}"]


def _unit_graph(name: str, preds: Sequence[Sequence[int]]) -> Graph:
    read = {before for befores in preds for before in befores}
    return Graph(
        name,
        tuple(Tensor(f"t{node}", 1) for node in range(len(preds))),
        tuple(Op(f"op{node}", "Op", tuple(befores), (node,)) for node, befores in enumerate(preds)),
        (),
        tuple(node for node in range(len(preds)) if node not in read),
    )


def _structures() -> Iterator[Graph]:
    for nodes in (64, 256, 1000):
        chain: list[list[int]] = [[node - 1] if node else [] for node in range(nodes)]
        yield _unit_graph(f"path {nodes}", chain)
        back = [
            [node] if node == nodes // 2 - 1 else [node, nodes - 2 - node] for node in range(nodes // 2 - 1, -1, -1)
        ]
        yield _unit_graph(f"training chain {nodes}", [*chain[: nodes // 2], *back])
        heap = [[nodes - 1 - child for child in (2 * k + 2, 2 * k + 1) if child < nodes] for k in range(nodes)]
        yield _unit_graph(f"tree {nodes}", heap[::-1])
    for side in (8, 16):
        reads = [
            [*([node - side] if node >= side else []), *([node - 1] if node % side else [])]
            for node in range(side * side)
        ]
        yield _unit_graph(f"grid {side}x{side}", reads)


def structure_table() -> Iterator[Part]:
    """Yield the table of known structures, in units: the recursion as the patent states it, and improved."""
    yield Heading("graph", "ops", "width", "kind", "as stated: peak", "executions", "improved: peak", "extra", "~s")
    for graph in _structures():
        storage = Storage.of(graph)
        tree = tree_decomposition(storage.preds)
        path = path_decomposition(undirected(storage.preds), [range(len(graph.ops))])
        for kind, make, width in (("tree", tree_schedule, tree), ("path", path_schedule, path)):
            stated = full_schedule(graph, "tree" if kind == "tree" else "path", longest=100 * len(graph.ops))
            found, seconds = timed(partial(make, graph))
            plain = (memory(graph, stated).peak_units, len(stated.sequence)) if stated else ("-", "too many")
            peak = memory(graph, found).peak_units
            cells = (graph.name, len(graph.ops), width.width if width else "-", kind, *plain, peak, found.extra)
            yield *cells, f"{seconds:.2f}"


def _networks(only: Sequence[str]) -> Iterator[Graph]:
    for name in NETWORKS:
        if not only or name in only:
            yield network(name, "ideal")
    if not only or "light_densenet121" in only:
        yield lowered(light_model("light_densenet121").read_bytes(), "light_densenet121", "ideal")


def tables(values: Values) -> Iterator[Part]:
    """Yield the tables."""
    limits = Limits(values.order_seconds)
    watch = Stopwatch()
    yield "KB of 1024 bytes.\n\n## Inference\n"
    yield from table(_networks(values.only), limits)
    yield "\n## Training\n"
    yield from table((training_graph(graph) for graph in _networks(values.only)), limits)
    if not values.only:
        yield "\n## Known structures, in units\n"
        yield from structure_table()
    if values.growth:
        yield "\n## 1000 ops\n"
        yield from table((layered(1000), stacked(1000)), limits)
    yield f"\n{watch.seconds:.0f} s in all"


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--only", nargs="*", default=(), metavar="NETWORK", help="only these networks"),
        option("--order-seconds", type=float, default=10.0, help="for the best order without repetition"),
        option("--growth", action="store_true", help="graphs of 1000 ops as well"),
    ),
    docs="docs/benchmarks/rewrites.md",
)
