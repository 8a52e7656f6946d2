"""A visual wake words model in 60 KB of whole arena: the page's commands, a program that CMake builds, and TFLM."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from memsched.formats.tflite.model import parse
from memsched.runtimes.tflm.verification import predicted
from tests.documents import ROOT, follow
from tests.runtimes.tflm.interpreter import needs_tflm
from tests.test_firmware_example import built, configure, needs_cmake

PAGE = "docs/tasks/microcontroller.md"
EXAMPLE = ROOT / "examples" / "firmware"

INVOKE = """
import numpy, sys
from tflite_micro.python.tflite_micro import runtime

interpreter = runtime.Interpreter.from_file(sys.argv[1], arena_size=int(sys.argv[2]))
for _ in range(2):
    interpreter.set_input(numpy.zeros((1, 96, 96, 1), numpy.int8), 0)
    interpreter.invoke()
print(interpreter.get_output(0).tolist())
"""


def defined(header: str, name: str) -> list[int]:
    """Return the sizes that a header has under this name: where there are two, for 64 and for 32 bit."""
    return [int(size) for size in re.findall(rf"#define PERSON_DETECT_{name} \(\(size_t\)(\d+)u\)", header)]


def test_the_page_s_header_is_of_60_kb(tmp_path: Path) -> None:
    follow(PAGE, tmp_path, {"run"})
    header = (tmp_path / "fits_arena.h").read_text()
    [activations] = defined(header, "ACTIVATION_BYTES")
    assert activations + defined(header, "PERSISTENT_BYTES")[1] <= 60 * 1024
    assert hashlib.sha256((tmp_path / "fits.tflite").read_bytes()).hexdigest() in header


@needs_cmake
@needs_tflm
def test_the_program_s_arena_is_what_tflm_takes(tmp_path: Path) -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    [shown] = re.findall(r"```cmake\n(.*?)```", page, re.DOTALL)
    lists = (EXAMPLE / "CMakeLists.txt").read_text()
    [budget] = re.findall(r"set\(BUDGET (\w+) ", lists)
    lists = lists.replace("${CMAKE_CURRENT_SOURCE_DIR}/../../models/", "").replace("${BUDGET}", budget)
    assert all(line in " ".join(lists.split()) for line in shown.splitlines())
    configure(EXAMPLE, tmp_path)
    done = built(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = subprocess.run([tmp_path / "app"], capture_output=True, text=True, check=True).stdout
    sizes = re.fullmatch(r"model (\d+) bytes, arena (\d+) bytes, 12 operators to register\n", said)
    assert sizes is not None
    # The bytes that the program was compiled with, in an arena of the size that its header has.
    folder = tmp_path / "memsched" / "app"
    source = (folder / "person_detect_model.cc").read_text()
    model = bytes(int(byte, 16) for byte in re.findall(r"0x(\w\w),", source))
    assert len(model) == int(sizes[1])
    header = (folder / "person_detect_arena.h").read_text()
    assert hashlib.sha256(model).hexdigest() in header
    (tmp_path / "model.tflite").write_bytes(model)
    told = predicted(parse(model))
    assert told is not None
    recorder = told[1] - defined(header, "PERSISTENT_BYTES")[0]
    assert 0 < recorder < 512, "what the package tflite-micro records of itself is small"
    arena = int(sizes[2]) + recorder
    answers = {
        size: subprocess.run(
            [sys.executable, "-c", INVOKE, tmp_path / "model.tflite", str(size)],
            capture_output=True,
            text=True,
            check=False,
        )
        for size in (arena - 16, arena)
    }
    assert answers[arena].returncode == 0, answers[arena].stderr
    assert re.fullmatch(r"\[\[-?\d+, -?\d+\]\]\n", answers[arena].stdout)
    assert "failed to allocate tensors" in answers[arena - 16].stderr
