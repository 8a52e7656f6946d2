"""Measure which budgets `optimize` meets in TensorFlow Lite Micro, and the cost of each result.

First, the benchmark runs each command separately: the default, -O3 without a time limit, other inputs and outputs,
`relay`, and C. The lowest requirement defines the range of budgets for `optimize --budget --may-change inputs,opening`;
the last budget is one byte below it. The run fails if `optimize` misses a budget that another command meets, or if a
larger budget leads to more changes than a smaller budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from memsched.base.errors import MemschedError
from memsched.codegen.streaming.emit import ram_bytes
from memsched.commands.optimize.emit import StreamedModel, emit
from memsched.commands.optimize.optimize import optimize
from memsched.commands.options import Options, RelayOptions
from memsched.commands.results import OptimizeResult
from memsched.features.ladder.climb import Climb, climb
from memsched.features.relay.relay import RelayModel, relay
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, Verdict, option, positional

__all__ = ["BENCH"]

_NAMES: Final = ("hello_world_int8", "micro_speech_quantized", "person_detect", "mobilenetv2_035_96_int8")
_ALL: Final = ("reorder", "inplace", "tile", "remat", "algebra", "io")
_RANKS: Final[Mapping[type[Any], int]] = {OptimizeResult: 0, RelayModel: 1, StreamedModel: 2}


def _commands(path: str, work: float) -> Mapping[str, Callable[[], int]]:
    """Return a function for each command that runs it and returns the required bytes."""

    def file(**named: Any) -> int:
        return optimize(path, Options(target="tflm", effort=work, **named)).report.values.verdict.bytes

    def streamed(place: Any) -> int:
        made = emit(path, Options(target="tflm"), place)
        if not isinstance(made, StreamedModel):
            raise TypeError("TensorFlow Lite Micro has no memory on chip")
        return ram_bytes(made.plan.arena, made.code.state)

    return {
        "default": file,
        "-O3": lambda: file(level=3, max_slowdown=None),
        "io": lambda: file(allow=_ALL, max_slowdown=None),
        "stages": lambda: relay(path, RelayOptions(effort=work, allow=("reorder", "inplace", "tile", "io"))).needed,
        "C": lambda: streamed("held"),
        "C by rows": lambda: streamed("rows"),
    }


def _least(command: Callable[[], int]) -> int | None:
    try:
        return command()
    except MemschedError:
        return None


def _price(found: Climb, budget: int) -> tuple[bool, str, int]:
    """Return whether the budget is met, the kind of result, and a rank of its changes."""
    row = next((row for row in found.rows if row.written), None)
    if row is None:
        best = found.best
        met = isinstance(best, OptimizeResult) and best.report.values.verdict.bytes <= budget
        ratio = best.report.values.verdict.time_ratio if isinstance(best, OptimizeResult) else None
        return met, "file" + ("" if ratio is None else f" {ratio:.2f} x"), 0
    time = "" if row.time_ratio is None else f" {row.time_ratio:.2f} x"
    return row.fits, row.what + time, _RANKS[type(found.best)]


def tables(values: Values) -> Iterator[Part]:
    """Yield a row for each model and budget."""
    yield Heading("model", ">budget, B", "met", "by", "a command's least")
    wrong: list[str] = []
    for path in values.models or [ROOT / "models" / f"{name}.tflite" for name in _NAMES]:
        found = {name: _least(one) for name, one in _commands(str(path), values.effort).items()}
        known = {name: size for name, size in found.items() if size is not None}
        least, given = (
            min(known.values()),
            optimize(str(path), Options(target="tflm", effort=0.0, verify=False)).report.values.verdict.original_bytes,
        )
        steps = values.budgets
        rank = 0
        for step in range(steps):
            budget = given - (given - least) * step // (steps - 2) if step < steps - 1 else least - 1
            asked = Options(
                target="tflm", budget=budget, effort=values.effort, may_change=("inputs", "opening"), max_slowdown=10.0
            )
            met, by, now = _price(climb(str(path), asked), budget)
            if (budget >= least and not met) or (met and now < rank):
                wrong.append(f"{path.stem} at {budget:,} B")
            rank = now if met else rank
            told = ", ".join(f"{name} {size:,}" for name, size in known.items()) if not step else ""
            yield path.stem if not step else "", f"{budget:,}", "yes" if met else "no", by if met else "", told
    yield Verdict(f"\nwrong: {', '.join(wrong) or 'none'}", bool(wrong))


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", type=Path, help="TFLite files; default: four of the project's"),
        option("--budgets", type=int, default=12, help="for each model"),
        option("--effort", type=float, default=2.0, help="work of each search"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
