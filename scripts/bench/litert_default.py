"""Compare the predicted and the measured memory of LiteRT's default interpreter, before and after ``optimize``.

Each model is optimized for the target `litert` without other options, or with `--may-change rounding`. Private memory
and its peak are the growth of a fresh process, in MiB, once further runs add none; time is processor time by turns.
Ends with 1 if a prediction is more than 5% off, or if a written file needs more memory, takes more time than permitted,
or changes an output without permission.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import memsched
from memsched.base.errors import MemschedError
from memsched.runtimes.litert.default_interpreter import DefaultInterpreter
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, option, positional
from scripts.bench.runner.models import shipped_tflite

__all__ = ["BENCH", "row"]

_MAX_ERROR = 0.05
_RESOLUTION = 300 << 10
"""Bytes that the interpreter itself adds, whatever the model."""
_MEBIBYTE = 1 << 20


def row(path: Path, *, rounding: bool = False) -> tuple[tuple[str, ...], bool]:
    """Return the table row of a model, and whether memsched kept its promises.

    Args:
        rounding: Outputs may be rounded in another way.
    """
    result = memsched.optimize(str(path), target="litert", may_change=["rounding"] if rounding else [])
    given = DefaultInterpreter().measure(path, seed=0)
    if isinstance(given, str):
        return (path.stem, given.replace("|", "/")[:80], *[""] * 7), True
    # The caller holds the inputs.
    graph = memsched.load(str(path)).graphs[0]
    predicted = result.report.values.sections.requirement.given_bytes
    predicted += sum(graph.tensors[tensor].size for tensor in graph.inputs)
    error = given.private_bytes / predicted - 1
    right = abs(given.private_bytes - predicted) <= _MAX_ERROR * predicted + _RESOLUTION
    cells = [f"{predicted / _MEBIBYTE:.1f}", f"{given.private_bytes / _MEBIBYTE:.1f}", f"{100 * error:+.1f} %"]
    cells += [f"{given.peak_bytes / _MEBIBYTE:.1f}"]
    section = result.report.values.sections.interpreter
    if result.model == path.read_bytes() or section is None or section.written is None:
        return (path.stem, *cells, "same file", "", "", ""), right
    written, found = section.written, result.verification
    equal = found is not None and found.outputs_equal is True
    outputs = result.report.values.verdict.outputs
    apart = 0.0 if found is None else found.max_abs_error or 0.0
    saved = 1 - written.private_bytes / section.given.private_bytes
    cells += [
        f"{written.private_bytes / _MEBIBYTE:.1f}",
        f"{100 * saved:.0f} %",
        f"{written.peak_bytes / _MEBIBYTE:.1f}",
    ]
    words = "bits equal" if equal else f"outputs within {apart:.2g}" if outputs == "close" else "outputs DIFFERENT"
    cells += [f"{section.time_ratio:.2f} x, {words}"]
    return (path.stem, *cells), right and (equal or (rounding and outputs == "close")) and saved >= 0


def _networks(folder: Path) -> list[Path]:
    """Write the networks of the tests to a folder."""
    from tests.formats.tflite_networks import NETWORKS

    paths = []
    for name, make in NETWORKS.items():
        paths.append(folder / f"{name}.tflite")
        paths[-1].write_bytes(make())
    return paths


def tables(values: Values) -> Iterator[Part]:
    """Yield a row for each model."""
    heading = ("model", ">predicted", ">private", ">off", ">peak", ">written, private", ">less", ">peak", "time")
    yield Heading(*heading)
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for path in [one.resolve() for one in values.models] or [
            *map(Path.resolve, shipped_tflite()),
            *_networks(Path(folder)),
        ]:
            try:
                cells, right = row(path, rounding=values.rounding)
            except MemschedError as error:
                cells, right = (path.stem, str(error)[:80], *[""] * 7), False
            wrong += [] if right else [path.stem]
            yield cells
    yield Verdict(f"\nwrong: {', '.join(wrong) or 'none'}", bool(wrong))


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", type=Path, help="TFLite files; default: those of models/ and four networks"),
        option("--rounding", action="store_true", help="permit what rounds in another way"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
