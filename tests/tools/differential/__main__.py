"""Solvers of one question against each other on random graphs: `python -m tests.tools.differential --graphs 1000`.

Each graph follows from its number alone: `--first 17 --graphs 1 --pair stages` repeats one. Pairs that take long are
compared on every so many graphs only. A disagreement is a defect, and so is a result that a checker refuses.
"""

from __future__ import annotations

import argparse
import sys
import time

from memsched.base.errors import MemschedError
from tests.tools.differential import PAIRS
from tests.tools.differential.claims import Pair


def main() -> int:
    """Compare, and print a table; 1 where solvers disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=1000, help="numbers of graphs; default: 1000")
    parser.add_argument("--first", type=int, default=0, help="number of the first graph; default: 0")
    parser.add_argument("--pair", default="", help="only pairs whose names begin so")
    args = parser.parse_args()
    print("| solvers | graphs | disagreements | s |\n|---|--:|--:|--:|", flush=True)
    total = 0
    for pair in PAIRS:
        if pair.name.startswith(args.pair):
            total += _compared(pair, range(args.first, args.first + args.graphs, pair.stride))
    return total > 0


def _compared(pair: Pair, numbers: range) -> int:
    """Compare on all graphs, print a line, and return the number of graphs with disagreements."""
    since, graphs, wrong = time.monotonic(), 0, 0
    for number in numbers:
        try:
            found = pair.compare(number)
        except MemschedError as error:
            found = [f"{type(error).__name__}: {error}"]
        graphs += found is not None
        wrong += bool(found)
        for line in found or []:
            print(f"graph {number}: {pair.name}: {line}", file=sys.stderr, flush=True)
    print(f"| {pair.name} | {graphs:,} | {wrong} | {time.monotonic() - since:.0f} |", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
