"""What must fuse, and the counter-examples to naive readings of the theorems, which must not."""

from __future__ import annotations

import pytest

from memsched.graph.contraction import contract, single_op_tasks
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Op, Tensor
from memsched.solve.fusion.isolated import SOURCES, Growth, fuse_group
from memsched.solve.fusion.iterate import fuse
from memsched.solve.fusion.monotonic import falls, rises
from memsched.solve.fusion.quotient import Quotient
from tests.solve.fusion.optimum import optimum


def graph_of(inputs: dict[str, int], nodes: list[tuple[str, str, int]], outputs: str = "") -> Graph:
    """Build from nodes (name, "read read", output size); each produces the tensor of its name."""
    sizes = inputs | {name: size for name, _, size in nodes}
    index = {name: number for number, name in enumerate(sizes)}
    read = {tensor for _, reads, _ in nodes for tensor in reads.split()}
    kept = outputs.split() or [name for name in sizes if name not in read]
    return Graph(
        name="example",
        tensors=tuple(Tensor(name, size) for name, size in sizes.items()),
        ops=tuple(
            Op(name, "Op", tuple(index[tensor] for tensor in reads.split()), (index[name],)) for name, reads, _ in nodes
        ),
        inputs=tuple(index[name] for name in inputs),
        outputs=tuple(index[name] for name in kept),
    )


COUNTER_EXAMPLES = {
    "falling, the head shares one of two inputs": (
        graph_of({"x": 2, "y": 1}, [("n1", "x y", 2), ("n2", "n1", 2), ("n3", "x", 1)]),
        [[0, 1], [2]],
        5,
        6,
    ),
    "an input is shared": (
        graph_of({"x": 2}, [("n0", "x", 1), ("n1", "x", 5), ("n2", "n1 x", 6), ("n3", "n2", 6)]),
        [[0], [1, 2, 3]],
        13,
        14,
    ),
    "two exits": (
        graph_of({"x": 2}, [("n0", "x", 2), ("n1", "x", 2), ("n2", "n0", 1)]),
        [[0, 1], [2]],
        5,
        6,
    ),
    "a valley that one order does not see": (
        graph_of(
            {"x": 10, "y": 1},
            [
                ("a", "x", 1),
                ("b", "x", 1),
                ("c", "a", 9),
                ("d", "b", 1),
                ("e", "c d", 10),
                ("u1", "y", 15),
                ("u2", "u1", 1),
            ],
        ),
        [[0, 2, 1, 3, 4], [5], [6]],
        21,
        26,
    ),
}


@pytest.mark.parametrize("name", COUNTER_EXAMPLES)
def test_counter_examples_to_naive_fusion(name: str) -> None:
    graph, naive, least, worse = COUNTER_EXAMPLES[name]
    storage = Storage.of(graph)
    assert optimum(single_op_tasks(storage)) == least
    assert optimum(contract(storage, naive)) == worse
    fused = fuse(storage)
    assert optimum(fused.tasks) == least
    assert not {frozenset(group) for group in naive if len(group) > 1} & set(map(frozenset, fused.tasks.members))


@pytest.mark.parametrize("name", ["falling, the head shares one of two inputs", "two exits"])
def test_pairs_of_the_counter_examples_neither_rise_nor_fall(name: str) -> None:
    quotient = Quotient(Storage.of(COUNTER_EXAMPLES[name][0]), 100, 10**9)
    assert not rises(quotient, 0, 1)
    assert not falls(quotient, 0, 1)


def test_groups_of_the_counter_examples_are_refused() -> None:
    for name, group in (("falling, the head shares one of two inputs", [0, 1]), ("an input is shared", [1, 2, 3])):
        quotient = Quotient(Storage.of(COUNTER_EXAMPLES[name][0]), 100, 10**9)
        assert fuse_group(quotient, group, 1000) is None


@pytest.mark.parametrize("entry", [SOURCES, 0, 1])
def test_two_exits_are_no_candidate(entry: int) -> None:
    quotient = Quotient(Storage.of(COUNTER_EXAMPLES["two exits"][0]), 100, 10**9)
    assert (0, 1) not in list(Growth(quotient, entry, entry != SOURCES, 64).candidates())


def test_a_hidden_valley_below_the_entry_counts_even_where_the_group_ends_lower() -> None:
    """After b and a the residue is 2: less than at the entry, more than at the end."""
    block = [("a", "x", 1), ("c", "a", 40), ("b", "x", 1), ("d", "b", 1), ("e", "c d", 1)]
    graph = graph_of({"i": 9, "y": 15}, [("x", "i", 10), *block, ("u1", "y", 20), ("u2", "u1", 1)])
    storage = Storage.of(graph)
    least = optimum(single_op_tasks(storage))
    assert optimum(contract(storage, [[0], [1, 3, 2, 4, 5], [6], [7]])) > least
    assert optimum(fuse(storage).tasks) == least
    assert fuse_group(Quotient(storage, 100, 10**9), [1, 2, 3, 4, 5], 1000) is None


def test_an_input_may_be_shared_with_what_runs_before_or_after() -> None:
    """h reads x too, but precedes the group; so x dies in it for certain. k is read after it and lives on."""
    block = [("a", "h x", 20), ("b", "a", 8), ("c", "h x k", 15), ("d", "c", 8), ("e", "b d", 16)]
    graph = graph_of({"i": 1, "k": 2}, [("x", "i", 6), ("h", "x", 5), *block, ("z", "e k", 1)])
    assert fuse_group(Quotient(Storage.of(graph), 100, 10**9), [2, 3, 4, 5, 6], 1000) is not None


def test_further_outputs_count_in_the_footprint() -> None:
    """The residues of n0 and n1 fall, but n1 has an output that nobody reads: what shrinks runs between them."""
    tensors = [Tensor("x", 10), Tensor("a", 1), Tensor("waste", 20), Tensor("b", 1), Tensor("p", 1), Tensor("y", 10)]
    ops = (Op("n0", "Op", (0,), (1,)), Op("n1", "Op", (1,), (3, 2)), Op("n2", "Op", (5,), (4,), workspace=15))
    storage = Storage.of(Graph("waste", tuple(tensors), ops, (0, 5), (3, 4)))
    assert optimum(contract(storage, [[0, 1], [2]])) == 32
    assert optimum(single_op_tasks(storage)) == optimum(fuse(storage).tasks) == 27


def test_a_rising_sequence_becomes_one_task() -> None:
    nodes = [("a", "x", 2), ("b", "a", 3), ("c", "b", 5), ("d", "c", 9)]
    assert fuse(Storage.of(graph_of({"x": 1}, nodes))).ops_after == 1


def test_a_falling_sequence_becomes_one_task() -> None:
    nodes = [("a", "x", 7), ("b", "a", 5), ("c", "b", 3), ("d", "c", 1)]
    assert fuse(Storage.of(graph_of({"x": 9}, nodes))).ops_after == 1


def test_a_valley_splits_a_sequence() -> None:
    """Between the hills another branch may run; alone, there is nothing between."""
    nodes = [("a", "x", 1), ("b", "a", 9), ("u1", "y", 12), ("u2", "u1", 1), ("j", "b u2", 1)]
    fused = fuse(Storage.of(graph_of({"x": 9, "y": 1}, nodes)))
    assert not any({0, 1} <= set(group) for group in fused.tasks.members)


def test_a_residual_block_becomes_one_task_beside_another_branch() -> None:
    block = [("a", "x", 20), ("b", "a", 8), ("c", "x", 15), ("d", "c", 8), ("e", "b d", 6)]
    other = [("u", "y", 30), ("v", "u", 3), ("w", "v", 30), ("z", "w e", 1)]
    fused = fuse(Storage.of(graph_of({"x": 6, "y": 5}, block + other)))
    assert any({0, 1, 2, 3, 4} <= set(group) for group in fused.tasks.members)
    assert fused.isolated == 1


def test_fused_blocks_fuse_again() -> None:
    """Iterative Graph Optimization, Figure 6: residual blocks first, then the sequence of the hyper-nodes."""
    nodes = []
    for block in range(3):
        entry = f"e{block - 1}" if block else "x"
        nodes += [(f"a{block}", entry, 20), (f"b{block}", f"a{block}", 8), (f"e{block}", f"b{block} {entry}", 6)]
    nodes += [("u", "y", 30), ("v", "u", 3), ("w", "v", 30), ("z", "w e2", 1)]
    fused = fuse(Storage.of(graph_of({"x": 6, "y": 5}, nodes)))
    assert any(set(range(9)) <= set(group) for group in fused.tasks.members)


def test_the_inner_order_is_the_best_one() -> None:
    """The branch with the higher hill and the lower end goes first."""
    nodes = [("a", "x", 5), ("b", "a", 4), ("c", "x", 50), ("d", "c", 3), ("e", "b d", 1)]
    graph = graph_of({"x": 3, "y": 1}, [*nodes, ("u", "y", 9), ("v", "u e", 1)])
    fused = fuse(Storage.of(graph))
    assert optimum(fused.tasks) == optimum(single_op_tasks(Storage.of(graph)))
    group = next(group for group in fused.tasks.members if {0, 3} <= set(group))
    assert group.index(3) < group.index(0)


def test_a_bound_on_the_members_is_kept() -> None:
    branches = [(f"b{number}", "x", 5) for number in range(8)]
    nodes = [*branches, ("j", " ".join(name for name, _, _ in branches), 1)]
    storage = Storage.of(graph_of({"x": 4}, nodes))
    assert fuse(storage).ops_after < fuse(storage, max_members=2).ops_after
