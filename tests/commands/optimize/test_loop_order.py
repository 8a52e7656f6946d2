"""Orders in which known loops need less: against all orders of small graphs, by a count of their own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from memsched.commands.optimize.loop_order import LoopStart, reordered
from memsched.graph.dag import predecessors
from memsched.graph.model import Graph, Op, Tensor
from memsched.rewrites.tile.loop import LoopGroup
from memsched.targets.load import load_target

_TARGET = load_target("tflm-reference")


def graph_of(
    sizes: Sequence[int],
    ops: Sequence[tuple[Sequence[int], Sequence[int]]],
    outputs: Sequence[int],
    dependencies: Sequence[tuple[int, int]] = (),
) -> Graph:
    """Return ops, each with what it reads and what it makes, over tensors of so many times the alignment."""
    tensors = tuple(Tensor(f"t{number}", size * _TARGET.alignment_bytes) for number, size in enumerate(sizes))
    made = {tensor for _, each in ops for tensor in each}
    return Graph(
        "small",
        tensors,
        tuple(
            Op(f"op{number}", "X", tuple(read), tuple(made), positions=tuple(range(len(read))))
            for number, (read, made) in enumerate(ops)
        ),
        tuple(tensor for tensor in range(len(sizes)) if tensor not in made),
        tuple(outputs),
        dependencies=tuple(dependencies),
    )


def group_of(*ops: int) -> LoopGroup:
    return LoopGroup(ops, (1, 2), (1, 1))


Steps = Sequence[Sequence[int]]
"""Ops in an order of execution; those of a loop are one step."""


def steps_of(graph: Graph, groups: Sequence[LoopGroup]) -> list[tuple[int, ...]]:
    inside = {op for group in groups for op in group.ops}
    return sorted([*(group.ops for group in groups), *((op,) for op in range(len(graph.ops)) if op not in inside)])


def peak_of(graph: Graph, order: Steps, blocks: Mapping[tuple[int, ...], int]) -> int:
    """Return what the largest step needs, where a loop takes its block beside all else that is live."""
    peak, live = 0, set(graph.inputs)
    for number, step in enumerate(order):
        later = {tensor for after in order[number + 1 :] for op in after for tensor in graph.ops[op].inputs}
        read = {tensor for op in step for tensor in graph.ops[op].inputs}
        made = {tensor for op in step for tensor in graph.ops[op].outputs}
        inner = {tensor for tensor in made if tensor not in later and tensor not in graph.outputs and tensor in read}
        ends = (read | made) - inner if step in blocks else read | made
        beside = sum(graph.tensors[tensor].size for tensor in live - ends)
        peak = max(peak, beside + blocks.get(tuple(step), sum(graph.tensors[tensor].size for tensor in ends)))
        live = {tensor for tensor in live | ends if tensor in later or tensor in graph.outputs}
    return peak


def orders_of(graph: Graph, steps: Steps) -> Iterator[list[Sequence[int]]]:
    """Yield all orders of steps."""
    before = predecessors(graph)

    def on(done: list[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
        if len(done) == len(steps):
            yield done
        ran = {op for step in done for op in step}
        for step in steps:
            if step not in done and all(set(before[op]) <= ran | set(step) for op in step):
                yield from on([*done, step])

    return on([])


def test_the_longer_branch_is_computed_first_where_its_loop_needs_most() -> None:
    # Two branches of one input: a loop that leaves little, and an op that leaves much and would lie beside the loop.
    unit = _TARGET.alignment_bytes
    graph = graph_of([1, 4, 6, 1, 5], [((0,), (1,)), ((0,), (2,)), ((2,), (3,)), ((1, 3), (4,))], [4])
    loop = group_of(1, 2)
    found = reordered(graph, {loop: 7 * unit}, _TARGET)
    assert found is not None
    assert [op.name for op in found.graph.ops] == ["op1", "op2", "op0", "op3"]
    assert found.groups == (group_of(0, 1),)
    # In that order nothing is left to gain.
    assert reordered(found.graph, {found.groups[0]: 7 * unit}, _TARGET) is None


def test_what_must_come_before_the_loop_does() -> None:
    unit = _TARGET.alignment_bytes
    tensors, ops = [1, 4, 6, 1, 5], [((0,), (1,)), ((0,), (2,)), ((2,), (3,)), ((1, 3), (4,))]
    # A chain has one order.
    chain = graph_of([4, 6, 4], [((0,), (1,)), ((1,), (2,))], [2])
    assert reordered(chain, {group_of(0, 1): 9 * unit}, _TARGET) is None
    # Ops of which one must follow another although no tensor says so.
    further = [*ops, ((0,), (5,)), ((4, 5), (6,))]
    graph = graph_of([*tensors, 1, 1], further, [6], [(0, 4)])
    found = reordered(graph, {group_of(1, 2): 9 * unit}, _TARGET)
    assert found is not None
    ((before, after),) = found.graph.dependencies
    assert (found.graph.ops[before].name, found.graph.ops[after].name) == ("op0", "op4")
    assert before < after


def random_graph(rng: random.Random) -> tuple[Graph, dict[LoopGroup, int]]:
    """Return a graph with loops that do not overlap, each with what it takes at least or more."""
    sizes, ops = [rng.randint(1, 9)], []
    count = rng.randint(3, 8)
    for _ in range(count):
        read = sorted({rng.randrange(len(sizes)) for _ in range(rng.choice([1, 1, 2, 3]))})
        made = range(len(sizes), len(sizes) + rng.choice([1, 1, 1, 2]))
        sizes += [rng.randint(1, 9) for _ in made]
        ops.append((read, [*made]))
    used = {tensor for inputs, _ in ops for tensor in inputs}
    outputs = [tensor for tensor in range(1, len(sizes)) if tensor not in used or rng.random() < 0.05]
    begin, groups = 0, []
    while begin < count:
        end = min(count, begin + rng.randint(1, 3))
        if rng.random() < 0.5:
            groups.append(group_of(*range(begin, end)))
        begin = end
    held = {op for group in groups for op in group.ops}
    free = [op for op in range(count) if op not in held]
    tied = [tuple(sorted(rng.sample(free, 2)))] if len(free) > 1 and rng.random() < 0.4 else []
    graph = graph_of(sizes, ops, outputs, tied)  # type: ignore[arg-type]
    blocks = {}
    for group in groups:
        last = group.ops[-1]
        taken = {tensor for op in group.ops for tensor in graph.ops[op].inputs}
        inside = {tensor for op in group.ops for tensor in graph.ops[op].outputs}
        kept = {
            tensor
            for tensor in inside
            if tensor in graph.outputs or any(tensor in one.inputs for one in graph.ops[last + 1 :])
        }
        given, left = (sum(graph.tensors[one].size for one in ends) for ends in (taken - inside, kept))
        # What dies may lie below what is made.
        stays = any(
            tensor in one.inputs or tensor in graph.outputs
            for tensor in taken - inside
            for one in graph.ops[last + 1 :]
        )
        least = given + left if stays or rng.random() < 0.5 else max(given, left)
        blocks[group] = least + rng.randint(0, 6) * _TARGET.alignment_bytes
    return graph, blocks


def test_orders_are_the_best_of_all_with_the_loops_as_steps() -> None:
    rng, better, tied = random.Random(2), 0, 0
    for _ in range(400):
        graph, blocks = random_graph(rng)
        if not blocks:
            continue
        steps = steps_of(graph, [*blocks])
        needs = {group.ops: block for group, block in blocks.items()}
        given = peak_of(graph, steps, needs)
        best = min(peak_of(graph, order, needs) for order in orders_of(graph, steps))
        found = reordered(graph, blocks, _TARGET)
        if found is None:
            assert best == given
            continue
        assert best < given
        better += 1
        tied += bool(graph.dependencies)
        _check_same(graph, found, [*blocks])
        again = {group.ops: block for group, block in zip(found.groups, blocks.values(), strict=True)}
        assert peak_of(found.graph, steps_of(found.graph, found.groups), again) == best
    assert better > 30
    assert tied > 5


def _check_same(graph: Graph, found: LoopStart, groups: Sequence[LoopGroup]) -> None:
    """Check that a graph has the ops of another one in an order that is possible, and its loops in a row."""
    assert sorted(op.name for op in found.graph.ops) == [op.name for op in graph.ops]
    assert (found.graph.tensors, found.graph.inputs, found.graph.outputs) == (
        graph.tensors,
        graph.inputs,
        graph.outputs,
    )
    assert all(before < op for op, each in enumerate(predecessors(found.graph)) for before in each)
    names = [op.name for op in graph.ops]
    assert {tuple(names.index(found.graph.ops[op].name) for op in pair) for pair in found.graph.dependencies} == {
        *graph.dependencies
    }
    for group, was in zip(found.groups, groups, strict=True):
        assert [*group.ops] == [*range(group.ops[0], group.ops[0] + len(group.ops))]
        assert [found.graph.ops[op].name for op in group.ops] == [graph.ops[op].name for op in was.ops]
        assert (group.axes, group.sizes) == (was.axes, was.sizes)
