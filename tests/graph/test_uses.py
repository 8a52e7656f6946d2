"""Orders evaluated by arrays beside orders executed step by step: the same figures on thousands of random graphs."""

from __future__ import annotations

import random

import pytest

from memsched.graph import liveness
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Op
from memsched.graph.uses import MANY_OPS, neighbours_of, steps_of, uses_of
from memsched.solve.schedule.bounds import largest_step
from tests.graph.examples import graph_of
from tests.random_graphs import random_graph, random_order


def test_lifetimes_of_a_chain() -> None:
    # x is read twice, the mask by nobody, y is an output; z is given for nothing.
    ops = [Op("f", "Op", (0,), (1, 2)), Op("g", "Op", (0, 1), (3,))]
    graph = graph_of({"x": 1, "a": 2, "mask": 50, "y": 4, "z": 8}, ops, ["x", "z"], ["y"])
    storage = Storage.of(graph)
    made, befores = (storage.sizes, storage.creator, storage.reads), neighbours_of(graph)[0]
    uses = uses_of(*made, storage.kept, storage.workspace, storage.takes, befores)
    assert uses is not None
    first, last = uses.lifetimes(steps_of((0, 1)))
    found = {storage.tensor_of[place]: times for place, times in enumerate(zip(first, last, strict=True))}
    assert found == {0: (-1, 1), 1: (0, 1), 2: (0, 0), 3: (1, 2), 4: (-1, -1)}


def test_large_graphs_have_arrays() -> None:
    ops = [Op(f"o{index}", "Op", (index,), (index + 1,)) for index in range(MANY_OPS)]
    sizes = {f"t{index}": index % 7 for index in range(MANY_OPS + 1)}
    storage = Storage.of(graph_of(sizes, ops, ["t0"], [f"t{MANY_OPS}"]))
    assert storage.uses is not None
    assert evaluate(storage, range(MANY_OPS)).peak == 11


def test_sums_that_64_bits_might_not_hold_are_left_to_lists() -> None:
    befores = neighbours_of(graph_of({"x": 1 << 61, "z": 1}, [], ["x", "z"], ["x", "z"]))[0]
    assert uses_of([1 << 61, 1], [-1, -1], [], [True, True], [], [], befores) is None


def test_the_same_figures_as_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    for _ in range(300):
        graph = random_graph(rng, rng.randint(0, 14))
        order = random_order(rng, graph)
        listed = Storage.of(graph)
        with monkeypatch.context() as patched:
            patched.setattr(liveness, "MANY_OPS", 0)
            storage = Storage.of(graph)
        assert listed.uses is None
        assert storage.uses is not None
        assert storage == listed
        assert evaluate(storage, order) == evaluate(listed, order)
        assert largest_step(storage) == largest_step(listed)
