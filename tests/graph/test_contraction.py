"""Tasks cost what their ops cost in any context that can be, and bad groupings are rejected."""

from __future__ import annotations

import random

import pytest

from memsched.graph.contraction import Tasks, contract, restrict, single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op
from tests.failures import fails
from tests.graph.examples import graph_of
from tests.random_graphs import random_graph, random_layered_graph, random_order


def random_groups(rng: random.Random, graph: Graph) -> list[tuple[int, ...]]:
    """Consecutive pieces of one execution order: contracting them never makes a cycle."""
    order = list(random_order(rng, graph))
    groups = []
    while order:
        size = rng.randint(1, 4)
        groups.append(tuple(order[:size]))
        order = order[size:]
    rng.shuffle(groups)
    return groups


def random_task_order(rng: random.Random, tasks: Tasks) -> list[int]:
    order: list[int] = []
    while len(order) < len(tasks):
        ready = [t for t in range(len(tasks)) if t not in order and all(p in order for p in tasks.preds[t])]
        order.append(rng.choice(ready))
    return order


def test_tasks_cost_what_their_ops_cost_in_context() -> None:
    rng = random.Random(9)
    for _ in range(1200):
        graph = random_graph(rng, rng.randint(1, 14))
        storage = Storage.of(graph)
        tasks = contract(storage, random_groups(rng, graph))
        task_order = random_task_order(rng, tasks)
        profile = evaluate(storage, tasks.expand(task_order))
        live, step = tasks.initial, 0
        uses = [len(users) + kept for users, kept in zip(tasks.users, tasks.kept, strict=True)]
        assert live == profile.residues[0]
        for task in task_order:
            dying = {buffer for buffer in tasks.reads[task] if uses[buffer] == 1}
            footprints, residues = tasks.profile(task, dying)
            count = len(tasks.members[task])
            assert [live + f for f in footprints] == list(profile.footprints[step : step + count])
            assert [live + r for r in residues] == list(profile.residues[step + 1 : step + 1 + count])
            assert tasks.excess(task, dying) == max(footprints)
            # What remains after the task follows from the crossing buffers alone.
            for buffer in tasks.reads[task]:
                uses[buffer] -= 1
            change = sum(tasks.sizes[buffer] for buffer in tasks.creates[task])
            change -= sum(tasks.sizes[buffer] for buffer in tasks.reads[task] if not uses[buffer])
            live, step = live + change, step + count
            assert live == profile.residues[step]


def per_task(tasks: Tasks, order: list[int]) -> tuple[list[int], list[int]]:
    """What `Tasks.run` must say of an order of all tasks: what evaluating all their ops says."""
    profile = evaluate(tasks.storage, tasks.expand(order))
    footprints, residues, step = [], [], 0
    for task in order:
        end = step + len(tasks.members[task])
        footprints.append(max(profile.footprints[step:end]))
        residues.append(profile.residues[end])
        step = end
    return footprints, residues


def test_an_order_of_tasks_costs_what_its_ops_cost() -> None:
    rng = random.Random(14)
    for _ in range(400):
        graph = random_graph(rng, rng.randint(1, 14))
        tasks = contract(Storage.of(graph), random_groups(rng, graph))
        order = random_task_order(rng, tasks)
        assert tasks.run(order) == per_task(tasks, order)


def test_a_part_costs_what_it_costs_in_the_whole() -> None:
    rng = random.Random(15)
    for _ in range(600):
        graph = random_graph(rng, rng.randint(2, 16))
        tasks = contract(Storage.of(graph), random_groups(rng, graph))
        order = random_task_order(rng, tasks)
        footprints, residues = per_task(tasks, order)
        begin, end = sorted(rng.sample(range(len(order) + 1), 2))
        subset = sorted(order[begin:end])
        residue = residues[begin - 1] if begin else tasks.initial
        part = restrict(tasks, subset, set(order[:begin]), residue)
        assert part.run([subset.index(task) for task in order[begin:end]]) == (
            footprints[begin:end],
            residues[begin:end],
        )
        assert part.members == tuple(tasks.members[task] for task in subset)
        assert part.initial == residue
        for task, whole in enumerate(subset):
            assert [subset[before] for before in part.preds[task]] == [p for p in tasks.preds[whole] if p in subset]
            assert [subset[after] for after in part.succs[task]] == [s for s in tasks.succs[whole] if s in subset]
            assert [part.buffers[b] for b in part.reads[task]] == [tasks.buffers[b] for b in tasks.reads[whole]]
            assert [part.buffers[b] for b in part.creates[task]] == [tasks.buffers[b] for b in tasks.creates[whole]]
        for crossing, buffer in enumerate(part.buffers):
            whole = tasks.buffers.index(buffer)
            later = set(tasks.users[whole]) - set(order[:end])
            assert part.kept[crossing] == (tasks.kept[whole] or bool(later))
            assert [subset[task] for task in part.users[crossing]] == [t for t in tasks.users[whole] if t in subset]
            assert part.sizes[crossing] == tasks.sizes[whole]


def test_more_dying_buffers_never_cost_more() -> None:
    rng = random.Random(10)
    for _ in range(500):
        graph = random_graph(rng, rng.randint(2, 12))
        tasks = contract(Storage.of(graph), random_groups(rng, graph))
        task = rng.randrange(len(tasks))
        mortal = [buffer for buffer in tasks.reads[task] if not tasks.kept[buffer]]
        few = set(rng.sample(mortal, rng.randint(0, len(mortal))))
        more = few | set(rng.sample(mortal, rng.randint(0, len(mortal))))
        assert tasks.excess(task, more) <= tasks.excess(task, few)


def test_tasks_are_numbered_topologically_and_know_their_neighbours() -> None:
    rng = random.Random(11)
    for _ in range(300):
        graph = random_graph(rng, rng.randint(1, 14))
        storage = Storage.of(graph)
        groups = random_groups(rng, graph)
        tasks = contract(storage, groups)
        assert sorted(tasks.members) == sorted(groups)
        task_of = {op: task for task, group in enumerate(tasks.members) for op in group}
        for task in range(len(tasks)):
            expected = {task_of[p] for op in tasks.members[task] for p in storage.preds[op]} - {task}
            assert set(tasks.preds[task]) == expected
            assert all(before < task for before in expected)
            assert all(task in tasks.preds[after] for after in tasks.succs[task])
        for crossing, buffer in enumerate(tasks.buffers):
            creator = storage.creator[buffer]
            outside = {task_of[user] for user in storage.users[buffer]} - (
                {task_of[creator]} if creator >= 0 else set()
            )
            assert set(tasks.users[crossing]) == outside
            assert tasks.kept[crossing] == storage.kept[buffer]
            assert outside or tasks.kept[crossing]


def test_of_tasks_that_may_come_next_the_one_with_the_first_op_does() -> None:
    ops = [Op(f"op{i}", "Op", (0,), (i + 1,)) for i in range(4)]
    storage = Storage.of(graph_of({"x": 1, "a": 1, "b": 1, "c": 1, "d": 1}, ops, ["x"], ["a"]))
    assert contract(storage, [(2, 1), (3, 0)]).members == ((3, 0), (2, 1))


def test_single_op_tasks_are_the_ops() -> None:
    rng = random.Random(12)
    for _ in range(100):
        graph = random_graph(rng, rng.randint(0, 12))
        storage = Storage.of(graph)
        tasks = single_op_tasks(storage)
        assert tasks.members == tuple((op,) for op in range(len(graph.ops)))
        assert tasks.preds == storage.preds
        assert tasks.succs == storage.succs


def diamond() -> Storage:
    ops = [
        Op("f", "Op", (0,), (1,)),
        Op("g", "Op", (1,), (2,)),
        Op("h", "Op", (1,), (3,)),
        Op("j", "Op", (2, 3), (4,)),
    ]
    return Storage.of(graph_of({"x": 1, "a": 2, "b": 3, "c": 4, "y": 5}, ops, ["x"], ["y"]))


def test_what_lives_and_dies_inside_a_task_is_in_its_excess_only() -> None:
    tasks = contract(diamond(), [(0,), (1, 2, 3)])
    assert [tasks.storage.tensor_of[buffer] for buffer in tasks.buffers] == [0, 1, 4]
    assert tasks.creates == ((1,), (2,))
    assert tasks.reads == ((0,), (1,))
    assert tasks.profile(1, {1}) == ([3, 7, 10], [3, 5, 3])
    assert tasks.profile(1, set()) == ([3, 7, 12], [3, 7, 5])


@pytest.mark.parametrize(
    ("groups", "code"),
    [
        ([(0,), (1,), (2,)], "not-a-partition"),
        ([(0,), (1,), (2,), (3,), (3,)], "not-a-partition"),
        ([(0,), (1,), (2,), (4,)], "not-a-partition"),
        ([(0, 1, 2, 3), ()], "not-a-partition"),
        ([(1, 0), (2,), (3,)], "group-order"),
        ([(0, 3), (1,), (2,)], "cycle"),
    ],
)
def test_bad_groups_are_rejected(groups: list[tuple[int, ...]], code: str) -> None:
    with fails(code):
        contract(diamond(), groups)


def test_100000_ops_are_contracted() -> None:
    graph = random_layered_graph(random.Random(13), 100_000)
    storage = Storage.of(graph)
    groups = [tuple(range(first, min(first + 7, 100_000))) for first in range(0, 100_000, 7)]
    tasks = contract(storage, groups)
    assert tasks.expand(range(len(tasks))) == tuple(range(100_000))
