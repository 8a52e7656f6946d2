"""The CMake function of the examples; the example itself is a task of tests/tasks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "firmware"
HEADERS = ROOT / "tests" / "runtimes" / "tflm" / "headers"

needs_cmake = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("g++") is None, reason="cmake or g++ is not installed"
)
pytestmark = needs_cmake


def configure(source: Path, build: Path, *more: str) -> None:
    command = f"-DMEMSCHED_COMMAND={sys.executable};-m;memsched"
    done = subprocess.run(
        ["cmake", "-S", source, "-B", build, command, *more], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def built(build: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["cmake", "--build", build], capture_output=True, text=True, check=False)


def test_a_program_is_built_with_a_model_that_fits_or_not_at_all(tmp_path: Path) -> None:
    source, build = tmp_path / "source", tmp_path / "build"
    source.mkdir()
    (source / "main.cc").write_text(
        '#include "hello_world_int8_arena.h"\nint main() { return HELLO_WORLD_INT8_RESOLVER_SIZE == 1 ? 0 : 1; }\n'
    )
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(fits LANGUAGES CXX)\n"
        f"include({EXAMPLE}/memsched.cmake)\nadd_executable(app main.cc)\n"
        f"memsched_model(app {ROOT}/models/hello_world_int8.tflite BUDGET ${{BUDGET}})\n"
    )
    configure(source, build, "-DBUDGET=2KB")
    done = built(build)
    assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([build / "app"], check=False).returncode == 0
    assert "Fitting" not in built(build).stdout
    configure(source, build, "-DBUDGET=1KB")
    for _ in range(2):
        done = built(build)
        assert done.returncode != 0
        assert (
            "Error 3" in done.stderr or "exit code 3" in done.stdout + done.stderr or "budget exceeded" in done.stderr
        )


def test_stages_are_part_of_a_program(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "main.cc").write_text(
        '#include "hello_world_int8_relay.h"\n'
        "static_assert(memsched::HelloWorldInt8Relay::kStages > 1);\nint main() {}\n"
    )
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(stages LANGUAGES C CXX)\nset(CMAKE_CXX_STANDARD 17)\n"
        f"include({EXAMPLE}/memsched.cmake)\nadd_library(app OBJECT main.cc)\n"
        f"target_include_directories(app PRIVATE {HEADERS})\n"
        f"memsched_model(app {ROOT}/models/hello_world_int8.tflite BUDGET 1KB STAGES)\n"
    )
    configure(source, tmp_path / "build")
    done = built(tmp_path / "build")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(p LANGUAGES CXX)\n"
        f"include({EXAMPLE}/memsched.cmake)\nmemsched_model(app model.tflite)\n"
    )
    done = subprocess.run(
        ["cmake", "-S", tmp_path, "-B", tmp_path / "build"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "BUDGET 80KB" in done.stderr
