"""Solvers of one question against each other: a few graphs of what `python -m tests.tools.differential` compares.

Where pairs meet on graphs small enough to try everything, the tests are with the solvers:

- fused, single ops, CP-SAT, brute force: tests/solve/schedule/test_agreement.py,
  test_cpsat.py; tests/solve/fusion/test_optimum.py
- BTSearch and SERENITY against the threshold search: tests/solve/schedule/test_backtrack.py, test_serenity.py
- cut and whole: tests/solve/schedule/test_partition.py, test_portfolio.py; several processes: test_parallel.py
- packings against all addresses: tests/solve/allocate/test_exact.py, test_portfolio.py, test_pools.py
- order and addresses together against both in turn: tests/solve/joint/test_cpsat.py, test_fit.py, test_improve.py
- stages against all schedules, CP-SAT against the dynamic program: tests/features/pipeline/test_exact.py,
  test_priced.py
- shares against all of them, GenEFlow: tests/features/distribute/test_search.py
- repetitions against all sequences: tests/rewrites/recompute/test_moccasin.py, test_decompose.py, test_greedy.py
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from memsched.features.pipeline import heuristic
from memsched.solve.allocate import exact as packing
from memsched.solve.schedule import exact
from tests.tools.differential import PAIRS, addresses, claims, orders, repetitions, stages
from tests.tools.differential.claims import Claim, Pair, disagreements

GRAPHS = {"shares": 1}
WITHOUT_PROCESSES = [pair for pair in PAIRS if not pair.name.endswith("one worker, two")]


@pytest.mark.parametrize("pair", WITHOUT_PROCESSES, ids=[pair.name for pair in WITHOUT_PROCESSES])
def test_no_solver_contradicts_another(pair: Pair) -> None:
    numbers = range(GRAPHS.get(pair.name.partition(":")[0], 8))
    found = [pair.compare(number) for number in numbers]
    assert [one for one in found if one] == []
    assert sum(one is not None for one in found) > len(numbers) // 2


def test_what_contradicts_what() -> None:
    proven, worse, better, nothing = Claim("p", 5, 5), Claim("w", 7, 3), Claim("b", 4, 4), Claim("n", None, 5)
    assert disagreements([proven, worse, nothing]) == []
    lines = disagreements([proven, better, nothing])
    assert [re.findall(r"\b[pbn]\b|\d", line) for line in lines] == [["p", "5", "b", "4"], ["n", "5", "b", "4"]]
    assert disagreements([Claim("p", 1.0, 1.0), Claim("q", 1 - 1e-12, 0.5)], tolerance=1e-9) == []


def wrong(pair: Pair) -> list[str]:
    return [line for number in range(4) for line in pair.compare(number) or []]


def test_a_bound_that_is_too_high_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*args: Any, **options: Any) -> exact.ExactResult:
        found = right(*args, **options)
        return replace(found, order=None, lower_bound=found.lower_bound + 1)

    right = exact.search
    monkeypatch.setattr(exact, "search", search)
    assert any("threshold" in line for line in wrong(orders.PAIRS[0]))


def test_a_packing_that_is_not_the_lowest_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def solve(*args: Any, **options: Any) -> Any:
        found = right(*args, **options)
        return replace(found, height=found.height, lower_bound=found.height + 1)

    right = packing.solve
    monkeypatch.setattr(packing, "solve", solve)
    monkeypatch.setattr(addresses, "check_packing", lambda *_: None)
    assert any(" proves " in line for line in wrong(addresses.PAIRS[0]))


def test_a_heuristic_below_the_optimum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def schedule(*args: Any) -> Any:
        found = right(*args)
        return replace(found, objective=found.lower_bound - 1, lower_bound=0)

    right = heuristic.schedule
    monkeypatch.setattr(heuristic, "schedule", schedule)
    monkeypatch.setattr(stages, "check_stages", lambda *_: None)
    assert any("even split" in line for line in wrong(stages.PAIRS[0]))


def test_a_bound_of_repetitions_that_is_too_high_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetitions, "least_peak", lambda *_: 1000)
    assert any(" proves 1000" in line for line in wrong(repetitions.PAIRS[0]))


def test_every_pair_has_its_own_name() -> None:
    assert len({pair.name for pair in PAIRS}) == len(PAIRS)
    assert all(isinstance(pair, claims.Pair) and pair.stride > 0 for pair in PAIRS)
