"""Fusion keeps the optimum of the peak: against brute force, on thousands of small random graphs."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator

import pytest

from memsched.check.schedule import check_schedule
from memsched.graph.contraction import Tasks, contract, single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Schedule, Tensor
from memsched.solve.fusion import iterate
from memsched.solve.fusion.compiled_monotonic import fused_monotonic
from memsched.solve.fusion.iterate import FusedGraph, fuse
from memsched.solve.fusion.quotient import Fate, Quotient
from tests.brute_force import optimal_peak
from tests.random_graphs import random_graph, random_order
from tests.solve.fusion.optimum import optimum


def shuffled(rng: random.Random, graph: Graph) -> Graph:
    """Return ``graph`` with its ops in another order: what comes first must not matter."""
    order = random_order(rng, graph)
    place = {op: index for index, op in enumerate(order)}
    dependencies = tuple((place[before], place[after]) for before, after in graph.dependencies)
    ops = tuple(graph.ops[op] for op in order)
    return Graph(graph.name, graph.tensors, ops, graph.inputs, graph.outputs, graph.variables, dependencies)


def nested_graph(rng: random.Random, ops: int) -> Graph:
    """Return a graph of nested branches that join again, some reading one tensor more: isolated groups abound."""
    tensors = [Tensor("x", rng.randint(1, 9)), Tensor("y", rng.randint(1, 9))]
    nodes: list[Op] = []

    def add(read: tuple[int, ...]) -> int:
        in_place: tuple[tuple[int, int], ...] = ()
        size = rng.randint(1, 9)
        if rng.random() < 0.3:
            size = tensors[read[0]].size
            in_place = ((len(tensors), read[0]),)
        tensors.append(Tensor(f"t{len(tensors)}", size))
        outputs: tuple[int, ...] = (len(tensors) - 1,)
        if rng.random() < 0.1:
            tensors.append(Tensor(f"t{len(tensors)}", rng.randint(1, 5)))
            outputs += (len(tensors) - 1,)
        workspace = rng.choice([0, 0, 3])
        extra = tuple(t for t in (rng.randrange(len(tensors) - len(outputs)),) if rng.random() < 0.1 and t not in read)
        nodes.append(Op(f"op{len(nodes)}", "Op", read + extra, outputs, workspace=workspace, in_place=in_place))
        return outputs[0]

    # Each entry of the stack is an open branch: the tensor it ends in.
    branches = [0, 1]
    while len(nodes) < ops:
        draw = rng.random()
        if draw < 0.3 and len(branches) > 1:
            first, second = rng.sample(range(len(branches)), 2)
            joined = add((branches[first], branches[second]))
            branches = [tensor for place, tensor in enumerate(branches) if place not in (first, second)] + [joined]
        elif draw < 0.5 and len(branches) < 4:
            branches.append(rng.choice(branches))
        else:
            place = rng.randrange(len(branches))
            branches[place] = add((branches[place],))
    outputs = tuple(sorted({tensor for tensor in branches if tensor > 1}))
    return Graph("nested", tuple(tensors), tuple(nodes), (0, 1), outputs)


def graphs(seed: int, count: int, largest: int) -> Iterator[Graph]:
    rng = random.Random(seed)
    for index in range(count):
        ops = rng.randint(2, largest)
        yield shuffled(rng, random_graph(rng, ops) if index % 2 else nested_graph(rng, ops))


def dying_sets(tasks: Tasks, task: int) -> list[tuple[int, ...]]:
    """Return every set of read buffers that can die in ``task``: other readers run before it, after it, or either."""
    following: set[int] = set()
    for other in range(len(tasks)):
        if other == task or following.intersection(tasks.preds[other]):
            following.add(other)
    preceding: set[int] = set()
    for other in reversed(range(len(tasks))):
        if other == task or preceding.intersection(tasks.succs[other]):
            preceding.add(other)
    certain: list[int] = []
    possible: list[int] = []
    for buffer in tasks.reads[task]:
        others = [user for user in tasks.users[buffer] if user != task]
        if tasks.kept[buffer] or following.intersection(others):
            continue
        (certain if preceding.issuperset(others) else possible).append(buffer)
    subsets = itertools.product((False, True), repeat=len(possible))
    return [(*certain, *(b for b, dies in zip(possible, chosen, strict=True) if dies)) for chosen in subsets]


def check(graph: Graph, fused: FusedGraph) -> None:
    storage = Storage.of(graph)
    assert optimum(fused.tasks) == optimum(single_op_tasks(storage)), graph
    order = fused.tasks.expand(range(len(fused.tasks)))
    profile = evaluate(storage, order)
    check_schedule(graph, Schedule(order, profile.in_place(storage, order), profile.peak, 0, "feasible", "", ""))
    assert fused.ops_before - fused.ops_after >= fused.monotonic + fused.isolated


@pytest.mark.parametrize("seed", range(10))
def test_the_optimum_stays(seed: int) -> None:
    monotonic = isolated = 0
    for graph in graphs(seed, 300, 11):
        fused = fuse(Storage.of(graph))
        check(graph, fused)
        monotonic += fused.monotonic
        isolated += fused.isolated
    assert monotonic > 500
    assert isolated > 30


@pytest.mark.parametrize("options", [{"reachability_limit": 0}, {"max_members": 3}, {"work_limit": 60}])
def test_the_optimum_stays_under_every_limit(options: dict[str, int]) -> None:
    for graph in graphs(100, 300, 10):
        check(graph, fuse(Storage.of(graph), **options))  # type: ignore[arg-type]


def test_the_optimum_stays_wherever_fusion_is_asked_to_end() -> None:
    for seed, graph in enumerate(graphs(100, 300, 10)):
        answers = itertools.chain(itertools.repeat(False, seed % 12), itertools.repeat(True))
        check(graph, fuse(Storage.of(graph), stop=functools.partial(next, answers)))


def test_fusion_that_is_asked_to_end_at_once_fuses_nothing() -> None:
    for graph in graphs(100, 5, 10):
        fused = fuse(Storage.of(graph), stop=lambda: True)
        assert fused.ops_after == fused.ops_before


def test_the_optimum_is_that_of_the_definitions() -> None:
    for graph in graphs(200, 150, 9):
        assert optimum(fuse(Storage.of(graph)).tasks) == optimal_peak(graph)


def test_isolated_fusion_alone_keeps_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without monotonic fusion before it, it sees larger groups."""
    monkeypatch.setattr(iterate, "fuse_monotonic", lambda graph, tasks: [])
    monkeypatch.setattr(iterate, "fused_monotonic", lambda *options: (Quotient(*options), 0))
    isolated = 0
    for graph in graphs(300, 1000, 10):
        fused = fuse(Storage.of(graph))
        check(graph, fused)
        isolated += fused.isolated
    assert isolated > 500


def test_costs_kept_per_task_are_those_of_its_simulation() -> None:
    """What fusion believes that a task costs is what the contracted graph says, whatever dies in it."""
    compared = 0
    for graph in graphs(400, 600, 11):
        storage = Storage.of(graph)
        quotient, _ = fused_monotonic(storage, 20_000, 10**9, None)
        iterate._fuse_on(quotient, 64)
        groups = [tuple(quotient.members[task]) for task in quotient.tasks()]
        tasks = contract(storage, groups)
        names = dict(zip(groups, quotient.tasks(), strict=True))
        for number, members in enumerate(tasks.members):
            for dying in dying_sets(tasks, number):
                dead = {tasks.buffers[buffer] for buffer in dying}
                assert believed(quotient, names[members], dead) == tasks.excess(number, dying), graph
                compared += 1
    assert compared > 2000


def believed(quotient: Quotient, task: int, dead: set[int]) -> int:
    """Return the cost that ``quotient`` holds for ``task`` when exactly ``dead`` of its reads die."""
    fates = {buffer: Fate.DIES if buffer in dead else Fate.ALIVE for buffer in quotient.reads[task]}

    class Fixed(Quotient):
        def __init__(self) -> None:
            self.__dict__.update(vars(quotient))

        def fate(self, buffer: int, inside: object, anchor: int) -> int:
            if buffer in fates:
                return fates[buffer]
            return Fate.ALIVE if self.kept[buffer] or self.users[buffer] else Fate.DIES

    return Fixed().excess(task, (task,), task, Fate.FREE)


def test_the_result_depends_on_nothing_but_the_graph() -> None:
    for graph in graphs(500, 50, 12):
        assert fuse(Storage.of(graph)) == fuse(Storage.of(graph))
