"""Time ``memsched optimize --no-verify`` beside onnxsim on the same files: whole processes, in turns, each one's least.

onnxsim simplifies a model and orders nothing; it is what people run on a model anyhow. Time is the processor's, all
threads together. ``--python`` names an interpreter that has onnxsim; ``--install`` fetches it for this run alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from memsched.formats.module import LoadOptions
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, option, repeats
from scripts.bench.runner.onnx_files import LISTED, NAMED, STATED, model_file, shape_options, stated_shapes
from scripts.bench.schedule.onnxsim import ABSENT, INSTALL, interpreter

__all__ = ["BENCH", "processor_seconds", "tables"]

MOST: Final = 2.0
"""Times of onnxsim's."""


def processor_seconds(command: Sequence[str]) -> float:
    """Return the processor time of a process until it ends.

    Raises:
        SystemExit: It failed.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: exit {process.returncode}: {errors.read().strip()[-300:]}")
    return used.ru_utime + used.ru_stime


def tables(models: Sequence[str], options: LoadOptions, python: Path, times: int) -> Iterator[Part]:
    """Yield a row for each model, and which take longer than permitted."""
    yield Heading("model", ">~memsched, s", ">~onnxsim, s", ">~ratio")
    slow: list[str] = []
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            path = model_file(model, Path(folder))
            ours, theirs = _least(path, options, python, times, Path(folder))
        ratio = ours / theirs
        slow += [path.stem] * (ratio > MOST)
        yield path.stem, f"{ours:.2f}", f"{theirs:.2f}", f"{ratio:.2f}"
    yield Verdict(f"\nabove {MOST:g} times: {', '.join(slow) or 'none'}", bool(slow))


def _least(path: Path, options: LoadOptions, python: Path, times: int, folder: Path) -> tuple[float, float]:
    out = ["-o", str(folder / "ours.onnx"), "--report", str(folder / "ours.json"), "--force"]
    ours = [sys.executable, "-m", "memsched", "optimize", str(path), *out, "--no-verify", "--quiet"]
    theirs = [str(python), "-m", "onnxsim", str(path), str(folder / "theirs.onnx")]
    shapes = [f"{name}:{','.join(map(str, shape))}" for name, shape in options.input_shapes.items()]
    theirs += ["--overwrite-input-shape", *shapes] if shapes else []
    ours += shape_options(options)
    pairs = [(processor_seconds(ours), processor_seconds(theirs)) for _ in range(times)]
    return min(one for one, _ in pairs), min(other for _, other in pairs)


def _tables(values: Values) -> Iterator[Part]:
    with tempfile.TemporaryDirectory() as folder:
        python = values.python or interpreter(Path(folder), install=values.install)
        if python is None:
            yield ABSENT
            return
        yield from tables(values.models or LISTED, stated_shapes(values), python, values.repeats)


BENCH = Benchmark(
    __doc__,
    _tables,
    (
        NAMED,
        *STATED,
        option("--python", type=Path, metavar="FILE", help="an interpreter that has onnxsim"),
        INSTALL,
        repeats(3, "of each; the least time counts"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
