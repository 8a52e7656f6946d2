"""Hold the peak that memsched predicts for LiteRT to the one that LiteRT shows, as given and optimised.

Each model is optimised with the target `litert` and verified: both files run in LiteRT without delegates. Ends with 1
where any measured peak is more than 2 % off its prediction.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import memsched

MOST_OFF = 0.02


def rows(path: Path, *, time_limit: float, rewrite: bool) -> tuple[str, bool]:
    """Return the table's row of a model, and whether its peaks are as predicted; a model that cannot run is no miss."""
    result = memsched.optimize(
        str(path), target="litert", time_limit=time_limit, tile=rewrite, remat=rewrite, max_extra_macs=15.0
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
            return f"| {path.stem} | {reason.replace('|', '/')[:80]} | | | | | |", True
        off = measured / predicted - 1
        right = right and abs(off) <= MOST_OFF
        cells += [f"{predicted:,}", f"{measured:,}", f"{100 * off:+.2f} %"]
    return f"| {path.stem} | {' | '.join(cells)} |", right


def table(paths: Sequence[Path], *, time_limit: float = 20.0, rewrite: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the lines of the table, each with whether it is as predicted."""
    yield "Bytes.", True
    yield "", True
    yield "| model | as given, predicted | measured | off | optimised, predicted | measured | off |", True
    yield "|---|---|---|---|---|---|---|", True
    for path in paths:
        yield rows(path, time_limit=time_limit, rewrite=rewrite)


def main() -> int:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="TFLite files (those of models/)")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for each model's search (%(default)s)")
    parser.add_argument("--rewrite", action="store_true", help="with layers in pieces and values computed again")
    arguments = parser.parse_args()
    models = arguments.models or sorted(Path("models").glob("*.tflite"))
    good = True
    for line, right in table(models, time_limit=arguments.time_limit, rewrite=arguments.rewrite):
        print(line)
        good = good and right
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
