"""Figures of processes that were still growing when time ended their runs say so, wherever they are shown."""

from __future__ import annotations

from typing import Any

import pytest

from memsched.commands.curve import _ProcessSizes
from memsched.commands.optimize.over_sizes import _size_row
from memsched.commands.session_rows import session_row
from memsched.report.blocks import _measured, curve_cells
from memsched.report.decoder import _cells as decoder_cells
from memsched.report.doctor import _cells as doctor_cells
from memsched.report.values.blocks import CurveRow
from memsched.report.values.decoder import PhaseRow
from memsched.report.values.doctor import DoctorRow
from memsched.runtimes.onnxruntime import ranged
from memsched.runtimes.ranged import TimeRatio
from memsched.runtimes.sessions import DEFAULT
from tests.measured import took

GROWING = "still growing"


def _over_sizes(settled: bool) -> str:
    given, written = took(200), took(100, settled=settled)
    return _measured(_size_row({"n": 8}, given, (written, TimeRatio(0.1, 0.1, 1.0))))


def _as_given(settled: bool) -> str:
    return _measured(_size_row({"n": 8}, took(200, settled=settled), None))


def _curve(settled: bool) -> str:
    row = CurveRow(sizes={"n": 8}, requested_bytes=1, process_bytes=2, measured_bytes=2, settled=settled)
    return " ".join(curve_cells(row))


def _decoder(settled: bool) -> str:
    row = PhaseRow(
        phase="prompt",
        tokens=8,
        given_process_bytes=2,
        process_bytes=1,
        given_seconds=None,
        seconds=None,
        settled=settled,
    )
    return " ".join(decoder_cells(row, 4))


def _doctor(settled: bool) -> str:
    session = session_row("given", DEFAULT, took(2, settled=settled))
    row = DoctorRow(session=session, cpu_ratio=1.0, pareto=True, split=None)
    return " ".join(doctor_cells(row, ""))


@pytest.mark.parametrize("shown", [_over_sizes, _as_given, _curve, _decoder, _doctor])
def test_what_was_still_growing_is_said_to_be(shown: Any) -> None:
    assert GROWING in shown(False)
    assert GROWING not in shown(True)


def test_sizes_of_a_curve_keep_whether_they_settled(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    ran = {8: took(10), 16: took(20, settled=False)}
    monkeypatch.setattr(ranged, "runs_at", lambda _, sizes, **__: [ran[sizes["n"]]])
    sizes = _ProcessSizes(tmp_path, lambda asked: asked["n"], 0)
    for length in ran:
        sizes.measure({"n": length})
    assert sizes.growing == {(16,)}
