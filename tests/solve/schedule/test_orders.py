"""The orders that cost next to nothing: valid, as documented, and fast on large graphs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from memsched.core.library import library
from memsched.graph import liveness
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.runtimes.onnxruntime.orders import default_order, default_order_of
from memsched.solve.schedule.compiled_orders import post_order
from memsched.solve.schedule.orders import ORDERS, file_order, greedy, release_first, reverse_post_order
from tests.brute_force import footprint, residue, topological_orders
from tests.random_graphs import random_graph, random_layered_graph

_ALL = pytest.mark.parametrize("heuristic", list(ORDERS.values()), ids=list(ORDERS))


def _graph(sizes: dict[str, int], ops: list[tuple[str, list[str]]], outputs: list[str]) -> Graph:
    """Return a graph of ops, each named by the one tensor it makes; tensors that no op makes are inputs."""
    number = {name: index for index, name in enumerate(sizes)}
    made = {name for name, _ in ops}
    return Graph(
        "test",
        tuple(Tensor(name, size) for name, size in sizes.items()),
        tuple(Op(name, "Op", tuple(number[read] for read in reads), (number[name],)) for name, reads in ops),
        tuple(index for name, index in number.items() if name not in made),
        tuple(number[name] for name in outputs),
    )


def _two_branches() -> Graph:
    """Two branches of two ops from one input, joined: the file stores them interleaved, the second op first."""
    sizes = {"x": 4, "b1": 9, "a1": 5, "b2": 1, "a2": 2, "end": 3}
    ops = [("b1", ["x"]), ("a1", ["x"]), ("b2", ["b1"]), ("a2", ["a1"]), ("end", ["a2", "b2"])]
    return _graph(sizes, ops, ["end"])


def _is_topological(graph: Graph, order: tuple[int, ...]) -> bool:
    step = {op: index for index, op in enumerate(order)}
    storage = Storage.of(graph)
    complete = sorted(order) == list(range(len(graph.ops)))
    return complete and all(step[before] < step[op] for op in step for before in storage.preds[op])


@_ALL
def test_every_order_of_random_graphs_is_an_execution_order(heuristic: Callable[[Storage], tuple[int, ...]]) -> None:
    for seed in range(100):
        graph = random_graph(random.Random(seed), seed % 14)
        assert _is_topological(graph, heuristic(Storage.of(graph)))


@pytest.mark.skipif(library() is None, reason="the installation has no compiled core: no C++ compiler")
def test_the_compiled_walks_take_the_orders_of_those_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(300):
        graph = random_graph(random.Random(seed), seed % 14)
        listed = Storage.of(graph)
        with monkeypatch.context() as patched:
            patched.setattr(liveness, "MANY_OPS", 0)
            storage = Storage.of(graph)
        assert post_order(storage.uses, last_first=False) == reverse_post_order(listed)
        assert post_order(storage.uses, last_first=True) == default_order(graph) == default_order_of(storage)
        assert post_order(listed.uses, last_first=True) is None


def test_file_order_is_the_models() -> None:
    assert file_order(Storage.of(_two_branches())) == (0, 1, 2, 3, 4)


def test_reverse_post_order_finishes_the_branch_of_the_first_predecessor() -> None:
    # Op 4 reads ops 2 and 3; 2 comes first in the file, whatever the order of the inputs.
    assert reverse_post_order(Storage.of(_two_branches())) == (0, 2, 1, 3, 4)


def test_reverse_post_order_places_every_sink_after_what_it_alone_needs() -> None:
    sizes = {"x": 1, "a": 1, "b": 1, "c": 1, "d": 1}
    graph = _graph(sizes, [("a", ["x"]), ("b", ["x"]), ("c", ["b"]), ("d", ["a"])], ["c", "d"])
    assert reverse_post_order(Storage.of(graph)) == (1, 2, 0, 3)


def test_greedy_takes_the_least_footprint_then_the_least_change() -> None:
    assert greedy(Storage.of(_two_branches())) == (1, 3, 0, 2, 4)
    sizes = {"x": 1, "y": 8, "a": 5, "b": 5, "end": 1}
    graph = _graph(sizes, [("a", ["x"]), ("b", ["y"]), ("end", ["a", "b"])], ["end"])
    assert greedy(Storage.of(graph)) == (1, 0, 2), "b costs as much as a, but frees more"


def test_release_first_takes_what_frees_most() -> None:
    assert release_first(Storage.of(_two_branches())) == (0, 2, 1, 3, 4)


def test_greedy_orders_follow_their_rule_at_every_step() -> None:
    """The lazy heap must pick what a complete search among the ready ops picks, ties by file order."""
    for seed in range(60):
        graph = random_graph(random.Random(seed), 9)
        storage = Storage.of(graph)
        before = [set(befores) for befores in storage.preds]
        for name in ("greedy", "release first"):
            done: set[int] = set()
            for op in ORDERS[name](storage):
                now = residue(graph, done)
                ranks = {}
                for ready in (i for i in range(9) if i not in done and before[i] <= done):
                    change = residue(graph, done | {ready}) - now
                    created = sum(storage.sizes[buffer] for buffer in storage.creates[ready])
                    least = (footprint(graph, done, ready) - now, change, ready)
                    ranks[ready] = least if name == "greedy" else (change - created, ready)
                assert op == min(ranks, key=lambda ready: ranks[ready]), (seed, name)
                done.add(op)


def test_in_place_writes_make_an_op_cheaper() -> None:
    sizes = {"x": 6, "y": 5, "a": 6, "b": 5, "end": 1}
    plain = _graph(sizes, [("a", ["x"]), ("b", ["y"]), ("end", ["a", "b"])], ["end"])
    assert greedy(Storage.of(plain)) == (1, 0, 2)
    first = Op("a", "Op", (0,), (2,), in_place=((2, 0),))
    written = Graph(plain.name, plain.tensors, (first, *plain.ops[1:]), plain.inputs, plain.outputs)
    assert greedy(Storage.of(written)) == (0, 1, 2)


@_ALL
def test_no_order_is_better_than_the_best_one(heuristic: Callable[[Storage], tuple[int, ...]]) -> None:
    graph = _two_branches()
    storage = Storage.of(graph)
    best = min(evaluate(storage, order).peak for order in topological_orders(graph))
    assert evaluate(storage, heuristic(storage)).peak >= best


@pytest.fixture(scope="module")
def large() -> Storage:
    return Storage.of(random_layered_graph(random.Random(1), 100_000, width=5_000))


@_ALL
def test_hundred_thousand_ops_take_seconds(large: Storage, heuristic: Callable[[Storage], tuple[int, ...]]) -> None:
    started = time.process_time()
    order = heuristic(large)
    assert time.process_time() - started < 15
    assert len(order) == 100_000


def test_a_long_chain_needs_no_recursion_and_one_reader_of_many_no_square() -> None:
    count = 20_000
    tensors = [Tensor("x", 1), *(Tensor(f"t{i}", 1 + i % 7) for i in range(2 * count))]
    chain = [Op(f"c{i}", "Op", (i,), (i + 1,)) for i in range(count)]
    readers = [Op(f"r{i}", "Op", (0,), (count + i + 1,)) for i in range(count)]
    graph = Graph("wide", tuple(tensors), (*chain, *readers), (0,), (count,))
    storage = Storage.of(graph)
    for heuristic in ORDERS.values():
        assert len(heuristic(storage)) == 2 * count
