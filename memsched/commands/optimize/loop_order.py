"""Orders in which loops that were found need less: around them, other loops may be found.

A loop is a step like any other once it is known: with what it reads, what it makes and what its tiles take. So the best
order of the model with these steps is searched for as that of any model; taken apart again, they are consecutive in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import in_order
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op
from memsched.lowering.apply import apply_target
from memsched.rewrites.tile.loop import LoopGroup
from memsched.rewrites.tile.pieces import members_of
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule import exact
from memsched.solve.schedule.orders import ORDERS
from memsched.targets.model import Target

__all__ = ["LoopStart", "reordered"]

_STATES = 50_000
"""Most states of the search for an order."""

_TYPE = "#loop"
"""The type of an op that stands for a loop; no rule of a target is for it."""


class LoopStart(FrozenValue, frozen=True):
    """What a search for loops starts from.

    Attributes:
        graph: In an order of execution.
        groups: Loops that are known there.
    """

    graph: Graph
    groups: tuple[LoopGroup, ...]


def reordered(graph: Graph, blocks: Mapping[LoopGroup, int], target: Target) -> LoopStart | None:
    """Return ``graph`` in an order in which the largest step needs less with these loops; None where none is found.

    Args:
        graph: In an order of execution, not lowered.
        blocks: Per loop the bytes of what it reads, what it makes and its tiles at once.
    """
    contracted, members = _contracted(graph, blocks)
    storage = Storage.of(apply_target(contracted, target))
    orders = [range(len(members)), *(rule(storage) for rule in ORDERS.values())]
    peaks = [evaluate(storage, order).peak for order in orders]
    best = orders[peaks.index(min(peaks))]
    tasks = fuse(storage).tasks
    found = exact.search(tasks, upper_bound=min(peaks), max_states=_STATES).order
    if found is not None:
        best = tasks.expand(found)
    if evaluate(storage, best).peak >= peaks[0]:
        return None
    order = [op for step in best for op in members[step]]
    place = {op: at for at, op in enumerate(order)}
    groups = tuple(replace(group, ops=tuple(place[op] for op in group.ops)) for group in blocks)
    return LoopStart(in_order(graph, order), groups)


def _contracted(graph: Graph, blocks: Mapping[LoopGroup, int]) -> tuple[Graph, list[Sequence[int]]]:
    """Return the graph with one op for each loop, and per op there the ops that it stands for."""
    first = {group.ops[0]: group for group in blocks}
    inside = {op for group in blocks for op in group.ops}
    ops: list[Op] = []
    members: list[Sequence[int]] = []
    for number, op in enumerate(graph.ops):
        if number in first:
            group = first[number]
            ops.append(_as_step(graph, group, blocks[group]))
            members.append(group.ops)
        elif number not in inside:
            ops.append(op)
            members.append((number,))
    # No loop holds an op that another one must follow.
    place = {held[0]: at for at, held in enumerate(members)}
    dependencies = tuple((place[before], place[after]) for before, after in graph.dependencies)
    return replace(graph, ops=tuple(ops), dependencies=dependencies), members


def _as_step(graph: Graph, group: LoopGroup, block: int) -> Op:
    ends = members_of(graph, group.ops)
    # Its output may lie over what it reads: then this is less than both.
    workspace = block - sum(graph.tensors[tensor].size for tensor in (*ends.inputs, *ends.outputs))
    return Op(
        name=f"{graph.ops[group.ops[0]].name}{_TYPE}",
        type=_TYPE,
        inputs=ends.inputs,
        outputs=ends.outputs,
        workspace=workspace,
        positions=tuple(range(len(ends.inputs))),
    )
