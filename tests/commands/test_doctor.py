"""``memsched doctor``: the split adds up, the code is what was measured, limits hold, what is chosen is the best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest

from memsched.cli.main import main
from memsched.commands.options import DoctorOptions
from memsched.features.doctor.doctor import ON_PARETO_SET, choices_of, diagnose, pareto
from memsched.report.doctor import split_cells
from memsched.report.doctor_page import render_doctor
from memsched.report.session_code import cpp_lines, csharp_lines, options_text, python_lines
from memsched.report.values.doctor import DoctorReport, DoctorRow
from memsched.report.values.sessions import SessionRow
from memsched.runtimes.measure import Arena, Counts, Measured, OwnFigures
from memsched.runtimes.onnxruntime.session_memory import split_of
from tests.commands.optimize.test_session import network
from tests.needs import recent_onnxruntime
from tests.outcomes import Run

PLAIN = SessionRow(file="given", level="all", execution_order="default", mem_reuse=True, mem_pattern=True)
ALL = msgspec.structs.replace(
    PLAIN,
    level="basic",
    execution_order="file",
    mem_reuse=False,
    mem_pattern=False,
    arena=False,
    shrinkage=False,
    prepacking=False,
    quant_qdq=False,
    threads=1,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a network whose activations are a good part of the process."""
    file = tmp_path_factory.mktemp("doctor") / "net.onnx"
    onnx.save_model(network((1, 3, 256, 256)), file)
    return file


@pytest.fixture(scope="module")
def report(path: Path) -> DoctorReport:
    """Return what five sessions took."""
    return diagnose(str(path), options=DoctorOptions(effort=5)).values


@recent_onnxruntime
def test_the_split_adds_up_to_the_process(report: DoctorReport) -> None:
    assert len(report.sessions) == 5
    assert not report.finished
    for row in report.sessions:
        assert row.split is not None
        parts = msgspec.structs.asdict(row.split)
        whole = parts.pop("sum_bytes")
        assert sum(parts.values()) == whole
        process = row.session.process_bytes
        assert process is not None
        assert abs(whole - process) <= 0.05 * process, options_text(row.session)


@recent_onnxruntime
def test_the_arena_of_the_split_is_what_runs_request(report: DoctorReport) -> None:
    first = report.sessions[0]
    assert first.split is not None
    assert first.session.measured_bytes is not None
    # The network's widest step holds three tensors of 48 channels, 3 MB each.
    assert first.split.arena_in_use_bytes >= first.session.measured_bytes > 9_000_000


def test_the_session_without_options_is_first_and_compared_with_itself(report: DoctorReport) -> None:
    assert options_text(report.sessions[0].session) == "none"
    assert 0.3 < report.sessions[0].cpu_ratio < 3


def test_the_python_of_each_choice_runs_as_it_is_printed(report: DoctorReport, path: Path) -> None:
    assert report.choices
    for choice in report.choices:
        feeds = {"x": np.zeros((1, 3, 256, 256), np.float32)}
        names: dict[str, Any] = {"path": str(path), "feeds": feeds}
        exec("\n".join(choice.python), names)  # noqa: S102 - our own lines
        assert names["outputs"][0].shape == (1, 48, 1, 1)


@pytest.mark.parametrize("row", [PLAIN, ALL, msgspec.structs.replace(PLAIN, shrinkage=True)])
def test_the_python_sets_what_was_measured(row: SessionRow, path: Path) -> None:
    names: dict[str, Any] = {"path": str(path), "feeds": {"x": np.zeros((1, 3, 256, 256), np.float32)}}
    exec("\n".join(python_lines(row)), names)  # noqa: S102 - our own lines
    options = names["session"].get_session_options()
    levels = onnxruntime.GraphOptimizationLevel
    assert options.graph_optimization_level == (
        levels.ORT_ENABLE_BASIC if row.level == "basic" else levels.ORT_ENABLE_ALL
    )
    assert options.enable_mem_reuse is row.mem_reuse
    assert options.enable_mem_pattern is row.mem_pattern
    assert options.enable_cpu_mem_arena is row.arena
    assert (options.execution_order == onnxruntime.ExecutionOrder.PRIORITY_BASED) is (row.execution_order == "file")
    assert options.intra_op_num_threads == row.threads
    if not row.prepacking:
        assert options.get_session_config_entry("session.disable_prepacking") == "1"
    if not row.quant_qdq:
        assert options.get_session_config_entry("session.disable_quant_qdq") == "1"
    if row.shrinkage:
        assert names["run_options"].get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"


def test_code_of_other_languages_is_given_only_where_they_have_the_option() -> None:
    for change in ({"mem_reuse": False}, {"execution_order": "file"}):
        row = msgspec.structs.replace(PLAIN, **change)
        assert cpp_lines(row) is None
        assert csharp_lines(row) is None
    row = msgspec.structs.replace(ALL, mem_reuse=True, execution_order="default")
    assert cpp_lines(row) == (
        "Ort::SessionOptions options;",
        "options.SetGraphOptimizationLevel(GraphOptimizationLevel::ORT_ENABLE_BASIC);",
        "options.DisableMemPattern();",
        "options.DisableCpuMemArena();",
        'options.AddConfigEntry("session.disable_prepacking", "1");',
        'options.AddConfigEntry("session.disable_quant_qdq", "1");',
        "options.SetIntraOpNumThreads(1);",
        "Ort::Session session(env, path, options);",
    )
    assert csharp_lines(row) == (
        "using var options = new SessionOptions();",
        "options.GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_BASIC;",
        "options.EnableMemoryPattern = false;",
        "options.EnableCpuMemArena = false;",
        'options.AddSessionConfigEntry("session.disable_prepacking", "1");',
        'options.AddSessionConfigEntry("session.disable_quant_qdq", "1");',
        "options.IntraOpNumThreads = 1;",
        "using var session = new InferenceSession(path, options);",
    )


def a_row(process: int, ratio: float, session: SessionRow = PLAIN) -> DoctorRow:
    session = msgspec.structs.replace(session, process_bytes=process)
    return DoctorRow(session=session, cpu_ratio=ratio, pareto=True, split=None)


def test_what_is_chosen() -> None:
    bare = msgspec.structs.replace(PLAIN, mem_reuse=False)
    rows = [a_row(100, 1.0), a_row(80, 1.05, bare), a_row(90, 1.0), a_row(50, 3.0), a_row(70, 1.2)]
    assert [one.row for one in choices_of(rows, 10.0)] == [1, 3, 2]
    assert choices_of(rows, 20.0)[0].row == 4
    assert [one.row for one in choices_of(rows[:1], 10.0)] == [0]


def test_what_chance_may_give_is_no_choice() -> None:
    """A process that takes 0.3 % less is one that takes as much."""
    bare = msgspec.structs.replace(PLAIN, mem_reuse=False)
    rows = [a_row(1000, 1.0), a_row(997, 1.0, bare), a_row(990, 1.05)]
    assert [one.row for one in choices_of(rows, 10.0) if one.reason != ON_PARETO_SET] == [0]
    assert choices_of([*rows, a_row(900, 1.0)], 10.0)[0].row == 3


def test_the_pareto_set() -> None:
    assert pareto([(3, 1), (2, 2), (3, 2), (1, 3), (2, 2)]) == {0, 1, 3, 4}


def test_what_was_never_touched_is_no_part_of_the_process() -> None:
    """An arena of 100, of which 40 were used and 30 never touched, over an opened session of 20."""
    own = OwnFigures(weights=8, arena=Arena(rest=5, highest=45, held=105))
    found = Measured(100, opened=Counts(30, 20, 10), rest=Counts(100, 90, 10), own=own)
    split = split_of(found, lasting=True)
    assert split is not None
    assert (split.weights, split.prepacked, split.structures) == (3, 5, 12)
    assert (split.arena_in_use, split.arena_slack, split.buffers) == (40, 30, 0)
    assert split.total == 100
    assert split_of(msgspec.structs.replace(found, own=OwnFigures()), lasting=True) is None


def test_report_and_page_are_written_together(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, file = tmp_path / "doctor.html", tmp_path / "doctor.json"
    assert main(["doctor", str(path), str(path), "--effort", "2", "--html", str(page), "--report", str(file)]) == 0
    out = capsys.readouterr().out
    found = json.loads(file.read_text())
    cells = split_cells(msgspec.convert(found, DoctorReport).sessions[0])
    assert cells
    assert [size for _, size, _ in cells if size not in out] == []
    assert [row["session"]["file"] for row in found["sessions"]] == ["given", "written"]
    text = page.read_text()
    assert text == render_doctor(msgspec.convert(found, DoctorReport))
    assert "default-src 'none'" in text


def test_bad_input_is_one_line(run: Run, tmp_path: Path, path: Path) -> None:
    for words, code, about in (
        ([tmp_path / "none.onnx"], "no-such-file", "none.onnx"),
        (["-"], "needs-file", "standard input"),
        ([path, "--report", path], "same-file", str(path)),
        ([path, "--effort", "1", "--time-limit", "3"], "option-conflict", "--effort"),
    ):
        done = run("doctor", *words)
        done.failed(code, about)
        assert done.err.count("\n") == 1


def test_all_threads_are_kept_where_fewer_give_nothing() -> None:
    one = msgspec.structs.replace(PLAIN, threads=1)
    assert choices_of([a_row(100, 1.0), a_row(99, 1.0, one)], 10.0)[0].row == 0
    assert choices_of([a_row(100, 1.0), a_row(90, 1.0, one)], 10.0)[0].row == 1
