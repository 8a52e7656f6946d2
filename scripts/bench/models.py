"""Optimise real models end to end and print a table: peaks, proofs, seconds, verification.

Each row is one run of the command line in a process of its own, imports included. Models: those in ``models/`` and the
light models that the installed onnx package carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional
from scripts.bench.runner.models import light_models, shipped_tflite
from scripts.bench.runner.processes import Optimized, optimized
from scripts.bench.runner.text import kilobytes


def row(plain: Optimized, verified: Optimized) -> tuple[object, ...]:
    """Return the cells of a model."""
    report, check = plain.report, verified.report["sections"]["verification"] or {}
    original, after = report["original"], report["written"]["schedule"]
    search = sum(row["seconds"] for row in report["ledger"] if row["work_percent"] is None and row["applied"])
    equal = {True: "bit-equal", False: "DIFFERENT", None: "not run"}[check.get("outputs_equal")]
    return (
        *(plain.name, report["model"]["ops"]),
        *(kilobytes(order["peak_bytes"]) for order in (original["schedule"], *original["orders"].values())),
        *(f"**{kilobytes(after['peak_bytes'])}**", report["proof"]["status"], kilobytes(after["arena_bytes"])),
        *(f"{search:.2f}", f"{plain.seconds:.2f}", equal),
    )


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model."""
    yield "Peaks and arena in KB of 1024 bytes; seconds: planning / whole process without verification.\n"
    yield Heading(
        *("model", "ops", "file order", "reverse post-order", "runtime's own order", "memsched", "proof", "arena"),
        *("~s", "~s", "outputs"),
    )
    target = ["--target", values.target] if values.target else []
    for model in values.models or [*light_models(), *shipped_tflite()]:
        yield row(*(optimized(model, [*target, verify]) for verify in ("--no-verify", "--verify")))


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", type=Path, help="models to run instead of all"),
        option("--target", help="target to optimise for; default: each format's own runtime"),
    ),
)
