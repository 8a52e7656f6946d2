"""The table of processes names each session, says what it saves, and fails where an exchanged file needs more."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from memsched.formats.module import LoadOptions
from scripts.bench.runner.text import printed
from scripts.bench.ten_models import Point, measure, more_than_given, tables
from tests.commands.optimize.test_session import network

MEGABYTE = 1 << 20
POINTS = {
    "given": Point("given: none", 40 * MEGABYTE, 8 * MEGABYTE, 1.0),
    "plain": Point("written, none", 41 * MEGABYTE, 8 * MEGABYTE, 1.0),
    "session": Point("written: none", 30 * MEGABYTE, 6 * MEGABYTE, 1.02),
    "knobs": Point("given: basic", 32 * MEGABYTE, None, 1.05),
    "doctor": Point("written: basic", 20 * MEGABYTE, 4 * MEGABYTE, 0.98),
}


def test_a_file_that_needs_more_is_named_and_ends_badly(tmp_path: Path) -> None:
    kept = {name: dataclasses.asdict(point) for name, point in POINTS.items()}
    (tmp_path / "net.json").write_text(json.dumps(kept), encoding="utf-8")
    lines = list(printed(tables(["net.onnx"], LoadOptions(), None, tmp_path)))
    assert more_than_given(POINTS)
    assert not more_than_given({**POINTS, "plain": POINTS["given"]})
    assert any(line.startswith("written, ") and line.endswith(": net") for line in lines)
    row = next(line for line in lines if line.startswith("| net |"))
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "net",
        "40.0",
        "41.0 (+2 %), 1.00 x",
        "30.0 (-25 %), 1.02 x",
        "32.0 (-20 %), 1.05 x",
        "20.0 (-50 %), 0.98 x",
        "written: basic",
        "8.00 / 8.00 / 6.00 / 4.00",
    ]
    assert any("doctor" in line and ": -50.0 % " in line for line in lines)


def test_sessions_are_measured_on_the_files_that_are_exchanged(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())
    points = measure(path, LoadOptions(), 3)
    assert set(points) == {"given", "plain", "session", "knobs", "doctor"}
    assert points["doctor"].how.startswith(("given: ", "written: "))
    given, session = points["given"].requested, points["session"].requested
    assert given is not None
    assert session is not None
    # Operators that refuse other processors keep two units of the arena.
    assert 0 < session <= given + 512
