"""Everything in the onnx package: optimising never crashes, never worsens, and never changes an output."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.corpus.judge import Outcome, judge
from tests.corpus.onnx_corpus import cases
from tests.needs import MEASURABLE

BATCHES = 16
# What the installed onnx and ONNX Runtime must at least give; a drop means that something is refused that was not.
LEAST_VERIFIED = {"light": 9, "simple": 14 if MEASURABLE else 13, "pytorch-operator": 24, "pytorch-converted": 59}


def _judge_all(kind: str, share: int = 0, of: int = 1) -> list[tuple[str, Outcome]]:
    return [(case.name, judge(case)) for index, case in enumerate(cases(kind)) if index % of == share]


def _check(outcomes: list[tuple[str, Outcome]]) -> Counter[str]:
    wrong = [f"{name}: {outcome.reason}" for name, outcome in outcomes if outcome.verdict == "WRONG"]
    assert wrong == []
    for name, outcome in outcomes:
        assert "\n" not in outcome.reason, name
    return Counter(outcome.verdict for _, outcome in outcomes)


@pytest.mark.parametrize("kind", sorted(LEAST_VERIFIED))
def test_models_of_the_package(kind: str) -> None:
    counts = _check(_judge_all(kind))
    assert counts["verified"] >= LEAST_VERIFIED[kind], counts


@pytest.mark.parametrize("batch", range(BATCHES))
def test_generated_node_models(batch: int) -> None:
    counts = _check(_judge_all("node", batch, BATCHES))
    assert counts["verified"] > counts["refused"], counts
