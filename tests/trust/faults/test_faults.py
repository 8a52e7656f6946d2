"""Faults beside the input: signals, folders that vanish or refuse, disks that are full, runtimes that crash."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsched.cli.main import INTERRUPTED, main
from tests.small_models import branches
from tests.trust.conftest import CLI, MODELS, ROOT, snapshot

LONG = [*CLI, "optimize", str(MODELS / "nasnetmobile_int8.tflite"), "--budget", "1KB", "--keep-best"]
LONG += ["--time-limit", "300", "--allow", "reorder,inplace,tile,remat", "--no-verify"]
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
        assert errors.endswith(f"memsched: error: {INTERRUPTED}\n")
    else:
        # Before Python has taken over the signals, while it starts: the system's own way to end.
        assert process.returncode in {-number, 1}, errors
        assert left == {}


def test_a_folder_that_vanishes_during_the_run_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    with started(tmp_path, "outputs/out.tflite") as process:
        time.sleep(6)
        assert process.poll() is None
        shutil.rmtree(folder)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    if left := snapshot(tmp_path):
        assert {"outputs/out.tflite", "outputs/out.json"} <= set(left)
    else:
        assert errors.endswith(f"memsched: error: {INTERRUPTED}\n")


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


@pytest.mark.parametrize(
    "command",
    [
        "optimize net.onnx --no-verify -o out.onnx",
        "optimize net.onnx --no-verify -o old.onnx",
        "analyze net.onnx --report out.json",
        "pipeline net.onnx --stages 2 --no-verify",
        "distribute net.onnx --cluster pi4x4 --no-run",
        f"relay {MODELS / 'hello_world_int8.tflite'} --no-verify -o .",
        "batch net.onnx --no-verify",
    ],
)
def test_a_read_only_folder(shared_folder: Path, command: str) -> None:
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
            code = main([*command.split(), "--quiet"])
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
    assert re.match("memsched: error: .*net_memsched.json'", done.stderr)
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

def guarded(own, host):
    def call(*arguments, **more):
        if {local!r} and host(*arguments) == "127.0.0.1":
            return own(*arguments, **more)
        with open({log!r}, "a") as file:
            file.write(repr(arguments) + "\\n")
        raise OSError("no network")
    return call

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, guarded(getattr(socket.socket, name), lambda _, *more: more[-1][0]))
for name in ("getaddrinfo", "gethostbyname"):
    setattr(socket, name, guarded(getattr(socket, name), lambda host, *_: host))
"""


def test_no_command_needs_a_network(tmp_path: Path) -> None:
    """Whatever connects or looks up a name fails and leaves a line; in the processes that run models, too.

    Native code does not pass Python's sockets: what ONNX Runtime does before it sends figures to its maker is to write
    an identity into the temporary folder and what it has to send into the home.
    """
    for name in ("site", "home", "tmp"):
        (tmp_path / name).mkdir()
    log = tmp_path / "connections"
    (tmp_path / "site/sitecustomize.py").write_text(NO_NETWORK.format(log=str(log), local=False))
    (tmp_path / "net.onnx").write_bytes(branches())
    (tmp_path / "net.csv").write_text("id,lower,upper,size\na,0,2,8\nb,1,3,8\n")
    given = environment(tmp_path / "site")
    # Where these are set, ONNX Runtime sends nothing anyway.
    for name in ("CI", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"):
        given.pop(name, None)
    given |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "MPLCONFIGDIR": str(tmp_path / "plots")}
    for command in (
        ["optimize", "net.onnx", "--html", "page.html", "--header", "net.h"],
        ["optimize", str(MODELS / "hello_world_int8.tflite"), "-o", "hello.tflite"],
        ["analyze", "net.onnx", "--report", "net.json", "--frontier", "--plot", "net.svg"],
        ["report", "net.json"],
        ["diff", "net.json", "net_memsched.json"],
        ["verify", "net.onnx", "net_memsched.onnx"],
        ["pipeline", "net.onnx", "--stages", "2"],
        ["relay", str(MODELS / "hello_world_int8.tflite"), "-o", "."],
        ["distribute", "net.onnx", "--cluster", "pi4x4", "--no-run"],
        ["batch", "net.onnx", "-o", "batch"],
        ["allocate", "net.csv"],
        ["targets", "tflm"],
    ):
        done = subprocess.run([*CLI, *command], cwd=tmp_path, capture_output=True, text=True, check=False, env=given)
        assert done.returncode == 0, (command, done.stderr)
        assert "not verified" not in done.stdout, command
    assert not log.exists()
    assert not snapshot(tmp_path / "home")
    assert not snapshot(tmp_path / "tmp")


def test_devices_speak_with_each_other_on_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    log = tmp_path / "connections"
    (tmp_path / "net.onnx").write_bytes(branches())
    command = [
        *CLI,
        "distribute",
        "net.onnx",
        "--cluster",
        "pi4x4",
        "--method",
        "even",
        "--run",
        "-o",
        "out",
        "--force",
    ]
    for local, code in ((True, 0), (False, 1)):
        (tmp_path / "site/sitecustomize.py").write_text(NO_NETWORK.format(log=str(log), local=local))
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment(tmp_path / "site")
        )
        assert (done.returncode != 0) == code, done.stderr
        assert log.exists() == (not local)
