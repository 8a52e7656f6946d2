"""`memsched batch` as a user meets it: real processes, killed and interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from memsched.report.schema import json_schema
from scripts.terminal_images import printed
from tests import small_models
from tests.cli.conftest import Run
from tests.cli.written import names
from tests.commands.batch.test_run import children_of, written
from tests.outcomes import line_with

CLI = [sys.executable, "-m", "memsched"]


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo"
    folder.mkdir()
    for count in (4, 5):
        (folder / f"branches{count}.onnx").write_bytes(small_models.branches(count=count))
    (folder / "bad.onnx").write_bytes(b"no model")
    return folder


def test_a_batch_and_single_runs_write_the_same_bytes(run: Run, zoo: Path, tmp_path: Path) -> None:
    asked = ("--target", "ideal", "--seed", 3, "--max-slowdown", "none")
    done = run("batch", zoo, "--workers", 2, "-o", tmp_path / "out", *asked)
    assert done.code == 1
    assert "[3/3]" in done.err
    assert re.search(r"failed: .*bad\.onnx", done.out)
    assert line_with(done.out, "3 ", " 2 done", " 1 failed")
    totals = json.loads((tmp_path / "out" / "batch.json").read_text())["totals"]
    assert (totals["models"], totals["done"], totals["failed"]) == (3, 2, 1)
    for count in (4, 5):
        single = tmp_path / f"single{count}.onnx"
        model = zoo / f"branches{count}.onnx"
        assert run("optimize", model, "-o", single, *asked).code == 0
        assert (tmp_path / "out" / f"branches{count}_memsched.onnx").read_bytes() == single.read_bytes()


def test_what_standard_output_and_the_exit_code_say(run: Run, zoo: Path, tmp_path: Path) -> None:
    (zoo / "bad.onnx").unlink()
    listed = tmp_path / "list.txt"
    listed.write_text(f"{zoo / 'branches4.onnx'}\n")
    arguments = ("-o", tmp_path / "out", "--no-verify", "--budget", "1KB")
    done = run("batch", f"@{listed}", "--json", *arguments)
    assert done.code == 3
    summary = json.loads(done.out)
    jsonschema.validate(summary, json_schema("batch"))
    assert summary["models"][0]["status"] == "budget_missed"
    [row] = summary["models"]
    assert (row["output"], row["report"], row["result"]["budget_met"]) == (None, None, False)
    assert names(tmp_path / "out") == ["batch.csv", "batch.html", "batch.json"]
    assert run("batch", f"@{listed}", "-q", *arguments, "--keep-best").code == 3
    assert len(names(tmp_path / "out")) == 5
    quiet = run("batch", "--list", listed, "-q", *arguments)
    assert (quiet.code, quiet.out) == (3, "")
    assert quiet.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "about"),
    [
        ((), "no-models-given", "@FILE"),
        (("nothing",), "no-models", "nothing"),
        (("net.onnx", "--workers", "0"), "option-range", "--workers 0"),
        (("net.onnx", "--target", "tfml"), "no-such-target", "'tflm'?"),
        (("net.onnx", "--time-limit", "-1"), "option-range", "--time-limit"),
        (("net.onnx", "--dask", "tcp://127.0.0.1:1", "--workers", "2"), "option-conflict", "--workers"),
        (("net.onnx", "-o", "net.onnx"), "not-a-folder", "net.onnx"),
        (("net.onnx", "--max-extra-macs", "3"), "no-effect", "--max-extra-macs"),
    ],
)
def test_mistakes_are_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: str, about: str
) -> None:
    (tmp_path / "nothing").mkdir()
    (tmp_path / "net.onnx").write_bytes(small_models.chain())
    monkeypatch.chdir(tmp_path)
    done = run("batch", *arguments)
    done.failed(code, about)
    assert done.err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"net.onnx", "nothing"}


@pytest.fixture
def slow(zoo: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A batch of one quick model and one that takes long, one at a time."""
    (zoo / "bad.onnx").unlink()
    (zoo / "branches5.onnx").rename(zoo / "z.onnx")
    (zoo / "z.onnx").write_bytes(small_models.branches(count=3000))
    command = [*CLI, "batch", str(zoo), "-o", str(tmp_path / "out"), "--no-verify"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_is_done(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def test_interrupted(slow: subprocess.Popen[str], tmp_path: Path) -> None:
    """Ctrl-C keeps what is done, says so, and leaves no process behind."""
    assert first_is_done(slow).startswith("[1/2]")
    child = children_of(slow.pid)
    slow.send_signal(signal.SIGINT)
    _, err = slow.communicate(timeout=600)
    assert slow.returncode == 130
    assert "Traceback" not in err
    summary = json.loads((tmp_path / "out" / "batch.json").read_text())
    assert summary["interrupted"]
    assert sorted(row["status"] for row in summary["models"]) == ["done", "not_run"]
    assert list(written(tmp_path / "out")) == ["branches4_memsched.onnx"]
    end = time.monotonic() + 300
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()


def test_a_killed_worker_is_tried_again(slow: subprocess.Popen[str], tmp_path: Path) -> None:
    first_is_done(slow)
    os.kill(children_of(slow.pid), signal.SIGKILL)
    _, err = slow.communicate(timeout=600)
    assert "died" in err
    assert slow.returncode == 0
    rows = json.loads((tmp_path / "out" / "batch.json").read_text())["models"]
    assert [row["attempts"] for row in rows] == [1, 2]
    assert len(written(tmp_path / "out")) == 2


def test_a_parent_that_is_killed_leaves_no_process(slow: subprocess.Popen[str]) -> None:
    first_is_done(slow)
    child = children_of(slow.pid)
    slow.kill()
    slow.wait()
    end = time.monotonic() + 300
    while Path(f"/proc/{child}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()


def test_a_live_table_on_a_terminal(zoo: Path) -> None:
    columns = 60
    text = printed(["batch", zoo.name, "-o", "out", "--no-verify"], columns, zoo.parent, stdout_only=False)
    assert re.search("3 of 3 .*1 failed", text)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", text)
    assert max(map(len, re.split(r"[\r\n]+", plain))) <= columns
    assert "…" not in text


def test_one_peak_is_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(small_models.branches())
    done = run("batch", tmp_path / "net.onnx", "-o", tmp_path / "out", "--no-verify")
    assert done.code == 0, done.err
    assert "1 peak " in " ".join(done.out.split())
