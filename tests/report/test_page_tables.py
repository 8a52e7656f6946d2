"""The page's table of layers and its picture of what less memory costs say what the report says."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memsched.report import page_layers
from memsched.report.page import render_page
from memsched.report.page_curve import curve_columns
from memsched.report.page_frontier import _HOW, frontier_columns
from memsched.report.page_layers import layer_table
from tests.report.plain import typed
from tests.report.test_page import Page
from tests.report.test_page_data import chain_report

ONE = {"steps": 1, "footprint_bytes": 1234, "macs": 50_000, "weights_bytes": 7, "persistent_bytes": None}
POINTS = [(900, 0.0, "order"), (700, 0.0, "tile"), (800, 1.0, "tile"), (400, 2.25, "tile"), (300, 9.0, "remat")]


def layered_report(count: int = 3, **more: Any) -> dict[str, Any]:
    report = chain_report(count)
    report["sections"]["layers"] = [
        {"op": step["op"], "type": step["type"], "before": ONE, "after": ONE, "computed_in": None}
        for step in report["written"]["steps"]
    ]
    for row in report["written"]["buffers"]:
        row["shape"], row["dtype"] = [1, 2], "int8"
    return report | more


def with_frontier(target: str = "paper", path: str = "a model.onnx") -> dict[str, Any]:
    report = chain_report(3)
    report["target"]["name"], report["model"]["path"] = target, path
    report["sections"]["frontier"] = [
        {"peak_bytes": size, "extra_macs_percent": work, "extra_work_percent": work, "how": how}
        for size, work, how in POINTS
    ]
    return report


def test_a_row_per_layer() -> None:
    report = layered_report()
    report["sections"]["layers"][1] |= {"after": None, "computed_in": "op2"}
    report["sections"]["layers"][2] |= {"before": None, "after": ONE | {"steps": 4, "footprint_bytes": 99}}
    table = layer_table(typed(report))
    assert table is not None
    assert table.figures == ["memory", "MACs", "flash"]
    first, second, third = table.rows
    assert (first.name, first.step, first.steps, first.form) == ("op0", 0, "1", "1\N{MULTIPLICATION SIGN}2 int8")
    assert first.figures == ["1,234", "1,234", "50,000", "50,000", "7", "7"]
    assert (second.step, "loop" in second.steps, second.figures[:2]) == (2, True, ["1,234", ""])
    assert (third.steps, third.figures[:2]) == ("4", ["", "99"])
    found = Page(render_page(typed(report)))
    assert "1,234" in found.text
    assert second.steps in found.text
    assert ("data-step", "2") in found.attributes


def test_pieces_lead_to_their_first_step() -> None:
    report = layered_report(4)
    report["sections"]["layers"] = report["sections"]["layers"][:1]
    for step in report["written"]["steps"][2:]:
        step["origin"] = "op0"
    report["written"]["steps"][0]["op"] = "other"
    table = layer_table(typed(report))
    assert table is not None
    assert [row.step for row in table.rows] == [2]


def test_of_many_layers_those_that_need_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_layers, "_MOST", 2)
    report = layered_report(5)
    report["sections"]["layers"][3]["after"] = ONE | {"footprint_bytes": 9999}
    report["sections"]["layers"][1]["before"] = ONE | {"footprint_bytes": 8888}
    table = layer_table(typed(report))
    assert table is not None
    assert [row.name for row in table.rows] == ["op1", "op3"]
    assert " 2 of 5 " in table.text


def test_persistent_bytes_where_a_runtime_keeps_them() -> None:
    report = layered_report()
    report["sections"]["layers"][0]["after"] = ONE | {"persistent_bytes": 0}
    table = layer_table(typed(report))
    assert table is not None
    assert table.figures[-1] == "persistent"


def test_older_reports_have_no_layers() -> None:
    assert layer_table(typed(chain_report(3))) is None
    assert 'id="layers"' not in render_page(typed(chain_report(3)))


def test_points_that_others_beat_are_left_out() -> None:
    found = frontier_columns(typed(with_frontier()))
    assert found is not None
    assert list(zip(found.size, found.work, strict=True)) == [(700, 0.0), (400, 2.25), (300, 9.0)]
    assert found.how[0] == _HOW["tile"]
    assert shlex.split(found.command[1]) == [
        *("memsched", "optimize", "a model.onnx", "--target", "paper", "--budget", "400"),
        *("--allow", "reorder,inplace,tile", "--max-extra-macs", "3"),
    ]


@pytest.mark.parametrize(("target", "path"), [("paper", "-"), ("mine", "m.onnx"), ("paper", "a\nb.onnx")])
def test_no_command_for_what_cannot_be_named(target: str, path: str) -> None:
    found = frontier_columns(typed(with_frontier(target, path)))
    assert found is not None
    assert set(found.command) == {""}


def test_one_point_is_no_picture() -> None:
    report = with_frontier()
    report["sections"]["frontier"] = report["sections"]["frontier"][:1]
    assert frontier_columns(typed(report)) is None
    assert frontier_columns(typed(chain_report(3))) is None
    assert 'id="points"' not in render_page(typed(chain_report(3)))


def test_memory_against_size_is_drawn_and_listed() -> None:
    report = chain_report(3)
    rows = [
        {"sizes": {"batch": 1, "length": length}, "requested_bytes": 9 * length, "process_bytes": process}
        | {"measured_bytes": process if length < 4096 else None}
        for length, process in ((64, 5_000), (512, 60_000), (4096, 700_000))
    ]
    report["sections"]["curve"] = {"rows": rows, "largest_sizes": {"batch": 1, "length": 4096}, "growth": []}
    found = curve_columns(typed(report))
    assert found is not None
    assert (found.dimension, found.at, found.process) == ("length", [64, 512, 4096], [5_000, 60_000, 700_000])
    page = Page(render_page(typed(report)))
    assert "batch = 1, length = 4,096 36,864 700,000" in page.text
    assert "batch = 1, length = 512 4,608 60,000 measured" in page.text
    assert ("id", "curve") in page.attributes
    report["sections"]["curve"]["rows"] = rows[:1]
    assert curve_columns(typed(report)) is None
    assert ("id", "curve") not in Page(render_page(typed(report))).attributes
    assert 'id="curve"' not in render_page(typed(chain_report(3)))
