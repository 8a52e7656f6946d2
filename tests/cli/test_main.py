"""The command line as a whole: help, what is imported when, pipes, colours, and the smaller commands."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import onnx
import pytest
from onnx import numpy_helper

import memsched
from memsched.cli.main import INTERRUPTED, main
from memsched.report.schema import json_schema
from memsched.targets.load import builtin_targets, load_target
from tests import small_models
from tests.cli.conftest import Run
from tests.formats import tflite_builder
from tests.formats.tflite_builder import O, Sub, T
from tests.needs import recent_onnxruntime
from tests.outcomes import line_with

CLI = [sys.executable, "-m", "memsched"]
HEAVY = {
    "onnx",
    "onnxruntime",
    "numpy",
    "ortools",
    "rich",
    "flatbuffers",
    "tflite",
    "sympy",
    "ai_edge_litert",
    "tomllib",
}


def imported_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has after ``code``."""
    script = f"{code}\nimport sys; print(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["optimize", "--help"], ["nonsense"], ["analyze", "--x"]]
)
def test_help_and_usage_errors_import_nothing_heavy(arguments: list[str]) -> None:
    code = f"import os, sys; from memsched.cli.main import main; main({arguments!r})"
    assert not imported_by(code) & HEAVY


def test_importing_the_package_is_cheap() -> None:
    assert not imported_by("import memsched") & (HEAVY | {"click", "json"})
    assert "onnx" not in imported_by("import memsched; memsched.optimize")


def test_help(run: Run) -> None:
    for arguments in (["--help"], ["-h"], []):
        done = run(*arguments)
        text = done.out + done.err
        for command in ("optimize", "analyze", "verify", "targets"):
            assert command in text
    assert "130 interrupted" in " ".join(run("--help").out.split())
    for command in ("optimize", "analyze", "verify", "targets"):
        assert run(command, "--help").code == 0


def test_without_arguments_help_is_shown_and_the_exit_code_says_that_nothing_was_done(run: Run) -> None:
    done, asked = run(), run("--help")
    assert (done.code, done.out, done.err) == (2, "", asked.out)
    assert done.err.count("\n") > 20


def test_open_sizes_come_with_the_line_to_type(run: Run, tmp_path: Path) -> None:
    """Where a command assumes nothing: with usual sizes, so that the line works as it is."""
    path = tmp_path / "open net.onnx"
    path.write_bytes(small_models.branches(side="height"))
    done = run("pipeline", path, "--stages", "2", "--no-verify", "-q")
    done.failed("unknown-shape", "'x'")
    assert done.err.count("\n") == 1
    line = shlex.split(done.err[done.err.index("memsched pipeline") :])
    assert line[-2:] == ["--dim", "height=224"]
    assert run(*line[1:]).code == 0


def test_allow_all(run: Run, model: Path) -> None:
    reports = []
    for allowed in ("all", "reorder,inplace,tile,remat"):
        assert run("optimize", model, "--allow", allowed, "--no-verify", "-q").code == 0
        report = json.loads(model.with_name("net_memsched.json").read_text())
        assert report["sections"]["tile"] is not None
        assert report["sections"]["recompute"] is not None
        reports.append((report["verdict"], report["proof"], report["output"]))
    assert reports[0] == reports[1]
    permissions = "reorder, inplace, tile, remat, algebra, reassociate, fuse, branch, opening, io, all"
    run("optimize", model, "--allow", "alll").failed("bad-parameter", "--allow", "'alll'", permissions)


def test_a_budget_in_percent_is_of_what_the_file_as_given_requires(run: Run, model: Path) -> None:
    given = json.loads(run("analyze", model, "--json", "-q").out)["verdict"]["bytes"]
    for command in ("analyze", "optimize"):
        done = run(command, model, "--budget", "12.5%", "--json", "-q")
        assert done.code == 3
        report = json.loads(done.out)
        assert report["budget"]["budget_bytes"] == given // 8
        assert any(f"{given:,} B" in note and f"{given // 8:,} B" in note for note in report["verdict"]["notes"])
    assert run("analyze", model, "--budget", "100 %", "-q").code == 0
    assert memsched.analyze(str(model), budget="50%").report["budget"]["budget_bytes"] == given // 2
    run("analyze", model, "--budget", "-5%").failed("bad-budget", "'-5%'", "50%")
    assert run("batch", model, "--budget", "12.5%", "-o", model.with_name("zoo"), "-q").code == 3


def test_data_that_end_too_early_are_no_interrupt(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object, **__: object) -> None:
        raise EOFError("short")

    monkeypatch.setattr("memsched.commands.optimize.analysis.read_model", ends)
    done = run("analyze", model)
    assert done.code == 1
    assert INTERRUPTED not in done.err
    assert "EOFError: short" in done.err


def test_version(run: Run) -> None:
    assert run("--version").out == f"memsched {memsched.__version__}\n"


def test_did_you_mean(run: Run) -> None:
    done = run("optimise", "x.onnx")
    done.failed("usage-error", "'optimise'", "'optimize'?")
    assert done.out == ""
    run("optimize", "x.onnx", "--buget", "1").failed("no-such-option", "--buget", "--budget")
    run("xyzzy").failed("usage-error", "xyzzy", "optimize", "schema")


def test_as_a_module() -> None:
    done = subprocess.run([*CLI, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("memsched ")


@pytest.mark.parametrize(("stated", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_a_command_starts_no_threads_for_matrices_unless_asked_to(stated: dict[str, str], threads: str) -> None:
    code = "import os, sys; sys.argv = ['memsched', '--version']; from memsched.cli.main import main; main()"
    code += "; assert 'numpy' not in sys.modules; print(os.environ['OPENBLAS_NUM_THREADS'])"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**environment, **stated})
    assert done.stdout.splitlines()[-1] == threads


def test_a_reader_that_leaves_early(model: Path) -> None:
    """`memsched analyze --json | head -1`: no complaint, not even at exit."""
    big = model.with_name("big.onnx")
    big.write_bytes(small_models.branches(count=2000))
    for arguments in (["analyze", str(big), "--json", "-q"], ["analyze", str(big), "-v"], ["targets"], ["--help"]):
        with subprocess.Popen([*CLI, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.read(1)
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 0


def test_standard_output_that_is_full(model: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*CLI, "analyze", str(model), "--json", "-q"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert os.strerror(errno.ENOSPC) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_closed_streams(model: Path) -> None:
    command = f"{sys.executable} -m memsched analyze {model} >&- 2>&-"
    assert subprocess.run(command, shell=True, check=False).returncode in {0, 1}  # noqa: S602


def test_no_colour_in_a_pipe_or_when_asked(model: Path) -> None:
    piped = subprocess.run([*CLI, "analyze", str(model)], capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stdout
    forced = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm-256color"}
    forced.pop("NO_COLOR", None)
    coloured = subprocess.run([*CLI, "analyze", str(model)], capture_output=True, text=True, check=True, env=forced)
    assert "\x1b[" in coloured.stdout
    for arguments, env in ((["--no-color"], forced), ([], {**forced, "NO_COLOR": "1"})):
        plain = subprocess.run(
            [*CLI, "analyze", str(model), *arguments], capture_output=True, text=True, check=True, env=env
        )
        assert "\x1b[3" not in plain.stdout


def test_output_in_an_ascii_locale(tmp_path: Path) -> None:
    path = tmp_path / "nét.onnx"
    path.write_bytes(small_models.branches())
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([*CLI, "analyze", str(path)], capture_output=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    done.stdout.decode("ascii")


def test_sixty_columns(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.chdir(model.parent)
    lines = run("optimize", "net.onnx", "--no-verify", "-v").out.partition("\n\n")[2].splitlines()
    report = json.loads((model.parent / "net_memsched.json").read_text())
    given = report["original"]
    orders = [given["schedule"], *given["orders"].values(), report["written"]["schedule"]]
    shown = orders[:1] + [one for one in orders[1:] if {**orders[0], **one} != orders[0]]
    table = lines[1 : 3 + len(shown)]
    assert [f"{one['peak_bytes']:,}" in line for one, line in zip(shown, table[2:], strict=True)] == [True] * len(shown)
    assert max(map(len, table)) <= 60
    assert not any("…" in line for line in lines)


def test_progress_is_shown_on_a_terminal_only(model: Path) -> None:
    script = """
import pty, sys, os
status = pty.spawn([sys.executable, "-m", "memsched", "optimize", sys.argv[1], "--no-verify"])
sys.exit(os.waitstatus_to_exitcode(status))
"""
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(model)],
        capture_output=True,
        text=True,
        env=env,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0
    assert "\x1b[2K" in done.stdout
    verbose = subprocess.run(
        [*CLI, "optimize", str(model), "--no-verify", "-v"], capture_output=True, text=True, check=True
    )
    assert re.search(r"[\d,]+ B, bound [\d,]+", verbose.stderr)


def test_analyze(run: Run, model: Path) -> None:
    done = run("analyze", model, "-v")
    assert done.code == 0
    assert line_with(done.out, "Mul 4, ", "ReduceMean 4, ", "Concat 1")
    assert "wide0" in done.out
    assert [path.name for path in model.parent.iterdir()] == ["net.onnx"]
    assert run("analyze", model, "-q").out == ""


def test_analyze_report(run: Run, model: Path) -> None:
    report = model.parent / "report.json"
    assert run("analyze", model, "--report", report, "--target", "paper").code == 0
    printed = run("analyze", model, "--report", "-", "--target", "paper", "-q")
    values = json.loads(report.read_text())
    jsonschema.Draft202012Validator(json_schema("report")).validate(values)
    assert {**json.loads(printed.out), "seconds": 0, "ledger": 0} == {**values, "seconds": 0, "ledger": 0}
    # The meaning of "Iterative Graph Optimization": four wide tensors of 1 KB, the input, and nothing shared.
    assert values["written"]["schedule"]["peak_bytes"] == 5 * 1024
    assert values["written"]["operators"] == {"Concat": 1, "Mul": 4, "ReduceMean": 4}
    assert values["output"] is values["sections"]["verification"] is None
    assert [fault["tensor"] for fault in values["written"]["at_fault"]][:1] == ["x"]


def test_analyze_from_standard_input(model: Path) -> None:
    done = subprocess.run([*CLI, "analyze", "-", "--json"], input=model.read_bytes(), capture_output=True, check=True)
    assert json.loads(done.stdout)["model"]["path"] == "-"
    assert b"ReduceMean" in done.stderr


def test_open_dimensions(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(small_models.branches(side="height"))
    by_dim = run("analyze", path, "--dim", "height=32", "--json", "-q")
    by_shape = run("analyze", path, "--shape", "x=[1,32,16]", "--json", "-q")
    assert (by_dim.code, by_shape.code) == (0, 0)
    assert json.loads(by_dim.out)["proof"] == json.loads(by_shape.out)["proof"]
    assert run("optimize", path, "--dim", "height=32").code == 0
    out = tmp_path / "net_memsched.onnx"
    assert run("verify", path, out, "--shape", "x=1,8,16", "--runs", "1").code == 0


@recent_onnxruntime
def test_verify(run: Run, model: Path) -> None:
    assert run("optimize", model, "--no-verify").code == 0
    good = model.parent / "net_memsched.onnx"
    done = run("verify", model, good, "--runs", "2")
    assert done.code == 0
    values = json.loads(run("verify", model, good, "--runs", "2", "--json").out)
    assert (values["passed"], values["runs"]) == (True, 2)
    for side in ("before", "after"):
        assert f"{values[f'measured_peak_{side}_bytes']:,} B" in done.out
    assert values["measured_peak_after_bytes"] < values["measured_peak_before_bytes"]


@pytest.mark.quick
def test_verify_finds_a_difference_and_tolerates_one(run: Run, model: Path, tmp_path: Path) -> None:
    other = onnx.load_model_from_string(model.read_bytes())
    weight = other.graph.initializer[0]
    weight.CopyFrom(
        numpy_helper.from_array(numpy_helper.to_array(weight) * type(weight.dims[0])(1) + 1e-6, weight.name)
    )
    wrong = tmp_path / "wrong.onnx"
    onnx.save(other, str(wrong))
    done = run("verify", model, wrong)
    assert done.code == 4
    assert "FAILED" in done.out
    assert run("verify", model, wrong, "--atol", "0.001").code == 0
    assert run("verify", model, wrong, "--rtol", "0.5", "--atol", "0.5").code == 0
    assert json.loads(run("verify", model, wrong, "--json").out)["passed"] is False


def test_verify_tflite(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(tflite_builder.build(tflite_builder.branches()))
    assert run("verify", path, path, "--runs", "1").code == 0


def test_verify_what_cannot_be_run(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(tflite_builder.build(Sub([T("a"), T("b")], [O("CUSTOM:mine", [0], [1])], [0], [1])))
    run("verify", path, path).failed("not-compared", "litert")
    assert run("optimize", path).code == 0
    report = json.loads(path.with_name("net_memsched.json").read_text())
    assert report["sections"]["verification"]["outputs_equal"] is None


def test_targets(run: Run, tmp_path: Path) -> None:
    listed = run("targets")
    assert [line.split()[0] for line in listed.out.splitlines()] == list(builtin_targets())
    assert len(json.loads(run("targets", "--json").out)) == len(builtin_targets())
    for name in builtin_targets():
        file = tmp_path / "shown.toml"
        file.write_text(run("targets", name).out)
        assert load_target(str(file)) == load_target(name)
        assert json.loads(run("targets", name, "--json").out)["name"] == name
    assert run("targets", "idael").code == 2


def test_a_target_shown_is_a_target_file(run: Run, model: Path) -> None:
    file = model.parent / "mine.toml"
    file.write_text(run("targets", "onnxruntime").out)
    by_file = json.loads(run("analyze", model, "--target", file, "--json", "-q").out)
    by_name = json.loads(run("analyze", model, "--target", "onnxruntime", "--json", "-q").out)
    assert by_file["written"]["steps"] == by_name["written"]["steps"]
    assert by_file["written"]["buffers"] == by_name["written"]["buffers"]


def test_main_never_raises(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from memsched.cli import main as entry

    for error, code in (
        (RecursionError("deep"), 1),
        (MemoryError(), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 0),
    ):

        def raising(*_: object, error: BaseException = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(entry.cli, "invoke", raising)
        monkeypatch.setattr(entry, "_silence", lambda stream: None)
        assert main(["targets"]) == code


def test_a_target_of_another_format_is_refused(run: Run, model: Path) -> None:
    own = model.with_name("own.toml")
    own.write_text('extends = "tflm"\nname = "own"\n')
    before = sorted(model.parent.iterdir())
    commands = (
        ("analyze",),
        ("analyze", "--frontier"),
        ("analyze", "--dim", "n=1..4"),
        ("optimize", "--no-verify"),
        ("optimize", "--session", "default"),
        ("optimize", "--dim", "n=1..4"),
    )
    for target in ("tflm", "tflm-reference", "litert", str(own)):
        for command, *options in commands:
            done = run(command, model, *options, "--target", target)
            done.failed("other-format", "TFLite", "--target onnxruntime")
            assert (done.out, done.err.count("\n")) == ("", 1)
    assert sorted(model.parent.iterdir()) == before
    for target in ("onnxruntime", "ideal", "paper"):
        assert run("analyze", model, "--target", target).code == 0
