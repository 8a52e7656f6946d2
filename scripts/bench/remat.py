"""Measure what computing again saves, and what it costs.

Two tables: the peaks of networks with at most 5, 10, 20 and 50 %
extra work, and the extra work of random layers with budgets of 90 and 80 % of the best order's peak. Extra work is
multiply-accumulates plus one for each byte read or written, as a part of executing every op once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx import rewriter as onnx_rewriter
from memsched.formats.tflite import rewriter as tflite_rewriter
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op, Tensor
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.cost import RematPoint, judge, work_of
from memsched.rewrites.recompute.decompose import path_schedule, tree_schedule
from memsched.rewrites.recompute.greedy import reduce_to
from memsched.rewrites.recompute.rewrite import rematerialise, repeatable
from memsched.rewrites.recompute.search import RematResult, search
from memsched.rewrites.recompute.trace import Tracer
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

__all__ = ["BENCH", "NETWORKS", "layers", "network_table", "random_table"]

EXTRAS: Final = (0.05, 0.1, 0.2, 0.5)
PARTS: Final = (0.9, 0.8)
SIZES: Final = (100, 250, 500, 1000)
_ORDER_SECONDS: Final = 20.0
_KILOBYTE: Final = 1024
_LARGEST: Final = 64
_WIDTH: Final = 10
_REACH: Final = 20


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


def layers(ops: int, seed: int) -> Graph:
    """Return layers of about 10 ops with results of 1 to 64 KB.

    Each op reads one or two results of the layer before, and every third op one of the twenty layers before that.
    """
    source = random.Random(seed)
    sizes = [source.randint(1, _LARGEST)]
    nodes: list[Op] = []
    made = [[0]]
    while len(nodes) < ops:
        width = min(max(2, round(source.gauss(_WIDTH, _WIDTH / 4))), ops - len(nodes))
        reads = [source.sample(made[-1], min(len(made[-1]), source.randint(1, 2))) for _ in range(width)]
        for read in reads:
            if len(made) > 2 and source.random() < 0.35:
                read.append(source.choice(source.choice(made[:-1][-_REACH:])))
        for place, tensor in enumerate(sorted(set(made[-1]).difference(*reads))):
            reads[place % width].append(tensor)
        results = []
        for read in reads:
            results.append(len(sizes))
            inputs = tuple(dict.fromkeys(read))
            macs = _KILOBYTE * source.randint(1, 10 * _LARGEST)
            nodes.append(Op(f"op{len(nodes)}", "Op", inputs, (len(sizes),), macs=macs))
            sizes.append(source.randint(1, _LARGEST))
        made.append(results)
    used = {tensor for node in nodes for tensor in node.inputs}
    outputs = tuple(tensor for tensor in range(1, len(sizes)) if tensor not in used)
    tensors = tuple(Tensor(f"t{index}", _KILOBYTE * size) for index, size in enumerate(sizes))
    return Graph("layers", tensors, tuple(nodes), (0,), outputs)


_PLAIN: Final = Dialect(
    slice_type="Slice",
    concat_type="Concat",
    pad_type="Pad",
    slice_attributes=lambda *_: {},
    concat_attributes=lambda _: {},
    pad_attributes=lambda _: {},
    piece_attributes=lambda *_: None,
    pads_by_size=lambda _: False,
    copy_attributes=lambda op, _: op.attributes,
)


def network_table(names: Sequence[str], target: Target, seconds: float) -> Iterator[Part]:
    """Yield the lines of the table of networks: least peaks in KB of 1024 bytes, and what the repetitions cost."""
    limits = [f"<= {percent(extra)}" for extra in EXTRAS]
    yield Heading("network", "ops", "none", *limits, "bound", "tree", "path", "~s")
    for name in names:
        graph, dialect = _load(name)
        schedule = schedule_graph(apply_target(graph, target), Run(Limits(_ORDER_SECONDS))).schedule
        watch = Stopwatch()
        runs = [_run(graph, schedule.order, target, dialect, seconds, most_extra=extra) for extra in EXTRAS]
        spent = watch.seconds
        macs, total = sum(op.macs for op in graph.ops), sum(work_of(graph).bytes)
        cells = []
        for extra in EXTRAS:
            best = min((run.at_most(extra) for run in runs), key=lambda point: (point.peak, point.cost))
            cells.append(_cell(best, macs, total))
        documents = _documents(graph, schedule.order, target, dialect)
        shown = [_cell(point, macs, total) for point in documents]
        bound = kilobytes(runs[0].lower_bound)
        yield name, len(graph.ops), kilobytes(schedule.peak), *cells, bound, *shown, f"{spent:.0f}"


def _run(
    graph: Graph, order: Sequence[int], target: Target, dialect: Dialect, seconds: float, **aim: float
) -> RematResult:
    return search(graph, order, target, dialect, Run(Limits(seconds)), most_extra=aim["most_extra"])


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


def random_table(sizes: Sequence[int], seeds: Sequence[int], target: Target, seconds: float) -> Iterator[Part]:
    """Yield the lines of the table of random layers: the extra work of the greedy and of the search."""
    yield Heading(
        "ops",
        "seed",
        "budget",
        "greedy",
        "~greedy s",
        "search",
        "bound",
        "gap",
        "MACs",
        "bytes",
        "found by",
        "status",
        "~s",
    )
    for ops in sizes:
        for seed in seeds:
            graph = layers(ops, seed)
            schedule = schedule_graph(graph, Run(Limits(_ORDER_SECONDS))).schedule
            for part in PARTS:
                cells = _measure(graph, schedule.order, schedule.peak, part, target, seconds)
                yield ops, seed, percent(part), *cells


def _measure(graph: Graph, order: Sequence[int], peak: int, part: float, target: Target, seconds: float) -> list[str]:
    budget = int(peak * part)
    ordered = rematerialise(graph, order, _PLAIN).graph
    costs = work_of(ordered).costs
    watch = Stopwatch()
    tracer = Tracer(apply_target(ordered, target), costs, repeatable(ordered))
    greedy = reduce_to(tracer, range(len(order)), budget)
    greedy_seconds = watch.seconds
    watch = Stopwatch()
    found = search(graph, order, target, _PLAIN, Run(Limits(seconds)), budget=budget)
    spent = watch.seconds
    best = found.best
    work = work_of(graph)
    return [
        percent(greedy.cost / found.total) if greedy.peak <= budget else f"fails at {percent(greedy.peak / peak)}",
        f"{greedy_seconds:.1f}",
        percent(best.cost / found.total, 2) if found.met else f"fails at {percent(best.peak / peak)}",
        percent(best.cost_bound / found.total, 2) if best.cost_bound else "-",
        percent(1 - min(best.cost, best.cost_bound) / best.cost) if found.met and best.cost else "-",
        percent(best.extra_macs / sum(work.macs)),
        percent(best.extra_bytes / sum(work.bytes)),
        best.method,
        best.status,
        f"{spent:.1f}",
    ]


def tables(values: Values) -> Iterator[Part]:
    """Yield the tables asked for."""
    target = load_target(values.target)
    names = [*NETWORKS] if values.networks is None else values.networks
    if names:
        yield from network_table(names, target, values.seconds)
        yield ""
    if values.sizes:
        yield from random_table(values.sizes, values.seeds, target, values.seconds)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--networks", nargs="*", choices=[*NETWORKS], help="default: all; none without a name"),
        option("--sizes", nargs="*", type=int, default=list(SIZES), help="ops of the random layers"),
        option("--seeds", nargs="*", type=int, default=[1], help="of the random layers"),
        option("--seconds", type=float, default=60, help="per search"),
        option("--target", default="ideal", help="memory rules"),
    ),
    docs="docs/benchmarks/rewrites.md",
)
