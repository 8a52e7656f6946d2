"""One order for a range: against all orders of small graphs at every size, and where the best one changes."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.graph.model import Graph
from memsched.plan.over_range import choose_order
from tests.brute_force import footprints, topological_orders
from tests.random_graphs import random_graph

Point = tuple[int, ...]
SIZES = range(1, 10)


def _resized(graph: Graph, parts: Sequence[tuple[int, int, int]], length: int) -> Graph:
    """Return a graph whose tensors have the sizes a + b n + c n^2 at a length n."""
    sizes = (a + b * length + c * length**2 for a, b, c in parts)
    tensors = [dataclasses.replace(one, size=size) for one, size in zip(graph.tensors, sizes, strict=True)]
    return dataclasses.replace(graph, tensors=tuple(tensors))


def _halfway(low: Point, high: Point) -> Point:
    return tuple((one + other) // 2 for one, other in zip(low, high, strict=True))


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_the_choice_is_the_best_of_the_candidates_and_the_spans_are_right(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(2, 6), views=False, in_place=False, extras=False)
    draws = [(0, 1, 5), (0, 0, 3), (0, 0, 1)]
    parts = [tuple(rng.choice(one) for one in draws) for _ in graph.tensors]
    at = {length: _resized(graph, parts, length) for length in SIZES}  # type: ignore[arg-type]
    every = list(topological_orders(graph))
    peaks = {length: [max(footprints(at[length], order)) for order in every] for length in SIZES}
    found = [peaks[length].index(min(peaks[length])) for length in (SIZES[0], 3, SIZES[-1])]
    candidates = list(dict.fromkeys([rng.randrange(len(every)), *found]))

    def judge(point: Point) -> tuple[int, ...]:
        return tuple(peaks[point[0]][order] for order in candidates)

    rows = {length: judge((length,)) for length in SIZES}
    choice = choose_order([[(length,) for length in SIZES]], (3,), (SIZES[-1],), judge, _halfway)

    def loss(order: int) -> Fraction:
        return max(Fraction(row[order], min(row)) if min(row) else Fraction(1) for row in rows.values())

    allowed = [order for order in range(len(candidates)) if all(row[order] <= row[0] for row in rows.values())]
    least = min(map(loss, allowed))
    assert choice.order in allowed
    assert loss(choice.order) == least
    assert all(rows[3][choice.order] <= rows[3][order] for order in allowed if loss(order) == least)
    # Where nothing but the best order of all is a candidate at a size, it is the optimum.
    assert all(min(rows[length]) == min(peaks[length]) for length in (SIZES[0], 3, SIZES[-1]))
    (line,) = choice.spans
    assert [point for span in line for point in span.points] == [(length,) for length in SIZES]
    assert all(rows[point[0]][span.order] == min(rows[point[0]]) for span in line for point in span.points)
    # No span could be longer.
    assert all(
        rows[after.points[0][0]][before.order] > min(rows[after.points[0][0]])
        for before, after in itertools.pairwise(line)
    )


def _crossing(at: int) -> Callable[[Point], tuple[int, ...]]:
    """Return what three orders need: the last is best up to a length, the second from there on, the first never."""
    return lambda point: (50 * point[0] ** 2 + 50 * point[0] * at, 10 * point[0] * at, 10 * point[0] ** 2)


def test_the_size_at_which_the_best_order_changes_is_found_by_halving() -> None:
    judged = []

    def judge(point: Point) -> tuple[int, ...]:
        judged.append(point)
        return _crossing(777)(point)

    choice = choose_order([[(1,), (90,), (8192,)]], (90,), (8192,), judge, _halfway)
    (line,) = choice.spans
    ends = [(span.order, span.points[0], span.points[-1]) for span in line]
    assert ends == [(2, (1,), (777,)), (1, (778,), (8192,))]
    assert len(judged) == len(set(judged)) < 20
    # At 8,192 the last order takes 10.5 times as much as the best, at 1 the second 777 times.
    assert choice.order == 2
    assert choice.loss(line[1].points) == Fraction(8192, 777)
    assert choice.loss(line[0].points) == 1


def test_an_order_that_is_worse_anywhere_is_not_chosen() -> None:
    rows: dict[Point, tuple[int, ...]] = {(1,): (10, 11), (2,): (100, 50), (3,): (1000, 100)}
    choice = choose_order([list(rows)], (2,), (3,), rows.__getitem__, _halfway)
    assert choice.order == 0
    assert choice.loss(rows) == 10
    # It is chosen where it is judged at other sizes alone.
    assert choose_order([[(2,), (3,)]], (2,), (3,), rows.__getitem__, _halfway).order == 1
    assert choose_order([[(2,), (3,)]], (2,), (3,), rows.__getitem__, _halfway, beside=[(1,)]).order == 0


def test_of_orders_that_lose_as_much_the_one_that_is_better_at_a_typical_size_is_chosen() -> None:
    rows: dict[Point, tuple[int, ...]] = {(1,): (40, 20, 10), (2,): (60, 25, 24), (3,): (100, 40, 80)}
    assert choose_order([list(rows)], (2,), (3,), rows.__getitem__, _halfway).order == 2
    rows[2,] = (60, 25, 25)
    assert choose_order([list(rows)], (2,), (3,), rows.__getitem__, _halfway).order == 1


def test_many_changes_are_not_all_looked_for() -> None:
    def judge(point: Point) -> tuple[int, ...]:
        return (2, 1) if point[0] % 2 else (1, 2)

    choice = choose_order([[(1,), (1000,)]], (1,), (1000,), judge, _halfway)
    assert len(choice.judged) < 200
    assert choice.order == 0
