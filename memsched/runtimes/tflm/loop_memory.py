"""What a loop over tiles takes by liveness where a memory plan lays all that WHILE copies on one address.

A graph has a tensor for each copy: the padded input before the loop and after it, the output's memory under several
names. With a plan they are the padded input and the output, which may lie over each other. So the copies cost nothing
here, and the operators that make and use the padded input have what it takes as memory of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from memsched.formats.tflite.model import FileModel, FileOperator
from memsched.formats.tflite.reader import TfliteNative
from memsched.graph.model import Graph
from memsched.lowering.apply import with_workspaces
from memsched.runtimes.graph_plan import LoweredGraph
from memsched.runtimes.tflm.joins import ByteSharing, byte_sharing, carried
from memsched.runtimes.tflm.lifetimes import Key, lifetimes
from memsched.runtimes.tflm.plan import tensor_bytes
from memsched.targets.model import Target

__all__ = ["without_copies"]


@dataclass(frozen=True, slots=True)
class _Savings:
    """Tensors that cost nothing, and bytes that operators then have beside them, by (subgraph, index)."""

    free: set[Key] = field(default_factory=set)
    workspaces: Counter[Key] = field(default_factory=Counter)


def without_copies(native: TfliteNative, lowered: Sequence[LoweredGraph], target: Target) -> tuple[LoweredGraph, ...]:
    """Return the lowered graphs with what loops over tiles take when nothing is copied."""
    model = native.model
    loops = list(_loops(model))
    if not loops:
        return tuple(lowered)
    sharing = byte_sharing(model, target, lifetimes(model))
    savings = _Savings()
    for key in loops:
        _save(model, sharing, key, savings)
    result = []
    for index, (one, mapping) in enumerate(zip(lowered, native.mappings, strict=True)):
        free = {place for place, tensor in enumerate(mapping.tensors) if (index, tensor) in savings.free}
        own = {
            op: savings.workspaces[index, number]
            for op, number in enumerate(mapping.operators)
            if savings.workspaces[index, number]
        }
        result.append(LoweredGraph.of(_free(with_workspaces(one.graph, own), free)) if free or own else one)
    return tuple(result)


def _free(graph: Graph, free: set[int]) -> Graph:
    tensors = tuple(
        replace(tensor, external=True) if place in free else tensor for place, tensor in enumerate(graph.tensors)
    )
    return replace(graph, tensors=tensors)


def _loops(model: FileModel) -> Iterator[Key]:
    """Yield the operators that loop over tiles: a PAD makes what their body takes slices of, and hands on."""
    for index, subgraph in enumerate(model.subgraphs):
        for number, operator in enumerate(subgraph.operators):
            if operator.type == "WHILE" and len(operator.inputs) == 3 and len(operator.bodies) == 2:
                maker = _maker(model, index, operator.inputs[2])
                if maker is not None and subgraph.operators[maker].type == "PAD":
                    yield index, number


def _maker(model: FileModel, index: int, tensor: int) -> int | None:
    operators = model.subgraphs[index].operators
    return next((number for number, operator in enumerate(operators) if tensor in operator.outputs), None)


def _save(model: FileModel, sharing: ByteSharing, key: Key, savings: _Savings) -> None:
    index, number = key
    operator = model.subgraphs[index].operators[number]
    joined = {join.second for join in sharing.loops} | {join.first for join in sharing.loops}
    if not all(one in joined for position in (1, 2) for one in carried(model, index, operator, position)):
        return
    padded, output = (index, operator.inputs[2]), (index, operator.outputs[1])
    size, made = _size(model, padded), _size(model, output)
    pad = _maker(model, index, operator.inputs[2])
    if pad is None:
        return
    source = (index, model.subgraphs[index].operators[pad].inputs[0])
    over = any(join.first == padded and join.second == source for join in sharing.pads)
    laid = any(output in {overlay.join.first, overlay.join.second} for overlay in sharing.overlays)
    savings.workspaces[index, pad] += max(0, size - (_size(model, source) if over else 0))
    savings.workspaces[key] += max(0, size - made) if laid else size
    for position in (1, 2):
        savings.free.update(one for one in carried(model, index, operator, position) if one != output)
    savings.free.update(_between(model, index, operator))


def _between(model: FileModel, index: int, operator: FileOperator) -> Iterator[Key]:
    """Yield the tensors between the padded input and the output's memory."""
    tensor = operator.inputs[1]
    while tensor != operator.inputs[2]:
        yield index, tensor
        maker = _maker(model, index, tensor)
        if maker is None or model.subgraphs[index].operators[maker].bodies:
            return
        tensor = model.subgraphs[index].operators[maker].inputs[0]


def _size(model: FileModel, key: Key) -> int:
    return tensor_bytes(model.subgraphs[key[0]].tensors[key[1]])
