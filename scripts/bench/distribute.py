"""Measure plans for several devices: simulated latency against one device, even split, GenEFlow and exact references.

Clusters are the built-in boards, 2 to 6 of them, all alike or of mixed speed and memory. Every plan passes the
checker. "one" is the fastest device alone, if the network fits it; reductions are against it. Searches are limited by
work: a busy machine finds the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from memsched.features.distribute import shares as rules
from memsched.features.distribute.checking import check_plan
from memsched.features.distribute.plan import plan_in
from memsched.features.distribute.population import Population
from memsched.features.distribute.refine import bounds_of
from memsched.features.distribute.search import Method, search
from memsched.features.distribute.space import NoPlanFitsError, Space
from memsched.formats.onnx.reader import read
from memsched.graph.distribution import Distribution
from memsched.graph.model import Graph
from memsched.search.limits import Limits
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.targets.cluster import Cluster, Device, LinearTime, load_cluster
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional
from scripts.bench.runner.models import built
from scripts.bench.runner.text import megabytes
from scripts.bench.runner.timing import Stopwatch, best_of, timed

_NETWORKS = ("vgg16", "resnet50", "inception_v3", "googlenet", "mobilenet_v2")
_SPEEDS = (2.0, 1.0, 1.0, 0.4, 1.0, 2.0)
"""Of the mixed devices, the first two for a cluster of two, and so on."""


def network(name: str) -> Graph:
    """Return a network of the catalogue."""
    return read(built(name), f"{name}.onnx").graphs[0]


def cluster_of(base: Cluster, count: int, *, mixed: bool) -> Cluster:
    """Return a cluster of so many devices like the first of ``base``."""
    first = base.devices[0]
    speeds = _SPEEDS[:count] if mixed else (1.0,) * count
    devices = tuple(_device(first, f"{first.name}-{number}", speed) for number, speed in enumerate(speeds))
    return replace(base, devices=devices)


def _device(first: Device, name: str, speed: float) -> Device:
    def faster(time_of: LinearTime) -> LinearTime:
        return LinearTime(time_of.base / speed, time_of.per_mac / speed, time_of.per_byte / speed)

    operators = {kind: faster(one) for kind, one in first.operators.items()}
    return Device(name, int(first.memory * min(speed, 1.0)), faster(first.default), operators)


def found(graph: Graph, cluster: Cluster, method: Method, effort: float) -> tuple[Distribution | None, float]:
    """Return a checked plan, None where none fits, and the seconds that the search took."""
    watch = Stopwatch()
    try:
        plan = search(
            graph, cluster, Run(Limits(None, effort=effort)).paying(1 / MachinePace.SHARE_STEPS), method=method
        )
    except NoPlanFitsError:
        return None, watch.seconds
    took = watch.seconds
    check_plan(graph, plan, cluster)
    return plan, took


def latencies(names: Sequence[str], base: Cluster, counts: Sequence[int], effort: float) -> Iterator[Part]:
    """Yield the table of latencies."""
    yield Heading(
        *("network", "devices", ">one, ms", ">even, ms", ">GenEFlow, ms", ">memsched, ms", ">of one", ">of even"),
        *(">steps", ">bound, ms", ">MB, one", ">MB, most", ">~planned in s"),
    )
    sums: dict[tuple[int, bool], list[tuple[float, float]]] = {}
    for name in names:
        graph = network(name)
        for count in counts:
            for mixed in (False, True):
                cluster = cluster_of(base, count, mixed=mixed)
                one, _ = found(graph, cluster, "single", effort)
                even, _ = found(graph, cluster, "even", effort)
                genetic, _ = found(graph, cluster, "genetic", effort)
                best, took = found(graph, cluster, "auto", effort)
                if best is None:
                    yield name, f"{count} {_kind(mixed)}", "no plan fits", *[""] * 10
                    continue
                if one is not None and even is not None:
                    ratios = (best.latency / one.latency, best.latency / even.latency)
                    sums.setdefault((count, mixed), []).append(ratios)
                plans = (one, even, genetic, best)
                reduced = (_less(best, one), _less(best, even))
                sizes = [megabytes(max(plan.memory) if plan else None, 0) for plan in (one, best)]
                bound = f"{1e3 * best.lower_bound:.1f}"
                told = (name, f"{count} {_kind(mixed)}", *map(_ms, plans), *reduced, len(best.steps), bound)
                yield *told, *sizes, f"{took:.1f}"
    for (count, mixed), pairs in sums.items():
        means = [100 * (sum(pair[place] for pair in pairs) / len(pairs) - 1) for place in range(2)]
        saved = [f"{mean:+.1f} %" for mean in means]
        yield "average", f"{count} {_kind(mixed)}", *[""] * 4, *saved, *[""] * 5


def _kind(mixed: bool) -> str:
    return "mixed" if mixed else "alike"


def _ms(plan: Distribution | None) -> str:
    return "-" if plan is None else f"{1e3 * plan.latency:.1f}"


def _less(plan: Distribution, other: Distribution | None) -> str:
    return "-" if other is None else f"{100 * (plan.latency / other.latency - 1):+.1f} %"


def references(names: Sequence[str], base: Cluster, effort: float) -> Iterator[Part]:
    """Yield the table of the exact method, one op per step: 2 devices, shares of bounded granularity."""
    yield Heading(
        *("network", "devices", ">even, ms", ">GenEFlow, ms", ">exact, ms", "proven", ">fused, ms", ">~exact in s")
    )
    for name in names:
        graph = network(name)
        for mixed in (False, True):
            cluster = cluster_of(base, 2, mixed=mixed)
            even, _ = found(graph, cluster, "even", effort)
            genetic, _ = found(graph, cluster, "genetic", effort)
            exact, took = found(graph, cluster, "exact", effort)
            best, _ = found(graph, cluster, "auto", effort)
            proven = exact is not None and exact.lower_bound == exact.latency
            kind, before = f"2 {_kind(mixed)}", map(_ms, (even, genetic, exact))
            yield name, kind, *before, "yes" if proven else "no", _ms(best), f"{took:.1f}"


def evaluations(names: Sequence[str], base: Cluster) -> Iterator[Part]:
    """Yield the table of how many plans a second are evaluated."""
    import numpy as np

    yield Heading(
        *("network", ">ops", ">~plans per second, arrays", ">~plans per second, one by one", ">~100 plans, ms")
    )
    for name in names:
        space = Space.of(network(name))
        memory = sum(device.memory for device in base.devices)
        axes = [rules.axis_by_memory(space, place, memory) for place in range(len(space.order))]
        shares = rules.even(space, axes, len(base.devices))
        population = Population(space, base, axes)
        bounds = np.repeat(bounds_of(shares), 100, axis=0)
        _, best = best_of(5, partial(population.evaluate, bounds))
        _, one = timed(partial(plan_in, space, shares, base))
        yield name, len(axes), f"{100 / best:,.0f}", f"{1 / one:,.0f}", f"{1e3 * best:.0f}"


def tables(values: Values) -> Iterator[Part]:
    """Yield the table that is asked for."""
    base = load_cluster(values.cluster)
    if values.table == "latencies":
        return latencies(values.networks, base, values.devices, values.effort)
    if values.table == "references":
        return references(values.networks, base, values.effort)
    return evaluations(values.networks, base)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("networks", default=_NETWORKS, help=f"default: {' '.join(_NETWORKS)}"),
        option(
            "--table", choices=("latencies", "references", "evaluations"), default="latencies", help="which is printed"
        ),
        option("--cluster", default="pi4x4", help="whose first device and router"),
        option("--devices", type=int, nargs="+", default=[2, 3, 4, 6], help="how many"),
        option("--effort", type=float, default=20.0, help="work of a search, in seconds of an idle machine"),
    ),
    docs="docs/benchmarks/devices.md",
)
