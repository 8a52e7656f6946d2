"""The table of overheads compares whole processes, and fails where one takes more than permitted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from memsched.formats.module import LoadOptions
from scripts.bench import overhead
from scripts.bench.overhead import processor_seconds, tables
from scripts.bench.runner.text import printed
from tests.commands.optimize.test_session import network


def test_processes_that_fail_are_no_measurement() -> None:
    assert processor_seconds([sys.executable, "-c", ""]) > 0
    with pytest.raises(SystemExit, match="exit 3"):
        processor_seconds([sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.parametrize(("ours", "verdict"), [(1.9, "none"), (2.1, "net")])
def test_what_takes_longer_than_permitted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: float, verdict: str
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())
    commands: list[list[str]] = []

    def timed(command: list[str]) -> float:
        commands.append(command)
        return ours if "memsched" in command else 1.0

    monkeypatch.setattr(overhead, "processor_seconds", timed)
    options = LoadOptions(input_shapes={"x": (1, 2)}, dims={"N": 3})
    lines = list(printed(tables([str(path)], options, Path("python"), 2)))
    assert len(commands) == 4
    assert commands[0][-2:] == ["--shape=x=1,2", "--dim=N=3"]
    assert commands[1][-2:] == ["--overwrite-input-shape", "x:1,2"]
    assert any(f"above 2 times: {verdict}" in line for line in lines)
