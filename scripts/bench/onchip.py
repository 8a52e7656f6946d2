"""Measure layer fusion in on-chip memory on the networks of the layer fusion paper: DRAM traffic and time.

Per network: no fusion (each layer cut by itself), fusion alone and fusion with reuse of on-chip memory (both with the
paper's flowchart to the letter, and with groups that grow only while that moves less), and the best cut into groups,
without reuse and with it. Every plan passes the checker. Batch size 1.

Two rooflines: "groups" adds up the slower of transfer and computation of each group; "network" is the slower of all
transfers and all computation, as if every group's data could be loaded while the one before is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memsched.codegen.onchip import OnChipPlan, plan
from memsched.codegen.onchip.model import Method, Policy
from memsched.codegen.onchip.optimal import Objective
from memsched.formats.onnx.reader import read
from memsched.graph.model import Graph
from memsched.search.limits import Limits
from memsched.targets.load import load_target
from memsched.targets.model import Target
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional, time_limit
from scripts.bench.runner.models import built
from scripts.bench.runner.timing import Stopwatch
from scripts.networks.catalogue import CLASSIFIERS

_PAPER = {
    "vgg19": "> 15 %, 1.26x",
    "googlenet": "> 15 %",
    "inception_v3": "> 15 %",
    "resnet18": "> 15 %",
    "resnet50": "56 %, 2.62x",
}
_WAYS: dict[str, tuple[Method, Policy, Objective]] = {
    "flowchart": ("flowchart", "separate", "traffic"),
    "flowchart + reuse": ("flowchart", "reuse", "traffic"),
    "fusion": ("greedy", "separate", "traffic"),
    "fusion + reuse": ("greedy", "reuse", "traffic"),
    "optimal, no reuse": ("optimal", "separate", "traffic"),
    "optimal, traffic": ("optimal", "reuse", "traffic"),
    "optimal, time": ("optimal", "reuse", "time"),
}
"""Ways to plan: "flowchart" is the paper's."""


def network(name: str, element_bytes: int) -> Graph:
    """Return a network with elements of so many bytes instead of 4."""
    graph = read(built(name), f"{name}.onnx").graphs[0]
    tensors = tuple(replace(tensor, size=tensor.size * element_bytes // 4) for tensor in graph.tensors)
    return replace(graph, tensors=tensors)


def plans(graph: Graph, target: Target, seconds: float) -> Iterator[tuple[str, OnChipPlan, float]]:
    """Yield each way with its plan and the seconds that planning took."""
    limits = Limits(seconds)
    for way, (method, policy, objective) in _WAYS.items():
        watch = Stopwatch()
        found = plan(graph, target, limits, method=method, policy=policy, objective=objective)
        yield way, found, watch.seconds


def roofline(target: Target, traffic: int, flops: int) -> float:
    """Return the seconds of a network of which all transfers overlap all computation."""
    return max(traffic / target.bandwidth_bytes_per_second, flops / target.flops_per_second)


def rows(
    name: str, target: Target, element_bytes: int, seconds: float
) -> Iterator[tuple[str, tuple[float, float, float], tuple[object, ...]]]:
    """Yield per way, no fusion first, its name, the reduction and both speed-ups, and its row."""
    for way, found, spent in plans(network(name, element_bytes), target, seconds):
        before, after = found.before, found.cost
        slow, fast = (roofline(target, cost.traffic, cost.flops) for cost in (before, after))
        if way == next(iter(_WAYS)):
            times = (f"{1e3 * found.before_seconds:.1f}", "", f"{1e3 * slow:.1f}", "")
            paper = _PAPER.get(name, "")
            yield (
                "none",
                (0, 1, 1),
                (*(name, "none", f"{before.traffic / 1e6:.1f}", "", "", *times, len(found.names), "", paper),),
            )
        figures = (1 - after.traffic / before.traffic, found.before_seconds / found.seconds, slow / fast)
        once = 1 - after.traffic / found.once.traffic
        saved = (f"{100 * figures[0]:.1f} %", f"{100 * once:.1f} %")
        times = (f"{1e3 * found.seconds:.1f}", f"{figures[1]:.2f}x", f"{1e3 * fast:.1f}", f"{figures[2]:.2f}x")
        counts = (len(found.groups), f"{spent:.1f}", "")
        yield way, figures, (name, way, f"{after.traffic / 1e6:.1f}", *saved, *times, *counts)


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per network and way, and the averages."""
    target = load_target(values.target)
    yield Heading(
        *("network", "way", ">traffic, MB", ">saved", ">of each operand once", ">ms, groups", ">speed-up"),
        *(">ms, network", ">speed-up", ">groups", ">~planned in s", "paper"),
    )
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ("none", *_WAYS)}
    for name in values.networks:
        for way, figures, cells in rows(name, target, values.element_bytes, values.time_limit):
            found[way].append(figures)
            yield cells
    for way in _WAYS:
        reduction, groups, whole = (sum(one[place] for one in found[way]) / len(found[way]) for place in range(3))
        paper = "32 %, 1.6x" if way == "flowchart + reuse" else ""
        times = (f"{100 * reduction:.1f} %", "", "", f"{groups:.2f}x", "", f"{whole:.2f}x")
        yield "average", way, "", *times, "", "", paper


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("networks", default=list(CLASSIFIERS), help="default: all five"),
        option("--target", default="diannao", help="the accelerator"),
        option("--element-bytes", type=int, default=4, choices=(1, 2, 4), help="of each tensor's elements"),
        time_limit(60.0, "of each plan"),
    ),
    docs="docs/benchmarks/devices.md",
)
