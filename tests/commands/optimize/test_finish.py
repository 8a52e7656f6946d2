"""The guard of sessions without options, and what sessions are measured to take."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import memsched
from memsched.base.units import format_size
from memsched.cli.main import main
from memsched.commands.calls import seconds_of
from memsched.commands.optimize import branch, finish, judged_sessions, named_sessions
from memsched.commands.options import Options
from memsched.commands.verify import verify_written
from memsched.report.values.optimize import OptimizeReport
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.session_maker import SessionMaker
from memsched.runtimes.runtime import Requirement
from memsched.runtimes.values import Verification, as_opened
from tests.commands.optimize.test_session import SIDE, network
from tests.measured import took
from tests.outcomes import line_with
from tests.runtimes.onnxruntime.measured import verify as compare_in_sessions

MUCH = 1 << 30
"""Bytes that no session of these models needs."""

LEAST = "memsched.commands.optimize.judged_sessions.LEAST_SHOWN"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a network whose order matters, as a file."""
    file = tmp_path / "net.onnx"
    file.write_bytes(network().SerializeToString())
    return file


def worse(monkeypatch: pytest.MonkeyPatch, before: int, after: int) -> None:
    """Let verification say what a session without options needs."""
    known = verify_written

    def said(*args: object, **keywords: object) -> tuple[Verification | None, tuple[str, ...]]:
        verification, notes = known(*args, **keywords)  # type: ignore[arg-type]
        if verification is None or verification.default_peak_before_bytes is None:
            return verification, notes
        unchanged = verification.measured_peak_before_bytes == verification.measured_peak_after_bytes
        return replace(
            verification, default_peak_before_bytes=before, default_peak_after_bytes=before if unchanged else after
        ), notes

    monkeypatch.setattr(finish, "verify_written", said)


def test_no_process_is_measured_when_the_time_left_would_not_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LEAST, 0)
    monkeypatch.setattr(judged_sessions, "measured_sessions", lambda *_, **__: pytest.fail("they were measured"))
    monkeypatch.setattr(judged_sessions, "SESSIONS", math.inf)
    report = memsched.optimize(path, time_limit=1000.0).report.values
    assert report.sections.verification is not None
    assert report.sections.verification.outputs_equal
    assert not report.sections.sessions
    assert judged_sessions._NO_TIME in report.verdict.notes


@pytest.mark.parametrize("options", [Options(), Options(level=3, effort=0.3)])
def test_a_limit_that_nobody_named_is_the_search_s_alone(
    options: Options, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LEAST, 0)
    monkeypatch.setattr(judged_sessions, "SESSIONS", math.inf)
    measured: list[object] = []

    def sessions(*asked: object, **_: object) -> tuple[()]:
        measured.append(asked)
        return ()

    monkeypatch.setattr(judged_sessions, "measured_sessions", sessions)
    assert judged_sessions._NO_TIME not in memsched.optimize(path, options).report.values.verdict.notes
    assert measured
    # The same limit, named.
    named = replace(options, time_limit=seconds_of(options))
    assert judged_sessions._NO_TIME in memsched.optimize(path, named).report.values.verdict.notes


@pytest.mark.quick
def test_a_file_that_default_sessions_pay_for_is_held_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(monkeypatch, 1_000, 1_001)
    result = memsched.optimize(path)
    report: OptimizeReport = result.report.values
    held = report.sections.held_back
    assert result.model == path.read_bytes()
    assert report.output is not None
    assert report.output.unchanged
    assert report.sections.requirement is not None
    assert held is not None
    assert held.requirement_bytes < report.sections.requirement.given_bytes
    assert (held.default_peak_before_bytes, held.default_peak_after_bytes) == (1_000, 1_001)


def test_a_session_that_is_named_gets_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(monkeypatch, 1_000, 1_001)
    result = memsched.optimize(path, order_guarantee="session")
    assert result.model != path.read_bytes()
    assert result.report.values.sections.held_back is None


def test_what_costs_default_sessions_nothing_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(monkeypatch, 1_000, 1_000)
    result = memsched.optimize(path)
    assert result.model != path.read_bytes()
    assert result.report.values.sections.held_back is None


def test_nothing_is_held_back_unseen(path: Path) -> None:
    assert memsched.optimize(path, verify=False).report.values.sections.held_back is None


def test_a_budget_that_only_a_named_session_meets_is_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(monkeypatch, 1_000, 1_001)
    least = memsched.optimize(path, order_guarantee="session").report.values.sections.requirement
    assert least is not None
    budget = least.bytes
    assert memsched.optimize(path, budget=budget, order_guarantee="session").budget_met
    assert memsched.optimize(path, budget=budget).budget_met is False


def test_the_summary_names_the_sessions(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worse(monkeypatch, MUCH, MUCH + 1)
    assert main(["optimize", str(path)]) == 0
    shown = capsys.readouterr().out
    assert line_with(shown, f"({MUCH:,} -> {MUCH + 1:,} B)")
    report = json.loads(path.with_name("net_memsched.json").read_text())
    commands = [one["command"] for one in report["alternatives"]]
    assert any("--session default" in one or "--order-guarantee session" in one for one in commands)
    assert [one for one in commands if f"  {one}" not in shown.splitlines()] == []


def test_the_suggested_commands_do_what_they_say(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(monkeypatch, MUCH, MUCH + 1)
    result = memsched.optimize(path, hooks=memsched.Hooks(words=("optimize", str(path))))
    rows = result.report.values.alternatives
    assert rows
    assert [row.bytes for row in rows] == sorted(row.bytes for row in rows)
    for row in rows:
        named = {"session": "default"} if "--session" in row.command else {"order_guarantee": "session"}
        needed = memsched.optimize(path, **named).report.values.sections.requirement  # type: ignore[arg-type]
        assert needed is not None
        assert needed.bytes <= row.bytes
        assert needed.given_bytes - needed.bytes >= row.saving_bytes > 0


def test_a_file_that_needs_more_than_sessions_without_options_is_not_suggested(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = {}
    for before in (1_000, MUCH):
        worse(monkeypatch, before, before + 1)
        rows = memsched.optimize(path, hooks=memsched.Hooks(words=("optimize", str(path)))).report.values.alternatives
        commands[before] = [row.command for row in rows if "--order-guarantee session" in row.command]
        monkeypatch.undo()
    assert not commands[1_000]
    assert commands[MUCH]


def test_nothing_is_suggested_by_figures_that_do_not_hold(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = verify_written
    share = 1.0

    def said(*args: object, **keywords: object) -> tuple[Verification | None, tuple[str, ...]]:
        verification, notes = known(*args, **keywords)  # type: ignore[arg-type]
        assert verification is not None
        peak = verification.predicted_peak_after_bytes
        assert peak is not None
        return replace(verification, measured_peak_after_bytes=int(share * peak)), notes

    monkeypatch.setattr(finish, "verify_written", said)
    hooks = memsched.Hooks(words=("optimize", str(path)))
    asked: dict[str, Any] = {"allow": ("reorder", "inplace"), "budget": 120_000, "keep_best": True, "hooks": hooks}
    assert memsched.optimize(path, **asked).report.values.alternatives
    share = 1.5
    assert not memsched.optimize(path, **asked).report.values.alternatives


def test_what_was_measured_stands_beside_what_is_required(path: Path) -> None:
    result = memsched.optimize(path, order_guarantee="session")
    shown, needed = result.verification, result.report.values.sections.requirement
    assert shown is not None
    assert needed is not None
    assert needed.measured_given_bytes == shown.measured_peak_before_bytes
    assert needed.measured_bytes == shown.measured_peak_after_bytes == needed.bytes
    plain = memsched.optimize(path, order_guarantee="default")
    shown, needed = plain.verification, plain.report.values.sections.requirement
    assert shown is not None
    assert needed is not None
    assert needed.measured_given_bytes == shown.default_peak_before_bytes
    assert needed.measured_bytes == shown.default_peak_after_bytes
    unseen = memsched.optimize(path, verify=False).report.values.sections.requirement
    assert unseen is not None
    assert unseen.measured_bytes is None


def test_suggested_sessions_are_permitted_what_they_take(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worse(monkeypatch, MUCH, MUCH + 1)
    monkeypatch.setattr(named_sessions, "required_as_given", lambda *_: Requirement(1 << 20))
    words = ("optimize", str(path), "--allow", "reorder,inplace,fuse,io")
    rows = memsched.optimize(
        path, allow=("reorder", "inplace", "fuse", "io"), hooks=memsched.Hooks(words=words)
    ).report.values.alternatives
    assert {"--session" in row.command: "fuse,io" in row.command for row in rows} == {True: False, False: True}


def test_sessions_on_both_files_are_measured(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LEAST, 0)
    result = memsched.optimize(path, order_guarantee="session")
    rows = result.report.values.sections.sessions
    assert [(row.file, row.level) for row in rows] == [("given", "all"), ("written", "all"), ("written", "basic")]
    assert rows[0].cpu_ratio is None
    assert all(row.cpu_ratio for row in rows[1:])
    assert rows[2].disabled_optimizers
    # What the listed session takes of the arena is what was promised of it.
    assert rows[2].measured_bytes == rows[2].predicted_bytes
    main(["optimize", str(path), "--order-guarantee", "session"])
    given, _, listed = json.loads(path.with_name("net_memsched.json").read_text())["sections"]["sessions"]
    size = format_size(given["process_bytes"]).partition(" ")[0]
    assert line_with(capsys.readouterr().out, size, f" {listed['cpu_ratio']:.2f}x")


def test_small_models_are_not_lost_in_the_noise_of_a_process(path: Path) -> None:
    assert memsched.optimize(path, order_guarantee="session").report.values.sections.sessions == ()


def weighty() -> bytes:
    """Return a network whose weights ONNX Runtime lays out anew when it opens a session, in the best order already."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for number in range(4):
        weights.append(numpy_helper.from_array(rng.normal(size=(256, 256, 3, 3)).astype(np.float32) / 48, f"w{number}"))
        weights.append(numpy_helper.from_array(np.full((256, 1, 1), 0.5, np.float32), f"s{number}"))
        nodes.append(helper.make_node("Conv", [value, f"w{number}"], [f"c{number}"], f"c{number}", pads=[1] * 4))
        nodes.append(helper.make_node("Mul", [f"c{number}", f"s{number}"], [f"m{number}"], f"m{number}"))
        value = f"m{number}"
    shape = [1, 256, 24, 24]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", value))
    graph = helper.make_graph(nodes, "weighty", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_a_file_of_what_is_executed_is_named_where_its_process_takes_less(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weighty.onnx"
    file.write_bytes(weighty())
    assert main(["optimize", str(file), "--effort", "0.1", "--max-slowdown", "900"]) == 0
    shown = capsys.readouterr().out
    report = json.loads((tmp_path / "weighty_memsched.json").read_text())
    assert report["output"]["unchanged"]
    [first] = [one for one in report["alternatives"] if "--session default" in one["command"]]
    assert first["process_bytes"] <= 0.95 * (first["process_bytes"] + first["process_saving_bytes"])
    assert first["command"] in shown
    # As the command itself measures it.
    result = memsched.optimize(file, session="default")
    rows = {(row.file, row.execution_order): row.process_bytes for row in result.report.values.sections.sessions}
    assert rows["written", "file"] == pytest.approx(first["process_bytes"], rel=0.05)
    # Who names a session is told of no other.
    named = memsched.optimize(
        file, order_guarantee="session", effort=0.1, hooks=memsched.Hooks(words=("optimize", str(file)))
    )
    assert not [row for row in named.report.values.alternatives if "--session" in row.command]


@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize(
    ("given", "written", "ratio", "named"),
    [
        # Of one process each, chance would decide otherwise.
        ((104, 100, 100), (96, 96, 97), 1.0, None),
        ((100, 104, 104), (96, 93, 99), 1.0, (93, 100)),
        ((100, 100, 100), (80, 80, 80), 1.3, None),
        ((100, 100, 100), (112, 80, 80), 1.0, None),
        ((400, 1, 1), (300, 1, 1), 1.0, (300, 400)),
    ],
)
def test_the_least_of_several_processes_says_what_is_gained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[int, ...],
    written: tuple[int, ...],
    ratio: float,
    named: tuple[int, int] | None,
) -> None:
    file = tmp_path / "weighty.onnx"
    file.write_bytes(weighty())
    left = {True: list(given), False: list(written)}

    def told(_: object, path: Path, *asked: object, **__: object) -> Measured:
        size = left[path.name == file.name].pop(0) * 1_000_000
        return took(size, 0.01, requested=1_000)

    monkeypatch.setattr(SessionMaker, "measure", told)
    monkeypatch.setattr(SessionMaker, "time_ratio", lambda *_, **__: ratio)
    monkeypatch.setattr(branch, "_pattern_costs", lambda *_: False)
    rows = memsched.optimize(
        file, effort=0.1, hooks=memsched.Hooks(words=("optimize", str(file)))
    ).report.values.alternatives
    found = [row for row in rows if row.process_bytes is not None and not row.private]
    if named is None:
        assert not found
    else:
        (row,) = found
        assert row.process_bytes == named[0] * 1_000_000
        assert row.process_saving_bytes == (named[1] - named[0]) * 1_000_000


def test_outputs_are_compared_with_what_people_have_today(path: Path, tmp_path: Path) -> None:
    feed = {"x": np.random.default_rng(1).standard_normal((1, 3, SIDE, SIDE)).astype(np.float32)}
    np.savez(tmp_path / "feeds.npz", x=feed["x"])
    result = memsched.optimize(path, order_guarantee="session")
    guarantee = result.report.values.guarantee
    assert guarantee is not None
    shown = compare_in_sessions(path, result.model, feeds=str(tmp_path / "feeds.npz"))
    (tmp_path / "out.onnx").write_bytes(result.model)
    names: dict[str, Any] = {"onnxruntime": onnxruntime, "path": str(tmp_path / "out.onnx")}
    exec("\n".join(guarantee.session_options), names)  # noqa: S102 - the very lines that people are told
    today = onnxruntime.InferenceSession(str(path)).run(None, feed)[0]
    apart = np.abs(names["session"].run(None, feed)[0] - today).max() / np.abs(today).max()
    assert shown.default_relative_error == pytest.approx(apart, rel=0.05, abs=1e-9)
    default = memsched.optimize(path, order_guarantee="default").verification
    assert default is not None
    assert default.default_relative_error is None


def test_an_order_that_changes_bits_in_sessions_without_options_is_not_written_by_default(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = verify_written

    def apart(*args: object, **keywords: object) -> tuple[Verification | None, tuple[str, ...]]:
        verification, notes = known(*args, **keywords)  # type: ignore[arg-type]
        assert verification is not None
        same = verification.measured_peak_before_bytes == verification.measured_peak_after_bytes
        return replace(verification, default_apart=0.0 if same else 7e-5), notes

    def written(**options: Any) -> bytes:
        return memsched.optimize(path, effort=0.2, max_slowdown=None, **options).model

    assert written() != path.read_bytes()
    monkeypatch.setattr(finish, "verify_written", apart)
    assert written() == path.read_bytes()
    assert written(order_guarantee="session") != path.read_bytes()


def test_a_file_that_is_opened_without_options_is_judged_by_such_sessions() -> None:
    found = Verification("onnxruntime", 3, True, 0.0, 100, 80, True, None, default_apart=7e-5)
    opened = as_opened(found)
    assert opened.outputs_equal is False
    assert opened.relative_error == 7e-5
    assert as_opened(replace(found, default_apart=0.0)).outputs_equal
