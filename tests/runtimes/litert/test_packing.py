"""Packed weights of single layers equal allocations of LiteRT's default delegate, on this and an older processor."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import memsched
from memsched.lowering import xnnpack
from memsched.lowering.apply import apply_target
from memsched.targets.load import load_target
from tests.formats.tflite_networks import Network
from tests.runtimes.old_processor import built, needs_compiler, needs_old_processor

ALLOCATE = """
import sys
from ai_edge_litert.interpreter import Interpreter
for path in sys.argv[1:]:
    print(path, file=sys.stderr)
    Interpreter(model_path=path, num_threads=1).allocate_tensors()
"""

LAYERS = {
    "narrow product": ((1, 1), 5),
    "product": ((1, 1), 40),
    "narrow convolution": ((3, 3), 5),
    "convolution": ((3, 3), 40),
    "depthwise": ((5, 5), 0),
    "large depthwise": ((7, 7), 0),
}


def network(dtype: str, layer: str) -> bytes:
    kernel, channels = LAYERS[layer]
    made = Network((8, 8, 300 if channels else 100), quantized=dtype != "float32").conv(kernel, channels)
    if dtype == "uint8":
        made.tensors = [
            replace(one, dtype="UINT8" if one.dtype == "INT8" else one.dtype, scales=one.scales[:1], axis=0)
            for one in made.tensors
        ]
    return made.data()


def wrong(folder: Path, libraries: list[Path]) -> list[str]:
    """Return the layers with no allocation of the predicted size."""
    files = {(dtype, name): folder / f"{dtype} {name}" for dtype in ("float32", "int8", "uint8") for name in LAYERS}
    for (dtype, name), file in files.items():
        file.write_bytes(network(dtype, name))
    tracer = built(folder, Path(__file__).with_name("allocations.c"))
    preload = ":".join(map(str, [*libraries, tracer]))
    command = [sys.executable, "-c", ALLOCATE, *map(str, files.values())]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"LD_PRELOAD": preload})
    found = []
    for file in files.values():
        lines = told.stderr.partition(f"{file}\n")[2].partition(f"{folder}/")[0]
        graph = apply_target(memsched.load(str(file)).graphs[0], load_target("litert"))
        predicted = xnnpack.packed_bytes(graph, graph.ops[0])
        if f"allocated {predicted}\n" not in lines:
            found.append(f"{file.name}: {predicted}, not in {lines.split()}")
    return found


@needs_compiler
def test_on_this_processor(tmp_path: Path) -> None:
    assert wrong(tmp_path, []) == []


@needs_old_processor
def test_on_an_older_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xnnpack, "processor_flags", lambda: frozenset({"avx2"}))
    assert wrong(tmp_path, [built(tmp_path)]) == []
