"""The summary of a batch: one row per model, as JSON, as CSV and as a page without scripts."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from enum import Enum
from typing import Any
from urllib.parse import quote

from memsched import __version__
from memsched.base.frozen import FrozenValue
from memsched.base.units import counted, format_size
from memsched.report.dump import json_text
from memsched.report.outputs import compared
from memsched.report.requirement import needed_memory
from memsched.report.text import printable
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.batch import (
    BatchFaultRow,
    BatchFigures,
    BatchOptionsSection,
    BatchReport,
    BatchRow,
    BatchTotals,
    ExitCode,
    SavedModel,
)
from memsched.report.values.optimize import OptimizeReport, OutputSection

__all__ = ["Row", "Status", "dump_csv", "dump_html", "dump_summary", "figures", "summary"]


class Status(str, Enum):
    """What became of a model."""

    DONE = "done"
    BUDGET_MISSED = "budget_missed"
    FAILED = "failed"
    NOT_RUN = "not_run"


class Row(FrozenValue, frozen=True):
    """One model of a batch.

    Attributes:
        name: Of no other model of the batch.
        exit_code: That of `memsched optimize` on it; None where it was not run to its end.
        attempts: How often it was started: more than once where its process died.
        seconds: Of the last attempt.
        saved: What was found, with its figures; None if there is none.
    """

    name: str
    path: str
    status: Status
    exit_code: int | None = None
    error: str | None = None
    attempts: int = 0
    seconds: float = 0.0
    saved: SavedModel | None = None


def figures(report: OptimizeReport, output: OutputSection) -> BatchFigures:
    """Return what the summary says of a model, from its report."""
    model, proof, before, after = report.model, report.proof, report.original.schedule, report.written.schedule
    verification, budget = report.sections.verification, report.budget
    needed = needed_memory(report)
    return BatchFigures(
        format=model.format,
        sha256=model.sha256,
        ops=model.ops,
        target=report.target.name,
        output_sha256=output.sha256,
        unchanged=output.unchanged,
        file_peak_bytes=before.peak_bytes,
        file_arena_bytes=before.arena_bytes,
        peak_bytes=after.peak_bytes,
        arena_bytes=after.arena_bytes,
        lower_bound_bytes=proof.bound_bytes,
        status=proof.status,
        interrupted=report.verdict.interrupted,
        reduction_percent=after.reduction_percent,
        extra_macs_percent=report.verdict.extra_macs_percent,
        file_required_bytes=needed.given,
        required_bytes=needed.now if budget is None else budget.required_bytes,
        budget_met=None if budget is None else budget.met,
        outputs_equal=None if verification is None else verification.outputs_equal,
        outputs=compared(report.sections)[1],
        at_fault=tuple(
            BatchFaultRow(tensor=fault.tensor, size_bytes=fault.size_bytes)
            for fault in report.written.at_fault[:_FAULTS_KEPT]
        ),
    )


_FAULTS_KEPT = 20
"""Tensors at the peak that the summary lists; the report has them all."""


def summary(rows: Sequence[Row], *, options: BatchOptionsSection, interrupted: bool, seconds: float) -> BatchReport:
    """Return what batch.json holds. Its exit code: 130 interrupted, else 1 some failed, 3 a budget missed, or 0."""
    counts = {status: sum(row.status is status for row in rows) for status in Status}
    done = [row.saved.figures for row in rows if row.saved is not None]
    code: ExitCode = 130 if interrupted else 1 if counts[Status.FAILED] else 3 if counts[Status.BUDGET_MISSED] else 0
    return BatchReport(
        schema_version=SCHEMA_VERSION,
        memsched_version=__version__,
        command="batch",
        options=options,
        exit_code=code,
        interrupted=interrupted,
        seconds=round(seconds, 4),
        totals=BatchTotals(
            models=len(rows),
            done=counts[Status.DONE],
            budget_missed=counts[Status.BUDGET_MISSED],
            failed=counts[Status.FAILED],
            not_run=counts[Status.NOT_RUN],
            file_peak_bytes=sum(values.file_peak_bytes for values in done),
            peak_bytes=sum(values.peak_bytes for values in done),
            file_required_bytes=sum(values.file_required_bytes for values in done),
            required_bytes=sum(values.required_bytes for values in done),
            smaller=sum(values.required_bytes < values.file_required_bytes for values in done),
            optimal=sum(values.status == "optimal" for values in done),
        ),
        models=tuple(map(_model, rows)),
    )


def _model(row: Row) -> BatchRow:
    saved = row.saved
    return BatchRow(
        name=row.name,
        path=row.path,
        status=row.status.value,
        exit_code=row.exit_code,
        error=row.error,
        attempts=row.attempts,
        seconds=round(row.seconds, 4),
        output=None if saved is None else saved.output,
        report=None if saved is None else saved.report,
        result=None if saved is None else saved.figures,
    )


def dump_summary(summary: BatchReport) -> str:
    """Return the summary as JSON text, with one line per model."""
    data = {name: getattr(summary, name) for name in summary.__struct_fields__}
    models = ",\n    ".join(json_text(model) for model in data.pop("models"))
    lines = [f"  {json_text(key)}: {json_text(value)}" for key, value in data.items()]
    return "{\n" + ",\n".join([*lines, f'  "models": [\n    {models}\n  ]']) + "\n}\n"


_COLUMNS = (
    "format",
    "target",
    "ops",
    "file_peak_bytes",
    "peak_bytes",
    "lower_bound_bytes",
    "status",
    "file_arena_bytes",
    "arena_bytes",
    "reduction_percent",
    "extra_macs_percent",
    "file_required_bytes",
    "required_bytes",
    "budget_met",
    "outputs_equal",
    "outputs",
    "sha256",
    "output_sha256",
)


def dump_csv(data: BatchReport) -> str:
    """Return the summary's models as CSV, one row each; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = ("name", "path", "batch_status", "exit_code", "attempts", "seconds", "output", "report")
    writer.writerow([*heads, *_COLUMNS, "error"])
    for model in data.models:
        cells = [getattr(model, head.removeprefix("batch_")) for head in heads]
        cells += [getattr(model.result, column, None) for column in _COLUMNS] + [model.error]
        writer.writerow([_cell(value) for value in cells])
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return a value for a spreadsheet, which must not take a name for a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        shown = printable(value)
        return f"'{shown}" if shown[:1] in {"=", "+", "-", "@"} else shown
    return "" if value is None else value


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7; --bad: #c33; --warn: #b80; --bar: #4a90d9; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 20rem; }
.bar { display: block; height: .35rem; background: var(--line); margin-top: .2rem; }
.bar i { display: block; height: 100%; background: var(--bar); }
.done { color: var(--good); } .failed { color: var(--bad); } .budget_missed, .not_run { color: var(--warn); }
"""

_WORDS = {"done": "done", "budget_missed": "budget missed", "failed": "failed", "not_run": "not run"}


def dump_html(data: BatchReport) -> str:
    """Return the summary as one page that loads nothing and runs nothing."""
    totals = data.totals
    statuses = (totals.done, totals.budget_missed, totals.failed, totals.not_run)
    counts = ", ".join(f"{count} {word}" for count, word in zip(statuses, _WORDS.values(), strict=True) if count)
    rows = "\n".join(_html_row(model) for model in data.models)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>memsched batch: {counted(totals.models, "model")}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{counted(totals.models, "model")}: {html.escape(counts)}</h1>
<p>{totals.smaller} need less than as given, of {totals.optimal} the peak is proven optimal. As given and memsched are
what the runtime allocates: the whole arena, or a session;
{data.seconds:.1f} s{", interrupted" if data.interrupted else ""}; memsched {html.escape(__version__)}.</p>
<div class="wide">
<table>
<thead><tr><th>model</th><th>what became of it</th><th class="n">ops</th><th class="n">as given</th>
<th class="n">memsched</th><th class="n">less</th><th class="n">peak</th><th class="n">extra MACs</th>
<th>proof</th><th class="n">s</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
</body>
</html>
"""


def _html_row(model: BatchRow) -> str:
    path, status = html.escape(printable(model.path)), model.status
    if model.report is not None:
        path = f'<a href="{html.escape(quote(model.report))}">{path}</a>'
    head = f'<tr><td class="name">{path}</td><td class="{status}">{_WORDS[status]}'
    tail = f'<td class="n">{model.seconds:.1f}</td></tr>'
    result = model.result
    if result is None:
        return f'{head}</td><td class="name" colspan="7">{html.escape(printable(model.error or ""))}</td>{tail}'
    before, after, peak = result.file_required_bytes, result.required_bytes, result.peak_bytes
    share = 100 * after / before if before else 100.0
    gap = 100 * (peak - result.lower_bound_bytes) / peak if peak else 0.0
    proof = "optimal" if result.status == "optimal" else f"gap {gap:.1f} %"
    bar = f'<span class="bar" role="presentation"><i style="width:{min(share, 100.0):.1f}%"></i></span>'
    cells = (
        f"{result.ops:,}",
        format_size(before),
        f"{format_size(after)}{bar}",
        f"{100 - share:.1f} %",
        format_size(peak),
        f"{result.extra_macs_percent:.1f} %",
    )
    return head + "</td>" + "".join(f'<td class="n">{cell}</td>' for cell in cells) + f"<td>{proof}</td>{tail}"
