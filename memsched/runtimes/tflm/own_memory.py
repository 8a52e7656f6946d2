"""Bytes of an operator's own tensors that a file's memory plan lays over others of the same operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memsched.base.errors import ModelError
from memsched.formats.tflite.model import FileModel
from memsched.formats.tflite.own_tensors import own_tensors
from memsched.runtimes.arena_facts import round_up
from memsched.runtimes.tflm.plan import given_plan, needs_memory, tensor_bytes

__all__ = ["shared_bytes"]


def shared_bytes(model: FileModel) -> Mapping[tuple[int, int], int]:
    """Return per (subgraph, operator) the bytes of its own tensors that take no memory beside its other tensors.

    With them the operator's step takes what the plan has for it, all of it counted once.

    Compilers for accelerators bring plans in which the memory that their operator has for itself holds its inputs and
    outputs. Without a plan, or with one that TensorFlow Lite Micro refuses, each tensor has memory of its own.
    """
    try:
        offsets = given_plan(model)
    except ModelError:
        offsets = None
    if offsets is None:
        return {}
    found: dict[tuple[int, int], int] = {}
    first = 0
    for index, subgraph in enumerate(model.subgraphs):
        placed = {
            tensor: (offset, offset + round_up(tensor_bytes(subgraph.tensors[tensor])))
            for tensor, offset in enumerate(offsets[first : first + len(subgraph.tensors)])
            if offset >= 0 and needs_memory(subgraph, tensor)
        }
        own = {tensor: number for tensor, number in own_tensors(subgraph).items() if tensor in placed}
        for number in dict.fromkeys(own.values()):
            operator = subgraph.operators[number]
            mine = [tensor for tensor, by in own.items() if by == number]
            others = {*operator.inputs, *operator.outputs} & placed.keys() - own.keys()
            together = _covered(placed[tensor] for tensor in (*mine, *others))
            alone = max(0, together - sum(end - begin for begin, end in map(placed.__getitem__, others)))
            saved = sum(tensor_bytes(subgraph.tensors[tensor]) for tensor in mine) - alone
            if saved > 0:
                found[index, number] = saved
        first += len(subgraph.tensors)
    return found


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Return how many bytes lie in some of the spans."""
    total, reached = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total
