"""Hold the peak that memsched predicts for LiteRT to the one that LiteRT shows, as given and optimised.

Each model is optimised for the target `litert-reference` and verified: both files run in LiteRT without delegates. Ends
with 1 where any measured peak is more than 2 % off its prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import memsched
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, option, positional, time_limit
from scripts.bench.runner.models import shipped_tflite

MOST_OFF = 0.02


def row(path: Path, *, time_limit: float, rewrite: bool) -> tuple[tuple[str, ...], bool]:
    """Return the table's row of a model, and whether its peaks are as predicted; a model that cannot run is no miss."""
    result = memsched.optimize(
        str(path), target="litert-reference", time_limit=time_limit, level=3 if rewrite else 1, max_extra_macs=15.0
    )
    found = result.verification
    cells, right = [], True
    pairs = [] if found is None else [
        (found.predicted_peak_before_bytes, found.measured_peak_before_bytes),
        (found.predicted_peak_after_bytes, found.measured_peak_after_bytes),
    ]  # fmt: skip
    for predicted, measured in pairs:
        if not predicted or measured is None:
            reason = "not verified" if found is None else (found.reason or "not measured")
            return (path.stem, reason.replace("|", "/")[:80], *[""] * 5), True
        off = measured / predicted - 1
        right = right and abs(off) <= MOST_OFF
        cells += [f"{predicted:,}", f"{measured:,}", f"{100 * off:+.2f} %"]
    return (path.stem, *cells), right


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model."""
    yield "Bytes.\n"
    yield Heading("model", "as given, predicted", "measured", "off", "optimised, predicted", "measured", "off")
    wrong = 0
    for path in values.models or shipped_tflite():
        cells, right = row(path, time_limit=values.time_limit, rewrite=values.rewrite)
        wrong += not right
        yield cells
    yield Verdict(f"\n{wrong} more than {100 * MOST_OFF:g} % off", wrong > 0)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", type=Path, help="TFLite files (those of models/)"),
        time_limit(20.0, "of each model's search"),
        option("--rewrite", action="store_true", help="with layers in pieces and values computed again"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
