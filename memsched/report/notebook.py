"""Reports as notebooks show them: a fragment of HTML without scripts, in which everything is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from memsched.base.shown import LONGEST_TEXT, NAME_COLUMNS, TABLE_ROWS
from memsched.base.units import counted
from memsched.report.console import figure_rows, findings
from memsched.report.diff import FIGURE_LABELS, change_word, diff_verdict, figure_growth, figure_text
from memsched.report.dump import dump_report
from memsched.report.text import printable, shortened
from memsched.report.values.base import Section
from memsched.report.values.diff import DiffReport
from memsched.report.values.optimize import OptimizeReport
from memsched.report.verdict import verdict_sentence

__all__ = ["notebook_html"]

_WIDTH, _HEIGHT = 640, 120
"""The size of the picture, pixels."""


def notebook_html(report: Section) -> str:
    """Return a report as a fragment of HTML: of a model picture, figures and findings, of a comparison its table.

    Anything else is its JSON, folded.
    """
    if isinstance(report, OptimizeReport):
        return _model(report)
    if isinstance(report, DiffReport):
        return _diff(report)
    text = dump_report(report)
    more = "" if len(text) <= LONGEST_TEXT else " ..."
    return f"<details><summary>memsched</summary><pre>{_shown(text[:LONGEST_TEXT])}{more}</pre></details>"


def _model(report: OptimizeReport) -> str:
    model = report.model
    title = f"{shortened(model.path, NAME_COLUMNS)}: {counted(model.ops, 'op')}, target {report.target.name}"
    figures = [(label, f"{peak:,}", f"{arena:,}") for label, peak, arena in figure_rows(report)]
    lines = [line for line, _ in findings(report, NAME_COLUMNS, verbose=False)]
    after = [step.footprint_bytes for step in report.written.steps] if report.command == "optimize" else []
    return (
        f"<div><strong>{_shown(verdict_sentence(report))}</strong><p>{_shown(title)}</p>"
        f"{_picture([step.footprint_bytes for step in report.original.steps], after)}"
        f"{_table(('order', 'peak, bytes', 'arena, bytes'), figures)}"
        f"<ul>{''.join(f'<li>{_shown(line)}</li>' for line in lines)}</ul></div>"
    )


def _diff(report: DiffReport) -> str:
    rows: list[tuple[str, ...]] = []
    for model in report.models:
        name = shortened(model.path, NAME_COLUMNS)
        found = [(FIGURE_LABELS[key], one) for key, one in model.figures.items()]
        if report.kind == "batch":
            required = model.figures.get("required_bytes")
            found = [] if required is None else [(change_word(model.change), required)]
        changes = [(label, figure_text(one.old), figure_text(one.new), figure_growth(one)) for label, one in found]
        rows += [(name, *change) for change in changes] or [(name, change_word(model.change), "", "", "")]
    more = f"<p>and {len(rows) - TABLE_ROWS} more</p>" if len(rows) > TABLE_ROWS else ""
    table = _table(("model", "", "old", "new", "change"), rows[:TABLE_ROWS])
    return f"<div>{table}{more}<p>{_shown(diff_verdict(report)[0])}</p></div>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    heads = "".join(f"<th>{_shown(cell)}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{_shown(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _picture(before: Sequence[int], after: Sequence[int]) -> str:
    """Return memory over time as an inline picture: the file's order as a line, what was found as an area."""
    highest = max((*before, *after), default=0)
    if not highest:
        return ""
    area = (
        f'<polygon points="0,{_HEIGHT} {_points(after, highest)} {_WIDTH},{_HEIGHT}" fill="#4c78a8" />' if after else ""
    )
    line = f'<polyline points="{_points(before, highest)}" fill="none" stroke="#888" />' if before else ""
    label = escape(f"memory over time, at most {highest:,} bytes; grey: the file's order")
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'style="display:block;max-width:100%" aria-label="{label}"><title>{label}</title>{area}{line}</svg>'
    )


def _points(sizes: Sequence[int], highest: int) -> str:
    """Return a staircase of at most a step for each pixel: of steps that share one, the largest."""
    columns = min(len(sizes), _WIDTH)
    tops = [max(sizes[index * len(sizes) // columns : (index + 1) * len(sizes) // columns]) for index in range(columns)]
    heights = [round(_HEIGHT * (1 - top / highest), 1) for top in tops]
    edges = [round(_WIDTH * index / columns, 1) for index in range(columns + 1)]
    return " ".join(
        f"{left},{height} {right},{height}" for left, right, height in zip(edges, edges[1:], heights, strict=False)
    )


def _shown(text: str) -> str:
    return "\n".join(escape(printable(line)) for line in text.split("\n"))
