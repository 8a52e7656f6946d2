"""Measure pages: their size, and the seconds until a headless Chromium has drawn them; or save what they look like."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import memsched
from memsched.report.dump import dump_report
from memsched.report.page import render_page
from memsched.report.values.optimize import OptimizeReport
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, Verdict, option, positional
from scripts.networks.growth import KINDS
from scripts.screenshot_page import browser, capture, open_page, prefer, resize

_SIZES = (1280, 390)
_SCHEMES = ("light", "dark")


def reports(names: list[str]) -> Iterator[tuple[str, OptimizeReport]]:
    """Yield the names and reports of models, and of generated graphs, larger than any file could hold."""
    for name in names:
        kind, _, count = name.rpartition("-")
        if kind in KINDS:
            yield name, _generated(kind, int(count))
            continue
        result = memsched.optimize(_found(name), verify=False, time_limit=10)
        yield Path(name).stem, result.report.values


def _found(name: str) -> Path:
    """Return the file of that path, or the one in ``models/``."""
    return Path(name) if Path(name).exists() else ROOT / "models" / name


def _pages(names: list[str], folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and pages of models as the command line makes them, with the suggestions that it tries."""
    page = folder / "page.html"
    for name in names:
        kind, _, count = name.rpartition("-")
        if kind in KINDS:
            page.write_text(render_page(_generated(kind, int(count))), encoding="utf-8")
            yield name, page
            continue
        model, _, target = name.partition("=")
        path = _found(model)
        # In its folder, so that no path on the page differs from one machine to another.
        shutil.copy(path, folder)
        command = [sys.executable, "-m", "memsched", "optimize", path.name, "--effort", "10", "--html", page.name]
        command += ["--target", target] if target else []
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield path.stem, page


def _generated(kind: str, count: int) -> OptimizeReport:
    """Return the report of a generated graph in its own order, drawn against its reverse post-order."""
    from memsched.check.schedule import check_schedule
    from memsched.graph.liveness import Storage, evaluate
    from memsched.graph.model import Schedule
    from memsched.report.graphs import proof_section, step_rows, written_section
    from memsched.report.values.base import SCHEMA_VERSION
    from memsched.report.values.border import InterfaceSection
    from memsched.report.values.graphs import OrdersSection, OriginalSection, OriginalStepRow
    from memsched.report.values.optimize import Sections, TargetSection
    from memsched.report.values.runtime import RequirementParts, RequirementSection
    from memsched.report.values.shared import FiguresSection, ModelSection
    from memsched.report.values.verdict import VerdictSection
    from memsched.runtimes.graph_plan import GraphPlan
    from memsched.solve.allocate.arena import allocate
    from memsched.solve.schedule.orders import reverse_post_order

    graph = KINDS[kind](count)
    storage = Storage.of(graph)
    order = tuple(range(len(graph.ops)))
    other = reverse_post_order(storage)
    profile, before = evaluate(storage, order), evaluate(storage, other)
    schedule = Schedule(order, profile.in_place(storage, order), profile.peak, 0, "feasible", "", "file order")
    allocation = allocate(graph, schedule, alignment=1, storage=storage)
    plan = GraphPlan(graph, schedule, check_schedule(graph, schedule), profile.peak, None, ())
    steps = step_rows(graph, schedule, plan.checked, rows=True)
    figures = FiguresSection(peak_bytes=before.peak, arena_bytes=before.peak)
    required, arena = before.peak, allocation.arena
    none = RequirementParts()
    return OptimizeReport(
        schema_version=SCHEMA_VERSION,
        memsched_version=memsched.__version__,
        command="analyze",
        seed=0,
        seconds=0.0,
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
        assumed=(),
        verdict=VerdictSection(
            unit="arena",
            original_bytes=required,
            bytes=arena,
            time_ratio=None,
            measured=False,
            outputs="not_run",
            runtime=None,
            session=None,
            extra_macs_percent=0.0,
            interrupted=False,
            notes=(),
        ),
        budget=None,
        ledger=(),
        proof=proof_section(plan, rewritten=False),
        measurements=(),
        original=OriginalSection(
            schedule=figures,
            orders=OrdersSection(reverse_post_order=figures, runtime_default_order=figures),
            steps=tuple(
                OriginalStepRow(op=graph.ops[number].name, footprint_bytes=size)
                for number, size in zip(other, before.footprints, strict=True)
            ),
            buffers=(),
        ),
        written=written_section(
            plan,
            allocation,
            steps,
            before=before.peak,
            operators=(op.type for op in graph.ops),
            interface=InterfaceSection(inputs=(), outputs=()),
        ),
        sections=Sections(
            requirement=RequirementSection(runtime="", given_bytes=required, bytes=arena, given_parts=none, parts=none)
        ),
        alternatives=(),
    )


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per page, or per picture of one."""
    if values.screenshots is not None:
        yield from _pictures(values)
        return
    yield Heading("page", "ops", "~report, bytes", "~page, bytes", "~opened in, s")
    before, quickest = os.getloadavg()[0], []
    with browser() as driver, tempfile.TemporaryDirectory() as folder:
        resize(driver, 1280, 900)
        for name, report in reports(values.models or _DEFAULT):
            page = Path(folder) / "page.html"
            page.write_text(render_page(report), encoding="utf-8")
            seconds = sorted(map(partial(open_page, driver), [page] * values.runs))
            sizes = (f"{len(dump_report(report).encode()):,}", f"{page.stat().st_size:,}")
            yield name, f"{len(report.written.steps):,}", *sizes, f"{seconds[len(seconds) // 2]:.2f}"
            quickest.append(f"{name} {seconds[0]:.2f} s")
    yield f"quickest: {', '.join(quickest)}"
    yield f"load of the machine: {before:.1f} at first, {os.getloadavg()[0]:.1f} in the end"


def _pictures(values: Values) -> Iterator[Part]:
    """Save each page in each width and colour scheme, and say whether one logs anything or is too wide."""
    values.screenshots.mkdir(parents=True, exist_ok=True)
    wrong = 0
    yield Heading("picture", ">width", ">height", "~messages")
    with browser() as driver, tempfile.TemporaryDirectory() as folder:
        for name, page in _pages(values.models or _PICTURED, Path(folder)):
            for width in _SIZES:
                for scheme in _SCHEMES:
                    path = values.screenshots / f"{name}_{width}_{scheme}.png"
                    messages = _picture(driver, page, path, width, scheme)
                    # Of the page, which is wider than its window only where the window scrolls sideways.
                    box = [
                        int(driver.execute_script(f"return document.documentElement.scroll{side}")) for side in _SIDES
                    ]
                    wrong += bool(messages) or box[0] > width
                    yield path.name, *(f"{side:,}" for side in box), "; ".join(messages) or "none"
    yield Verdict(f"pages that log a message or scroll sideways: {wrong}", wrong > 0)


def _picture(driver: Any, page: Path, path: Path, width: int, scheme: str) -> list[str]:
    """Save what a page looks like, and return what it logs."""
    resize(driver, width, 900)
    prefer(driver, scheme)
    driver.get_log("browser")
    open_page(driver, page)
    capture(driver, path)
    return [entry["message"] for entry in driver.get_log("browser")]


_SIDES = ("Width", "Height")
_LARGE = [f"{kind}-100000" for kind in KINDS]
_DEFAULT = ["nasnetmobile_int8.tflite", "networks/nasnet_a.onnx", "networks/transformer.onnx", *_LARGE]
_PICTURED = [
    *("person_detect.tflite=tflm-reference", "mobilenetv2_035_96_int8.tflite", "networks/transformer.onnx"),
    *("nasnetmobile_int8.tflite", "layered-10"),
]
BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional(
            "models",
            help=f"files, those of models/ by name, or KIND-OPS for a generated graph; default: {' '.join(_DEFAULT)}",
        ),
        option("--runs", type=int, default=5, help="median and minimum are printed"),
        option(
            "--screenshots",
            type=Path,
            metavar="DIR",
            help="save pictures of the pages, 1,280 and 390 pixels wide, light and dark, and fail where one logs a "
            f"message; models may be MODEL=TARGET; default: {' '.join(_PICTURED)}",
        ),
    ),
    docs="docs/benchmarks/trust.md",
)
