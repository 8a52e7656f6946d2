"""Measure what the search for rewrites has found after given work: bytes by effort, which must never rise.

The mean is that of what is required over the efforts, as a part of what the file as given requires: the constants of
the driver are judged by it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import memsched
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, Verdict, option, positional

_MODELS = (
    "hello_world_int8.tflite",
    "micro_speech_quantized.tflite",
    "mobilenetv2_035_96_int8.tflite",
    "person_detect.tflite",
    "networks/darts.onnx",
    "networks/hrnet_w18_small_v1.onnx",
    "networks/lstm_unrolled.onnx",
    "networks/randwire1.onnx",
    "networks/transformer.onnx",
    "networks/unetpp.onnx",
)
_TARGETS = {".tflite": "tflm", ".onnx": "onnxruntime"}


def _models(values: Values) -> list[Path]:
    named = [Path(name) for name in values.models] or [ROOT / "models" / name for name in _MODELS]
    return [path for path in named if path.exists()]


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model, and whether what is required only falls."""
    yield Heading("model", *(f">{effort:g}" for effort in values.efforts), ">mean", ">~processor, s")
    rising: list[str] = []
    for path in _models(values):
        required: list[int] = []
        given, begun = 1, time.process_time()
        for effort in values.efforts:
            report = memsched.optimize(
                str(path), target=_TARGETS[path.suffix], effort=effort, allow=("all",), verify=False
            ).report
            needed = report["sections"]["requirement"]
            given = needed["given_bytes"]
            required.append(needed["bytes"] + needed.get("structures_bytes", 0))
        mean = sum(required) / len(required) / given
        took = time.process_time() - begun
        yield path.stem, *(f"{one:,}" for one in required), f"{mean:.4f}", f"{took:.0f}"
        rising += [path.stem] * any(later > before for before, later in itertools.pairwise(required))
    yield Verdict(f"more after more work: {', '.join(rising) or 'none'}", bool(rising))


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", help="files; by default ten of models/"),
        option("--efforts", type=float, nargs="+", default=[1.0, 2.0, 5.0, 10.0, 20.0, 40.0], help="amounts of work"),
    ),
    docs="docs/benchmarks/rewrites.md",
)
