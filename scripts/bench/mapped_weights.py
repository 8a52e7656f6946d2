"""Measure what sessions keep of a process if they map the weights, beside what the original keeps.

Networks get random weights. Their weights are mapped alone, with the same bits, and by `memsched optimize
--may-change opening`, with rewrites and session options: a session may keep no more than its activations and 15 MB, and
compute no longer. If this machine can hide what its processor has, an older processor runs the files in which nothing
but the weights changed: it gives what the original gives there, or refuses.
Figures are the growth of fresh processes, in MB, once further runs add none; time is processor time by turns.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import memsched
from memsched.commands.optimize.mapped import MappingRequest, mapped_file
from memsched.commands.session_rows import GivenModel, SessionBench
from memsched.formats.module import LoadOptions
from memsched.runtimes.known import session_maker_of
from memsched.runtimes.measure import LEAST_RUNS
from memsched.runtimes.onnxruntime.mapped import mapped_model
from memsched.runtimes.onnxruntime.session_memory import measure_session
from memsched.runtimes.sessions import DEFAULT, MappedModel
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, option, positional
from scripts.networks.catalogue import build
from scripts.networks.random_weights import randomised

__all__ = ["BENCH", "row"]

_NETWORKS: Final = (
    *("yolov8n", "mobilenet_v2", "efficientnet_b0", "resnet18", "nasnet_a", "inception_v3", "resnet50"),
    *("swin_t", "gpt2_6", "transformer"),
)
_SPARE_BYTES: Final = 15_000_000
"""What a session may keep beside its activations."""

_NOISE: Final = 1.05
_MEGABYTE: Final = 1_000_000

_RUN: Final = """
import hashlib, sys
import onnxruntime
from memsched.runtimes.onnxruntime.inputs import read_arrays
outputs = onnxruntime.InferenceSession(sys.argv[1]).run(None, read_arrays(sys.argv[2]))
print(hashlib.sha256(b"".join(one.tobytes() for one in outputs)).hexdigest())
"""


def row(path: Path, folder: Path, library: Path | None, effort: float) -> tuple[tuple[str, ...], bool]:
    """Return the table row of a model, and whether it keeps the promises.

    Args:
        folder: For the files.
        library: Hides what the processor has; None if that cannot be done here.
    """
    feeds, data, maker = folder / "feeds.npz", path.read_bytes(), session_maker_of("onnx")
    maker.draw_feeds(data, path.parent, LoadOptions(), feeds, seed=0)
    own = measure_session(path, feeds, DEFAULT, rounds=1, least=LEAST_RUNS)
    bench = SessionBench(maker, GivenModel(data, str(path)), LoadOptions(), 0)
    asked = MappingRequest(bench, path.stem, None)
    alone = mapped_file(data, DEFAULT, asked)
    result = memsched.optimize(path, may_change=("opening",), effort=effort)
    section = result.report.values.sections.mapped
    if isinstance(own, str) or isinstance(alone, str) or section is None:
        failed = next((one for one in (own, alone) if isinstance(one, str)), None)
        notes = (one for one in result.report.values.verdict.notes if "mapped" in one)
        return (path.stem, f"not mapped: {failed or next(notes, 'no reason was given')}", *[""] * 7), False
    given, plain, written = section.given, alone.section, section.written
    mapped = mapped_model(path, None, DEFAULT, folder, path.stem)
    old, as_it_should = ("", True) if library is None else _on_old(path, mapped, feeds, library)
    activations, time = own.requested or 0, max(plain.time_ratio or 1.0, section.time_ratio or 1.0)
    cells = (
        path.stem,
        f"{path.stat().st_size / _MEGABYTE:.0f}",
        _mb(activations),
        " -> ".join(map(_mb, (given.private_bytes, plain.written.private_bytes, written.private_bytes))),
        " -> ".join(map(_mb, (given.peak_bytes, plain.written.peak_bytes, written.peak_bytes))),
        f"{plain.time_ratio:.2f} x, {section.time_ratio:.2f} x",
        f"equal, {result.report.values.verdict.outputs.replace('_', '-')}",
        old,
    )
    least = min(plain.written.private_bytes, written.private_bytes)
    return cells, least <= activations + _SPARE_BYTES and time <= _NOISE and as_it_should


def _mb(size: int) -> str:
    return f"{size / _MEGABYTE:.1f}"


def _on_old(given: Path, mapped: MappedModel, feeds: Path, library: Path) -> tuple[str, bool]:
    """Return what an older processor makes of the file with mapped weights, and whether that is permitted."""
    from tests.runtimes.old_processor import run_on_old

    runs = [run_on_old(library, [sys.executable, "-c", _RUN, str(one), str(feeds)]) for one in (given, mapped.model)]
    if runs[1].returncode == 0:
        same = runs[0].stdout == runs[1].stdout
        return ("as the original" if same else "DIFFERENT"), same
    refused = mapped.block is not None
    return ("refused" if refused else "FAILED"), refused


def _hider(folder: Path) -> Path | None:
    from tests.runtimes.old_processor import built

    try:
        return built(folder)
    except (OSError, subprocess.CalledProcessError):
        return None


def tables(values: Values) -> Iterator[Part]:
    """Yield a row for each model."""
    yield Heading(
        *("model", ">model, MB", ">activations", ">private: original, mapped, optimized", ">peak", ">time", "outputs"),
        "older processor",
    )
    wrong = []
    with tempfile.TemporaryDirectory() as held:
        library = _hider(Path(held))
        for one in values.models or _NETWORKS:
            with tempfile.TemporaryDirectory() as below:
                folder = Path(below)
                path = one if isinstance(one, Path) else folder / f"{one}.onnx"
                if not isinstance(one, Path):
                    path.write_bytes(randomised(build(one), 0).SerializeToString())
                cells, right = row(path.resolve(), folder, library, values.effort)
            wrong += [] if right else [path.stem]
            yield cells
    yield Verdict(f"\nwrong: {', '.join(wrong) or 'none'}", bool(wrong))


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", type=Path, help="ONNX files that hold their weights; default: ten networks"),
        option("--effort", type=float, default=2.0, help="work of each search"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
