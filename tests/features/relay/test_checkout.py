"""The generated C++ in TensorFlow Lite Micro built from its sources: `make test-tflm TFLM=folder`.

The folder is a checkout with what its own Makefile downloads. Nothing here has more memory than the header says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from memsched.formats.tflite.model import parse
from memsched.report.c_array import byte_lines
from tests.features.relay.test_runner import HERE, MODELS, WARNINGS, written
from tests.runtimes.tflm.interpreter import needs_tflm

CHECKOUT = Path(os.environ.get("TFLM", ""))
MAKEFILE = Path("tensorflow/lite/micro/tools/make/Makefile")
DOWNLOADS = MAKEFILE.parent / "downloads"
CASES = 20

pytestmark = [
    needs_tflm,
    pytest.mark.skipif(
        not os.environ.get("TFLM"), reason="no sources of TensorFlow Lite Micro: make test-tflm TFLM=folder"
    ),
]


@pytest.fixture(scope="module")
def library() -> Path:
    """Build TFLM's static library with its own Makefile."""
    if not (CHECKOUT / MAKEFILE).is_file():
        pytest.fail(f"TFLM={CHECKOUT} is no checkout of TensorFlow Lite Micro")
    if shutil.which("make") is None or shutil.which("g++") is None:
        pytest.skip("make or g++ is not installed")
    command = ["make", "-f", str(MAKEFILE), f"-j{os.cpu_count()}", "microlite"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = sorted(CHECKOUT.glob("gen/*/lib/libtensorflow-microlite.a"), key=lambda path: path.stat().st_mtime)
    return found[-1]


def write_cases(folder: Path, model: bytes) -> None:
    """Write inputs, and the outputs that the whole model gives in the package tflite-micro."""
    from tflite_micro.python.tflite_micro import runtime

    main = parse(model).subgraphs[0]
    assert (len(main.inputs), len(main.outputs)) == (1, 1)
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=1 << 22)
    given, draw = interpreter.get_input_details(0), np.random.default_rng(0)
    inputs, outputs = [], []
    for _ in range(CASES):
        value = draw.integers(-128, 128, given["shape"]).astype(given["dtype"])
        interpreter.set_input(value, 0)
        interpreter.invoke()
        inputs.append(value.tobytes())
        outputs.append(np.array(interpreter.get_output(0)).tobytes())
    assert len(set(outputs)) > 1
    lines = [f"constexpr unsigned kCases = {CASES};", "constexpr unsigned kMoreBytes = 0;"]
    for name, values in (("kCaseInputs", inputs), ("kCaseOutputs", outputs)):
        lines.append(f"constexpr unsigned char {name}[{CASES}][{len(values[0])}] = {{")
        for one in values:
            lines += ["{", *byte_lines(one), "},"]
        lines.append("};")
    (folder / "cases.h").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("name", ["person_detect", "hello_world_int8", "micro_speech_quantized"])
def test_firmware_computes_what_the_model_does_in_the_memory_that_was_stated(
    tmp_path: Path, library: Path, name: str
) -> None:
    model = (MODELS / f"{name}.tflite").read_bytes()
    source, runner = written(tmp_path, model)
    write_cases(tmp_path, model)
    theirs = [CHECKOUT, *(CHECKOUT / DOWNLOADS / one for one in ("flatbuffers/include", "gemmlowp", "ruy"))]
    command = ["g++", "-std=c++17", "-O1", *WARNINGS, "-fno-exceptions", "-fno-rtti", "-DTF_LITE_STATIC_MEMORY"]
    command += [word for folder in theirs for word in ("-isystem", str(folder))]
    command += [f"-DRUNNER={runner}", '-DHEADER="net_relay.h"', f"-I{tmp_path}", str(source)]
    command += [str(HERE / "firmware_main.cc"), str(library), "-o", str(tmp_path / "firmware")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = subprocess.run([tmp_path / "firmware"], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, f"{CASES} inputs, equal outputs\n"), said.stderr
