"""Run plans on processes held to a cluster's rates, and hold what they take against what was predicted.

Processes share this machine's cores: everything takes "slower" times as long, and what was measured is divided by it.
"worst step" is the step that is furthest off, of those that take a fiftieth of the whole or more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from memsched.features.distribute.distribute import distribute, latency_of, run_plan
from memsched.targets.cluster import load_cluster
from scripts.bench.cluster_runs import cluster_of, with_weights
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional, time_limit

_NETWORKS = ("mobilenet_v2", "googlenet", "resnet50")
_COUNTED = 0.02


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per network and number of devices."""
    yield Heading(
        *("network", ">devices", ">steps", ">predicted, ms", ">measured, ms", ">off, %", ">worst step, %", ">~slower")
    )
    base = load_cluster(values.cluster)
    base = replace(base, router=replace(base.router, overlap=base.router.overlap or values.overlap))
    for name in values.networks:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.onnx"
            path.write_bytes(with_weights(name))
            for count in values.counts:
                found = distribute(path, cluster=cluster_of(base, count), time_limit=values.time_limit)
                latency = latency_of(run_plan(found, throttled="rates"))
                if latency is None:
                    raise ValueError("there was no run")
                predicted = sum(latency.predicted)
                pairs = zip(latency.predicted, latency.measured, strict=True)
                steps = [_off(measured, one) for one, measured in pairs if one >= _COUNTED * predicted]
                yield (
                    *(name, count, len(found.plan.steps), f"{1e3 * predicted:.2f}", f"{1e3 * latency.total:.2f}"),
                    f"{_off(latency.total, predicted):+.1f}",
                    f"{max(steps, key=abs):+.1f}",
                    latency.slower,
                )


def _off(measured: float, predicted: float) -> float:
    return 100 * (measured / predicted - 1)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("networks", default=_NETWORKS, help=f"default: {' '.join(_NETWORKS)}"),
        option("--cluster", default="pi4x4", help="its first device is taken"),
        option("--counts", type=int, nargs="+", default=[2, 4], help="devices"),
        option("--overlap", action="store_true", help="devices send and receive while they compute"),
        time_limit(20.0),
    ),
    docs="docs/benchmarks/devices.md",
)
