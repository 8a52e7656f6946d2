"""Measure pages: their size, and the seconds until a headless Chromium has drawn them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import memsched
from memsched.report.dump import dump_report
from memsched.report.page import render_page
from memsched.report.values.optimize import OptimizeReport
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, option, positional
from scripts.bench.runner.timing import median_of
from scripts.networks.growth import KINDS
from scripts.screenshot_page import browser, open_page, resize

_LARGE = 100_000


def reports(names: list[str]) -> Iterator[tuple[str, OptimizeReport]]:
    """Yield the names and reports of models, and of graphs of 100,000 ops that no file could hold."""
    for name in names:
        result = memsched.optimize(ROOT / "models" / name, verify=False, time_limit=10)
        yield Path(name).stem, result.report.values
    for kind in KINDS:
        yield f"{kind}, {_LARGE:,} ops", _large(kind)


def _large(kind: str) -> OptimizeReport:
    """Return the report of a generated graph in its own order, drawn against its reverse post-order."""
    from memsched.allocate.arena import allocate
    from memsched.check.schedule import check_schedule
    from memsched.graph.liveness import Storage, evaluate
    from memsched.graph.model import Schedule
    from memsched.report.build import Facts, build_report
    from memsched.report.values.optimize import BaselinesSection, FileOrderSection, TargetSection
    from memsched.report.values.shared import FiguresSection, ModelSection
    from memsched.schedule.orders import reverse_post_order

    graph = KINDS[kind](_LARGE)
    storage = Storage.of(graph)
    order = tuple(range(len(graph.ops)))
    other = reverse_post_order(storage)
    profile, before = evaluate(storage, order), evaluate(storage, other)
    schedule = Schedule(order, profile.in_place(storage, order), profile.peak, 0, "feasible", "", "file order")
    allocation = allocate(graph, schedule, alignment=1, storage=storage)
    figures = FiguresSection(peak_bytes=before.peak, arena_bytes=before.peak)
    given = FileOrderSection(
        peak_bytes=before.peak,
        arena_bytes=before.peak,
        ops=tuple(graph.ops[number].name for number in other),
        footprints_bytes=tuple(before.footprints),
    )
    facts = Facts(
        memsched_version=memsched.__version__,
        command="analyze",
        model=ModelSection(
            path=kind,
            format="onnx",
            sha256="0" * 64,
            ops=len(order),
            tensors=len(graph.tensors),
            weights_bytes=0,
            macs=0,
            graphs=1,
            constant_ops=0,
        ),
        output=None,
        target=TargetSection(
            name="paper",
            description="",
            runtime="",
            alignment_bytes=1,
            default_order="file",
            inputs="arena",
            in_place=True,
        ),
        baselines=BaselinesSection(file_order=given, reverse_post_order=figures, runtime_default_order=figures),
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


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per page."""
    yield Heading("page", "ops", "~report, bytes", "~page, bytes", "~opened in, s")
    with browser() as driver, tempfile.TemporaryDirectory() as folder:
        resize(driver, 1280, 900)
        for name, report in reports(values.models):
            page = Path(folder) / "page.html"
            page.write_text(render_page(report), encoding="utf-8")
            seconds = median_of(values.runs, partial(open_page, driver, page))
            sizes = (f"{len(dump_report(report).encode()):,}", f"{page.stat().st_size:,}")
            yield name, f"{len(report.steps):,}", *sizes, f"{seconds:.2f}"


_DEFAULT = ["nasnetmobile_int8.tflite", "networks/nasnet_a.onnx", "networks/transformer.onnx"]
BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", default=_DEFAULT, help=f"in models/; default: {' '.join(_DEFAULT)}"),
        option("--runs", type=int, default=5, help="the median is printed"),
    ),
    docs="docs/benchmarks/trust.md",
)
