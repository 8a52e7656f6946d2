"""Print what TensorFlow Lite Micro's arena takes: as given, in our order, with our plan, with tensors sharing bytes.

Figures are whole arenas in bytes, on 32 bit, computed as TFLM lays them; the file with the plan has passed the
independent check. Orders are searched for up to ``--time-limit`` seconds per model, plan and target.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, positional, time_limit
from scripts.bench.runner.timing import Stopwatch

MODELS = (
    "person_detect",
    "micro_speech_quantized",
    "hello_world_int8",
    "mobilenetv2_035_96_int8",
    "nasnetmobile_int8",
)


def arenas(model: Path, target: str, time_limit: float, *, plan: bool) -> dict[str, Any]:
    """Return the section ``requirement`` of the report for ``model``."""
    from memsched.commands.optimize.optimize import optimize

    done = optimize(str(model), target=target, tflm_plan=plan, verify=False, time_limit=time_limit)
    section: dict[str, Any] = done.report["sections"]["requirement"]
    return section


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model."""
    yield Heading(
        *("model", "as given", "our order", "our order and plan", "and tensors over each other", "~seconds"),
    )
    for model in values.models or [ROOT / "models" / f"{name}.tflite" for name in MODELS]:
        watch = Stopwatch()
        kinds = (("tflm", False), ("tflm", True), ("tflm-reference", True))
        found = [arenas(model, target, values.time_limit, plan=plan) for target, plan in kinds]
        shown = [f"{size:,}" for size in (found[0]["given_bytes"], *(one["bytes"] for one in found))]
        yield model.stem, *shown, f"{watch.seconds:.1f}"


BENCH = Benchmark(
    __doc__,
    tables,
    (positional("models", type=Path, help="TFLite files; default: those of models/"), time_limit(60.0)),
    docs="docs/benchmarks/runtimes.md",
)
