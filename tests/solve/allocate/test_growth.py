"""Packings grown from the fullest section: windows that ask for nothing more than the whole, and what is proven."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memsched.graph.packing import Block
from memsched.solve.allocate.growth import GROWTHS, grow, window
from memsched.solve.allocate.preprocess import PackingProblem, is_uniform, problem_of
from memsched.solve.allocate.search import ATTEMPTS, Attempt, attempt
from scripts.bench.allocate import CAPACITY, generate
from tests.solve.allocate.test_exact import KINDS, least_height, never, random_blocks


def uniform_blocks(rng: random.Random, kind: str, count: int, times: int = 6) -> tuple[list[Block], PackingProblem]:
    while True:
        blocks = [
            replace(block, parts=tuple(part for part in block.parts if part.begin < part.end and part.low < part.high))
            for block in random_blocks(rng, kind, count, times)
            if is_uniform(block)
        ]
        problem = problem_of(blocks) if blocks else None
        if problem is not None:
            return blocks, problem


@pytest.mark.parametrize("kind", KINDS)
def test_growth_finds_and_excludes_what_exhaustive_search_does(kind: str) -> None:
    rng = random.Random(f"growth {kind}")
    for _ in range(12):
        blocks, problem = uniform_blocks(rng, kind, rng.randint(1, 5))
        least = least_height(blocks, 40)
        for way in range(GROWTHS):
            for capacity in range(max(0, least - 4), least + 2):
                outcome = grow(problem, Attempt(way, 0, capacity // problem.unit, 10_000), never)
                assert outcome.status == ("found" if capacity // problem.unit * problem.unit >= least else "infeasible")
                assert outcome.status == "found" or capacity // problem.unit < outcome.least <= least / problem.unit


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_holds_what_meets_in_it(kind: str) -> None:
    rng = random.Random(f"windows {kind}")
    for _ in range(30):
        _, problem = uniform_blocks(rng, kind, rng.randint(1, 20), 12)
        first = rng.randrange(problem.section_count)
        end = rng.randint(first + 1, problem.section_count)
        part, items = window(problem, first, end)
        sections = [{one for one in own if first <= one < end} for own in problem.sections]
        assert list(items) == [item for item, own in enumerate(sections) if own]
        assert [{one + first for one in own} for own in part.sections] == [sections[item] for item in items]
        for item, met, twins in zip(items, part.meets, part.twins, strict=True):
            assert {items[one] for one in met} == {
                one for one in items if one != item and sections[one] & sections[item]
            }
            assert tuple(items[one] for one in twins) == problem.twins[item]
        whole, every = window(problem, 0, problem.section_count)
        assert whole == problem
        assert every == tuple(range(len(problem.widths)))


def test_growth_packs_what_attempts_alone_do_not() -> None:
    problem = problem_of(generate(100, 1, times=40))
    assert problem is not None
    grown = grow(problem, Attempt(0, 0, CAPACITY, 400_000), never)
    assert grown.status == "found"
    assert all(
        attempt(problem, Attempt(number, 0, CAPACITY, grown.nodes // ATTEMPTS), never).status == "unknown"
        for number in range(ATTEMPTS)
    )


def test_growth_ends_with_its_nodes_or_when_it_is_asked_to() -> None:
    problem = problem_of(generate(300, 4, times=100))
    assert problem is not None
    few = grow(problem, Attempt(0, 0, CAPACITY, 5_000), never)
    assert few.status == "unknown"
    assert 5_000 <= few.nodes <= 5_000 + len(problem.widths)
    stopped = grow(problem, Attempt(0, 0, CAPACITY, 5_000), lambda: True)
    assert stopped.stopped
    assert stopped.nodes < few.nodes
    assert grow(problem, Attempt(0, 0, CAPACITY, 5_000), never) == few
