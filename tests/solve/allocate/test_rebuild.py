"""Packings rebuilt: as low as exhaustive search finds, the same in Python and in the core, and where they help."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memsched.solve.allocate import rebuild as rebuilding
from memsched.solve.allocate.preprocess import PackingProblem, problem_of
from memsched.solve.allocate.rebuild import can_rebuild, rebuild
from memsched.solve.allocate.search import ATTEMPTS, Attempt, PackingOutcome, attempt
from scripts.bench.allocate import CAPACITY, generate
from tests.solve.allocate.test_compiled import compiled, scaled
from tests.solve.allocate.test_exact import KINDS, least_height, never
from tests.solve.allocate.test_growth import uniform_blocks

ORDERED = [kind for kind in KINDS if kind not in {"alignment", "given", "all"}]
"""Kinds of blocks whose positions follow from an order."""


def check(problem: PackingProblem, positions: tuple[int, ...], capacity: int) -> None:
    ends = [position + width for position, width in zip(positions, problem.widths, strict=True)]
    for item, position in enumerate(positions):
        assert problem.lowest[item] <= position
        assert ends[item] + problem.above[item] <= capacity
        assert all(ends[other] <= position or ends[item] <= positions[other] for other in problem.meets[item])


def by_python(problem: PackingProblem, wanted: Attempt, monkeypatch: pytest.MonkeyPatch) -> PackingOutcome:
    with monkeypatch.context() as patched:
        patched.setattr(rebuilding, "library", lambda: None)
        return rebuild(problem, wanted, never)


@pytest.mark.parametrize("kind", ORDERED)
def test_rebuilding_finds_what_exhaustive_search_does(kind: str) -> None:
    rng = random.Random(f"rebuild {kind}")
    tried = 0
    while tried < 12:
        blocks, problem = uniform_blocks(rng, kind, rng.randint(1, 5))
        if not can_rebuild(problem):
            continue
        tried += 1
        least = least_height(blocks, 40)
        for capacity in range(max(0, least - 4), least + 2):
            units = capacity // problem.unit
            outcome = rebuild(problem, Attempt(0, 0, units, 2_000), never)
            assert outcome.status == ("found" if units * problem.unit >= least else "unknown")
            assert outcome.status == "found" or (outcome.positions, outcome.nodes) == ((), 2_000)
            if outcome.status == "found":
                check(problem, outcome.positions, units)


@compiled
@pytest.mark.parametrize("kind", ORDERED)
def test_the_core_rebuilds_as_python_does(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"core {kind}")
    seen = set()
    for number in range(25):
        _, problem = uniform_blocks(rng, kind, rng.randint(1, 40), 12)
        if not can_rebuild(problem):
            continue
        capacity = rng.randint(max(problem.widths), sum(problem.widths))
        wanted = Attempt(number, rng.randrange(3), capacity, rng.choice([5, 400]))
        expected = by_python(problem, wanted, monkeypatch)
        seen.add(expected.status)
        # The core counts in 32 bits where that is enough.
        for factor in (1, (1 << 28) // capacity, (1 << 28) // capacity + 1, 1 << 40):
            outcome = rebuild(scaled(problem, factor), replace(wanted, capacity=factor * capacity), never)
            positions = tuple(factor * position for position in expected.positions)
            assert outcome == replace(expected, positions=positions)
    assert seen == {"found", "unknown"}


def test_only_what_follows_from_an_order_is_rebuilt() -> None:
    rng = random.Random("order")
    for kind in ("alignment", "given"):
        found = {can_rebuild(uniform_blocks(rng, kind, 5)[1]) for _ in range(20)}
        assert False in found


def loose(count: int, seed: int) -> PackingProblem:
    """Return a problem of which a packing is known, whose sections are full in one place only."""
    problem = problem_of(generate(count, seed, times=100, fill=0.8))
    assert problem is not None
    return problem


def test_rebuilding_packs_loose_problems_that_attempts_do_not() -> None:
    problem = loose(300, 3)
    rebuilt = rebuild(problem, Attempt(0, 0, CAPACITY, 300_000), never)
    assert rebuilt.status == "found"
    check(problem, rebuilt.positions, CAPACITY)
    assert all(
        attempt(problem, Attempt(number, 0, CAPACITY, rebuilt.nodes // ATTEMPTS), never).status == "unknown"
        for number in range(ATTEMPTS)
    )


def test_rebuilding_ends_with_its_nodes_or_when_it_is_asked_to() -> None:
    problem = loose(300, 4)
    few = rebuild(problem, Attempt(0, 0, CAPACITY // 2, 5_000), never)
    assert few == PackingOutcome("unknown", (), 0, 5_000)
    asked = rebuild(problem, Attempt(0, 0, CAPACITY // 2, 5_000), lambda: True)
    assert asked.stopped
    assert asked.nodes < 5_000
