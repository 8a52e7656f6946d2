"""Pieces and repetitions by turns, each of what the last one left, and what reports say of all turns together."""

from __future__ import annotations

import memsched
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from tests.tools.mixed_models import onnx_model


def test_what_is_computed_again_is_cut() -> None:
    data = onnx_model(1)
    # What a session without options needs depends on what the runtime fuses.
    result = memsched.optimize(
        data, level=3, max_extra_macs=100.0, max_slowdown=None, effort=0.6, order_guarantee="session"
    )
    report = result.report.data
    assert report["sections"]["tile"]["applied"]
    assert report["sections"]["recompute"]["applied"]
    # The wide tensor waits for the network's mean; its second execution is made in pieces, with what reads it.
    assert [copy["op"] for copy in report["sections"]["recompute"]["copies"]] == ["x.wide"]
    (group,) = report["sections"]["tile"]["groups"]
    assert "x.wide" in group["ops"]
    named = {op.name for op in load_module(data, "given.onnx", LoadOptions()).graphs[0].ops}
    assert set(group["ops"]) <= named
    alone = report["sections"]["recompute"]["frontier"][-1]["peak_bytes"]
    assert report["sections"]["requirement"]["bytes"] < alone < report["sections"]["requirement"]["given_bytes"]
    # ONNX Runtime ran both, and measured what was predicted.
    checked = report["sections"]["verification"]
    assert checked["relative_error"] <= 1e-6
    assert checked["measured_peak_after_bytes"] == report["sections"]["requirement"]["bytes"]


def test_several_turns_add_up() -> None:
    data = onnx_model(12)
    result = memsched.optimize(data, level=3, max_extra_macs=100.0, max_slowdown=None, effort=0.6, verify=False)
    report = result.report.data
    parts = [report["sections"]["tile"], report["sections"]["recompute"]]
    assert all(part["applied"] and part["extra_macs"] > 0 for part in parts)
    macs = sum(op.macs for op in load_module(data, "given.onnx", LoadOptions()).graphs[0].ops)
    again = load_module(result.model, "again.onnx", LoadOptions())
    assert sum(part["extra_macs"] for part in parts) == sum(op.macs for op in again.graphs[0].ops) - macs
    assert [round(100 * part["extra_macs"] / macs, 3) for part in parts] == [p["extra_macs_percent"] for p in parts]
    assert report["verdict"]["extra_macs_percent"] <= 100.0
