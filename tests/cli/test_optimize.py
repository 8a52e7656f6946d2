"""``memsched optimize`` from file to file: names, streams, exit codes, and nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import onnx
import pytest

from memsched.base.errors import InternalError
from memsched.cli.main import INTERNAL
from memsched.commands.failures import DEFECTS
from memsched.report.schema import json_schema
from tests import small_models
from tests.cli.conftest import Run
from tests.cli.written import names, report_of
from tests.formats import tflite_builder
from tests.needs import recent_onnxruntime
from tests.outcomes import line_with

SCHEMA = jsonschema.Draft202012Validator(json_schema("report"))
CLI = [sys.executable, "-m", "memsched"]


@pytest.fixture
def tflite_model(tmp_path: Path) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(tflite_builder.build(tflite_builder.branches(size=64)))
    return path


def test_default_names_and_a_better_order(run: Run, model: Path) -> None:
    before = model.read_bytes()
    done = run("optimize", model, "--no-verify")
    assert (done.code, done.err) == (0, "")
    assert names(model.parent) == ["net.onnx", "net_memsched.json", "net_memsched.onnx"]
    assert model.read_bytes() == before
    report = report_of(model.parent / "net_memsched.json")
    assert report["proof"]["status"] == "optimal"
    # One wide tensor (1 KB), four means, against four wide tensors.
    assert report["written"]["schedule"]["peak_bytes"] < report["original"]["schedule"]["peak_bytes"] / 3
    assert report["output"]["path"] == str(model.parent / "net_memsched.onnx")
    written = onnx.load(str(model.parent / "net_memsched.onnx"))
    assert [node.name for node in written.graph.node][:2] != ["mul0", "mul1"]
    properties = {entry.key: entry.value for entry in written.metadata_props}
    assert json.loads(properties["memsched.session_options"])["order"] == "file"
    assert properties["memsched.peak_bytes"] == str(report["written"]["schedule"]["peak_bytes"])
    assert "PRIORITY_BASED" in done.out
    assert "net_memsched.onnx" in done.out


@recent_onnxruntime
@pytest.mark.quick
def test_verification_in_the_real_runtimes(run: Run, model: Path, tflite_model: Path) -> None:
    for path in (model, tflite_model):
        done = run("optimize", path)
        assert done.code == 0, done.err
        verification = report_of(path.with_name(f"net_memsched{path.suffix}").with_suffix(".json"))["sections"][
            "verification"
        ]
        assert verification["outputs_equal"] is True
        assert verification["executed_order_matches"] is True
        assert verification["measured_peak_after_bytes"] < verification["measured_peak_before_bytes"]
        assert "bit-equal" in done.out


def test_nothing_better_writes_the_input_byte_for_byte(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "chain.onnx"
    model.write_bytes(small_models.chain())
    assert run("optimize", model, "--no-verify").code == 0
    assert (tmp_path / "chain_memsched.onnx").read_bytes() == model.read_bytes()
    report = report_of(tmp_path / "chain_memsched.json")
    assert report["output"]["unchanged"] is True
    assert report["output"]["sha256"] == report["model"]["sha256"]


def test_pins_are_not_written_where_the_default_order_costs_no_more(run: Run, tmp_path: Path, model: Path) -> None:
    assert run("optimize", model, "--order-guarantee", "pins", "--no-verify").code == 0
    assert (tmp_path / "net_memsched.onnx").read_bytes() == model.read_bytes()
    assert report_of(tmp_path / "net_memsched.json")["output"]["guarantee"]["pins"] == 0


@recent_onnxruntime
@pytest.mark.parametrize("guarantee", ["none", "session", "pins", "default"])
def test_measured_peaks_are_those_predicted(run: Run, tmp_path: Path, guarantee: str) -> None:
    (tmp_path / "net.onnx").write_bytes(small_models.siblings())
    done = run("optimize", tmp_path / "net.onnx", "--order-guarantee", guarantee, "-v")
    assert done.code == 0, done.err
    summary, _, details = done.out.partition("\n\n")
    report = report_of(tmp_path / "net_memsched.json")
    check, peaks = report["sections"]["verification"], report["output"]["guarantee"]["predicted_peak_bytes"]
    # With dead buffers handed on, the join's other input takes the first product's, which is held until then.
    best = {"default": 5124, "session": 5124, "session_without_reuse": 5120, "pins": 5124}
    assert peaks == {"given": 6144, "none": 6144, **best}
    if guarantee in {"none", "session"}:
        # The file stays as it is, and so is the session in which it is measured.
        assert check["measured_peak_before_bytes"] == check["measured_peak_after_bytes"]
        assert check["measured_peak_before_bytes"] == check["default_peak_before_bytes"] >= peaks["given"]
        assert (check["predicted_peak_after_bytes"], check["executed_order_matches"]) == (None, None)
        assert check["measured_with"] == ["session = onnxruntime.InferenceSession(path)"]
        verified = line_with(details, "bit-equal", f" {check['measured_peak_before_bytes']:,} B")
        assert "->" not in verified
        assert "options" not in summary.partition("model: ")[2]
    else:
        assert check["executed_order_matches"] is True
        assert check["measured_peak_before_bytes"] == check["predicted_peak_before_bytes"]
        # What computes the pins takes a few bytes.
        extra = check["measured_peak_after_bytes"] - check["predicted_peak_after_bytes"]
        assert 0 <= extra <= 64 * (guarantee == "pins")
        assert check["predicted_peak_after_bytes"] == 5124
    assert report["output"]["unchanged"] is (guarantee in {"none", "session"})
    # Sessions without options replace the Concats: what they were measured to need is not what is predicted.
    assert check["default_peak_before_bytes"] > 1.1 * peaks["given"]
    assert line_with(details, f" {check['default_peak_before_bytes']:,} B ", f" {peaks['given']:,} B ")
    assert (f"--order-guarantee {guarantee}: " in done.out) is (guarantee == "session")


def test_pins_are_written_where_the_default_order_costs_more(run: Run, tmp_path: Path, model: Path) -> None:
    model.write_bytes(small_models.siblings())
    done = run("optimize", model, "--order-guarantee", "pins")
    assert done.code == 0, done.err
    report = report_of(tmp_path / "net_memsched.json")
    assert report["output"]["guarantee"]["kind"] == "pins"
    assert report["output"]["guarantee"]["pins"] > 0
    assert report["sections"]["verification"]["executed_order_matches"] is True
    first = (tmp_path / "net_memsched.onnx").read_bytes()
    (tmp_path / "ordered.onnx").write_bytes(first)
    assert run("optimize", tmp_path / "ordered.onnx", "--order-guarantee", "none", "--no-verify").code == 0


def test_order_guarantee_none_writes_no_metadata(run: Run, model: Path) -> None:
    assert run("optimize", model, "--order-guarantee", "none", "--no-verify").code == 0
    assert not onnx.load(str(model.parent / "net_memsched.onnx")).metadata_props
    assert report_of(model.parent / "net_memsched.json")["output"]["guarantee"]["session_options"] == []


def test_control_dependencies(run: Run, tflite_model: Path) -> None:
    assert run("optimize", tflite_model, "--control-dependencies", "--no-verify").code == 0
    written = tflite_builder.unpack((tflite_model.parent / "net_memsched.tflite").read_bytes())
    assert [entry.name for entry in written.metadata] == [b"model_control_dependencies"]


def test_json_prints_the_report_and_nothing_else(run: Run, model: Path) -> None:
    done = run("optimize", model, "--json", "--no-verify")
    report = json.loads(done.out)
    SCHEMA.validate(report)
    assert done.code == 0
    assert done.err.startswith("ONNX Runtime session ")
    assert report == report_of(model.parent / "net_memsched.json")


def test_report_to_standard_output_leaves_no_file(run: Run, model: Path) -> None:
    done = run("optimize", model, "--report", "-", "-q", "--no-verify")
    SCHEMA.validate(json.loads(done.out))
    assert done.err == ""
    assert names(model.parent) == ["net.onnx", "net_memsched.onnx"]


def test_streams(model: Path, tflite_model: Path, tmp_path: Path) -> None:
    for path in (model, tflite_model):
        inside = path.read_bytes()
        done = subprocess.run(
            [*CLI, "optimize", "-", "-o", "-", "--no-verify"],
            input=inside,
            capture_output=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        direct = tmp_path / f"direct{path.suffix}"
        assert (
            subprocess.run(
                [*CLI, "optimize", str(path), "-o", str(direct), "--no-verify", "-q"], check=False
            ).returncode
            == 0
        )
        assert done.stdout == direct.read_bytes()
        assert b"quality: " in done.stderr
    assert names(tmp_path) == ["direct.json", "direct.onnx", "direct.tflite", "net.onnx", "net.tflite"]


def test_names_given(run: Run, model: Path) -> None:
    folder = model.parent / "out"
    folder.mkdir()
    assert run("optimize", model, "-o", folder / "a.onnx", "--report", folder / "b.json", "--no-verify").code == 0
    assert run("optimize", model, "-o", folder / "c.onnx", "--no-verify").code == 0
    assert names(folder) == ["a.onnx", "b.json", "c.json", "c.onnx"]
    assert names(model.parent) == ["net.onnx", "out"]


def test_no_suffix(run: Run, model: Path) -> None:
    bare = model.parent / "net"
    model.rename(bare)
    assert run("optimize", bare, "--no-verify").code == 0
    assert names(model.parent) == ["net", "net_memsched", "net_memsched.json"]


def test_external_data_resolves_in_another_folder(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    path = small_models.external_branches(source)
    done = run("optimize", path, "-o", target / "small.onnx")
    assert done.code == 0, done.err
    assert names(target) == ["small.json", "small.onnx", "weights.bin"]
    assert report_of(target / "small.json")["sections"]["verification"]["outputs_equal"] is True
    onnx.load(str(target / "small.onnx"))


def test_external_data_leaves_nothing_behind_on_failure(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    path = small_models.external_branches(source)
    fail_replace(monkeypatch, errno.ENOSPC, of=".json")
    assert run("optimize", path, "-o", target / "small.onnx", "--no-verify").code == 1
    assert names(target) == []


def test_control_flow_bodies_are_scheduled_first(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "if.onnx"
    path.write_bytes(small_models.conditional())
    done = run("optimize", path)
    assert done.code == 0, done.err
    report = report_of(tmp_path / "if_memsched.json")
    assert [body["status"] for body in report["sections"]["bodies"]] == ["optimal", "optimal"]
    peaks = [body["peak_bytes"] for body in report["sections"]["bodies"]]
    assert max(peaks) < max(body["file_peak_bytes"] for body in report["sections"]["bodies"]) / 3
    assert report["written"]["steps"][0]["workspace_bytes"] == max(peaks)
    assert report["written"]["schedule"]["peak_bytes"] < report["original"]["schedule"]["peak_bytes"]
    assert report["sections"]["verification"]["outputs_equal"] is True


def test_budget(run: Run, model: Path) -> None:
    met = run("optimize", model, "--budget", "1MB", "--no-verify")
    assert met.code == 0
    assert report_of(model.with_name("net_memsched.json"))["budget"]["met"]
    missed = run("optimize", model, "--budget", "1000", "--no-verify")
    assert missed.code == 3
    assert "1,000 B" in missed.out
    quiet = run("optimize", model, "--budget", "1000", "--no-verify", "-q")
    assert (quiet.code, quiet.out, quiet.err.count("\n")) == (3, "", 1)


def test_a_missed_budget_leaves_no_file_unless_the_best_is_kept(run: Run, model: Path) -> None:
    out, before = model.with_name("out.onnx"), names(model.parent)
    kinds = [word for end in ("json", "html", "h", "c") for word in (_KIND[end], model.with_name(f"out.{end}"))]
    words = ("optimize", model, "-o", out, "--budget", "1000", "--no-verify")
    for _ in range(2):
        missed = run(*words, *kinds)
        assert missed.code == 3
        assert names(model.parent) == before
        assert "--keep-best" in missed.out
        assert str(out) not in missed.out
    out.write_bytes(b"as it was")
    told = run(*words, "--json")
    assert told.code == 3
    assert (out.read_bytes(), names(model.parent)) == (b"as it was", [*before, "out.onnx"])
    report = json.loads(told.out)
    jsonschema.validate(report, json_schema("report"))
    budget = report["budget"]
    assert (budget["met"], budget["withheld"], report["output"]["path"]) == (False, True, None)
    assert budget["exceeded_bytes"] == budget["required_bytes"] - 1000
    streamed = run(*words[:2], "-o", "-", *words[4:])
    assert (streamed.code, streamed.out) == (3, "")
    kept = run(*words, "--keep-best", *kinds)
    assert kept.code == 3
    assert {path.name for path in model.parent.iterdir()} == {*before, *(f"out.{end}" for end in _KIND), "out.onnx"}
    report = report_of(model.with_name("out.json"))
    assert (report["budget"]["met"], report["budget"]["withheld"], report["output"]["path"]) == (False, False, str(out))


_KIND = {"json": "--report", "html": "--html", "h": "--header", "c": "--c-array"}
"""Options that write a file beside the model, by its ending."""


def test_allow(run: Run, model: Path) -> None:
    assert run("optimize", model, "--allow", "inplace", "--no-verify").code == 0
    assert report_of(model.parent / "net_memsched.json")["written"]["schedule"]["reduction_percent"] == 0
    assert run("optimize", model, "--allow", "reorder", "--no-verify", "--target", "ideal").code == 0
    report = report_of(model.parent / "net_memsched.json")
    assert report["target"]["in_place"] is False
    assert all(buffer["in_place_of"] is None for buffer in report["written"]["buffers"])


@pytest.mark.parametrize("solver", ["auto", "exact", "greedy", "file"])
@pytest.mark.parametrize("target", ["ideal", "paper", "onnxruntime", "litert", "tflm"])
def test_every_solver_and_target(run: Run, model: Path, tflite_model: Path, solver: str, target: str) -> None:
    path = tflite_model if target in {"litert", "tflm"} else model
    done = run("optimize", path, "--solver", solver, "--target", target, "--no-verify")
    assert done.code == 0, done.err
    report = report_of(path.parent / "net_memsched.json")
    assert report["written"]["schedule"]["peak_bytes"] <= report["original"]["schedule"]["peak_bytes"]
    assert report["proof"]["bound_bytes"] <= report["written"]["schedule"]["peak_bytes"]


def test_the_same_bytes_twice(model: Path, tmp_path: Path) -> None:
    reports = []
    for seed in ("0", "1"):
        out = tmp_path / f"{seed}.onnx"
        command = [*CLI, "optimize", str(model), "-o", str(out), "--no-verify", "-q"]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True)
        report = json.loads(out.with_suffix(".json").read_text())
        for timed in (report, *report["ledger"]):
            timed.pop("seconds")
        report["output"].pop("path")
        reports.append(report)
    assert (tmp_path / "0.onnx").read_bytes() == (tmp_path / "1.onnx").read_bytes()
    assert reports[0] == reports[1]


def test_the_input_is_not_overwritten_without_force(run: Run, model: Path) -> None:
    before = model.read_bytes()
    link = model.parent / "link.onnx"
    link.symlink_to(model)
    for output in (model, link):
        run("optimize", model, "-o", output, "--no-verify").failed("would-overwrite", str(output), "--force")
        assert model.read_bytes() == before
    assert run("optimize", model, "-o", link, "--force", "--no-verify").code == 0
    assert link.is_symlink()
    assert model.read_bytes() != before
    assert names(model.parent) == ["link.json", "link.onnx", "net.onnx"]


def test_permissions_follow_the_umask_or_the_old_file(run: Run, model: Path) -> None:
    out = model.parent / "out.onnx"
    old = os.umask(0o027)
    try:
        assert run("optimize", model, "-o", out, "--no-verify").code == 0
        assert stat.S_IMODE(out.stat().st_mode) == 0o640
        out.chmod(0o600)
        assert run("optimize", model, "-o", out, "--no-verify").code == 0
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_devices_are_written_not_replaced(run: Run, model: Path) -> None:
    assert run("optimize", model, "-o", "/dev/null", "--report", "/dev/null", "--no-verify").code == 0
    assert run("optimize", model, "-o", "/dev/null", "--no-verify").code == 0
    assert not Path("/dev/null.json").exists()
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def fail_replace(monkeypatch: pytest.MonkeyPatch, number: int, of: str) -> None:
    """Make renames to names with the suffix ``of`` fail as the system would."""
    replace = Path.replace

    def failing(self: Path, target: str | Path) -> Path:
        if str(target).endswith(of):
            raise OSError(number, os.strerror(number), str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)


@pytest.mark.parametrize("suffix", [".onnx", ".json"])
def test_both_files_or_neither(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    fail_replace(monkeypatch, errno.ENOSPC, of=suffix)
    done = run("optimize", model, "--no-verify")
    done.failed("disk-full", suffix, os.strerror(errno.ENOSPC))
    assert done.err.count("\n") == 1
    assert names(model.parent) == ["net.onnx"]


def test_different_outputs_copy_the_model_and_say_why(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memsched.commands.optimize import finish
    from memsched.runtimes.values import Verification

    wrong = Verification("onnxruntime 0", 3, False, float("inf"), None, None, None, "outputs differ")
    monkeypatch.setattr(finish, "verify_written", lambda *_, **__: (wrong, ()))
    monkeypatch.delenv(DEFECTS)
    done = run("optimize", model, "-o", model.parent / "out.onnx")
    assert done.code == 0
    assert (model.parent / "out.onnx").read_bytes() == model.read_bytes()
    (failure,) = report_of(model.parent / "out.json")["sections"]["failures"]
    assert failure["defect"]
    assert "outputs differ" in failure["reason"]
    assert "outputs differ" in " ".join(done.out.split())


def test_different_outputs_end_the_run_where_defects_do(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memsched.commands.optimize import finish
    from memsched.runtimes.values import Verification

    wrong = Verification("onnxruntime 0", 3, False, float("inf"), None, None, None, "outputs differ")
    monkeypatch.setattr(finish, "verify_written", lambda *_, **__: (wrong, ()))
    monkeypatch.setenv(DEFECTS, "raise")
    done = run("optimize", model, "--report", model.parent / "why.json")
    done.failed("outputs-differ")
    assert report_of(model.parent / "why.json")["sections"]["verification"]["outputs_equal"] is False
    assert names(model.parent) == ["net.onnx", "why.json"]


def test_nothing_is_written_where_no_runtime_could_run_it(
    run: Run, model: Path, tflite_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    missing = {"onnxruntime", "ai_edge_litert"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in missing else find(name, *more))
    before = names(model.parent)
    for path, package in ((model, "onnxruntime"), (tflite_model, "ai-edge-litert")):
        commands = ("optimize", path), ("pipeline", path, "--stages", "2"), ("distribute", path, "--cluster", "pi4x4")
        for command in commands:
            done = run(*command)
            done.failed("runtime-missing", f"pip install {package}", "--no-")
            assert (done.out, done.err.count("\n")) == ("", 1)
            assert names(model.parent) == before
        compared = run("verify", path, path)
        compared.failed("runtime-missing", f"pip install {package}")
        assert "--no-" not in compared.err
    assert run("relay", tflite_model, "--target", "tflm-reference", "--no-verify").code == 0
    assert run("optimize", tflite_model, "--no-verify", "-q").code == 0


def test_an_internal_error_is_one_line(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memsched.commands.optimize import place

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh\nno")

    monkeypatch.setattr(place, "plan_module", broken)
    done = run("optimize", model)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert f"{INTERNAL}: ZeroDivisionError: oh no" in done.err
    assert "Traceback" in run("optimize", model, "--debug").err
    assert "Traceback" in run("optimize", model, "-vv").err


def test_a_result_that_fails_the_checker_is_not_written(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from memsched.plan import orders
    from memsched.solve.schedule import portfolio

    schedule = portfolio.schedule_graph

    def lying(*arguments: Any, **more: Any) -> Any:
        found = schedule(*arguments, **more)
        return dataclasses.replace(found, schedule=dataclasses.replace(found.schedule, peak=1, lower_bound=0))

    monkeypatch.setattr(orders, "schedule_graph", lying)
    done = run("optimize", model)
    assert isinstance(done.error, InternalError)
    assert re.search(r"\b1\b", str(done.error))
    assert names(model.parent) == ["net.onnx"]
