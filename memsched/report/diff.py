"""What changed between two reports, as people read it; the values are those of `memsched diff --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from memsched.base.shown import ROWS_SHOWN
from memsched.base.units import counted
from memsched.report.text import console_table, print_line, shortened
from memsched.report.values.diff import (
    Change,
    ChangedFigure,
    DiffReport,
    DiffTotals,
    FigureName,
    ModelDiff,
    PeakTensorRow,
)

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "FIGURE_LABELS",
    "change_word",
    "diff_verdict",
    "figure_growth",
    "figure_text",
    "print_diff",
    "totals_line",
]

FIGURE_LABELS: Mapping[FigureName, str] = {
    "required_bytes": "required",
    "file_peak_bytes": "peak, file order",
    "peak_bytes": "peak",
    "arena_bytes": "arena",
    "lower_bound_bytes": "bound",
    "extra_macs_percent": "extra MACs, %",
}
"""What figures are called, in the order in which they are shown."""

_WORDS = {
    "larger": "larger",
    "smaller": "smaller",
    "different": "different",
    "came": "new here",
    "went": "not there any more",
    "fails": "fails now",
    "recovered": "failed before",
    "failed_before": "fails as before",
}
_STYLES = {"larger": "red", "fails": "red", "smaller": "green", "recovered": "green"}


def print_diff(console: Console, diff: DiffReport, *, verbose: bool = False) -> None:
    """Print the figures of one model, or a row for each model of a batch that changed, and the regressions.

    Args:
        verbose: Rows of models that did not change, and all tensors that came to the peak or left it.
    """
    print_line(console, f"{diff.old} -> {diff.new}", "bold", whole=True)
    if diff.kind == "model":
        _print_model(console, diff.models[0], verbose=verbose)
    else:
        _print_batch(console, diff, verbose=verbose)
    text, style = diff_verdict(diff)
    print_line(console, text, style)


def diff_verdict(diff: DiffReport) -> tuple[str, str | None]:
    """Return in a line whether anything got worse, and its style."""
    count, percent = diff.totals.regressions, diff.fail_percent
    if not count:
        return ("nothing got worse" if percent is None else f"no regression beyond {percent:g} %"), "green"
    if diff.kind == "model":
        return f"{_worse(diff)}: {'; '.join(diff.models[0].regressions)}", "red"
    return f"{_worse(diff)}{'s' if diff.failed else ''}: {counted(count, 'model')} of {diff.totals.models}", "red"


def _worse(diff: DiffReport) -> str:
    """Return what it is called that something got worse: a regression is what fails."""
    return "regression" if diff.failed else "worse"


def _print_model(console: Console, model: ModelDiff, *, verbose: bool) -> None:
    table = console_table(shortened(model.name, 24), "old", "new", "change", left=(0,))
    table.columns[0].min_width = 16
    for key, label in FIGURE_LABELS.items():
        figure = model.figures.get(key)
        if figure is None:
            continue
        table.add_row(label, figure_text(figure.old), figure_text(figure.new), figure_growth(figure))
    console.print(table)
    for note in model.notes:
        print_line(console, f"note: {note}", "yellow")
    most = None if verbose else ROWS_SHOWN
    _print_tensors(console, "came to the peak", model.came_to_peak, most)
    _print_tensors(console, "left the peak", model.left_peak, most)


def _print_tensors(console: Console, title: str, tensors: Sequence[PeakTensorRow], most: int | None) -> None:
    if not tensors:
        return
    print_line(console, f"{title}:")
    for entry in tensors[:most]:
        size = f"  {entry.size_bytes:>14,}  "
        print_line(console, size + shortened(entry.tensor, console.width - len(size)), whole=True)
    if most is not None and len(tensors) > most:
        rest = sum(entry.size_bytes for entry in tensors[most:])
        print_line(console, f"  {rest:>14,}  in {len(tensors) - most} more")


def _print_batch(console: Console, diff: DiffReport, *, verbose: bool) -> None:
    shown = [model for model in diff.models if verbose or model.change != "same"]
    for model in shown:
        text = f"{shortened(model.path, max(16, console.width // 2))}: {change_word(model.change)}"
        if model.figures:
            needed, peak = model.figures["required_bytes"], model.figures["peak_bytes"]
            text += f", required {figure_text(needed.old)} -> {figure_text(needed.new)} B ({figure_growth(needed)})"
            text += f", peak {figure_text(peak.old)} -> {figure_text(peak.new)} B ({figure_growth(peak)})"
        print_line(console, text, _STYLES.get(model.change))
        for note in model.notes:
            print_line(console, f"  note: {note}", "yellow")
        for reason in model.regressions:
            print_line(console, f"  {_worse(diff)}: {reason}", "red")
        if verbose:
            _print_tensors(console, "  came to the peak", model.came_to_peak, None)
            _print_tensors(console, "  left the peak", model.left_peak, None)
    print_line(console, totals_line(diff.totals))


def totals_line(totals: DiffTotals) -> str:
    """Return in a line how many models changed in which way."""
    counts = msgspec.structs.asdict(totals)
    said = ", ".join(f"{counts[key]} {word}" for key, word in _WORDS.items() if counts[key])
    return f"{counted(totals.models, 'model')}: {said or 'none changed'}"


def change_word(change: Change) -> str:
    """Return what happened to a model, in words."""
    return _WORDS.get(change, "same")


def figure_text(value: float) -> str:
    """Return a figure as it is shown: bytes whole, percentages with three places."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def figure_growth(figure: ChangedFigure) -> str:
    """Return the growth in percent; in points for what is a percentage itself, which the caller's label says."""
    if figure.percent is None:
        return "from nothing"
    return "same" if figure.new == figure.old else f"{figure.percent:+.2f} %"
