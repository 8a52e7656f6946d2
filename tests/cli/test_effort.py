"""`--effort`: counted work in place of seconds."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.commands.optimize.test_choose import convolutions


def test_on_the_command_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(convolutions())
    for command in ("optimize", "batch"):
        both_limits = run(command, path, "--effort", 1, "--time-limit", 1)
        assert (both_limits.code, "give one of them" in both_limits.err) == (2, True)
    assert run("analyze", path, "--effort", 1).code == 2
    assert run("analyze", path, "--frontier", "--effort", 0.05).code == 0
    assert run("optimize", path, "--effort", -1).code == 2
    assert run("optimize", path, "--effort", 1, "--allow", "all", "--no-verify").code == 0
    first = path.with_name("net_memsched.onnx").read_bytes()
    assert len(first) > len(path.read_bytes())
    done = run("batch", path, "-o", tmp_path / "out", "--effort", 1, "--allow", "all", "--no-verify")
    assert done.code == 0, done.err
    assert (next((tmp_path / "out").glob("*.onnx"))).read_bytes() == first
