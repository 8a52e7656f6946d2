"""What each layer takes, before and after, adds up to what the models take."""

from __future__ import annotations

from pathlib import Path

import pytest

import memsched
from memsched.report.values.layers import LayerFigures
from memsched.report.values.optimize import OptimizeReport
from tests.permissions import allowed
from tests.small_models import branches

PERSON = Path(__file__).parents[3] / "models" / "person_detect.tflite"


def optimized(*, tile: bool) -> OptimizeReport:
    result = memsched.optimize(
        PERSON, target="tflm", allow=allowed(tile=tile), verify=False, effort=3, budget_for="activations"
    )
    return result.report.values


def figures(report: OptimizeReport, when: str) -> list[LayerFigures]:
    found = [getattr(row, when) for row in report.sections.layers]
    return [each for each in found if each is not None]


@pytest.mark.parametrize("tile", [False, True])
def test_layers_add_up(tile: bool) -> None:
    report = optimized(tile=tile)
    before, after = figures(report, "before"), figures(report, "after")
    assert [row.op for row in report.sections.layers if row.before is not None] == [
        step.op for step in report.original.steps
    ]
    assert sum(one.macs for one in before) == report.model.macs
    extra = 0 if report.sections.tile is None else report.sections.tile.extra_macs
    assert sum(one.macs for one in after) == report.model.macs + extra
    assert sum(one.steps for one in after) == len(report.written.steps)
    assert max(one.footprint_bytes for one in before) == report.original.schedule.peak_bytes
    assert max(one.footprint_bytes for one in after) == report.written.schedule.peak_bytes
    assert sum(one.weights_bytes or 0 for one in before) == report.model.weights_bytes
    assert report.sections.firmware is not None
    kept = [row.bytes for row in report.sections.firmware.kept if row.subgraph == 0]
    assert sum(one.persistent_bytes or 0 for one in after) == sum(kept)
    if not tile:
        assert before == after
        return
    assert report.sections.tile is not None
    assert report.sections.tile.applied
    steps = {step.op for step in report.written.steps}
    bodies = {op for group in report.sections.tile.groups if group.form != "pieces" for op in group.ops}
    for row in report.sections.layers:
        assert (row.computed_in is not None) == (row.op in bodies)
        assert row.computed_in is None or row.computed_in in steps
        assert row.after is not None or row.computed_in is not None


def test_other_runtimes_keep_nothing_beside() -> None:
    report = memsched.optimize(branches(), verify=False).report.values
    assert report.sections.layers
    assert {one.persistent_bytes for one in figures(report, "after")} == {None}
    assert all(one.weights_bytes is not None for one in figures(report, "before"))
