"""Compute operators otherwise with the same values, and print what that saves, and how outputs compare.

Each row is two runs of ``memsched optimize``: by order and in-place writes alone, and with ``--allow algebra``; with
``--sums`` reassociate, too. Memory is what the runtime requires: of ONNX models in sessions with the options that are
listed, of TFLite models in LiteRT, and for TensorFlow Lite Micro the planned part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, effort, option, positional
from scripts.bench.runner.models import shipped_networks
from scripts.bench.runner.processes import Optimized, optimized

__all__ = ["BENCH", "tables"]

_FIRMWARE = ("--target", "tflm", "--budget-for", "activations")


def _runs(path: Path) -> list[tuple[str, list[str]]]:
    if path.suffix == ".onnx":
        return [("onnxruntime", ["--order-guarantee", "session"])]
    return [("litert-reference", ["--target", "litert-reference"]), ("tflm", list(_FIRMWARE))]


def _required(done: Optimized) -> int:
    report = done.report
    required: int = (
        report["sections"]["requirement"]["bytes"]
        if report["sections"]["requirement"]
        else report["written"]["schedule"]["arena_bytes"]
    )
    return required


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model and runtime."""
    more = ",reassociate" if values.sums else ""
    paths = [Path(name) for name in values.models] or [ROOT / "models/nasnetmobile_int8.tflite", *shipped_networks()]
    yield Heading("model", "target", ">order alone, B", ">with algebra", ">times less", "operators", "outputs", "~s")
    for path in paths:
        for target, words in _runs(path):
            words += ["--effort", str(values.effort or 60)]
            before = optimized(path, [*words, "--allow", "reorder,inplace", "--no-verify"])
            after = optimized(path, [*words, "--allow", f"reorder,inplace,algebra{more}"])
            kinds = Counter(row["kind"] for row in after.report["sections"]["algebra"]["identities"])
            check = after.report["sections"]["verification"] or {}
            same = "bit-equal" if check.get("outputs_equal") else f"{check.get('relative_error') or 0:.1e}"
            first, second = _required(before), _required(after)
            told = ", ".join(f"{kind} {count}" for kind, count in kinds.items()) or "none"
            sizes = (f"{first:,}", f"{second:,}", f"{first / second:.2f}")
            yield path.stem, target, *sizes, told, same, f"{after.seconds:.1f}"


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", help="ONNX or TFLite files; by default NASNet-Mobile and models/networks"),
        option("--sums", action="store_true", help="permit sums in another order"),
        effort(),
    ),
    docs="docs/benchmarks/rewrites.md",
)
