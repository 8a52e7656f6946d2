"""Measure what computing again saves, and what it costs.

The peaks of networks with at most 5, 10, 20 and 50 % extra work: multiply-accumulates plus one for each byte read or
written, as a part of executing every op once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx import rewriter as onnx_rewriter
from memsched.formats.tflite import rewriter as tflite_rewriter
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.cost import RematPoint, judge, work_of
from memsched.rewrites.recompute.decompose import path_schedule, tree_schedule
from memsched.rewrites.recompute.rewrite import rematerialise
from memsched.rewrites.recompute.search import search
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.load import load_target
from memsched.targets.model import Target
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, option
from scripts.bench.runner.models import built, light_model
from scripts.bench.runner.text import kilobytes, percent
from scripts.bench.runner.timing import Stopwatch
from scripts.networks.training import training
from scripts.networks.unet import unet

__all__ = ["BENCH", "NETWORKS", "network_table"]

EXTRAS: Final = (0.05, 0.1, 0.2, 0.5)
_ORDER_SECONDS: Final = 20.0


NETWORKS: Final[Mapping[str, Callable[[], bytes]]] = MappingProxyType(
    {
        "light_densenet121": lambda: light_model("light_densenet121").read_bytes(),
        "unet": lambda: unet().SerializeToString(),
        "unetpp": partial(built, "unetpp"),
        "hrnet_w18_small_v1": partial(built, "hrnet_w18_small_v1"),
        "randwire1": partial(built, "randwire1"),
        "nasnet_a": partial(built, "nasnet_a"),
        "transformer": partial(built, "transformer"),
        "training": lambda: training().SerializeToString(),
        "nasnetmobile_int8.tflite": (ROOT / "models/nasnetmobile_int8.tflite").read_bytes,
    }
)


def _load(name: str) -> tuple[Graph, Dialect]:
    path = name if name.endswith(".tflite") else f"{name}.onnx"
    module = load_module(NETWORKS[name](), path, LoadOptions())
    rewriter = tflite_rewriter if name.endswith(".tflite") else onnx_rewriter
    return module.graphs[0], rewriter.dialect(module)


def network_table(names: Sequence[str], target: Target, seconds: float) -> Iterator[Part]:
    """Yield the lines of the table of networks: least peaks in KB of 1024 bytes, and what the repetitions cost."""
    limits = [f"<= {percent(extra)}" for extra in EXTRAS]
    yield Heading("network", "ops", "none", *limits, "bound", "tree", "path", "~s")
    for name in names:
        graph, dialect = _load(name)
        schedule = schedule_graph(apply_target(graph, target), Run(Limits(_ORDER_SECONDS))).schedule
        watch = Stopwatch()
        runs = [
            search(graph, schedule.order, target, dialect, Run(Limits(seconds)), most_extra=extra) for extra in EXTRAS
        ]
        spent = watch.seconds
        macs, total = sum(op.macs for op in graph.ops), sum(work_of(graph).bytes)
        cells = []
        for extra in EXTRAS:
            known = [point for run in runs for point in run.frontier if point.cost <= extra * run.total]
            best = min(known, key=lambda point: (point.peak, point.cost))
            cells.append(_cell(best, macs, total))
        documents = _documents(graph, schedule.order, target, dialect)
        shown = [_cell(point, macs, total) for point in documents]
        bound = kilobytes(runs[0].lower_bound)
        yield name, len(graph.ops), kilobytes(schedule.peak), *cells, bound, *shown, f"{spent:.0f}"


def _cell(point: RematPoint, macs: int, total: int) -> str:
    """Return the peak, and the extra multiply-accumulates and bytes as parts of executing every op once."""
    work = percent(point.extra_macs / macs) if macs else "-"
    return f"{kilobytes(point.peak)} ({work} MACs, {percent(point.extra_bytes / max(total, 1))} bytes)"


def _documents(graph: Graph, order: Sequence[int], target: Target, dialect: Dialect) -> list[RematPoint]:
    """Return the points of least peak of the schedules by tree and path decomposition."""
    ordered = rematerialise(graph, order, dialect).graph
    lowered = apply_target(ordered, target)
    points = []
    for schedule in (tree_schedule, path_schedule):
        found = schedule(lowered, limits=Limits(_ORDER_SECONDS), order=tuple(range(len(order))))
        points.append(judge(graph, [order[op] for op in found.sequence], target, dialect))
    return points


def tables(values: Values) -> Iterator[Part]:
    """Yield the tables asked for."""
    target = load_target(values.target)
    yield from network_table(values.networks or [*NETWORKS], target, values.seconds)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--networks", nargs="*", choices=[*NETWORKS], help="default: all"),
        option("--seconds", type=float, default=60, help="per search"),
        option("--target", default="ideal", help="memory rules"),
    ),
    docs="docs/benchmarks/rewrites.md",
)
