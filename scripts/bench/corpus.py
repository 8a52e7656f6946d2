"""Optimise and run all models that the onnx package carries or generates; print counts and reasons for skips."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("light", "simple", "pytorch-operator", "pytorch-converted", "node")


def general(reason: str) -> str:
    """Return ``reason`` without the names and numbers that make each one different."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\(\w+\)|\d+", "…", reason)[:110]


def main() -> None:
    """Judge every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=KINDS, help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--names", action="store_true", help="name every case that was not verified")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.corpus.judge import judge
    from tests.corpus.onnx_corpus import cases

    reasons: Counter[tuple[str, str]] = Counter()
    print("| models | count | optimised | better order | also run in a random order | verified | refused | wrong |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in arguments.kinds:
        outcomes = [(case.name, judge(case)) for case in cases(kind)]
        verdicts = Counter(outcome.verdict for _, outcome in outcomes)
        improved = sum(outcome.improved for _, outcome in outcomes)
        shuffled = sum(outcome.shuffled for _, outcome in outcomes)
        optimised = len(outcomes) - verdicts["refused"]
        print(
            f"| {kind} | {len(outcomes)} | {optimised} | {improved} | {shuffled} | {verdicts['verified']} "
            f"| {verdicts['refused']} | {verdicts['WRONG']} |",
            flush=True,
        )
        reasons.update((o.verdict, general(o.reason)) for _, o in outcomes if o.verdict != "verified")
        if arguments.names:
            for name, outcome in outcomes:
                if outcome.verdict != "verified":
                    print(f"    {name}: {outcome.verdict}: {outcome.reason}")
    print("\nNot verified, by reason:")
    for (verdict, reason), count in reasons.most_common():
        print(f"{count:5}  {verdict}: {reason}")


if __name__ == "__main__":
    main()
