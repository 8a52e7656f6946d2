"""Measure what the search for pieces has found after given seconds of the processor's time: bytes by limits of time.

Each figure is one run of ``memsched optimize --allow reorder,inplace,tile`` in a process whose clock is the processor's
own, so that other work on the machine changes nothing: limits of time count the seconds that the process computes. With
``--python`` the runs are those of another checkout's interpreter, so that both can be compared.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, Verdict, option, positional

_PROCESSOR_CLOCK = """
import sys, time
time.monotonic = time.process_time
from memsched.cli.main import main
sys.exit(main())
"""

_MODELS = ("mobilenetv2_035_96_int8.tflite", "nasnetmobile_int8.tflite", "person_detect.tflite")

_TARGETS = {".tflite": "tflm", ".onnx": "onnxruntime"}
"""By the ending of a model's file, the target whose rules hold if no other one is named."""


def _found(python: str, model: Path, options: Sequence[str]) -> dict[str, Any]:
    """Return the report of one run.

    Raises:
        SystemExit: It ended with an error.
    """
    with tempfile.TemporaryDirectory() as name:
        written = ["-o", str(Path(name, f"out{model.suffix}")), "--report", str(Path(name, "report.json")), "--quiet"]
        asked = ["optimize", str(model), *written, "--allow", "reorder,inplace,tile", "--no-verify", *options]
        done = subprocess.run(
            [python, "-c", _PROCESSOR_CLOCK, *asked], cwd=name, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{model.name}: exit {done.returncode}: {done.stderr.strip()}")
        report: dict[str, Any] = json.loads(Path(name, "report.json").read_text(encoding="utf-8"))
    return report


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model and limit, and whether what is required only falls."""
    yield Heading(
        *("model", "target", ">seconds", ">requires", ">structures", ">extra MACs", ">groups", ">judged", "ended"),
        ">~seconds in all",
    )
    rising: list[str] = []
    for model in [Path(name).resolve() for name in values.models] or [ROOT / "models" / name for name in _MODELS]:
        target = values.target or _TARGETS[model.suffix]
        options = ["--target", target, *(["--budget-for", "activations"] if values.activations else [])]
        required: list[int] = []
        for seconds in values.seconds:
            report = _found(values.python, model, [*options, "--time-limit", str(seconds)])
            tiling = report["sections"]["tile"] or {}
            beside = report["sections"]["requirement"].get("structures_bytes", 0)
            required.append(report["verdict"]["bytes"] + beside)
            yield (
                *(model.stem, target, f"{seconds:g}", f"{report['verdict']['bytes']:,}", f"{beside:,}"),
                *(f"{tiling.get('extra_macs_percent', 0.0):.2f} %", len(tiling.get("groups", ()))),
                *(tiling.get("judged", 0), "yes" if tiling.get("exhausted") else "no", f"{report['seconds']:.1f}"),
            )
        rising += [model.stem] * any(later > before for before, later in itertools.pairwise(required))
    yield Verdict(f"more after more seconds: {', '.join(rising) or 'none'}", bool(rising))


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", help="files; by default three of models/"),
        option("--target", help="whose rules hold; by default tflm for TFLite, onnxruntime for ONNX files"),
        option("--activations", action="store_true", help="make the planned part alone small (TensorFlow Lite Micro)"),
        option("--seconds", type=float, nargs="+", default=[5.0, 20.0, 60.0, 180.0], help="limits of time"),
        option("--python", default=sys.executable, metavar="FILE", help="interpreter whose memsched is run"),
    ),
    docs="docs/benchmarks/rewrites.md",
)
