"""`--effort`: counted work in place of seconds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.commands.optimize.test_choose import convolutions
from tests.formats import tflite_builder


def test_on_the_command_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(convolutions())
    for command in ("optimize", "batch"):
        both_limits = run(command, path, "--effort", 1, "--time-limit", 1)
        both_limits.failed("option-conflict", "--time-limit", "--effort")
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
        both_limits.failed("option-conflict", "--time-limit", "--effort")
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


@pytest.mark.parametrize("effort", [0.0, 0.01, 0.3])
@pytest.mark.parametrize(
    "words",
    [
        ("optimize", "--no-verify"),
        ("optimize", "--allow", "all", "--no-verify"),
        ("optimize", "--session", "default"),
        ("optimize", "-O2", "--budget", "60%"),
        ("analyze", "--frontier"),
        ("pipeline", "--stages", 2, "--no-verify"),
        ("distribute", "--cluster", "pi4x4", "--no-run"),
        ("relay", "--target", "tflm", "--no-verify"),
        ("batch", "--allow", "all", "--no-verify"),
        ("allocate",),
    ],
    ids=lambda words: words[0],
)
def test_no_person_ended_what_effort_ended(run: Run, tmp_path: Path, words: tuple[object, ...], effort: float) -> None:
    """The word, and the exit code 130, are for a person's Ctrl-C alone."""
    rows = [f"b{number},{number % 7},{number % 7 + 2 + number % 3},{8 + number * 5 % 11}" for number in range(30)]
    given = {
        "allocate": ("net.csv", "\n".join(["id,lower,upper,size", *rows, ""]).encode()),
        "relay": ("net.tflite", tflite_builder.build(tflite_builder.branches(4))),
    }
    name, data = given.get(str(words[0]), ("net.onnx", convolutions()))
    path = tmp_path / name
    path.write_bytes(data)
    folder = tmp_path / "out"
    folder.mkdir()
    output = {"analyze": (), "optimize": ("-o", folder / "out.onnx"), "allocate": ("-o", folder / "out.csv")}
    rest = output.get(str(words[0]), ("-o", folder))
    done = run(words[0], path, *words[1:], "--effort", effort, *rest)
    assert done.code in {0, 3}, done.err
    told = [done.out, done.err, *(one.read_text() for one in folder.glob("*.json"))]
    assert not any("interrupted" in re.sub(r'"interrupted":\s*false', "", text) for text in told)
