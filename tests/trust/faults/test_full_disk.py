"""Disks that are full, for real: a file system of a few pages, with room for some of the outputs or for none.

Such a file system can be mounted by root on Linux; elsewhere a limit on the size of files stands for it
(`test_faults.test_a_disk_that_is_full_before_the_report`).
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from memsched.cli.main import main
from tests.small_models import branches, external_branches
from tests.trust.conftest import CLI, ROOT

PAGE = 4096
PAGES = 2048


@dataclass(frozen=True)
class Disk:
    """A folder on a small disk of its own."""

    folder: Path

    def leave(self, pages: int) -> None:
        """Fill the disk but for so many pages."""
        status = os.statvfs(self.folder)
        (self.folder / "filler").write_bytes(bytes((status.f_bavail - pages) * PAGE))
        assert os.statvfs(self.folder).f_bavail == pages

    def contents(self) -> dict[str, bytes]:
        """Return the files, temporary ones too."""
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and path.name != "filler")
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={PAGES * PAGE}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("nobody but root may mount a small disk")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


COMMANDS = {
    "optimize": "optimize net.onnx --no-verify -o disk/net.onnx --html disk/net.html --header disk/net.h",
    "analyze": "analyze net.onnx --report disk/net.json --html disk/net.html --frontier --plot disk/net.svg",
    "pipeline": "pipeline net.onnx --stages 2 --no-verify -o disk",
    "relay": f"relay {ROOT / 'models/hello_world_int8.tflite'} --no-verify -o disk",
    "distribute": "distribute net.onnx --cluster pi4x4 --method even --no-run -o disk/plan",
    "allocate": "allocate net.csv -o disk/net.csv --report disk/net.json",
    "report": "report net.json -o disk/net.html",
}


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(branches(count=6))
    rows = [f"{number},{number % 7},{number % 7 + 2},{number + 64}" for number in range(300)]
    Path("net.csv").write_text("\n".join(["id,lower,upper,size", *rows, ""]))
    assert main(["analyze", "net.onnx", "--report", "net.json"]) == 0
    capsys.readouterr()


def pages(contents: dict[str, bytes]) -> int:
    return sum(-(-len(data) // PAGE) for data in contents.values())


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("inputs")
def test_outputs_for_which_there_is_no_room(
    disk: Disk, capsys: pytest.CaptureFixture[str], command: str, earlier: bool
) -> None:
    """One line; what was there before is there still, and nothing else, wherever the disk becomes full."""
    arguments = COMMANDS[command].split()
    assert main(arguments) == 0
    needed = pages(disk.contents())
    for path in sorted(disk.folder.rglob("*"), reverse=True):
        if not earlier:
            path.rmdir() if path.is_dir() else path.unlink()
    before = disk.contents()
    capsys.readouterr()
    for room in sorted({0, needed // 2, needed - 1}):
        disk.leave(room)
        assert main(arguments) == 1
        output, errors = capsys.readouterr()
        assert output == ""
        assert errors.startswith("memsched: error: "), errors
        assert errors.endswith(f": {os.strerror(errno.ENOSPC)}\n") or "plan' " in errors, errors
        assert errors.count("\n") == 1, errors
        assert disk.contents() == before
        (disk.folder / "filler").unlink()
    assert main(arguments) == 0
    assert disk.contents().keys() >= before.keys()


@pytest.mark.usefixtures("inputs")
def test_weights_for_which_there_is_no_room(disk: Disk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = external_branches(tmp_path, "big.onnx")
    disk.leave(1)
    assert main(["optimize", str(model), "--no-verify", "-o", "disk/big.onnx"]) == 1
    assert os.strerror(errno.ENOSPC) in capsys.readouterr().err
    assert disk.contents() == {}


@pytest.mark.usefixtures("inputs")
def test_a_batch_on_a_full_disk(disk: Disk, capsys: pytest.CaptureFixture[str]) -> None:
    """Models for which there is room are there, whole and with their reports; a summary needs room, too."""
    for count in (4, 5):
        Path(f"net{count}.onnx").write_bytes(branches(count=count))
    arguments = ["batch", "net4.onnx", "net5.onnx", "--no-verify", "-o", "disk/out", "--quiet"]
    assert main(arguments) == 0
    whole = disk.contents()
    for path in (disk.folder / "out").iterdir():
        path.unlink()
    one = pages({name: data for name, data in whole.items() if "net4" in name})
    for room in (0, one + 1):
        disk.leave(room)
        assert main(arguments) == 1
        errors = capsys.readouterr().err
        assert os.strerror(errno.ENOSPC) in errors
        assert "internal" not in errors
        names = [name for name in whole if "net4" in name] if room else []
        assert list(disk.contents()) == names
        (disk.folder / "filler").unlink()


TEMPORARY = {
    "optimize": ["optimize", "net.onnx", "-o", "out.onnx"],
    "verify": ["verify", "net.onnx", "net.onnx"],
    "pipeline": ["pipeline", "net.onnx", "--stages", "2"],
    "relay": ["relay", str(ROOT / "models/hello_world_int8.tflite"), "-o", "."],
    "distribute": ["distribute", "net.onnx", "--cluster", "pi4x4", "--method", "even", "--run", "-o", "out"],
    "batch": ["batch", "net.onnx", "-o", "out", "--no-verify"],
}


@pytest.mark.parametrize("room", [1, 2])
@pytest.mark.parametrize("command", TEMPORARY)
@pytest.mark.usefixtures("inputs")
def test_no_room_for_temporary_files(disk: Disk, tmp_path: Path, command: str, room: int) -> None:
    """No model is blamed for it, whichever process finds out: one line, and nothing is written."""
    before = sorted(path.name for path in tmp_path.iterdir())
    disk.leave(room)
    environment = {**os.environ, "TMPDIR": str(disk.folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*CLI, *TEMPORARY[command], "--quiet"], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    if command == "batch":
        assert (done.stderr.count("\n"), re.findall(r"\d+", done.stderr)) == (1, ["1", "0", "0", "1"])
        assert os.strerror(errno.ENOSPC) in Path("out/batch.json").read_text()
        assert len(list(Path("out").iterdir())) == 3
    else:
        assert os.strerror(errno.ENOSPC) in done.stderr
        assert "TMPDIR" in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert disk.contents() == {}


@pytest.mark.parametrize("command", ["analyze net.onnx", "optimize net.onnx --no-verify -o -", "targets", "--help"])
@pytest.mark.usefixtures("inputs")
def test_standard_output_that_takes_nothing(command: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [*CLI, *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 1
    assert re.fullmatch(f"memsched: error: standard output .*: {os.strerror(errno.ENOSPC)}\n", done.stderr)
