"""Run plans with one process per device, and hold bytes, outputs and memory of every process against the plan.

Weights are random, but all there: ONNX Runtime's basic graph optimisation computes what the generators leave to it.
"measured" is the weights in a process's models, the arrays that it held, and what ONNX Runtime had beside them;
"process" is how much its resident memory grew from before the first model was loaded to its most.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from memsched.features.distribute.distribute import DistributedNetwork, distribute, run_plan
from memsched.features.distribute.search import METHODS, Method
from memsched.targets.cluster import Cluster, load_cluster
from scripts.bench.offline import offline_optimized
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional, time_limit
from scripts.bench.runner.models import built
from scripts.bench.runner.text import megabytes
from scripts.bench.runner.timing import Stopwatch

_NETWORKS = ("resnet50", "googlenet", "inception_v3", "mobilenet_v2")


def with_weights(name: str) -> bytes:
    """Return a network of the catalogue with all its weights in the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(built(name))
        return offline_optimized(path, "basic")


def cluster_of(base: Cluster, count: int) -> Cluster:
    """Return a cluster of so many devices like the first of ``base``."""
    return replace(base, devices=tuple(replace(base.devices[0], name=f"board-{number}") for number in range(count)))


def row(name: str, found: DistributedNetwork, seconds: float) -> tuple[object, ...]:
    """Return the row of a run."""
    plan, executed = found.plan, found.executed
    if executed is None:
        raise ValueError("there was no run")
    run = executed.run
    transfers = [*(one for step in plan.steps for one in step.transfers), *plan.results]
    planned = sum(one.size * len(one.targets) for one in transfers)
    counted = run.given + sum(device.sent for device in run.devices)
    ratios, grown, most = [], [], 0
    for number, device in enumerate(run.devices):
        models = found.models.steps[number]
        weights = sum(found.models.facts_of(number, step).weights for step, one in enumerate(models) if one is not None)
        if device.activations is not None:
            ratios.append((device.activations + weights) / max(1, found.memory[number]))
            most = max(most, device.activations + weights)
        if device.resident_peak is not None and device.resident_start is not None:
            grown.append(device.resident_peak - device.resident_start)
    error = "bit-equal" if executed.equal else f"{executed.relative_error:.1e}"
    sizes = (f"{planned:,}", f"{counted:,}", megabytes(max(found.memory)), megabytes(most), _span(ratios))
    counts = (len(plan.steps), len(transfers))
    measured = (megabytes(max(grown, default=0)), f"{seconds:.0f}")
    return name, plan.devices, found.request.options.method, error, *counts, *sizes, *measured


def _span(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else "-"


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per network, number of processes and method; nothing where the networks are only to be saved."""
    if values.save is not None:
        values.save.mkdir(parents=True, exist_ok=True)
        for name in values.networks:
            (values.save / f"{name}.onnx").write_bytes(with_weights(name))
        return
    yield Heading(
        *("network", ">processes", "method", "outputs", ">steps", ">transfers", ">bytes, plan", ">bytes, sockets"),
        *(">MB, plan", ">~MB, measured", ">~measured / plan", ">~MB, process", ">~s"),
    )
    base = load_cluster(values.cluster)
    for name in values.networks:
        data = with_weights(name)
        for count in values.counts:
            for method in values.methods:
                watch = Stopwatch()
                asked = cast("Method", method)
                found = distribute(data, cluster=cluster_of(base, count), method=asked, time_limit=values.time_limit)
                found = run_plan(found, patience_seconds=300.0)
                yield row(name, found, watch.seconds)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("networks", default=_NETWORKS, help=f"default: {' '.join(_NETWORKS)}"),
        option("--cluster", default="pi4x4", help="its first device is taken"),
        option("--counts", type=int, nargs="+", default=[2, 4], help="processes"),
        option("--methods", nargs="+", choices=METHODS, default=["even", "auto"], help="of the search"),
        time_limit(60.0),
        option("--save", type=Path, metavar="DIR", help="write the networks there and run nothing"),
    ),
    docs="docs/benchmarks/devices.md",
)
