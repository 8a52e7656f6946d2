"""Hold that pieces and repetitions together never need more than either of them alone, whatever work is permitted.

    python -m tests.tools.dominance models/*.tflite models/networks/*.onnx --effort 1

The frontier of each model is searched for with pieces alone, with repetitions alone, and with both, which get three
times the effort: what each takes alone, and as much for what they do together. Every step of the first two must be
matched by one of the third that needs no more bytes and no more work. Prints what is not; exit code 1 if anything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import memsched

__all__ = ["judge", "main", "undercut"]

_SHARE = 3

Steps = Sequence[tuple[int, float]]
"""Bytes and extra work, in percent."""


def judge(data: bytes | str, *, effort: float, **options: Any) -> tuple[dict[str, Steps], list[str]]:
    """Return the frontiers of a model by what was permitted, and what is wrong in words."""
    found = {
        name: _frontier(data, effort=share * effort, allow=("reorder", "inplace", *allow), **options)
        for name, allow, share in (
            ("pieces", ("tile",), 1),
            ("repetitions", ("remat",), 1),
            ("both", ("tile", "remat"), _SHARE),
        )
    }
    wrong = [
        f"{name} alone: {peak:,} B for {work:g} % more work"
        for name in ("pieces", "repetitions")
        for peak, work in undercut(found[name], found["both"])
    ]
    return found, wrong


def undercut(steps: Steps, others: Steps) -> Iterator[tuple[int, float]]:
    """Yield the steps that none of ``others`` matches."""
    for peak, work in steps:
        if not any(other <= peak and more <= work for other, more in others):
            yield peak, work


def _frontier(data: bytes | str, **options: Any) -> Steps:
    report = memsched.analyze(data, frontier=True, **options).report
    return [(step["peak_bytes"], step["extra_work_percent"]) for step in report["sections"]["frontier"] or ()]


def main() -> int:
    """Judge the models that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--effort", type=float, default=1.0, help="of each search alone")
    parser.add_argument("--target")
    given = parser.parse_args()
    failed = 0
    for model in given.models:
        found, wrong = judge(str(model), effort=given.effort, target=given.target)
        least = {name: f"{steps[-1][0]:,} B" for name, steps in found.items()}
        print(f"{model.name}: {least}", flush=True)
        for one in wrong:
            failed += 1
            print(f"  UNDERCUT: {one}", flush=True)
    print(f"{len(given.models)} models: {failed} steps undercut")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
