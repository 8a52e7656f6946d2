"""`memsched optimize` and Ctrl-C: the best so far is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memsched.cli import terminal
from memsched.cli.main import INTERRUPTED
from tests.cli.conftest import Run
from tests.cli.written import names, report_of

SLOW = """
import sys, time
import memsched.plan.orders as planning

search = planning.schedule_graph

def slow(*arguments, **more):
    found = search(*arguments, **more)
    print("searching", file=sys.stderr, flush=True)
    while not arguments[1].stop():
        time.sleep(0.01)
    return found

planning.schedule_graph = slow
from memsched.cli.main import main
sys.exit(main())
"""


ACKNOWLEDGED = terminal.ACKNOWLEDGED.decode()

NATIVE = """
import ctypes, sys
import memsched.plan.orders as planning

search = planning.schedule_graph

def native(*arguments, **more):
    found = search(*arguments, **more)
    arguments[1].stop()
    print("searching", file=sys.stderr, flush=True)
    ctypes.CDLL(None).sleep(5)
    return found

planning.schedule_graph = native
from memsched.cli.main import main
sys.exit(main())
"""
"""A search that is inside native code, in which no signal handler of Python's runs and nothing is asked."""


def test_ctrl_c_is_acknowledged_while_native_code_runs(model: Path) -> None:
    command = [sys.executable, "-c", NATIVE, "optimize", str(model), "--no-verify"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "searching\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == ACKNOWLEDGED
        assert process.poll() is None
        process.communicate(timeout=300)
    assert process.returncode == 130
    assert names(model.parent) == ["net.onnx", "net_memsched.json", "net_memsched.onnx"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_the_best_order(model: Path, number: int) -> None:
    command = [sys.executable, "-c", SLOW, "optimize", str(model), "--no-verify"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "searching\n"
        process.send_signal(number)
        assert process.stderr.readline() == ACKNOWLEDGED
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "ended early" in out
    assert names(model.parent) == ["net.onnx", "net_memsched.json", "net_memsched.onnx"]
    assert report_of(model.parent / "net_memsched.json")["verdict"]["interrupted"] is True


def test_a_second_ctrl_c_ends_a_search_that_does_not_listen(model: Path) -> None:
    script = SLOW.replace(
        "while not arguments[1].stop():\n",
        "while not arguments[1].stop():\n        time.sleep(0.01)\n"
        # In one piece, beside which another thread writes its line.
        '    sys.stderr.write("asked\\n")\n    sys.stderr.flush()\n    while True:\n',
    )
    command = [sys.executable, "-c", script, "optimize", str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "searching\n"
        process.send_signal(signal.SIGINT)
        assert {process.stderr.readline() for _ in range(2)} == {ACKNOWLEDGED, "asked\n"}
        alone = process.poll()
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=300)
        finally:
            process.kill()
    assert alone is None
    assert process.returncode == 130
    assert err == f"memsched: error: {INTERRUPTED}\n"
    assert names(model.parent) == ["net.onnx"]


def test_ctrl_c_before_there_is_a_result(model: Path) -> None:
    script = SLOW.replace(
        "search = planning", "import memsched.commands.optimize.reading as c\nsearch = planning"
    ).replace(
        "planning.schedule_graph = slow",
        "def load(*_):\n    print('loading', file=sys.stderr, flush=True)\n    time.sleep(600)\nc.load_module = load",
    )
    command = [sys.executable, "-c", script, "optimize", str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, "")
    assert err == f"memsched: error: {INTERRUPTED}\n"
    assert names(model.parent) == ["net.onnx"]


def test_an_interrupted_verification_keeps_the_model(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from memsched.commands.optimize import finish

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(finish, "verify_written", interrupted)
    done = run("optimize", model)
    assert done.code == 130
    report = report_of(model.parent / "net_memsched.json")
    assert report["sections"]["verification"] is None
    assert finish.VERIFICATION_INTERRUPTED in report["verdict"]["notes"]
