"""The generated C++: it compiles without a warning, and runs in the library of the package tflite-micro.

There are no sources of TensorFlow Lite Micro here: it is compiled against declarations of the few names that it uses.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from memsched.commands.options import RelayOptions
from memsched.features.relay.relay import relay
from memsched.features.relay.report import relay_names, relay_report, save_relay
from memsched.report.relay_runner import runner_name
from tests.features.relay.nets import random_net
from tests.formats.tflite_builder import O, Sub, T, build
from tests.runtimes.tflm.interpreter import needs_tflm

HERE = Path(__file__).resolve().parent
HEADERS = HERE.parents[1] / "runtimes" / "tflm" / "headers"
MODELS = HERE.parents[2] / "models"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
STRICT = ["-std=c++17", "-O1", *WARNINGS, "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"]
BLOCK_TOO_SMALL, NOT_PREPARED = 1, 2

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_library = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="the layout of the library is that of x86-64"
)


def written(folder: Path, data: bytes) -> tuple[Path, str]:
    """Write a model in stages; return the source of its runner, and the name of the class."""
    model = folder / "net.tflite"
    model.write_bytes(data)
    found = relay(str(model), RelayOptions(verify=False))
    names = relay_names(str(model), None, None)
    save_relay(found, relay_report(found, names), names)
    return folder / "net_relay.cc", runner_name("net")


def compiled(source: Path, *more: str) -> None:
    command = ["g++", *STRICT, f"-I{HEADERS}", f"-I{source.parent}", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


NETS: Mapping[str, Callable[[], bytes]] = {
    "person_detect": (MODELS / "person_detect.tflite").read_bytes,
    "hello_world": (MODELS / "hello_world_int8.tflite").read_bytes,
    **{f"random {seed}": partial(random_net, seed) for seed in range(8)},
}


@needs_compiler
@pytest.mark.parametrize("types", [(), ("-DTYPES_IN_MICRO",)], ids=["tflite", "tflite::micro"])
@pytest.mark.parametrize("net", ["hello_world", "random 1", "random 4"])
def test_it_compiles_without_a_warning_wherever_types_are(tmp_path: Path, net: str, types: tuple[str, ...]) -> None:
    source, _ = written(tmp_path, NETS[net]())
    compiled(source, *types, "-c", str(source), "-o", str(tmp_path / "runner.o"))


@needs_compiler
@needs_library
@needs_tflm
@pytest.mark.parametrize("net", NETS)
def test_it_computes_what_the_model_does_and_says_what_is_wrong(tmp_path: Path, net: str) -> None:
    source, name = written(tmp_path, NETS[net]())
    library = tmp_path / "runner.so"
    defined = (f"-DRUNNER={name}", '-DHEADER="net_relay.h"', "-DTYPES_IN_MICRO")
    compiled(source, *defined, "-fPIC", "-shared", str(source), str(HERE / "driver.cc"), "-o", str(library))
    runs = "4" if net == "person_detect" else "20"
    command = [sys.executable, str(HERE / "firmware.py"), str(library), str(tmp_path / "net.tflite"), runs]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    report = json.loads((tmp_path / "net_relay.json").read_text())
    assert said["block"] == report["result"]["block_bytes_by_pointer"]["64"]
    assert said["equal"]
    assert said["vary"]
    assert (said["small"], said["odd"], said["unaligned"]) == (BLOCK_TOO_SMALL,) * 3
    assert (said["unprepared"], said["again"]) == (NOT_PREPARED, NOT_PREPARED)
    assert (said["early"], said["beyond"]) == ([None, None], None)


def test_names_of_tensors_end_no_comment(tmp_path: Path) -> None:
    tensors = [T(r"x*/ \ %s", (1, 4)), T("y\n#error", (1, 4))]
    source, _ = written(tmp_path, build(Sub(tensors, [O("RELU", [0], [1])], [0], [1])))
    header = source.with_suffix(".h").read_text()
    assert "input 0: x_/ _ _s" in header
    assert "#error" not in header.replace("output 0: y_#error", "")


@pytest.mark.parametrize(
    ("stem", "name"), [("net", "NetRelay"), ("3d-net_v2", "M3dNetV2Relay"), ("", "ModelRelay"), ("ä", "ModelRelay")]
)
def test_names_of_classes(stem: str, name: str) -> None:
    assert runner_name(stem) == name
