"""Decompositions are valid and as narrow as known, separators are balanced, spines at most double the bags."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.graph.dag import topological_order
from memsched.rewrites.recompute.path import PathDecomposition, path_decomposition, path_separators
from memsched.rewrites.recompute.separator import components, shrink, tree_decomposition, tree_separators, undirected
from memsched.rewrites.recompute.spine import add_spine, find_spine
from tests.rewrites.recompute.dags import FAMILIES, grid, path, random_dag, series_parallel, training, tree

WIDTHS = {"path": 1, "tree": 1, "grid": 9, "long grid": 3, "series-parallel": 2, "training": 2, "random": 8}
"""At most: treewidths, and a little more where the heuristics do not find them (6 x 8 grid: 6) or nobody knows them."""

Preds = Sequence[Sequence[int]]


def edges(preds: Preds) -> list[tuple[int, int]]:
    return [(before, after) for after, befores in enumerate(preds) for before in befores]


def check_tree(bags: Sequence[Sequence[int]], links: Sequence[tuple[int, int]], preds: Preds) -> None:
    """Check the three properties of a tree decomposition."""
    members = [set(bag) for bag in bags]
    assert set().union(*members) == set(range(len(preds)))
    assert all(any({before, after} <= bag for bag in members) for before, after in edges(preds))
    for node in range(len(preds)):
        own = [number for number, bag in enumerate(members) if node in bag]
        inside = sum(1 for one, other in links if node in members[one] and node in members[other])
        # A forest with as many edges as nodes less one is connected.
        assert inside == len(own) - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_tree_decompositions(family: str) -> None:
    preds = FAMILIES[family]
    found = tree_decomposition(preds)
    assert found is not None
    links = [(above, number) for number, above in enumerate(found.parent) if above >= 0]
    assert all(above < number for above, number in links)
    check_tree(found.bags, links, preds)
    assert found.width == max(map(len, found.bags)) - 1 <= WIDTHS[family]
    assert tree_decomposition(preds, found.width) is None
    assert tree_decomposition(preds, found.width + 1) == found


@pytest.mark.parametrize("family", FAMILIES)
def test_path_decompositions_and_spines(family: str) -> None:
    preds = FAMILIES[family]
    given_path = path_decomposition(undirected(preds), [range(len(preds))])
    assert given_path is not None
    links = list(pairwise(range(len(preds))))
    check_tree(given_path.bags, links, preds)
    assert given_path.width == max(map(len, given_path.bags)) - 1
    check_spine(preds, given_path)


def check_spine(preds: Preds, given_path: PathDecomposition) -> None:
    order, widened, added = add_spine(preds, given_path)
    joined = [list(befores) for befores in preds]
    for before, after in added:
        joined[after].append(before)
    assert find_spine(joined) == order
    assert not set(added) & set(edges(preds))
    check_tree(widened.bags, list(pairwise(range(len(preds)))), joined)
    for narrow, wide in zip(given_path.bags, widened.bags, strict=True):
        assert len(wide) <= 2 * len(narrow)


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 2**31), nodes=st.integers(1, 40))
def test_spines_at_most_double_bags(seed: int, nodes: int) -> None:
    preds = random.Random(seed).choice([random_dag, series_parallel])(nodes, seed)
    shuffled = list(range(len(preds)))
    random.Random(seed).shuffle(shuffled)
    for orders in ([], [shuffled]):
        found = path_decomposition(undirected(preds), orders)
        assert found is not None
        check_spine(preds, found)


def test_spines_are_found_where_there_is_one() -> None:
    assert find_spine(path(4)) == (0, 1, 2, 3)
    assert find_spine(training(6)) == (0, 1, 2, 3, 4, 5)
    assert find_spine(tree(3)) is None
    assert find_spine([[], [0], [0, 1], [1]]) is None
    assert find_spine([]) == ()


def test_path_decompositions_of_paths_and_grids_are_narrow() -> None:
    shuffled = list(range(50))
    random.Random(0).shuffle(shuffled)
    for preds, width in ((path(50), 1), (grid(3, 20), 3), (training(60), 2)):
        found = path_decomposition(undirected(preds), [])
        assert found is not None
        assert found.width <= width + 1
    assert path_decomposition(undirected(path(50)), [shuffled], 1) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_separators_are_balanced(family: str) -> None:
    preds = FAMILIES[family]
    neighbours = undirected(preds)
    tree_of = tree_decomposition(preds)
    path_of = path_decomposition(neighbours, [range(len(preds))])
    assert tree_of is not None
    assert path_of is not None
    rng = random.Random(0)
    for attempt in range(20):
        # Any connected part is separated as well, by the same decomposition without the other nodes.
        some = range(len(preds)) if not attempt else sorted(rng.sample(range(len(preds)), rng.randint(3, len(preds))))
        part = max(components(some, neighbours), key=len)
        if len(part) < 3:
            continue
        for found, width in (
            (tree_separators(tree_of, part, neighbours, _count), tree_of.width),
            (path_separators(path_of, part, neighbours, _count), path_of.width),
        ):
            assert found
            assert sorted(map(len, found)) == list(map(len, found))
            halving = 0
            for separator in found:
                assert set(separator) <= set(part)
                assert len(separator) <= width + 1
                rest = components([node for node in part if node not in set(separator)], neighbours)
                largest = max(map(len, rest), default=0)
                assert largest <= 2 * len(part) / 3
                halving += largest <= len(part) / 2
            assert halving


def _count(nodes: Iterable[int]) -> int:
    return len(list(nodes))


def test_figure_1_has_a_separator_of_two() -> None:
    preds = [(), (0,), (1,), (1, 2), (0, 3)]
    found = tree_decomposition(preds)
    assert found is not None
    assert found.width == 2
    assert (1, 3) in tree_separators(found, range(5), undirected(preds), _count)


def test_shrinking_keeps_the_balance() -> None:
    neighbours = undirected(path(9))
    assert shrink([2, 4, 6], range(9), neighbours, 4) == (4,)
    assert shrink([4, 2, 6], range(9), neighbours, 4) == (2, 6)
    assert shrink([4], range(9), neighbours, 9) == ()


def test_components() -> None:
    assert components([5, 0, 1, 3], undirected(path(6))) == [[5], [0, 1], [3]]
    assert topological_order(path(3), range(3)) == [0, 1, 2]
