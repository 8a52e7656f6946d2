"""What people read and see of the section ``frontier``: a table, and a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from memsched.base.errors import OutputError
from memsched.base.shown import WORTH_TELLING
from memsched.base.units import KIB, MIB
from memsched.report.blocks import grows_most
from memsched.report.requirement import frontier_column
from memsched.report.text import printable
from memsched.report.values.blocks import CurveSection
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.rewrites import FrontierRow

__all__ = ["PICTURES", "check_drawing", "draw", "frontier_rows"]

PICTURES = (".svg", ".png")
"""Extensions of the pictures that can be drawn."""

_HOW = {"order": "order", "tile": "pieces", "remat": "repetition", "both": "both"}
_LABELS = {
    "order": "order alone",
    "tile": "layers in pieces",
    "remat": "values computed again",
    "both": "both together",
}
_COLOURS = {"order": "#444444", "tile": "#1f6f8b", "remat": "#c0562f", "both": "#6b4c9a"}
_MARKERS = {"order": "s", "tile": "o", "remat": "^", "both": "D"}


def frontier_rows(
    steps: Sequence[FrontierRow], *, verbose: bool, most: int | None = None
) -> list[tuple[str, str, str, str, str]]:
    """Return the cells of a table: peak, share of the first peak, extra multiply-accumulates, extra work, and how.

    Args:
        verbose: All steps instead of those whose peaks differ visibly; first and last are always there.
        most: So many of them, spread over the range of peaks; None for no limit.
    """
    first = steps[0].peak_bytes
    shown: list[FrontierRow] = []
    for step in steps:
        if verbose or not shown or shown[-1].peak_bytes - step.peak_bytes >= WORTH_TELLING * first:
            shown.append(step)
    if shown[-1] is not steps[-1]:
        shown.append(steps[-1])
    if most is not None and not verbose and len(shown) > most:
        shown = _spread(shown, most)
    return [
        (
            f"{step.peak_bytes:,}",
            f"{100 * step.peak_bytes / first if first else 100.0:.1f}",
            f"{step.extra_macs_percent:.2f}",
            f"{step.extra_work_percent:.2f}",
            _HOW[step.how],
        )
        for step in shown
    ]


def _spread(steps: Sequence[FrontierRow], most: int) -> list[FrontierRow]:
    """Return at most ``most`` steps: the first, the last, and those nearest to equal distances of peaks."""
    first, last = steps[0].peak_bytes, steps[-1].peak_bytes
    wanted = (first + (last - first) * place / (most - 1) for place in range(most))
    nearest = {min(range(len(steps)), key=lambda at: abs(steps[at].peak_bytes - peak)) for peak in wanted}
    return [steps[at] for at in sorted(nearest | {0, len(steps) - 1})]


def check_drawing() -> None:
    """Load what pictures are drawn with.

    Raises:
        OutputError: It is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise OutputError(
            "--plot needs matplotlib, which is not installed", code="not-installed", action="pip install matplotlib"
        ) from None
    mpl.rcParams["svg.hashsalt"] = "memsched"


def draw(report: OptimizeReport, extension: str) -> bytes:
    """Return a picture of a report's frontier, or of its curve, in the format of ``extension``, one of `PICTURES`.

    Raises:
        OutputError: Matplotlib is not installed.
    """
    check_drawing()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    what = (
        _draw_frontier(axes, report)
        if report.sections.curve is None
        else _draw_curve(axes, report, report.sections.curve)
    )
    name = printable(PurePath(report.model.path).stem).replace("$", r"\$")
    axes.set_title(f"{name}, target {report.target.name}: {what}", fontsize=10)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    stream = io.BytesIO()
    metadata = {"Date": None} if extension == ".svg" else None
    figure.savefig(stream, format=extension.removeprefix("."), dpi=150, metadata=metadata)
    return stream.getvalue()


def _draw_frontier(axes: Any, report: OptimizeReport) -> str:
    steps = report.sections.frontier or ()
    work = [step.extra_work_percent for step in steps]
    peaks = [step.peak_bytes / KIB for step in steps]
    end = max(1.0, 1.05 * work[-1])
    axes.step([*work, end], [*peaks, peaks[-1]], where="post", color="#bbbbbb", linewidth=1.2, zorder=1)
    for how, label in _LABELS.items():
        mine = [place for place, step in enumerate(steps) if step.how == how]
        if mine:
            points = ([work[place] for place in mine], [peaks[place] for place in mine])
            # Drawn over the axes, too: the first lies on one.
            axes.plot(*points, _MARKERS[how], color=_COLOURS[how], markersize=5, label=label, clip_on=False)
    axes.set_xlim(0, end)
    axes.set_ylim(0, 1.05 * max(1.0, *peaks))
    axes.set_xlabel("extra work (multiply-accumulates and bytes moved), % of the model's")
    axes.set_ylabel(f"{frontier_column(report)}, KB")
    return "what less memory costs"


def _draw_curve(axes: Any, report: OptimizeReport, curve: CurveSection) -> str:
    """Draw memory against the dimension that grows most, with the budget."""
    dimension = grows_most(curve)
    lengths = [row.sizes[dimension] for row in curve.rows]
    axes.plot(lengths, [row.requested_bytes / MIB for row in curve.rows], "o-", markersize=4, label="activations")
    process = [(row.sizes[dimension], row.process_bytes / MIB) for row in curve.rows if row.process_bytes is not None]
    if process:
        axes.plot(*zip(*process, strict=True), "s-", markersize=4, label="process of a session without options")
    seen = [(row.sizes[dimension], row.measured_bytes / MIB) for row in curve.rows if row.measured_bytes is not None]
    if seen:
        axes.plot(*zip(*seen, strict=True), "x", color="black", markersize=8, label="measured")
    if report.budget is not None:
        axes.axhline(report.budget.budget_bytes / MIB, color="#bbbbbb", linestyle="--", label="budget")
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.set_xlabel(printable(dimension).replace("$", r"\$"))
    axes.set_ylabel("MB")
    return "memory against size"
