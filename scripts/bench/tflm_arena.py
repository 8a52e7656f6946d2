"""Print the whole arena of TensorFlow Lite Micro on 32 bit: as given, with our plan, and with layers in loops.

Each file is executed in the package tflite-micro on 20 inputs, twice in a row on each: outputs must be those of the
file as given, bit by bit, and vary. Flash is the file's growth; time is one Invoke in the
package, with reference kernels, against the file as given. Searches are limited by ``--time-limit``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memsched.base.errors import ModelError
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, positional, time_limit

MODELS = (
    "mobilenetv2_035_96_int8",
    "person_detect",
    "nasnetmobile_int8",
    "micro_speech_quantized",
    "hello_world_int8",
)
_LIMITS = (15.0, 100.0)
"""Extra multiply-accumulates that loops may take, percent."""

_INPUTS = 20
_ROOM = 16_000_000


@dataclass(frozen=True)
class Arena:
    """What a file requires in bytes, its extra multiply-accumulates in percent, its bytes, and an Invoke's ratio."""

    given: int
    bytes: int
    extra: float
    flash: float
    time: float
    verified: bool


def arena(
    model: Path,
    percent: float,
    seconds: float,
    *,
    tile: bool,
    budget_for: Literal["arena", "activations"] = "arena",
    effort_limit: float | None = None,
) -> Arena:
    """Return what ``memsched optimize --target tflm-reference`` makes of ``model``, with ``tile`` in loops as well."""
    from memsched.commands.optimize.optimize import optimize
    from memsched.runtimes.child import run_in_child

    done = optimize(
        str(model),
        target="tflm-reference",
        level=2 if tile else 1,
        max_extra_macs=percent,
        budget_for=budget_for,
        time_limit=seconds if effort_limit is None else None,
        effort=effort_limit,
    )
    before, after = model.read_bytes(), done.model
    required = done.report["sections"]["requirement"]
    tiling = done.report["sections"]["tile"]
    request = {"before": before, "after": after, "arenas": [_ROOM] * 2, "runs": _INPUTS, "seed": 1, "borders": []}
    request |= {"tolerance": 0.0}
    shown = run_in_child("memsched.runtimes.tflm.session:run", request, None)
    if not shown.ok:
        raise ModelError(f"{model}: TensorFlow Lite Micro did not run it: {shown.reason}")
    ran = shown.value
    return Arena(
        required["given_bytes"],
        required["bytes"],
        0.0 if tiling is None else tiling["extra_macs_percent"],
        100 * (len(after) / len(before) - 1),
        ran["seconds_after"] / ran["seconds_before"],
        ran["equal"] and ran["steady"] and ran["vary"],
    )


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model."""
    yield Heading(
        *("model", "as given", "order and plan", "loops, at most 15 % more work", "flash", "~time"),
        *("loops, at most twice the work", "extra work", "flash", "~time", "bit-equal"),
    )
    for model in values.models or [ROOT / "models" / f"{name}.tflite" for name in MODELS]:
        plain = arena(model, 0.0, values.time_limit, tile=False)
        some, most = (arena(model, limit, values.time_limit, tile=True) for limit in _LIMITS)
        yield (
            model.stem,
            *(f"{one:,}" for one in (plain.given, plain.bytes, some.bytes)),
            f"{some.flash:+.0f} %",
            f"{some.time:.2f}",
            f"{most.bytes:,}",
            f"{most.extra:.1f} %",
            f"{most.flash:+.0f} %",
            f"{most.time:.2f}",
            "yes" if all(one.verified for one in (plain, some, most)) else "NO",
        )


BENCH = Benchmark(
    __doc__,
    tables,
    (positional("models", type=Path, help="TFLite files; default: those of models/"), time_limit(60.0)),
    docs="docs/benchmarks/runtimes.md",
)
