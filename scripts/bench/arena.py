"""Measure the addresses: for each real model the arena next to the largest sum of bytes live at once.

A ratio of 1.000 means that nothing is lost to fragmentation. Models: those in ``models/`` and ``models/networks/``, and
the light models that the installed onnx package carries; for their own runtime and for a perfect planner.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import memsched
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional, time_limit
from scripts.bench.runner.models import light_models, shipped_networks, shipped_tflite
from scripts.bench.runner.text import kilobytes
from scripts.bench.runner.timing import Stopwatch


def row(model: Path, target: str | None, time_limit: float) -> tuple[tuple[object, ...], int, int]:
    """Return the row of a model, the bytes live at once and those of the arena."""
    watch = Stopwatch()
    found = memsched.optimize(str(model), target=target, time_limit=time_limit, verify=False)
    seconds = watch.seconds
    allocation = found.allocation
    live, arena = live_bytes(found), allocation.arena
    sizes = [kilobytes(size) for size in (found.schedule.peak, live, arena)]
    ratio = f"{arena / live if live else 1:.4f}"
    name = found.report["target"]["name"]
    return (model.stem, name, *sizes, ratio, allocation.status, allocation.method, f"{seconds:.2f}"), live, arena


def live_bytes(found: memsched.OptimizeResult) -> int:
    """Return the largest sum of rounded sizes that are live in one step."""
    change: dict[int, int] = {}
    for placement in found.allocation.placements:
        change[placement.first_step] = change.get(placement.first_step, 0) + placement.size
        change[placement.last_step + 1] = change.get(placement.last_step + 1, 0) - placement.size
    live = largest = 0
    for step in sorted(change):
        live += change[step]
        largest = max(largest, live)
    return largest


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model and target, and the total ratio."""
    yield "KB of 1024 bytes; seconds of the whole optimisation without verification.\n"
    yield Heading("model", "target", "peak", "live bound", "arena", "ratio", "status", "method", "~s")
    total_live = total_arena = 0
    for model in values.models or [*shipped_tflite(), *shipped_networks(), *light_models()]:
        for target in values.target or [None, "ideal"]:
            cells, live, arena = row(model, target, values.time_limit)
            total_live, total_arena = total_live + live, total_arena + arena
            yield cells
    yield f"\nTotal: {kilobytes(total_live)} live, {kilobytes(total_arena)} arena, {total_arena / total_live:.4f}"


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", type=Path, help="models to run instead of all"),
        time_limit(60.0),
        option("--target", action="append", help="targets instead of each format's own and ideal"),
    ),
    docs="docs/benchmarks/addresses.md",
)
