"""Measure pages: their size, and the seconds until a headless Chromium has drawn them (a table in Markdown)."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memsched
from memsched.report.build import dump_report
from memsched.report.page import render_page
from scripts.networks.growth import KINDS
from scripts.screenshot_page import browser, open_page, resize

_MODELS = Path(__file__).parents[2] / "models"
_LARGE = 100_000


def reports(names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and reports of models, and of graphs of 100,000 ops that no file could hold."""
    for name in names:
        result = memsched.optimize(_MODELS / name, verify=False, time_limit=10)
        yield Path(name).stem, dict(result.report.data)
    for kind in KINDS:
        yield f"{kind}, {_LARGE:,} ops", _large(kind)


def _large(kind: str) -> dict[str, Any]:
    """Return the report of a generated graph in its own order, drawn against its reverse post-order."""
    from memsched.allocate.arena import allocate
    from memsched.graph.checker import check_schedule
    from memsched.graph.liveness import Storage, evaluate
    from memsched.graph.model import Schedule
    from memsched.report.build import Facts, build_report
    from memsched.schedule.orders import reverse_post_order

    graph = KINDS[kind](_LARGE)
    storage = Storage.of(graph)
    order = tuple(range(len(graph.ops)))
    other = reverse_post_order(storage)
    profile, before = evaluate(storage, order), evaluate(storage, other)
    schedule = Schedule(order, profile.in_place(storage, order), profile.peak, 0, "feasible", "", "file order")
    allocation = allocate(graph, schedule, alignment=1, storage=storage)
    figures = {"peak_bytes": before.peak, "arena_bytes": before.peak}
    given = {"ops": [graph.ops[number].name for number in other], "footprints_bytes": list(before.footprints)}
    model = {"path": kind, "format": "onnx", "sha256": "0" * 64, "ops": len(order), "tensors": len(graph.tensors)}
    target = {"name": "paper", "description": "", "runtime": "", "alignment_bytes": 1, "default_order": "file"}
    facts = Facts(
        memsched_version=memsched.__version__,
        command="analyze",
        model={**model, "weights_bytes": 0, "macs": 0, "graphs": 1, "constant_ops": 0},
        output=None,
        target={**target, "inputs": "arena", "in_place": True},
        baselines={
            "file_order": {**figures, **given},
            "reverse_post_order": figures,
            "runtime_default_order": figures,
        },
        graph=graph,
        schedule=schedule,
        checked=check_schedule(graph, schedule),
        allocation=allocation,
        operators=[op.type for op in graph.ops],
        budget_bytes=None,
        fused=None,
        passes=(),
        bodies=(),
        order_guarantee=None,
        verification=None,
        notes=(),
        interrupted=False,
        seed=0,
        seconds=0.0,
    )
    return build_report(facts)


def main() -> None:
    """Print a row per page."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = ["nasnetmobile_int8.tflite", "networks/nasnet_a.onnx", "networks/transformer.onnx"]
    parser.add_argument("models", nargs="*", default=default, help="in models/; default: %(default)s")
    parser.add_argument("--runs", type=int, default=5, help="the median is printed; default: %(default)s")
    arguments = parser.parse_args()
    print("| page | ops | report, bytes | page, bytes | opened in, s |")
    print("|---|---|---|---|---|")
    with browser() as driver, tempfile.TemporaryDirectory() as folder:
        resize(driver, 1280, 900)
        for name, report in reports(arguments.models):
            page = Path(folder) / "page.html"
            page.write_text(render_page(report), encoding="utf-8")
            seconds = statistics.median(open_page(driver, page) for _ in range(arguments.runs))
            sizes = f"{len(dump_report(report).encode()):,} | {page.stat().st_size:,}"
            print(f"| {name} | {len(report['steps']):,} | {sizes} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
