"""CSV, TOML and JSON files that were made to harm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.small_models import branches
from tests.trust.conftest import Warm, cheap, one_line, snapshot

HEADER = "id,lower,upper,size\n"


def rows(count: int, size: int = 1) -> str:
    return HEADER + "".join(f"{i},0,1,{size}\n" for i in range(count))


CSV: dict[str, Callable[[], str | bytes]] = {
    "a size of exabytes": lambda: HEADER + f"a,0,1,{2**80}\n",
    "a size with 10,000 digits": lambda: HEADER + f"a,0,1,{'9' * 10_000}\n",
    "a lifetime of exasteps, backwards": lambda: HEADER + f"a,{2**70},1,1\n",
    "not a number": lambda: HEADER + "a,0,1,nan\n",
    "infinity": lambda: HEADER + "a,0,inf,1\n",
    "an exponent": lambda: HEADER + "a,0,1,1e18\n",
    "a field of ten megabytes": lambda: HEADER + "a" * 10_000_000 + "\n",
    "a quote that never ends": lambda: HEADER + '"' + "a,0,1,1\n" * 100_000,
    "zeros": lambda: b"\0" * 1_000_000,
    "a million commas": lambda: HEADER + "," * 1_000_000,
    "other digits": lambda: HEADER + "a,0,1,\u0661\u0662\n",
    "UTF-16": lambda: (HEADER + "a,0,1,1\n").encode("utf-16"),
    "one name twice": lambda: HEADER + "a,0,1,1\na,0,1,1\n",
}


@pytest.mark.parametrize("case", CSV)
def test_csv(warm: Warm, tmp_path: Path, case: str) -> None:
    folder, text = tmp_path, CSV[case]()
    (folder / "b.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    before = snapshot(folder)
    done = warm(folder, "allocate", "b.csv", "--capacity", "1MB", "-o", "out.csv")
    one_line(done, 1, "b.csv")
    cheap(done)
    assert snapshot(folder) == before


TOML: dict[str, Callable[[], str | bytes]] = {
    "10,000 nested lists": lambda: "a = " + "[" * 10_000 + "]" * 10_000,
    "100,000 nested tables": lambda: ".".join("a" * 100_000) + " = 1\n",
    "an integer of 100,000 digits": lambda: "alignment_bytes = " + "9" * 100_000,
    "zeros": lambda: b"\0" * 1000,
    "not UTF-8": lambda: b'name = "\xff\xfe"\n',
    "an unknown key of a megabyte": lambda: "k" * 1_000_000 + " = 1\n",
    "controls": lambda: '"\\u001b[2J\\n" = 1\n',
    "a date": lambda: "name = 1979-05-27\n",
}


@pytest.mark.parametrize("case", TOML)
def test_toml(warm: Warm, tmp_path: Path, case: str) -> None:
    folder, text = tmp_path, TOML[case]()
    (folder / "t.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "net.onnx").write_bytes(branches())
    before = snapshot(folder)
    for command in (["targets", "t.toml"], ["analyze", "net.onnx", "--target", "t.toml"]):
        done = warm(folder, *command)
        if command[0] == "targets" and done.code == 2:
            continue
        one_line(done, 1, "t.toml")
        cheap(done)
    assert snapshot(folder) == before


JSON: dict[str, str] = {
    "100,000 nested lists": "[" * 100_000,
    "an integer of 100,000 digits": '{"schema_version": ' + "9" * 100_000 + "}",
    "not a report": "[1, 2]",
    "infinity": '{"schema_version": Infinity}',
    "a lone surrogate": '{"schema_version": 2, "command": "\\ud800"}',
}


@pytest.mark.parametrize("case", JSON)
def test_reports(warm: Warm, tmp_path: Path, case: str) -> None:
    folder = tmp_path
    (folder / "r.json").write_text(JSON[case])
    before = snapshot(folder)
    for command in (["report", "r.json", "-o", "r.html"], ["diff", "r.json", "r.json"]):
        done = warm(folder, *command)
        one_line(done, 1, "r.json")
        cheap(done)
    assert snapshot(folder) == before
