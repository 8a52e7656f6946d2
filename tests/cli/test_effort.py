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


def test_of_the_other_commands_that_search(run: Run, tmp_path: Path) -> None:
    path, table = tmp_path / "net.onnx", tmp_path / "buffers.csv"
    path.write_bytes(convolutions())
    rows = [f"b{number},{number % 7},{number % 7 + 2 + number % 3},{8 + number * 5 % 11}" for number in range(30)]
    table.write_text("\n".join(["id,lower,upper,size", *rows]) + "\n")
    commands = {
        "pipeline": (path, "--stages", 2, "--no-verify"),
        "distribute": (path, "--cluster", "pi4x4", "--no-run"),
        "allocate": (table,),
    }
    for command, arguments in commands.items():
        both_limits = run(command, *arguments, "--effort", 1, "--time-limit", 1)
        assert (both_limits.code, "give one of them" in both_limits.err) == (2, True)
        assert run(command, *arguments, "--effort", -1).code == 2
        for effort in (0.0, 0.2):
            written = []
            for turn in range(2):
                folder = tmp_path / f"{command}_{effort}_{turn}"
                folder.mkdir()
                output = folder / "out.csv" if command == "allocate" else folder
                done = run(command, *arguments, "--effort", effort, "-o", output)
                assert done.code == 0, done.err
                files = sorted(output.glob("*.onnx")) if output.is_dir() else [output]
                written.append([file.read_bytes() for file in files])
            assert written[0] == written[1]
            assert written[0]
