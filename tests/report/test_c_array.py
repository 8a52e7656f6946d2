"""A model as a C array: as C and as C++, byte for byte, and declared by the header."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from memsched import optimize
from memsched.cli.main import main

MODEL = Path(__file__).resolve().parents[2] / "models" / "hello_world_int8.tflite"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]

PROGRAM = r"""
#include <stdio.h>
#include "net.h"
int main(void) {
  if ((size_t)hello_world_int8_model % 16 != 0) return 2;
  return fwrite(hello_world_int8_model, 1, HELLO_WORLD_INT8_MODEL_BYTES, stdout) != HELLO_WORLD_INT8_MODEL_BYTES;
}
"""


@pytest.mark.parametrize(
    "compiler", [("gcc", "-std=c99"), ("gcc", "-std=c11"), ("g++", "-x", "c++", "-std=c++11")], ids=lambda one: one[-1]
)
def test_the_array_is_the_model_written(tmp_path: Path, compiler: tuple[str, ...]) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"{compiler[0]} is not installed")
    paths = {"-o": "net.tflite", "--header": "net.h", "--c-array": "net.c"}
    words = [word for option, name in paths.items() for word in (option, str(tmp_path / name))]
    assert main(["optimize", str(MODEL), "--target", "tflm", "--no-verify", "-q", *words]) == 0
    (tmp_path / "main.c").write_text(PROGRAM)
    sources = [str(tmp_path / name) for name in ("net.c", "main.c")]
    command = [*compiler, *WARNINGS, *sources, "-o", str(tmp_path / "program")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = subprocess.run([tmp_path / "program"], capture_output=True, check=True).stdout
    assert said == (tmp_path / "net.tflite").read_bytes()


def test_without_an_array_the_header_declares_none() -> None:
    result = optimize(MODEL, target="tflm", verify=False, time_limit=0)
    assert "MODEL_BYTES" not in result.report.to_header("net.h")
    assert "#define HELLO_WORLD_INT8_MODEL_BYTES ((size_t)7u)" in result.report.to_header("net.h", 7)


def test_the_header_says_whether_there_is_a_memory_plan() -> None:
    for wanted in (False, True):
        result = optimize(MODEL, target="tflm", verify=False, time_limit=0, tflm_plan=wanted)
        assert f"#define HELLO_WORLD_INT8_HAS_MEMORY_PLAN {int(wanted)}" in result.report.to_header("net.h")


@pytest.mark.parametrize("name", ["-", "net.tflite", "net.json"])
def test_the_array_is_a_file_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["optimize", str(MODEL), "-o", "net.tflite", "--report", "net.json", "--c-array", name]
    assert main(words) == 2
    assert "array" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
