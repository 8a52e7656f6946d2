"""Optimise and run all models that the onnx package carries or generates; print counts and reasons for skips."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional

KINDS = ("light", "simple", "pytorch-operator", "pytorch-converted", "node")


def general(reason: str) -> str:
    """Return ``reason`` without the names and numbers that make each one different."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\(\w+\)|\d+", "…", reason)[:110]


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per kind of model, and the reasons why some were not verified."""
    from tests.corpus.judge import judge
    from tests.corpus.onnx_corpus import cases

    reasons: Counter[tuple[str, str]] = Counter()
    yield Heading(
        *("models", "count", "optimised", "better order", "also run in a random order", "verified", "refused", "wrong")
    )
    named = []
    for kind in values.kinds:
        outcomes = [(case.name, judge(case)) for case in cases(kind)]
        verdicts = Counter(outcome.verdict for _, outcome in outcomes)
        improved = sum(outcome.improved for _, outcome in outcomes)
        shuffled = sum(outcome.shuffled for _, outcome in outcomes)
        optimised = len(outcomes) - verdicts["refused"]
        counts = (verdicts["verified"], verdicts["refused"], verdicts["WRONG"])
        yield kind, len(outcomes), optimised, improved, shuffled, *counts
        others = [(name, outcome) for name, outcome in outcomes if outcome.verdict != "verified"]
        reasons.update((outcome.verdict, general(outcome.reason)) for _, outcome in others)
        named += [f"    {name}: {outcome.verdict}: {outcome.reason}" for name, outcome in others]
    yield from named if values.names else ()
    yield "\nNot verified, by reason:"
    for (verdict, reason), count in reasons.most_common():
        yield f"{count:5}  {verdict}: {reason}"


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("kinds", default=KINDS, help=f"some of: {', '.join(KINDS)}"),
        option("--names", action="store_true", help="name every case that was not verified"),
    ),
)
