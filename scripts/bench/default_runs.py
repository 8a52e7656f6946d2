"""Show what ``memsched optimize MODEL`` saves without options, what that costs in time, and how long the command takes.

TFLite models are optimised for LiteRT and for TensorFlow Lite Micro, ONNX models for ONNX Runtime. Memory is what the
runtime requires. Time is that of the file written against the file as given, in turns: an Invoke in the package
tflite-micro, one in LiteRT with its default delegate, or a run of a session of ONNX Runtime without options (processor
time), whose process is shown, too. The last column has what the run names: private memory if sessions map the weights,
which changes how the model is opened. Ends with 1 where a file requires more than the one given, is slower than
``--max-slowdown`` permits beyond what chance does, or differs in its outputs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from memsched.base.errors import MemschedError
from memsched.commands.options import Options
from memsched.formats.module import LoadOptions
from memsched.runtimes.child import run_in_child
from memsched.runtimes.onnxruntime.session_memory import draw_feeds, measure_session
from memsched.runtimes.sessions import DEFAULT
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, positional
from scripts.bench.runner.models import shipped_networks, shipped_tflite
from scripts.bench.runner.onnx_files import STATED, shape_options, stated_shapes
from scripts.bench.runner.processes import optimized

__all__ = ["BENCH", "DefaultRun", "default_run", "tables", "timed_in_litert"]

SLOWEST: Final = 1 + (Options().max_slowdown or 0.0) / 100
"""The default of ``--max-slowdown``, as a ratio."""

NOISE: Final = 0.05
"""What two measurements of one file may differ by, as a share."""

_ROUNDS: Final = 9
_MEGABYTE: Final = 1 << 20
_TFLITE_TARGETS: Final = ("litert", "tflm-reference")
_ROOM: Final = 16_000_000


@dataclass(frozen=True, slots=True)
class DefaultRun:
    """What a run without options came to.

    Attributes:
        given: What the file as given requires, bytes.
        required: The same of the file written.
        ratio: Of its time to that of the file as given; None where they are the same file, or do not run.
        process: Peak of both processes, bytes; None where it was not measured.
        equal: Whether outputs are the same bits; None where the model cannot be run.
        seconds: Of the command.
        named: Private memory of both processes, bytes, if the weights were mapped, as the run names it; None if it does
            not.
    """

    given: int
    required: int
    ratio: float | None
    process: tuple[int, int] | None
    equal: bool | None
    seconds: float
    named: tuple[int, int] | None = None

    @property
    def wrong(self) -> bool:
        """Whether it breaks what runs without options promise."""
        slow = self.ratio is not None and self.ratio > SLOWEST * (1 + NOISE)
        larger = self.process is not None and self.process[1] > self.process[0] * (1 + NOISE)
        return self.equal is False or self.required > self.given or slow or larger


def default_run(model: Path, target: str | None, options: LoadOptions) -> DefaultRun:
    """Optimise a model with no options but its target's and its sizes', and measure both files.

    Raises:
        MemschedError: The file written cannot be run where the one given can.
    """
    told = shape_options(options) if model.suffix == ".onnx" else []
    done = optimized(model, [*told, *(["--target", target] if target else [])])
    report = done.report
    required = report["sections"]["requirement"]
    found = report["sections"]["verification"]
    equal = found["outputs_equal"] if found is not None else None
    ratio, process = None, None
    before = model.read_bytes()
    if done.model != before:
        if target is None:
            ratio, process = _session(model, done.model, options)
        elif target == "litert":
            ratio = _child("scripts.bench.default_runs:timed_in_litert", {"before": before, "after": done.model})
        elif equal is not None:
            request = {
                "before": before,
                "after": done.model,
                "arenas": [_ROOM] * 2,
                "runs": 3,
                "seed": 1,
                "borders": [],
                "tolerance": 0.0,
            }
            ran = _child("memsched.runtimes.tflm.session:run", request)
            if "seconds_after" in ran:  # otherwise it refuses the file as given, or both
                ratio = ran["seconds_after"] / ran["seconds_before"]
    named = next((_private(one) for one in report["alternatives"] if one["private"]), None)
    return DefaultRun(required["given_bytes"], required["bytes"], ratio, process, equal, done.seconds, named)


def _private(row: dict[str, Any]) -> tuple[int, int]:
    return row["process_bytes"] + row["process_saving_bytes"], row["process_bytes"]


def _child(work: str, request: dict[str, Any]) -> Any:
    shown = run_in_child(work, request, None)
    if not shown.ok:
        raise MemschedError(f"it did not run: {shown.reason}")
    return shown.value


def _session(model: Path, after: bytes, options: LoadOptions) -> tuple[float | None, tuple[int, int]]:
    with tempfile.TemporaryDirectory() as folder:
        feeds, written = Path(folder, "feeds.npz"), Path(folder, "written.onnx")
        written.write_bytes(after)
        draw_feeds(model.read_bytes(), model.absolute().parent, options, feeds, seed=0)
        given = measure_session(model, feeds, DEFAULT)
        shown = measure_session(written, feeds, DEFAULT, (model, DEFAULT))
    if isinstance(given, str) or isinstance(shown, str):
        raise MemschedError(f"it did not run: {given if isinstance(given, str) else shown}")
    return shown.ratio, (given.peak, shown.peak)


def timed_in_litert(request: dict[str, Any]) -> float:
    """Return the median ratio of an Invoke of the model "after" to one of "before", in turns: in a child process."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    drawn = np.random.default_rng(0)
    interpreters = []
    for name in ("before", "after"):
        one = Interpreter(model_content=request[name], num_threads=1)
        one.allocate_tensors()
        interpreters.append(one)
    for detail in interpreters[0].get_input_details():
        noise = drawn.integers(0, 100, detail["shape"]).astype(detail["dtype"])
        for one in interpreters:
            one.set_tensor(detail["index"], noise)
    ratios = []
    for _ in range(_ROUNDS):
        took = []
        for one in interpreters:
            one.invoke()
            started = time.process_time()
            one.invoke()
            took.append(time.process_time() - started)
        ratios.append(took[1] / took[0])
    return median(ratios)


def tables(models: Sequence[Path], options: LoadOptions) -> Iterator[Part]:
    """Yield a row for each model and target, then how many gain, and which are wrong."""
    yield Heading(
        *("model", "target", ">as given", ">written", ">less", ">~time", ">~process, MB", "bits", ">~seconds"),
        ">~private if mapped, MB",
    )
    gained, wrong, rows = 0, [], 0
    for model in models:
        for target in (None,) if model.suffix == ".onnx" else _TFLITE_TARGETS:
            try:
                run = default_run(model, target, options)
            except (MemschedError, SystemExit) as error:
                yield Verdict(f"{model.stem}: {error}", wrong=True)
                continue
            rows, gained = rows + 1, gained + (run.required < run.given)
            wrong += [model.stem] * run.wrong
            yield model.stem, target or "onnxruntime", *_cells(run)
    yield Verdict(f"\n{gained} of {rows} gain; wrong: {', '.join(wrong) or 'none'}", bool(wrong))


def _cells(run: DefaultRun) -> tuple[str, ...]:
    process, named = ("" if one is None else _change(one) for one in (run.process, run.named))
    bits = {True: "equal", False: "DIFFERENT", None: "cannot be run"}[run.equal]
    return (
        f"{run.given:,}",
        f"{run.required:,}",
        f"{100 * (1 - run.required / run.given):.1f} %" if run.given else "",
        f"{run.ratio:.2f} x" if run.ratio is not None else "same file" if run.required == run.given else "refused",
        process,
        bits,
        f"{run.seconds:.1f}",
        named,
    )


def _change(pair: tuple[int, int]) -> str:
    return " to ".join(f"{one / _MEGABYTE:.1f}" for one in pair)


def _tables(values: Values) -> Iterator[Part]:
    return tables(values.models or [*shipped_tflite(), *shipped_networks()], stated_shapes(values))


BENCH = Benchmark(
    __doc__,
    _tables,
    (positional("models", type=Path, help="files; default: those of models/"), *STATED),
    docs="docs/benchmarks/runtimes.md",
)
