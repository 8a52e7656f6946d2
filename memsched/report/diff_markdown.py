"""What changed between two reports, as a Markdown table for a comment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from memsched.base.shown import NAME_COLUMNS, ROWS_SHOWN, TABLE_ROWS
from memsched.base.units import counted
from memsched.report.diff import FIGURE_LABELS, change_word, diff_verdict, figure_growth, figure_text, totals_line
from memsched.report.text import shortened
from memsched.report.values.diff import ChangedFigure, DiffReport, ModelDiff, PeakTensorRow

__all__ = ["diff_markdown"]

_MARKUP = re.compile(r"[^\w ./,;%-]|_")


def diff_markdown(diff: DiffReport, sentence: str = "") -> str:
    """Return a heading with the verdict, a table, what came to the peak and what got worse; names are escaped.

    Args:
        sentence: The verdict of the new report by itself, if it is one of a single model.
    """
    lines = [f"### memsched: {_text(diff_verdict(diff)[0].partition(':')[0])}", ""]
    lines += [_text(sentence), ""] if sentence else []
    lines += _model(diff.models[0]) if diff.kind == "model" else _batch(diff)
    worse = [f"- {_name(model.name)}: {_text(reason)}" for model in diff.models for reason in model.regressions]
    if worse:
        lines += ["", *_limited(worse, TABLE_ROWS, "- and {} more")]
    return "\n".join(lines) + "\n"


def _model(model: ModelDiff) -> Iterator[str]:
    yield f"| {_name(model.name)} | before, B | now, B | change |"
    yield "|---|---:|---:|---:|"
    for key, label in FIGURE_LABELS.items():
        if key in model.figures:
            yield f"| {label} {_cells(model.figures[key])}"
    for note in model.notes:
        yield from ("", _text(note))
    yield from _tensors("Came to the peak", model.came_to_peak)
    yield from _tensors("Left the peak", model.left_peak)


def _batch(diff: DiffReport) -> Iterator[str]:
    changed = [model for model in diff.models if model.change != "same"]
    rows = [_row(model) for model in sorted(changed, key=lambda model: not model.regressions)]
    if rows:
        yield "| model | | before, B | now, B | change |"
        yield "|---|---|---:|---:|---:|"
        yield from _limited(rows, TABLE_ROWS, "| and {} more | | | | |")
        yield ""
    yield totals_line(diff.totals)


def _row(model: ModelDiff) -> str:
    figure = model.figures.get("required_bytes")
    return f"| {_name(model.path)} | {change_word(model.change)} {'| | | |' if figure is None else _cells(figure)}"


def _cells(figure: ChangedFigure) -> str:
    return f"| {figure_text(figure.old)} | {figure_text(figure.new)} | {figure_growth(figure)} |"


def _tensors(title: str, tensors: Sequence[PeakTensorRow]) -> Iterator[str]:
    if not tensors:
        return
    total = sum(one.size_bytes for one in tensors)
    yield from ("", f"<details><summary>{title}: {counted(len(tensors), 'tensor')}, {total:,} B</summary>", "")
    yield from ("| tensor | bytes |", "|---|---:|")
    rows = [f"| {_name(one.tensor)} | {one.size_bytes:,} |" for one in tensors]
    yield from _limited(rows, ROWS_SHOWN, "| and {} more | |")
    yield from ("", "</details>")


def _limited(rows: Sequence[str], most: int, more: str) -> Iterable[str]:
    return rows if len(rows) <= most else [*rows[:most], more.format(len(rows) - most)]


def _name(name: str) -> str:
    return f"<code>{_text(shortened(name, NAME_COLUMNS))}</code>"


def _text(text: str) -> str:
    """Return ``text`` with every character that Markdown or HTML would act on as a numeric reference."""
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", text)
