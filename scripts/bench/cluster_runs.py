"""Run plans with one process per device, and hold bytes, outputs and memory of every process against the plan.

Weights are random, but all there: ONNX Runtime's basic graph optimisation computes what the generators leave to it.
"measured" is the weights in a process's models, the arrays that it held, and what ONNX Runtime had beside them;
"process" is how much its resident memory grew from before the first model was loaded to its most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from memsched.distribute.search import METHODS, Method
from memsched.distributing import Distributed, distribute, run_plan
from memsched.errors import MemschedError
from memsched.runtimes.onnxruntime import offline_optimized
from memsched.targets.cluster import Cluster, load_cluster
from scripts.networks.catalogue import build

_NETWORKS = ("resnet50", "googlenet", "inception_v3", "mobilenet_v2")
_MEGABYTE = 1 << 20


def with_weights(name: str) -> bytes:
    """Return a network of the catalogue with all its weights in the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(build(name).SerializeToString())
        return offline_optimized(path, "basic")


def cluster_of(base: Cluster, count: int) -> Cluster:
    """Return a cluster of so many devices like the first of ``base``."""
    return replace(base, devices=tuple(replace(base.devices[0], name=f"board-{number}") for number in range(count)))


def row(name: str, found: Distributed, seconds: float) -> str:
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
            ratios.append((device.activations + weights) / max(1, plan.memory[number]))
            most = max(most, device.activations + weights)
        if device.resident_peak is not None and device.resident_start is not None:
            grown.append(device.resident_peak - device.resident_start)
    error = "bit-equal" if executed.equal else f"{executed.relative_error:.1e}"
    return (
        f"| {name} | {plan.devices} | {found.request.method} | {error} | {len(plan.steps)} | {len(transfers)} "
        f"| {planned:,} | {counted:,} | {max(plan.memory) / _MEGABYTE:.1f} | {most / _MEGABYTE:.1f} | {_span(ratios)} "
        f"| {max(grown, default=0) / _MEGABYTE:.1f} | {seconds:.0f} |"
    )


def _span(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.3f} to {max(ratios):.3f}" if ratios else "-"


def rows(
    names: Sequence[str], base: Cluster, counts: Sequence[int], methods: Sequence[Method], limit: float
) -> Iterator[str]:
    """Yield the table."""
    yield (
        "| network | processes | method | outputs | steps | transfers | bytes, plan | bytes, sockets | MB, plan "
        "| MB, measured | measured / plan | MB, process | s |"
    )
    yield "|---|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name in names:
        data = with_weights(name)
        for count in counts:
            for method in methods:
                started = time.perf_counter()
                found = distribute(data, cluster_of(base, count), method=method, time_limit=limit)
                found = run_plan(found, patience_seconds=300.0)
                yield row(name, found, time.perf_counter() - started)


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.cluster_runs", description=__doc__)
    parser.add_argument("networks", nargs="*", default=_NETWORKS, help=f"default: {' '.join(_NETWORKS)}")
    parser.add_argument("--cluster", default="pi4x4", help="its first device is taken; default: %(default)s")
    parser.add_argument("--counts", type=int, nargs="+", default=[2, 4], help="processes; default: 2 4")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["even", "auto"], help="default: even auto")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per search; default: %(default)s")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write the networks there and run nothing")
    arguments = parser.parse_args()
    if arguments.save is not None:
        arguments.save.mkdir(parents=True, exist_ok=True)
        for name in arguments.networks:
            (arguments.save / f"{name}.onnx").write_bytes(with_weights(name))
        return 0
    methods = [cast("Method", method) for method in arguments.methods]
    cluster = load_cluster(arguments.cluster)
    for line in rows(arguments.networks, cluster, arguments.counts, methods, arguments.time_limit):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MemschedError as error:
        sys.exit(f"error: {error}")
