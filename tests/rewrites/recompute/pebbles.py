"""Every order and every repetition of tiny graphs, by labels on (what is held, what was executed).

A game of its own beside the package's: single values are dropped one at a time, and every op that ran is remembered.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from memsched.graph.model import Graph, Op
from memsched.lowering.apply import apply_target
from memsched.ops import onnx as onnx_ops
from memsched.ops import tflite as tflite_ops
from memsched.rewrites.recompute.cost import RematPoint, judge, work_of
from memsched.rewrites.recompute.rewrite import repeatable
from memsched.targets.model import Target
from tests.rewrites.recompute.tiny_graphs import PLAIN, tensor

__all__ = ["least_points", "mixed", "sequences"]

Block = tuple[int, int]
State = tuple[frozenset[tuple[int, Block]], frozenset[int]]
"""What is held, as (tensor, the block it lies in), and the ops executed; a block is (its tensor, which of them)."""


def least_points(graph: Graph, target: Target) -> list[tuple[int, int]]:
    """Return the (peak, cost of repetitions) that no other sequence undercuts, the cheapest first.

    For targets without rules on single readers and on concatenations.
    """
    lowered = apply_target(graph, target)
    costs = work_of(graph).costs
    number = itertools.count()
    heap: list[tuple[int, int, int, State]] = [(0, 0, next(number), _start(lowered))]
    best: dict[State, int] = {}
    found: list[tuple[int, int]] = []
    while heap:
        cost, peak, _, state = heapq.heappop(heap)
        if best.get(state, peak + 1) <= peak or (found and peak >= found[-1][0]):
            continue
        best[state] = peak
        if len(state[1]) == len(graph.ops):
            found.append((peak, cost - sum(costs)))
            continue
        for op, footprint, after in _moves(lowered, repeatable(graph), state):
            highest = max(peak, footprint)
            if best.get(after, highest + 1) > highest:
                heapq.heappush(heap, (cost + (costs[op] if op >= 0 else 0), highest, next(number), after))
    return found


def _start(graph: Graph) -> State:
    used = {one for op in graph.ops for one in op.inputs} | {*graph.outputs}
    return frozenset((one, (one, 0)) for one in graph.inputs if one in used and one not in graph.variables), frozenset()


def _moves(graph: Graph, may: tuple[bool, ...], state: State) -> Iterator[tuple[int, int, State]]:
    """Yield (op or -1 for a drop, footprint, state afterwards)."""
    held, done = state
    lies = dict(held)
    size = [0 if one.external else one.size for one in graph.tensors]
    base = sum(size[one] for one in graph.variables)
    wanted = {one for op in graph.ops for one in op.inputs} | {*graph.outputs}
    for one, block in held:
        if one not in graph.outputs:
            yield -1, 0, (held - {(one, block)}, done)
    for number, op in enumerate(graph.ops):
        if number in done and not may[number]:
            continue
        if set(op.inputs) - lies.keys() - {*graph.variables} or lies.keys() & set(op.outputs):
            continue
        if any(after == number and before not in done for before, after in graph.dependencies):
            continue
        sources = dict(op.views)
        made: dict[int, Block] = {}
        for out in op.outputs:
            taken = {block for _, block in held}
            free = next(which for which in itertools.count() if (out, which) not in taken)
            made[out] = lies[sources[out]] if out in sources else (out, free)
        now = {**lies, **made}
        whole = base + sum(size[block[0]] for block in set(now.values())) + op.workspace
        now = {one: block for one, block in now.items() if one in wanted}
        yield number, whole, (frozenset(now.items()), done | {number})
        for out, source in op.in_place:
            gone = {one for one in now if now[one] == lies[source]}
            if not gone & {*graph.outputs, *op.outputs}:
                left = {one: block for one, block in now.items() if one not in gone}
                yield number, whole - size[out], (frozenset(left.items()), done | {number})


def sequences(graph: Graph, target: Target, longest: int) -> set[tuple[int, int]]:
    """Return (peak, cost) of every sequence of at most so many executions, each judged by liveness of its graph."""
    may = repeatable(graph)
    preds = [{number for number, one in enumerate(graph.ops) if set(one.outputs) & set(op.inputs)} for op in graph.ops]
    found: dict[tuple[int, ...], RematPoint] = {}

    def grow(done: tuple[int, ...]) -> None:
        if len(set(done)) == len(graph.ops):
            point = judge(graph, done, target, PLAIN)
            found.setdefault(point.sequence, point)
        if len(done) == longest:
            return
        for op in range(len(graph.ops)):
            if preds[op] <= set(done) and (may[op] or op not in done) and (not done or done[-1] != op):
                grow((*done, op))

    grow(())
    return {(point.peak, point.cost) for point in found.values()}


_ONNX = ("Conv", "Conv", "Conv", "Relu", "Add", "Reshape", "Split", "RandomNormalLike")
_TFLITE = ("CONV_2D", "CONV_2D", "ADD", "RESHAPE", "CONCATENATION", "CONCATENATION", "SPLIT", "RANDOM_UNIFORM")
_SAME = {"Relu", "Add", "Reshape", "ADD", "RESHAPE"}


def mixed(rng: random.Random, ops: int, *, tflite: bool = False) -> Graph:
    """Return a random graph: elementwise ops, views, two inputs, two results, an early output, unrepeatable ops."""
    given = rng.choice([1, 1, 2])
    tensors = [tensor(f"in{number}", rng.randint(1, 12 if tflite else 6)) for number in range(given)]
    nodes: list[Op] = []
    for index in range(ops):
        kind = rng.choice(_TFLITE if tflite else _ONNX)
        count = 2 if kind in {"Add", "ADD", "CONCATENATION"} or rng.random() < 0.25 else 1
        recent = range(max(0, len(tensors) - rng.choice([1, 2, 4, 9])), len(tensors))
        read = tuple(rng.sample(recent, min(count, len(recent))))
        made = []
        for part in range(2 if kind.lower() == "split" else 1):
            size = tensors[read[0]].size if kind in _SAME else rng.randint(1, 9)
            made.append(len(tensors))
            joined = kind == "CONCATENATION"
            tensors.append(tensor(f"t{index}_{part}", sum(tensors[one].size for one in read) if joined else size))
        attributes = {"axis": 0} if kind == "CONCATENATION" else {}
        nodes.append(
            Op(
                *(f"op{index}", kind, read, tuple(made)),
                attributes=attributes,
                positions=tuple(range(len(read))),
                macs=rng.randint(0, 30),
                effects=onnx_ops.by_type(kind) | tflite_ops.by_type(kind),
            )
        )
    used = {one for node in nodes for one in node.inputs}
    last = [one for one in nodes[-1].outputs if one not in used]
    loose = [one for node in nodes for one in node.outputs if one not in used and one not in last]
    outputs = tuple(sorted({*last, *(one for one in loose if rng.random() < 0.7)}))
    graph = Graph("mixed", tuple(tensors), tuple(nodes), tuple(range(given)), outputs)
    if len(nodes) > 3 and rng.random() < 0.15:
        return replace(graph, dependencies=((0, len(nodes) - 1),))
    return graph
