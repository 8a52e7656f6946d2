"""The page's table of layers: what each takes, before and after."""

from __future__ import annotations

from collections.abc import Callable

from memsched.base.shown import NAME_COLUMNS
from memsched.report.page_data import form_of
from memsched.report.page_parts import LayerCells, LayerTable
from memsched.report.text import shortened
from memsched.report.values.layers import LayerFigures, LayerRow
from memsched.report.values.optimize import OptimizeReport

__all__ = ["layer_table"]

_MOST = 1_000
"""Layers in the table; of more, those that need most."""

_Figure = Callable[[LayerFigures], int | None]
_FIGURES: tuple[tuple[str, _Figure], ...] = (
    ("memory", lambda one: one.footprint_bytes),
    ("MACs", lambda one: one.macs),
    ("flash", lambda one: one.weights_bytes),
    ("persistent", lambda one: one.persistent_bytes),
)


def layer_table(report: OptimizeReport) -> LayerTable | None:
    """Return the layers in the file's order; None where a report says nothing of them."""
    layers = report.sections.layers
    if not layers:
        return None
    shown = layers
    if len(layers) > _MOST:
        largest = sorted(range(len(layers)), key=lambda place: (-_memory(layers[place]), place))[:_MOST]
        shown = tuple(layers[place] for place in sorted(largest))
    figures = [
        (name, read) for name, read in _FIGURES if any(_cell(each, read) for row in layers for each in _two(row))
    ]
    steps = _first_steps(report)
    forms = _forms(report)
    return LayerTable(
        text="" if len(shown) == len(layers) else f"The {len(shown):,} of {len(layers):,} layers that need most.",
        figures=[name for name, _ in figures],
        rows=[
            LayerCells(
                name=shortened(row.op, NAME_COLUMNS),
                step=steps.get(row.computed_in or row.op),
                type=shortened(row.type, NAME_COLUMNS),
                form=shortened(forms.get(steps.get(row.op, -1), ""), NAME_COLUMNS),
                steps=_steps(row),
                figures=[_cell(each, read) for _, read in figures for each in _two(row)],
            )
            for row in shown
        ],
    )


def _steps(row: LayerRow) -> str:
    if row.computed_in is not None:
        return "in a loop"
    return "" if row.after is None else f"{row.after.steps:,}"


def _two(row: LayerRow) -> tuple[LayerFigures | None, LayerFigures | None]:
    return row.before, row.after


def _memory(row: LayerRow) -> int:
    return max((each.footprint_bytes for each in _two(row) if each is not None), default=0)


def _cell(figures: LayerFigures | None, read: _Figure) -> str:
    value = None if figures is None else read(figures)
    return "" if value is None else f"{value:,}"


def _first_steps(report: OptimizeReport) -> dict[str, int]:
    """Return the first step that computes each layer, or a part of it."""
    found: dict[str, int] = {}
    layers = {row.op for row in report.sections.layers}
    for step in report.written.steps:
        name = step.origin if step.origin in layers and step.origin is not None else step.op
        found.setdefault(name, step.index)
    return found


def _forms(report: OptimizeReport) -> dict[int, str]:
    """Return per step the shapes and types of what it makes, which may be a piece of what its layer makes."""
    made: dict[int, list[str]] = {}
    for row in report.written.buffers:
        if row.produced_in is not None and (form := form_of(row)):
            made.setdefault(row.produced_in, []).append(form)
    pieces = {step.index for step in report.written.steps if step.region is not None}
    return {step: ("pieces: " if step in pieces else "") + "; ".join(forms) for step, forms in made.items()}
