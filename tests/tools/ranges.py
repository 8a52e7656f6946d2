"""Check deduced ranges in the real runtimes: pieces of thousands of random layers against slices of the whole layers.

``python -m tests.tools.ranges`` prints a line per operator and runtime and the failures; it exits with 1 if there
are any.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

BATCH = 200


def main(arguments: list[str] | None = None) -> int:
    """Run the check and return the exit status."""
    from tests.rewrites.tile import onnx_pieces, tflite_layers

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4000, help="layers per runtime (default: %(default)s)")
    parser.add_argument("--pieces", type=int, default=3, help="random regions per layer (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    failures = 0
    judges: dict[str, Callable[[int, int, int], onnx_pieces.Verdict]] = {
        "onnxruntime": onnx_pieces.judge,
        "litert": tflite_layers.judge,
    }
    for name, judge in judges.items():
        start = time.perf_counter()
        found = onnx_pieces.Verdict()
        for batch in range(-(-given.layers // BATCH)):
            count = min(BATCH, given.layers - batch * BATCH)
            found.add(judge(given.seed * 1_000_003 + batch, count, given.pieces))
        failures += len(found.failures)
        print(
            f"{name}: {found.layers} layers, {found.pieces} pieces: {found.equal} equal, {found.refused} refused, "
            f"failures={len(found.failures)} ({time.perf_counter() - start:.0f} s)"
        )
        print("  layers:", ", ".join(f"{kind} {count}" for kind, count in sorted(found.kinds.items())))
        for line in found.failures:
            print("  FAILED", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
