"""Faults beside the input: signals, folders that vanish or refuse, disks that are full, runtimes that crash."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsched.cli.main import main
from tests.small_models import branches
from tests.trust.conftest import CLI, MODELS, ROOT, snapshot

LONG = [*CLI, "optimize", str(MODELS / "nasnetmobile_int8.tflite"), "--budget", "1KB", "--time-limit", "300"]
LONG += ["--allow", "reorder,inplace,tile,remat", "--no-verify"]
NOBODY = 65534


def started(folder: Path, output: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*LONG, "-o", output], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


def environment(*paths: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.7, 6.0])
def test_a_signal_ends_a_run(tmp_path: Path, number: int, seconds: float) -> None:
    """At whatever moment: nothing and one line, or the whole result; never half of it, nothing temporary."""
    with started(tmp_path, "out.tflite") as process:
        time.sleep(seconds)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    left = snapshot(tmp_path)
    if process.returncode == 130 and left:
        assert set(left) == {"out.tflite", "out.json"}
    elif process.returncode == 130:
        assert errors == "memsched: error: interrupted; nothing was written\n"
    else:
        # Before Python has taken over the signals, while it starts: the system's own way to end.
        assert process.returncode in {-number, 1}, errors
        assert left == {}


def test_a_folder_that_vanishes_during_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    with started(tmp_path, "outputs/out.tflite") as process:
        time.sleep(6)
        assert process.poll() is None
        shutil.rmtree(folder)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in {1, 130}
    assert errors.startswith("memsched: error: ")
    assert errors.count("\n") == 1, errors
    assert snapshot(tmp_path) == {}


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user may read and only its owner may write to."""
    with tempfile.TemporaryDirectory(prefix="shared-") as name:
        folder = Path(name)
        (folder / "net.onnx").write_bytes(branches())
        (folder / "net.onnx").chmod(0o444)
        (folder / "old.onnx").write_bytes(b"old")
        (folder / "old.onnx").chmod(0o444)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("output", ["out.onnx", "old.onnx"])
def test_a_read_only_folder(shared_folder: Path, output: str) -> None:
    """As root no permission holds, so another user tries."""
    before = snapshot(shared_folder)
    child = os.fork()
    if child == 0:
        code = 70
        try:
            if os.getuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.chdir(shared_folder)
            code = main(["optimize", "net.onnx", "--no-verify", "-o", output, "--quiet"])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert snapshot(shared_folder) == before


def test_a_disk_that_is_full_before_the_report(tmp_path: Path) -> None:
    """There is room for the model, not for its report: neither is written."""
    (tmp_path / "net.onnx").write_bytes(branches())
    room = 4000

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    done = subprocess.run(
        [*CLI, "optimize", "net.onnx", "--no-verify"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        preexec_fn=limit,
    )
    assert len(branches()) < room
    assert (done.returncode, done.stdout) == (1, "")
    assert "net_memsched.json' cannot be written" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(snapshot(tmp_path)) == ["net.onnx"]


CRASH = """
import os, signal, sys
if any("memsched.runtimes.worker" in word for word in sys.orig_argv):
    os.kill(os.getpid(), signal.SIG{name})
"""


@pytest.mark.parametrize("name", ["KILL", "ABRT"])
def test_a_runtime_that_crashes(tmp_path: Path, name: str) -> None:
    """It costs the verification, not the result, and it is said."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(CRASH.format(name=name))
    (tmp_path / "net.onnx").write_bytes(branches())
    done = subprocess.run(
        [*CLI, "optimize", "net.onnx"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment(tmp_path / "site"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "not verified" in done.stdout
    assert f"SIG{name}" in done.stdout
    assert (tmp_path / "net_memsched.onnx").is_file()


NO_NETWORK = """
import socket

def refuse(*arguments, **more):
    with open({log!r}, "a") as file:
        file.write(repr(arguments) + "\\n")
    raise OSError("no network")

socket.socket.connect = socket.socket.connect_ex = socket.socket.sendto = refuse
socket.getaddrinfo = socket.gethostbyname = socket.create_connection = refuse
"""


def test_no_command_needs_a_network(tmp_path: Path) -> None:
    """Whatever connects or looks up a name fails and leaves a line; in the processes that run models, too."""
    (tmp_path / "site").mkdir()
    log = tmp_path / "connections"
    (tmp_path / "site/sitecustomize.py").write_text(NO_NETWORK.format(log=str(log)))
    (tmp_path / "net.onnx").write_bytes(branches())
    for command in (
        ["optimize", "net.onnx", "--html", "page.html"],
        ["verify", "net.onnx", "net_memsched.onnx"],
        ["pipeline", "net.onnx", "--stages", "2", "--no-verify"],
        ["batch", "net.onnx", "-o", "batch", "--no-verify"],
    ):
        done = subprocess.run(
            [*CLI, *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=environment(tmp_path / "site"),
        )
        assert done.returncode == 0, (command, done.stderr)
    assert not log.exists()
