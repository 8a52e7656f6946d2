"""The compiled attempt to pack beside the one in Python: the same outcomes, node for node."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from memsched.core.library import library
from memsched.graph.packing import Block, BlockPart
from memsched.solve.allocate import greedy, search
from memsched.solve.allocate.conflicts import without_overlaps
from memsched.solve.allocate.greedy import GreedyPlanner
from memsched.solve.allocate.preprocess import PackingProblem, is_uniform, problem_of
from memsched.solve.allocate.search import ATTEMPTS, Attempt, attempt
from scripts.bench.allocate import generate
from tests.solve.allocate.test_exact import KINDS, never, random_blocks

compiled = pytest.mark.skipif(library() is None, reason="the installation has no compiled core: no C++ compiler")


def by_python(problem: PackingProblem, wanted: Attempt, monkeypatch: pytest.MonkeyPatch) -> search.PackingOutcome:
    with monkeypatch.context() as patched:
        patched.setattr(search, "library", lambda: None)
        return attempt(problem, wanted, never)


@compiled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_small_problems(seed: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{seed} {kind}")
    for _ in range(40):
        problem = problem_of([block for block in random_blocks(rng, kind, rng.randint(1, 9)) if is_uniform(block)])
        if problem is None or not problem.widths:
            continue
        capacity = rng.randint(1, 2 * sum(problem.widths))
        for nodes in (3, 2_000):
            guide = tuple(rng.randint(-1, capacity) for _ in problem.widths)
            wanted = Attempt(rng.randrange(3 * ATTEMPTS), seed, capacity, nodes, rng.choice([guide, ()]))
            assert attempt(problem, wanted, never) == by_python(problem, wanted, monkeypatch)


def scaled(problem: PackingProblem, factor: int) -> PackingProblem:
    """Return the problem whose numbers are all ``factor`` times as large."""
    by_name = {name: getattr(problem, name) for name in ("shifts", "widths", "above", "lowest", "alignments", "slack")}
    larger: dict[str, Any] = {name: tuple(factor * number for number in numbers) for name, numbers in by_name.items()}
    return replace(
        problem, **larger, highest=tuple(factor * most if most < 1 << 60 else most for most in problem.highest)
    )


@compiled
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_any_size(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core counts in 32 bits where that is enough: at either side of what is, it does the same."""
    rng = random.Random(f"sizes {kind}")
    for _ in range(25):
        blocks = random_blocks(rng, kind, rng.randint(1, 30), 12)
        problem = problem_of([block for block in blocks if is_uniform(block)])
        if problem is None or not problem.widths:
            continue
        capacity = rng.randint(max(problem.widths), 2 * sum(problem.widths))
        wanted = Attempt(rng.randrange(3 * ATTEMPTS), 0, capacity, 300)
        expected = by_python(problem, wanted, monkeypatch)
        for factor in (1, (1 << 28) // capacity, (1 << 31) // capacity, (1 << 32) // capacity + 1, 1 << 40):
            larger = scaled(problem, factor)
            outcome = attempt(larger, replace(wanted, capacity=factor * capacity), never)
            positions = tuple(factor * position for position in expected.positions)
            assert outcome == replace(expected, positions=positions, least=factor * expected.least)


@compiled
def test_large_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for seed in range(3):
        problem = problem_of(generate(120, seed))
        assert problem is not None
        for number in range(ATTEMPTS):
            for capacity in (1024, 700):
                wanted = Attempt(number, seed, capacity, 400)
                outcome = attempt(problem, wanted, never)
                seen.add(outcome.status)
                assert outcome == by_python(problem, wanted, monkeypatch)
    assert len(seen) > 1


@compiled
def test_stop_is_asked_and_what_it_raises_arrives() -> None:
    problem = problem_of(generate(300, 1))
    assert problem is not None
    tried = (Attempt(number, 1, 1024, 2_000) for number in range(3 * ATTEMPTS))
    hard = next(one for one in tried if attempt(problem, one, never).status == "unknown")

    def raising() -> bool:
        raise KeyboardInterrupt

    outcome = attempt(problem, hard, lambda: True)
    assert outcome.stopped
    assert outcome.nodes < hard.nodes
    with pytest.raises(KeyboardInterrupt):
        attempt(problem, hard, raising)


@compiled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_orders_are_placed_as_in_python(seed: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"orders {seed} {kind}")
    for _ in range(30):
        blocks = without_overlaps(random_blocks(rng, kind, rng.randint(1, 40)))
        quick = GreedyPlanner(blocks)
        with monkeypatch.context() as patched:
            patched.setattr(greedy, "library", lambda: None)
            slow = GreedyPlanner(blocks)
        for tight in (False, True):
            order = rng.sample(range(len(blocks)), len(blocks))
            placed = quick.in_order(order, tight=tight)
            assert placed == slow.in_order(order, tight=tight)
            some = [offset if rng.random() < 0.5 else -1 for offset in placed]
            rest = [index for index in order if some[index] < 0]
            assert quick.in_order(rest, tight=tight, first=some) == slow.in_order(rest, tight=tight, first=some)


@compiled
def test_heights_beyond_64_bits_are_left_to_python() -> None:
    begins = [Block(1 << 60, (BlockPart(0, 2, 0, 1 << 60),)) for _ in range(4)]
    _, offsets, _ = GreedyPlanner(begins).run(0)
    assert sorted(offsets) == [number << 60 for number in range(4)]
