"""How long commands take beyond their time limit, alone and with other work on every core.

The seconds are those of the whole process with ``--no-verify``; starting Python and importing, about a second, is in
them. Wrong: later than the limit by more than a tenth and by more than two seconds.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, Verdict, option
from scripts.bench.runner.processes import optimized

_REWRITES = ["--allow", "reorder,inplace,tile,remat", "--max-slowdown", "none"]
_CASES = {
    "nasnetmobile_int8": ["models/nasnetmobile_int8.tflite"],
    "nasnetmobile_int8, 1 KB": ["models/nasnetmobile_int8.tflite", *_REWRITES, "--budget", "1KB"],
    "person_detect, 19353": ["models/person_detect.tflite", "--target", "tflm", *_REWRITES, "--budget", "19353"],
    "person_detect, 1 KB": ["models/person_detect.tflite", "--target", "tflm", *_REWRITES, "--budget", "1KB"],
}

_SIZES = {
    "basic_pitch.onnx": ["--dim", "unk__749=1"],
    "ppocr_v4_det.onnx": [f"--dim=p2o.DynamicDimension.{number}={size}" for number, size in enumerate((1, 640, 640))],
    "silero_vad.onnx": ["--shape", "input=1,576", "--shape", "state=2,1,128"],
}
"""What is stated of models that leave sizes open."""

_MODES = {
    "-O1": ["-O1"],
    "loops": ["--allow", "reorder,inplace,tile"],
    "all": ["--allow", "all"],
}
"""Options with which the models of a folder are optimised, and verified."""


def _spin() -> None:
    while True:
        pass


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep ``count`` processes computing nothing."""
    others = [multiprocessing.get_context("spawn").Process(target=_spin, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def _used() -> float:
    """Return the processor time of all processes that have ended, seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _of_folder(folder: Path, limits: list[float]) -> Iterator[Part]:
    """Yield what each model of a folder takes: its verification included for a time limit, not for an effort."""
    yield Heading("model", "options", "limit", "~clock, s", "~processor, s", "~effort: processor, s")
    for model in sorted(path for path in folder.iterdir() if path.suffix in {".onnx", ".tflite"}):
        for mode, options in _MODES.items():
            for limit in limits:
                asked = [*_SIZES.get(model.name, ()), *options]
                before = _used()
                try:
                    took = optimized(model, [*asked, "--time-limit", str(limit)]).seconds
                    middle = _used()
                    optimized(model, [*asked, "--no-verify", "--effort", str(limit)])
                except SystemExit as error:
                    yield model.name, mode, f"{limit:g}", str(error), "", ""
                    continue
                times = took, middle - before, _used() - middle
                yield model.name, mode, f"{limit:g}", *(f"{one:.1f}" for one in times)


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model, budget and limit."""
    if values.folder is not None:
        yield from _of_folder(Path(values.folder), values.seconds)
        return
    late = 0
    yield Heading("model, budget", "limit, s", "busy beside", "~took, s", "~beyond, s")
    for count in values.busy:
        with _busy(count):
            for name, (model, *options) in _CASES.items():
                for limit in values.seconds:
                    asked = [*options, "--no-verify", "--time-limit", str(limit)]
                    took = optimized(ROOT / model, asked, codes=(0, 3)).seconds
                    beyond = max(0.0, took - limit)
                    late += beyond > max(2.0, limit / 10)
                    yield name, f"{limit:g}", count, f"{took:.1f}", f"{beyond:.1f}"
    yield Verdict(f"\n{late} ended late", late > 0)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--seconds", type=float, nargs="+", default=[5.0, 10.0, 20.0], help="time limits"),
        option("--folder", metavar="DIR", help="the models of a folder instead, with effort as well"),
        option("--busy", type=int, nargs="+", default=[0, 2], help="processes that compute beside"),
    ),
    docs="docs/benchmarks/trust.md",
)
