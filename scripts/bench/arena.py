"""Measure the addresses: for each real model the arena next to the largest sum of bytes live at once.

A ratio of 1.000 means that nothing is lost to fragmentation. Models: those in ``models/`` and ``models/networks/``, and
the light models that the installed onnx package carries; for their own runtime and for a perfect planner.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import memsched
from scripts.bench.models import ROOT, kilobytes, light_models


def row(model: Path, target: str | None, time_limit: float) -> tuple[str, int, int]:
    """Return one line of the Markdown table, the bytes live at once and those of the arena."""
    started = time.perf_counter()
    found = memsched.optimize(str(model), target=target, time_limit=time_limit, verify=False)
    seconds = time.perf_counter() - started
    allocation = found.allocation
    live, arena = live_bytes(found), allocation.arena
    cells = [
        model.stem,
        found.report["target"]["name"],
        kilobytes(found.schedule.peak),
        kilobytes(live),
        kilobytes(arena),
        f"{arena / live if live else 1:.4f}",
        allocation.status,
        allocation.method,
        f"{seconds:.2f}",
    ]
    return "| " + " | ".join(cells) + " |", live, arena


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


def main() -> None:
    """Run every model for every target and print the table and the total ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="models to run instead of all")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--target", action="append", help="targets instead of each format's own and ideal")
    arguments = parser.parse_args()
    shipped = [*sorted((ROOT / "models").glob("*.tflite")), *sorted((ROOT / "models/networks").glob("*.onnx"))]
    print("KB of 1024 bytes; seconds of the whole optimisation without verification.\n")
    print("| model | target | peak | live bound | arena | ratio | status | method | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    total_live = total_arena = 0
    for model in arguments.models or [*shipped, *light_models()]:
        for target in arguments.target or [None, "ideal"]:
            line, live, arena = row(model, target, arguments.time_limit)
            total_live, total_arena = total_live + live, total_arena + arena
            print(line, flush=True)
    print(f"\nTotal: {kilobytes(total_live)} live, {kilobytes(total_arena)} arena, {total_arena / total_live:.4f}")


if __name__ == "__main__":
    main()
