"""Measure what the order does to plans for several devices: the file's, the one of least memory, and both improved.

"before" is the better plan of the first two.
"""

from __future__ import annotations

from collections.abc import Iterator

from memsched.features.distribute.checking import check_plan
from memsched.features.distribute.orders import OrderAttempt, plan_in_best_order
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.backtrack import Metric
from memsched.targets.cluster import load_cluster
from scripts.bench.distribute import cluster_of, network
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional, time_limit
from scripts.bench.runner.text import megabytes
from scripts.bench.runner.timing import Stopwatch

_NETWORKS = ("vgg16", "resnet50", "inception_v3", "googlenet", "mobilenet_v2")
_METRICS: tuple[Metric, ...] = ("peak", "sum")


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per network, number of devices and metric."""
    yield Heading(
        *("network", ">devices", "metric", ">ms, file's order", ">ms, order found", ">ms, kept", ">MB, before"),
        *(">MB, kept", "order", ">~s"),
    )
    base = load_cluster(values.cluster)
    for name in values.networks:
        graph = network(name)
        for count in values.counts:
            cluster = cluster_of(base, count, mixed=False)
            for metric in _METRICS:
                watch = Stopwatch()
                found = plan_in_best_order(graph, cluster, Run(Limits(values.time_limit)), metric=metric)
                check_plan(graph, found.plan, cluster)
                plans = [one.plan for one in (found.given, found.found) if one is not None and one.plan is not None]
                before = min(plans, key=lambda one: one.latency)
                yield (
                    *(name, count, metric, _shown(found.given), _shown(found.found), _milliseconds(found.plan.latency)),
                    *(megabytes(max(before.memory)), megabytes(max(found.plan.memory)), found.order),
                    f"{watch.seconds:.0f}",
                )


def _shown(one: OrderAttempt | None) -> str:
    return "-" if one is None or one.plan is None else _milliseconds(one.plan.latency)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("networks", default=_NETWORKS, help=f"default: {' '.join(_NETWORKS)}"),
        option("--cluster", default="pi4x4", help="its first device is taken"),
        option("--counts", type=int, nargs="+", default=[2, 3, 4, 6], help="devices"),
        time_limit(60.0),
    ),
    docs="docs/benchmarks/devices.md",
)
